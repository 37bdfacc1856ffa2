package proof

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"the-loop/bus"
	"the-loop/channels"
	"the-loop/internal/eventlog"
	"the-loop/internal/ledger"
	"the-loop/outbox"
	"the-loop/state"
)

// The power cut. Before each file operation, and after the last, every state is
// made that the disk may be in if the power fails there, see disk; the outbox
// is opened on it, two cycles run, and what arrived before and after is
// counted. The receiver drops no repeats.

// cutting is a run of something, with the power failing at every point of it.
type cutting struct {
	t    *testing.T
	disk *disk
	root *state.Root
	a    *room

	taken   map[string]bool // what was promised so far
	settled bool            // the run is over: what was accepted is out of the outbox
	checked map[string]bool
	points  int
	found   int // states that differ
	states  int // that were looked at
	over    int // points with more than were made
}

// takingStore says when an event is taken.
type takingStore struct {
	*outbox.Store
	taken func(id string)
}

func (s takingStore) Begin(
	ctx context.Context, ev channels.Event, at time.Time, planned []outbox.Planned, recorded bool,
) (*outbox.Intent, error) {
	in, err := s.Store.Begin(ctx, ev, at, planned, recorded)
	if in != nil {
		s.taken(ev.ID)
	}
	return in, err
}

func (c *cutting) take(id string) { c.taken[id] = true }

func (c *cutting) cut() {
	c.points++
	expect := fmt.Sprint(c.taken, c.a.got, c.settled)
	whole := c.disk.states(func(s tree) {
		key := fmt.Sprintf("%x %s", s.key(), expect)
		if c.checked[key] {
			return
		}
		c.checked[key] = true
		if c.found++; c.found%stride == 0 {
			c.states++
			c.check(s)
		}
	})
	if !whole {
		c.over++
	}
}

// check opens one state.
func (c *cutting) check(s tree) {
	c.t.Helper()
	errorf := func(format string, args ...any) {
		c.t.Helper()
		var files strings.Builder
		for _, name := range slices.Sorted(func(yield func(string) bool) {
			for name, b := range s {
				if b != nil && !strings.HasSuffix(name, ".lock") && !yield(name) {
					return
				}
			}
		}) {
			fmt.Fprintf(&files, "\n%s: %q", name, s[name])
		}
		c.t.Errorf("power cut before %s %s: %s%s", c.disk.last[0], filepath.Base(c.disk.last[1]),
			fmt.Sprintf(format, args...), files.String())
	}
	dir, remove := scratch(c.t)
	defer remove()
	if err := s.write(filepath.Dir(dir.Dir())); err != nil {
		c.t.Fatal(err)
	}
	root, _ := state.Open(dir.Dir())
	evicted := c.evicted(root)
	a := newRoom("a", "plain")
	if err := cycles(root, 2, []bus.Route{a.route(false)}); err != nil {
		errorf("%v", err)
	}
	entries, bad, damaged, err := outbox.Open(root, outbox.Options{}).Entries()
	if err != nil || bad > 0 || damaged {
		errorf("bad %d, damaged %v, %v", bad, damaged, err)
	}
	for id := range c.taken {
		before, after := c.a.got[id], a.count(id)
		i := slices.IndexFunc(entries, func(e *outbox.Entry) bool { return e.ID == id })
		switch {
		case before+after > 1:
			errorf("%s arrived %d times before and %d times after", id, before, after)
		case before+after == 0 && i < 0 && !evicted[id]:
			errorf("%s is lost", id)
		case i >= 0 && entries[i].State() != channels.StateUncertain:
			errorf("%s waits as %s", id, entries[i].State())
		case i >= 0 && before == 1 && c.settled:
			errorf("%s was accepted and settled, and waits", id)
		}
	}
}

// evicted gives the events that are in evicted.jsonl and in the event log.
func (c *cutting) evicted(root *state.Root) map[string]bool {
	out := map[string]bool{}
	gone, err := outbox.Open(root, outbox.Options{}).Evicted()
	if err != nil {
		c.t.Error(err)
	}
	logged := map[string]bool{}
	if err := eventlog.Read(root, func(l eventlog.Line) bool {
		logged[l.EntryID] = logged[l.EntryID] || l.Event == "channel.undelivered_dropped"
		return true
	}); err != nil {
		c.t.Error(err)
	}
	for _, g := range gone {
		out[g.ID] = logged[g.ID]
	}
	return out
}

