package file_test

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"the-loop/channels"
	"the-loop/channels/channelstest"
	"the-loop/channels/file"
	"the-loop/state"
)

func TestSuite(t *testing.T) {
	channelstest.Run(t, func(t *testing.T) channelstest.Kind {
		root := openRoot(t)
		path := root.Path("rooms/room.jsonl")
		return channelstest.Kind{
			Channel: file.New("room", "rooms/room.jsonl", root),
			Refuse:  func() { writeFile(t, root.Path("rooms"), "a file where a folder should be") },
			Received: func() (all []channelstest.Received) {
				for _, e := range readEvents(t, path) {
					all = append(all, channelstest.Received{ID: e.ID, Text: e.Text})
				}
				return all
			},
		}
	})
}

func openRoot(t *testing.T) *state.Root {
	t.Helper()
	root, err := state.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return root
}

func writeFile(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// readEvents reads as a stranger does who locks: every line must be an event.
func readEvents(t *testing.T, path string) (events []channels.Event) {
	t.Helper()
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	if len(b) > 0 && !bytes.HasSuffix(b, []byte("\n")) {
		t.Error("the last line is torn")
	}
	for line := range bytes.Lines(b) {
		e, err := channels.DecodeEvent(line)
		if err != nil {
			t.Error(err)
		}
		events = append(events, e)
	}
	return events
}

func TestLineIsTheEncodedEvent(t *testing.T) {
	root := openRoot(t)
	outside := filepath.Join(t.TempDir(), "room.jsonl") // not below the root
	d := channelstest.Delivery("A\nor\r\nB? \u2028 Ж")
	if _, err := file.New("room", outside, root).Post(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	want, err := d.Event.Encode()
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(outside)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, append(want, '\n')) {
		t.Errorf("file holds %q, want %q", got, want)
	}
	if fi, err := os.Stat(outside); err != nil || fi.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", fi.Mode(), err)
	}
	if entries, err := os.ReadDir(root.Dir()); err != nil || len(entries) > 0 {
		t.Errorf("the root holds %v, %v", entries, err)
	}
}

func TestFailedStepsGiveHonestVerdicts(t *testing.T) {
	tests := []struct {
		name   string
		op     state.Op
		err    error
		code   string
		reason channels.Reason // "" for uncertain
	}{
		{"disk is full", state.OpAppend, syscall.ENOSPC, "enospc", channels.ReasonDown},
		{"quota is used up", state.OpAppend, syscall.EDQUOT, "edquot", channels.ReasonDown},
		{"file system is read-only", state.OpCreate, syscall.EROFS, "erofs", channels.ReasonConfig},
		{"no permission", state.OpLock, syscall.EACCES, "eacces", channels.ReasonConfig},
		{"lock is held", state.OpLock, state.ErrLockTimeout, "locked", channels.ReasonDown},
		{"link of another user", state.OpCreate, state.ErrNotOurs, "not_ours", channels.ReasonConfig},
		{"fsync fails", state.OpSync, syscall.EIO, "eio", ""},
		{"fsync of a full disk", state.OpSync, syscall.ENOSPC, "enospc", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			broken := true
			root := openRoot(t).WithSteps(func(op state.Op, path string) error {
				if broken && op == tt.op {
					return &fs.PathError{Op: string(op), Path: path, Err: tt.err}
				}
				return nil
			})
			room := file.New("room", "room.jsonl", root)
			d := channelstest.Delivery("A or B?")
			_, err := room.Post(t.Context(), d)
			checkVerdict(t, err, tt.code, tt.reason)
			found := room.ReadBack(t.Context(), channels.Receipt{Ref: d.Event.ID}) == nil
			if found != (tt.reason == "") {
				t.Errorf("the line stands there: %v, but the verdict is %v", found, err)
			}
			broken = false
			if _, err := room.Post(t.Context(), d); err != nil {
				t.Errorf("after it was mended: %v", err)
			}
		})
	}
}

func checkVerdict(t *testing.T, err error, code string, reason channels.Reason) {
	t.Helper()
	var r *channels.Refusal
	var u *channels.Uncertain
	switch {
	case errors.As(err, &r) && r.Reason == reason && r.Code == code && r.Detail == "room.jsonl":
	case errors.As(err, &u) && reason == "" && u.Code == code && u.Detail == "room.jsonl":
	default:
		t.Errorf("got %#v (%v), want reason %q and code %q", err, err, reason, code)
	}
}

// A write that the disk cut short is a refusal: what stands there is no event,
// and the next one begins on a line of its own.
func TestPartialLineIsARefusal(t *testing.T) {
	room, path := "room.jsonl", ""
	root := openRoot(t).WithSteps(func(op state.Op, p string) error {
		if op == state.OpAppend && path == "" {
			path = p
			writeFile(t, path, `{"id":"01KB`)
			return syscall.ENOSPC
		}
		return nil
	})
	ch := file.New("room", room, root)
	_, err := ch.Post(t.Context(), channelstest.Delivery("first"))
	checkVerdict(t, err, "enospc", channels.ReasonDown)
	d := channelstest.Delivery("second")
	receipt, err := ch.Post(t.Context(), d)
	if err != nil {
		t.Fatal(err)
	}
	if err := ch.ReadBack(t.Context(), receipt); err != nil {
		t.Error(err)
	}
	b, err := os.ReadFile(path)
	if err != nil || strings.Count(string(b), "\n") != 2 {
		t.Errorf("file holds %q, %v", b, err)
	}
}

// A whole line without its line break is completed by the next append: it may
// not be called a refusal.
func TestLineWithoutItsBreakIsUncertain(t *testing.T) {
	d := channelstest.Delivery("first")
	root := openRoot(t).WithSteps(func(op state.Op, path string) error {
		if op != state.OpAppend {
			return nil
		}
		line, err := d.Event.Encode()
		if err != nil {
			return err
		}
		writeFile(t, path, string(line))
		return syscall.ENOSPC
	})
	_, err := file.New("room", "room.jsonl", root).Post(t.Context(), d)
	checkVerdict(t, err, "enospc", "")
}

func TestWaitsForWhoeverHoldsTheLock(t *testing.T) {
	root := openRoot(t)
	room := file.New("room", "room.jsonl", root)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	err := root.Document("room.jsonl").Update(t.Context(), func(*state.Tx) error {
		posted := make(chan error)
		go func() {
			_, err := room.Post(ctx, channelstest.Delivery("A or B?"))
			posted <- err
		}()
		cancel()
		checkVerdict(t, <-posted, "canceled", channels.ReasonDown)
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	if got := readEvents(t, root.Path("room.jsonl")); len(got) > 0 {
		t.Errorf("%d events were written past the lock", len(got))
	}
}

func TestCredentialIsThePath(t *testing.T) {
	root := openRoot(t)
	var a, b channels.Credentialed = file.New("room", "a.jsonl", root), file.New("room", "b.jsonl", root)
	if a.Credential() == b.Credential() {
		t.Error("two paths share a credential")
	}
}
