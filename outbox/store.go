// Package outbox keeps the events that no channel accepted, until one does.
//
// It is one file, channels/undelivered.json, that any number of processes
// share: publishers add entries, the drainer claims what is due, says that it
// is sending, sends, and settles. Each of these is one change under the file's
// lock, durable when it returns; nothing is held while bytes travel.
//
// Beside it stands delivery/health.json, the standing of channels: whether one
// may be asked at all right now.
package outbox

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"the-loop/channels"
	"the-loop/internal/eventlog"
	"the-loop/state"
)

// Options say how a Store behaves. The zero value has every default.
type Options struct {
	// Cap is how many entries are kept. Past it one is evicted for each new
	// one. Defaults to 200.
	Cap int
	// Backoff is how refused messages wait. Defaults to 60 s, at most 1 h.
	Backoff Backoff
	// Probe is how long a channel that began to fail is left alone before it
	// is asked once more; doubling from there to five minutes. Defaults to one
	// minute, and is never more.
	Probe time.Duration
	// TTL is how long events are worth delivering. None: for ever.
	TTL TTL
	// Wanted reports whether sending an event once more is still wanted: not
	// when it is a question that is closed meanwhile. nil: always. The event
	// has the id under which it was first taken.
	Wanted func(channels.Event) bool
	// Log gets the facts. May be nil.
	Log *eventlog.Log
}

// Store is the outbox of one root. It is safe for concurrent use, also by
// several Stores and processes on one root.
type Store struct {
	root    *state.Root
	doc     state.Document
	health  state.Document
	opts    Options
	by      string
	journal journal
	group   group
}

// Open gives the outbox of a root. It touches nothing.
func Open(root *state.Root, o Options) *Store {
	if o.Cap <= 0 {
		o.Cap = 200
	}
	if o.Backoff.Base <= 0 {
		o.Backoff.Base = time.Minute
	}
	if o.Backoff.Max <= 0 {
		o.Backoff.Max = time.Hour
	}
	if o.Probe <= 0 || o.Probe > time.Minute {
		o.Probe = time.Minute
	}
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return &Store{
		root: root, doc: root.Document(state.Outbox), health: root.Document(state.Health),
		opts: o, by: fmt.Sprintf("%s/%d", host, os.Getpid()),
	}
}

// By is how this process signs its claims: host/pid.
func (s *Store) By() string { return s.by }

// Backoff is how refused messages wait.
func (s *Store) Backoff() Backoff { return s.opts.Backoff }

// update runs one change under the file's lock. The file is written, durably,
// when change altered it or something damaged was found in it. What stands in
// after is done once it is, and still under the lock.
func (s *Store) update(ctx context.Context, change func(f *file) (dirty bool, err error), after ...func() error) error {
	return s.doc.Update(ctx, func(tx *state.Tx) error {
		f, err := s.load(ctx, tx)
		if err != nil {
			return err
		}
		return s.commit(ctx, tx, f, change, after...)
	})
}

// updateAll is update, and first takes over what dead publishers left: an
// intent is retired before its entry can be claimed, dropped or made due.
func (s *Store) updateAll(ctx context.Context, change func(f *file) (dirty bool, err error)) error {
	return s.doc.Update(ctx, func(tx *state.Tx) error {
		f, err := s.load(ctx, tx)
		if err != nil {
			return err
		}
		dead, recovered, err := s.recoverInto(ctx, f)
		defer func() {
			for _, j := range dead {
				j.Release()
			}
		}()
		if err != nil {
			return fmt.Errorf("recover: %w", err)
		}
		changeAll := func(f *file) (bool, error) {
			dirty, err := change(f)
			return dirty || recovered, err
		}
		return s.commit(ctx, tx, f, changeAll, func() error {
			for _, j := range dead {
				if err := j.Remove(); err != nil {
					return fmt.Errorf("recover: %w", err)
				}
			}
			return nil
		})
	})
}

func (s *Store) commit(
	ctx context.Context, tx *state.Tx, f *file, change func(f *file) (bool, error), after ...func() error,
) error {
	dirty, err := change(f)
	if err != nil {
		return err
	}
	if len(f.bad) > 0 {
		if err := s.keepBad(ctx, tx, f.bad); err != nil {
			return err
		}
		dirty = true
	}
	if dirty {
		if err := s.tellLeft(ctx, f.left, true); err != nil {
			return err
		}
		b, err := f.encode()
		if err != nil {
			return err
		}
		if err := tx.Write(b); err != nil {
			return err
		}
		_ = s.tellLeft(ctx, f.left, false)
	}
	for _, do := range after {
		if err := do(); err != nil {
			return err
		}
	}
	return nil
}