// powerCut plays something and cuts the power at every point of it.
func powerCut(t *testing.T, points, states int, setup, play func(c *cutting, root *state.Root)) {
	t.Parallel()
	root, _ := scratch(t)
	c := &cutting{
		t: t, root: root, a: newRoom("a", "plain"), taken: map[string]bool{}, checked: map[string]bool{},
	}
	setup(c, root)
	c.disk = newDisk(filepath.Dir(root.Dir()))
	c.disk.cut = c.cut
	play(c, root.WithSteps(c.disk.step))
	c.disk.end()
	t.Logf("%d points, %d states; at %d points there were more than were looked at", c.points, c.states, c.over)
	if c.points < points || c.states < states/stride {
		t.Errorf("only %d points and %d states: the cuts do not reach what they should", c.points, c.states)
	}
}

func (c *cutting) publish(root *state.Root, store *outbox.Store, id string, recorded bool) {
	b := &bus.Bus{
		Routes: []bus.Route{c.a.route(false)}, Store: takingStore{store, c.take}, Standing: store,
		Log: eventlog.New(root, nil),
	}
	ev := channels.Event{ID: id, Type: "job.failed", Text: "x"}
	if recorded {
		b.Ledger, ev.Type, ev.WorkItem = ledger.NewLocal(root), "session.awaiting_input", "local:x#1"
	}
	res := b.Publish(c.t.Context(), ev)
	if !res.Stored || res.Lost() {
		c.t.Errorf("%+v", res)
	}
}

func TestP1P2_PowerCutDuringPublish(t *testing.T) {
	nothing := func(*cutting, *state.Root) {}
	publish := func(refused, recorded bool) func(c *cutting, root *state.Root) {
		return func(c *cutting, root *state.Root) {
			if refused {
				c.a.refuse[idFirst] = 1
			}
			store := outbox.Open(root, atOnce(root))
			c.publish(root, store, idFirst, recorded)
			c.publish(root, store, idSecond, false) // into the same journal
			if err := store.Close(); err != nil {
				t.Error(err)
			}
		}
	}
	t.Run("accepted", func(t *testing.T) { powerCut(t, 20, 60, nothing, publish(false, false)) })
	t.Run("refused", func(t *testing.T) { powerCut(t, 30, 100, nothing, publish(true, false)) })
	t.Run("recorded", func(t *testing.T) { powerCut(t, 25, 100, nothing, publish(true, true)) })
	t.Run("accepted and recorded", func(t *testing.T) { powerCut(t, 25, 80, nothing, publish(false, true)) })
	t.Run("refused, and drained by another", func(t *testing.T) {
		powerCut(t, 50, 300, nothing, func(c *cutting, root *state.Root) {
			c.a.refuse[idFirst] = 1
			store := outbox.Open(root, atOnce(root))
			c.publish(root, store, idFirst, false)
			if err := store.Close(); err != nil {
				t.Error(err)
			}
			d := newDrainer(root, outbox.Open(root, atOnce(root)), []bus.Route{c.a.route(false)})
			nextMilli()
			if r, err := d.Cycle(t.Context()); err != nil || r.Accepted != 1 {
				t.Errorf("%+v, %v", r, err)
			}
		})
	})
	t.Run("evicting", func(t *testing.T) {
		powerCut(t, 30, 100, func(c *cutting, root *state.Root) {
			for _, id := range []string{idWaits, idOrphan} {
				waiting(t, root, id, "a")
				c.take(id)
			}
		}, func(c *cutting, root *state.Root) {
			c.a.refuse[idFirst] = 1
			opts := atOnce(root)
			opts.Cap = 2
			store := outbox.Open(root, opts)
			c.publish(root, store, idFirst, false)
			if err := store.Close(); err != nil {
				t.Error(err)
			}
		})
	})
}

