package inbound

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	"the-loop/internal/ledger"
	"the-loop/state"
)

// The inbox keeps what a listed person wrote about a work item that answered
// no question: one file of lines per work item, and beside it how far it was
// read.

// Line is one message in an inbox.
type Line struct {
	// Seq counts a work item's messages from 1. It rises by one with each, also
	// where the file was turned over, so that a gap tells of lines that are gone.
	Seq int64 `json:"seq"`
	// Key is channels.Message.Key: what happened, however often it reached us.
	Key        string    `json:"key"`
	At         time.Time `json:"at"`         // when it was written, by the provider's clock
	ReceivedAt time.Time `json:"receivedAt"` // when it was taken in, by ours
	WorkItem   string    `json:"workItem"`
	From       Sender    `json:"from"`
	// Text is the person's own, as CleanInbound gives it.
	Text string `json:"text"`
	Cut  bool   `json:"cut"` // it was longer, and ends with a notice that says so
	Link string `json:"link"`
}

// Sender is who wrote a message.
type Sender struct {
	Name    string `json:"name"`    // as the config's people has it
	Surface string `json:"surface"` // "slack", "github"
	ID      string `json:"id"`      // as the surface has it
}

const (
	// inboxLimit is the size at which an inbox is turned over. What is older
	// than the two files that are kept is gone, read or not.
	inboxLimit = 10 << 20
	// inboxWindow is how much of an inbox's end is looked at for a message that
	// is there already. It holds ten of the longest lines and hundreds of usual
	// ones: enough for what a process had written when it died.
	inboxWindow = 256 << 10
)

func inboxLog(root *state.Root, slug string) state.Log {
	log := root.Log(state.Inbox(slug))
	log.Limit = inboxLimit
	return log
}

// AppendInbox adds lines to a work item's inbox, all in one write, and returns
// when they are durable. It numbers them: Seq is what it gives, whatever stood
// there. A line whose Key is among the last ones is not added again, so that
// what failed or died half way may be repeated. Control characters are taken
// out of the text in any case; the caller has cut it (CleanInbound).
//
// The caller holds a lock that keeps every other call on the same root out:
// numbers would be given twice. The cost does not grow with the file.
func AppendInbox(ctx context.Context, root *state.Root, workItem string, lines ...Line) error {
	if len(lines) == 0 {
		return nil
	}
	slug := ledger.Slug(workItem)
	log := inboxLog(root, slug)
	end, err := inboxEnd(log)
	if err != nil {
		return fmt.Errorf("inbox: %w", err)
	}
	last, err := lastSeq(root, log, slug, end)
	if err != nil {
		return fmt.Errorf("inbox: %w", err)
	}
	var add [][]byte
	var keys []string // of this call
	for _, l := range lines {
		if end.has(l.Key) || slices.Contains(keys, l.Key) {
			continue
		}
		keys = append(keys, l.Key)
		last++
		l.Seq, l.WorkItem, l.Text = last, workItem, stripInbound(l.Text)
		if l.ReceivedAt.IsZero() {
			l.ReceivedAt = time.Now()
		}
		l.At, l.ReceivedAt = l.At.UTC(), l.ReceivedAt.UTC()
		b, err := encodeLine(l)
		if err != nil {
			return fmt.Errorf("inbox: %w", err)
		}
		add = append(add, b)
	}
	if len(add) < len(lines) {
		// Whoever wrote it may have died before it was durable.
		if err := syncFile(log.Path()); err != nil {
			return fmt.Errorf("inbox: %w", err)
		}
	}
	if err := log.AppendDurably(ctx, add...); err != nil {
		return fmt.Errorf("inbox: %w", err)
	}
	return nil
}

// encodeLine gives the line with seq and key in front, which windows and
// readers find without decoding the rest.
func encodeLine(l Line) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	err := enc.Encode(l)
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), err
}

func syncFile(path string) error {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // turned over, and what is older than that is durable
	}
	if err != nil {
		return err
	}
	defer f.Close()
	return f.Sync()
}

// lastSeq is the number that was given last. Where the files are gone, how far
// they had been read still tells: a number below it would never be unread.
func lastSeq(root *state.Root, log state.Log, slug string, end window) (int64, error) {
	last, ok := end.lastSeq()
	if !ok && len(end) > 0 { // nothing but damage in sight
		err := log.Lines(func(b []byte) bool {
			if l, ok := decodeLine(b); ok {
				last = max(last, l.Seq)
			}
			return true
		})
		if err != nil {
			return 0, err
		}
	}
	read, err := readUpTo(root, slug)
	return max(last, read), err
}