// load reads the file under its lock. A damaged one is set aside, and the
// outbox is empty from there on.
func (s *Store) load(ctx context.Context, tx *state.Tx) (*file, error) {
	b, err := tx.Read()
	if err != nil {
		return nil, err
	}
	f, err := parse(b)
	if errors.Is(err, errDamaged) {
		aside, err := tx.SetAside()
		if err != nil {
			return nil, err
		}
		_ = s.opts.Log.SetAside(ctx, filepath.Base(aside))
		return parse(nil)
	}
	return f, err
}

func (s *Store) keepBad(ctx context.Context, tx *state.Tx, bad []badEntry) error {
	var b bytes.Buffer
	for _, e := range bad {
		line, err := state.MarshalKeeping(struct {
			ID string `json:"id"`
		}{e.id}, state.Extra{"entry": e.raw}) // which leaves its bytes as they are
		if err != nil {
			return err
		}
		b.Write(append(line, '\n'))
	}
	aside, err := tx.Keep(b.Bytes())
	if err != nil {
		return err
	}
	_ = s.opts.Log.SetAside(ctx, filepath.Base(aside))
	return nil
}

// Entries reads what waits, oldest first, without a lock: what stands in the
// file, and what publishers left that died, as recovery would put it there. Bad
// entries are left out and counted. An absent file is an empty outbox; a
// damaged one too, and then damaged is set: the next change sets it aside.
// With an error, entries are those that could be read.
func (s *Store) Entries() (entries []*Entry, bad int, damaged bool, err error) {
	// The journals first: what moves into the file meanwhile is then seen in both,
	// and not in neither.
	orphans, bad, err := s.orphans()
	f, ferr := s.readFile()
	if errors.Is(ferr, errDamaged) {
		damaged, f, ferr = true, nil, nil
	}
	if f == nil {
		f, _ = parse(nil)
	}
	orphans, lerr := s.notLeft(f, orphans)
	for _, e := range orphans {
		ferr = errors.Join(ferr, f.put(e))
	}
	entries = f.entries()
	return entries, bad + len(f.bad), damaged, errors.Join(err, lerr, ferr)
}

// Entry reads the one that waits under that id, as Entries does, without a look
// into the others. ok is false when there is none, or it cannot be read.
func (s *Store) Entry(id string) (e *Entry, ok bool, err error) {
	orphans, _, err := s.orphans()
	f, ferr := s.readFile()
	if ferr == nil {
		if e, ok = f.entry(id); ok {
			return e, true, nil
		}
	} else {
		if errors.Is(ferr, errDamaged) {
			ferr = nil
		}
		f, _ = parse(nil)
	}
	orphans, lerr := s.notLeft(f, slices.DeleteFunc(orphans, func(o *Entry) bool { return o.ID != id }))
	if err = errors.Join(err, ferr, lerr); len(orphans) == 0 {
		return nil, false, err
	}
	return orphans[len(orphans)-1], true, err
}

func (s *Store) readFile() (*file, error) {
	b, err := s.doc.Read()
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	return parse(b)
}

// Attempted is what a publish learned of one channel that is owed the event.
type Attempted struct {
	Channel  string
	Required bool
	// At is just before the first byte could leave; zero when it was not asked.
	At      time.Time
	Outcome channels.Outcome
}

// Took reports whether the channel has the event, or the beginning of it.
func (a Attempted) Took() bool {
	return a.Outcome.State == channels.StateAccepted || len(a.Outcome.Receipt.Parts) > 0
}

// NewEntry builds the entry for an event out of what a publish learned. When
// its Owed is empty there is nothing to remember. An id that no HTTP header can
// carry is an error: the entry could not be read again.
func NewEntry(ev channels.Event, at time.Time, attempted []Attempted) (*Entry, error) {
	id := ev.ID
	if !entryID().MatchString(id) {
		return nil, errBadID
	}
	ev.ID = "" // it is the entry's key
	raw, err := ev.Encode()
	if err != nil {
		return nil, err
	}
	e := &Entry{ID: id, At: at.UTC().Truncate(time.Second), Deliveries: map[string]*Delivery{}, event: raw}
	for _, a := range attempted {
		d := &Delivery{State: channels.StatePending, Required: a.Required}
		e.Deliveries[a.Channel] = d
		if a.Outcome.State == channels.StatePending {
			d.At = a.Outcome.At.UTC().Truncate(time.Millisecond)
			d.Reason, d.Code, d.Detail = a.Outcome.Reason, a.Outcome.Code, a.Outcome.Detail
		} else {
			if err := d.startSending(a.At); err != nil {
				return nil, err
			}
			if err := d.apply(a.Outcome); err != nil {
				return nil, err
			}
		}
		e.note(a.Channel, a.Outcome)
	}
	owed := e.Owed()
	for _, a := range attempted {
		if slices.Contains(owed, a.Channel) {
			e.Channels = append(e.Channels, a.Channel)
		}
	}
	return e, nil
}