func TestP1P2_PowerCutDuringDrain(t *testing.T) {
	powerCut(t, 40, 100, func(c *cutting, root *state.Root) {
		waiting(t, root, idWaits, "a")
		orphaned(t, root, idOrphan, "a")
		c.take(idWaits)
		c.take(idOrphan)
	}, func(c *cutting, root *state.Root) {
		d := newDrainer(root, outbox.Open(root, atOnce(root)), []bus.Route{c.a.route(false)})
		if r, err := d.Cycle(t.Context()); err != nil || r.Accepted != 2 {
			t.Errorf("%+v, %v", r, err)
		}
		c.settled = true
	})
}

func TestP1P2_PowerCutDuringRecovery(t *testing.T) {
	powerCut(t, 8, 15, func(c *cutting, root *state.Root) {
		waiting(t, root, idWaits, "a")
		orphaned(t, root, idOrphan, "a")
		c.take(idWaits)
		c.take(idOrphan)
	}, func(_ *cutting, root *state.Root) {
		if _, err := outbox.Open(root, atOnce(root)).Retry(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// watch cuts the power at every point of play, and looks at each state.
func watch(t *testing.T, play func(root *state.Root), look func(root *state.Root, at string)) (states int) {
	t.Helper()
	root, _ := scratch(t)
	d := newDisk(filepath.Dir(root.Dir()))
	d.cut = func() {
		d.states(func(s tree) {
			states++
			dir, remove := scratch(t)
			defer remove()
			if err := s.write(filepath.Dir(dir.Dir())); err != nil {
				t.Fatal(err)
			}
			look(dir, fmt.Sprintf("power cut before %s %s", d.last[0], filepath.Base(d.last[1])))
		})
	}
	play(root.WithSteps(d.step))
	d.end()
	return states
}

func TestP1_PowerCutLeavesADocumentWhole(t *testing.T) {
	written := 0 // the last version that Update returned for
	const versions = 4
	text := func(i int) []byte { return bytes.Repeat([]byte{byte('0' + i)}, 5000*i) }
	states := watch(t, func(root *state.Root) {
		for i := 1; i <= versions; i++ {
			err := root.Document(state.Health).Update(t.Context(), func(tx *state.Tx) error { return tx.Write(text(i)) })
			if err != nil {
				t.Fatal(err)
			}
			written = i
		}
	}, func(root *state.Root, at string) {
		b, err := root.Document(state.Health).Read()
		if os.IsNotExist(err) && written == 0 {
			return
		}
		whole := false
		for i := written; i <= versions; i++ {
			whole = whole || bytes.Equal(b, text(i))
		}
		if !whole {
			t.Errorf("%s: version %d was durable, and there are %d bytes, %v", at, written, len(b), err)
		}
	})
	t.Logf("%d states", states)
	if states < 60 {
		t.Errorf("only %d states", states)
	}
}

func TestP1_PowerCutLeavesDurableLinesOfALog(t *testing.T) {
	var durable []string
	states := watch(t, func(root *state.Root) {
		log := root.Log(state.Evicted)
		log.Limit = 40 // turned over once
		for i := range 5 {
			line := fmt.Sprintf("line %d %s", i, strings.Repeat("x", 8))
			if i%2 == 1 {
				if err := log.Append(t.Context(), []byte(line)); err != nil {
					t.Fatal(err)
				}
				continue
			}
			if err := log.AppendDurably(t.Context(), []byte(line)); err != nil {
				t.Fatal(err)
			}
			durable = append(durable, line)
		}
	}, func(root *state.Root, at string) {
		log := root.Log(state.Evicted)
		if err := log.Append(t.Context(), []byte("after")); err != nil {
			t.Errorf("%s: %v", at, err)
		}
		var lines []string
		if err := log.Lines(func(line []byte) bool {
			lines = append(lines, string(line))
			return true
		}); err != nil {
			t.Errorf("%s: %v", at, err)
		}
		for _, want := range append(slices.Clone(durable), "after") {
			if !slices.Contains(lines, want) {
				t.Errorf("%s: %q is not there: %q", at, want, lines)
			}
		}
	})
	t.Logf("%d states", states)
	if states < 40 {
		t.Errorf("only %d states", states)
	}
}