// Unread gives the lines of a work item's inbox that were not marked as read,
// the oldest first. It takes no lock. Lines that are damaged are passed over.
func Unread(root *state.Root, workItem string) ([]Line, error) {
	slug := ledger.Slug(workItem)
	read, err := readUpTo(root, slug)
	if err != nil {
		return nil, err
	}
	return inboxAfter(root, slug, read)
}

func inboxAfter(root *state.Root, slug string, after int64) ([]Line, error) {
	var out []Line
	err := inboxLog(root, slug).Lines(func(b []byte) bool {
		if seq, ok := seqOf(b); ok && seq <= after {
			return true
		}
		if l, ok := decodeLine(b); ok && l.Seq > after {
			out = append(out, l)
		}
		return true
	})
	if err != nil {
		return nil, fmt.Errorf("inbox: %w", err)
	}
	return out, nil
}

// inboxRead is inbox/<slug>.json.
type inboxRead struct {
	Version  int    `json:"version"`
	WorkItem string `json:"workItem"`
	Seq      int64  `json:"seq"` // of the last line that was read

	extra state.Extra
}

// ErrInboxNewer is returned for a file that a newer version wrote. It is left
// alone.
var ErrInboxNewer = errors.New("was written by a newer version: upgrade the-loop")

func decodeRead(slug string, b []byte) (r inboxRead, err error) {
	if len(b) == 0 {
		return r, nil
	}
	if r.extra, err = state.UnmarshalKeeping(state.TrimBOM(b), &r); err != nil {
		return inboxRead{}, err
	}
	if r.Version > 1 {
		return r, fmt.Errorf("%s %w", state.InboxRead(slug), ErrInboxNewer)
	}
	return r, nil
}

// readUpTo is the number of the last line that was read. With a document that
// is damaged all is unread: better twice than never.
func readUpTo(root *state.Root, slug string) (int64, error) {
	b, err := root.Document(state.InboxRead(slug)).Read()
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	r, err := decodeRead(slug, b)
	if errors.Is(err, ErrInboxNewer) {
		return 0, err
	}
	return r.Seq, nil
}

// MarkRead notes, durably, that a work item's inbox was read up to the line
// with that number. It never goes back.
func MarkRead(ctx context.Context, root *state.Root, workItem string, seq int64) error {
	slug := ledger.Slug(workItem)
	err := root.Document(state.InboxRead(slug)).Update(ctx, func(tx *state.Tx) error {
		b, err := tx.Read()
		if err != nil {
			return err
		}
		r, err := decodeRead(slug, b)
		if errors.Is(err, ErrInboxNewer) {
			return err
		}
		if err != nil {
			if _, err := tx.SetAside(); err != nil {
				return err
			}
		}
		if len(b) > 0 && err == nil && seq <= r.Seq {
			return nil
		}
		r.Version, r.WorkItem, r.Seq = 1, workItem, seq
		if b, err = state.MarshalKeeping(r, r.extra); err != nil {
			return err
		}
		return tx.Write(append(b, '\n'))
	})
	if err != nil {
		return fmt.Errorf("mark as read: %w", err)
	}
	return nil
}

// Inbox says what is in one.
type Inbox struct {
	WorkItem string    `json:"workItem"`
	Unread   int       `json:"unread"`
	Messages int       `json:"messages"` // that are kept, read ones too
	LastAt   time.Time `json:"lastAt"`   // when the newest was taken in
}

// WorkItems says what is in the inboxes, by the name of the work item. It reads
// all of them.
func WorkItems(root *state.Root) ([]Inbox, error) {
	slugs, err := inboxSlugs(root)
	if err != nil {
		return nil, err
	}
	var out []Inbox
	for _, slug := range slugs {
		read, err := readUpTo(root, slug)
		if err != nil {
			return nil, err
		}
		lines, err := inboxAfter(root, slug, 0)
		if err != nil {
			return nil, err
		}
		var box Inbox
		for _, l := range lines {
			box.WorkItem, box.LastAt = l.WorkItem, l.ReceivedAt
			box.Messages++
			if l.Seq > read {
				box.Unread++
			}
		}
		if box.Messages > 0 {
			out = append(out, box)
		}
	}
	slices.SortFunc(out, func(a, b Inbox) int { return strings.Compare(a.WorkItem, b.WorkItem) })
	return out, nil
}

// inboxSlugs names the inboxes that there are.
func inboxSlugs(root *state.Root) ([]string, error) {
	list, err := os.ReadDir(root.Path("inbox"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("inbox: %w", err)
	}
	var out []string
	for _, f := range list {
		slug, ok := strings.CutSuffix(strings.TrimSuffix(f.Name(), ".1"), ".jsonl")
		if ok && !strings.HasPrefix(slug, ".") && !slices.Contains(out[max(0, len(out)-1):], slug) {
			out = append(out, slug) // both files of one stand side by side
		}
	}
	return out, nil
}