// startSending is the move that stands on disk before a byte leaves.
func (d *Delivery) startSending(at time.Time) error {
	if err := d.move(channels.StateSending); err != nil {
		return err
	}
	d.Attempts++
	d.At = at.UTC().Truncate(time.Millisecond)
	if d.FirstSentAt.IsZero() {
		d.FirstSentAt = d.At
	}
	return nil
}

// putOrRemove writes an entry back, or lets it leave when nothing is owed. One
// that is addressed to nobody yet stays.
func (s *Store) putOrRemove(f *file, e *Entry) error {
	owed := e.Owed()
	if len(owed) == 0 && len(e.Deliveries) > 0 {
		how := LeftResent
		for _, d := range e.Deliveries {
			if d.took() && d.ResentAs == "" {
				how = LeftDelivered
			}
		}
		f.leave(e, how, e.ResentAs)
		return nil
	}
	e.Channels = slices.DeleteFunc(e.Channels, func(name string) bool { return !slices.Contains(owed, name) })
	if !e.inHand() {
		e.Claim = nil
	}
	return f.put(e)
}

// evict makes room for one entry. What it takes out is first written, durably,
// into the event log and into evicted.jsonl.
func (s *Store) evict(ctx context.Context, f *file) error {
	for len(f.ids) >= s.opts.Cap {
		e := s.cheapest(f.entries())
		if e == nil {
			return nil // all are being sent: better one too many than one lost
		}
		ev, err := e.Event()
		if err != nil {
			return err
		}
		if err := s.opts.Log.Evicted(ctx, subject(e.ID, ev)); err != nil {
			return fmt.Errorf("evict: %w", err)
		}
		raw, err := json.Marshal(Gone{ID: e.ID, EvictedAt: time.Now().UTC(), Entry: f.raw[e.ID]})
		if err != nil {
			return err
		}
		log := s.root.Log(state.Evicted)
		log.Limit = 10 << 20
		if err := log.AppendDurably(ctx, raw); err != nil {
			return fmt.Errorf("evict: %w", err)
		}
		f.leave(e, LeftEvicted, "")
	}
	return nil
}

// cheapest finds what goes first: what is dead or lost, then what is no
// question, then the oldest; never what is in somebody's hand.
func (s *Store) cheapest(entries []*Entry) *Entry {
	rank := func(e *Entry) int {
		if st := e.State(); st == channels.StateDead || st == channels.StateLost {
			return 0
		}
		if ev, err := e.Event(); err == nil && (ev.Type != "session.awaiting_input" || !s.wanted(e)) {
			return 1
		}
		return 2
	}
	var best *Entry
	for _, e := range entries {
		if !e.inHand() && (best == nil || rank(e) < rank(best)) {
			best = e
		}
	}
	return best
}

// wanted asks whether an entry may be sent once more.
func (s *Store) wanted(e *Entry) bool {
	ev, err := e.Event()
	if err != nil || s.opts.Wanted == nil {
		return true
	}
	ev.ID = e.origin()
	return s.opts.Wanted(ev)
}

// Gone is a line of evicted.jsonl.
type Gone struct {
	ID        string          `json:"id"`
	EvictedAt time.Time       `json:"evictedAt"`
	Entry     json.RawMessage `json:"entry"`
}

// Decode gives the entry that was evicted.
func (g Gone) Decode() (*Entry, error) { return decodeEntry(g.ID, g.Entry) }

// MaxEvicted is how many evicted entries Evicted gives.
const MaxEvicted = 1000

// Evicted reads what the cap evicted, the last MaxEvicted, oldest first.
func (s *Store) Evicted() ([]Gone, error) {
	var out []Gone
	err := s.root.Log(state.Evicted).Lines(func(line []byte) bool {
		var g Gone
		if json.Unmarshal(line, &g) == nil && g.ID != "" {
			out = append(out, g)
		}
		return true
	})
	return out[max(0, len(out)-MaxEvicted):], err
}

// SetAside names the files of the root that were set aside.
func SetAside(root *state.Root) (names []string, err error) {
	for _, dir := range []string{"channels", "delivery", "inbound", "inbox", "questions", "run"} {
		list, err := os.ReadDir(root.Path(dir))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return names, err
		}
		for _, f := range list {
			if strings.Contains(f.Name(), ".corrupt-") {
				names = append(names, dir+"/"+f.Name())
			}
		}
	}
	return names, nil
}

func subject(id string, ev channels.Event) eventlog.Subject {
	return eventlog.Subject{EntryID: id, EventType: ev.Type, WorkItem: ev.WorkItem}
}
