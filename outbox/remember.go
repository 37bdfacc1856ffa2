package outbox

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"sync"

	"the-loop/channels"
)

// Remember ends a publish: it stores its entry, when that owes anything, and
// settles its intent, which may be nil. On return without an error both are
// durable; with one, the intent stands in its journal, for the next drain cycle
// to take over, and the entry may stand in the file: nothing is lost, and
// nothing is there twice. Where an entry of that id is there already, for the
// event was published before, what was learned is added to it. Past the cap,
// others are evicted first.
//
// What several goroutines of a process have to remember while the file is being
// written goes into the next write together.
func (s *Store) Remember(ctx context.Context, e *Entry, in *Intent) (err error) {
	defer func() { in.end(err == nil) }()
	if len(e.Owed()) == 0 && !s.mentions(e.ID) {
		return in.settled()
	}
	r := &remembering{entry: e, intent: in, turn: make(chan bool, 1)}
	if s.group.join(r) || <-r.turn {
		all := s.group.take()
		s.rememberAll(context.WithoutCancel(ctx), all)
		s.group.passOn(all, r)
	}
	return r.err
}

// remembering is one call of Remember.
type remembering struct {
	entry  *Entry
	intent *Intent
	err    error
	turn   chan bool // true: it writes for all that wait; false: it was written
}

// group is those calls of Remember that wait while one of them writes.
type group struct {
	mu      sync.Mutex
	writing bool
	waiting []*remembering
}

// join reports whether r writes: nobody else does.
func (g *group) join(r *remembering) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.waiting = append(g.waiting, r)
	first := !g.writing
	g.writing = true
	return first
}

// take gives those who wait now to the one who writes, which is among them.
func (g *group) take() []*remembering {
	g.mu.Lock()
	defer g.mu.Unlock()
	all := g.waiting
	g.waiting = nil
	return all
}

// passOn lets all that were written go, and one that came meanwhile write.
func (g *group) passOn(written []*remembering, by *remembering) {
	for _, r := range written {
		if r != by {
			r.turn <- false
		}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.writing = len(g.waiting) > 0; g.writing {
		g.waiting[0].turn <- true
	}
}

// rememberAll stores the entries in one write and settles their intents. What
// goes wrong with one of them is its own error, and what goes wrong with the
// write is everybody's.
func (s *Store) rememberAll(ctx context.Context, all []*remembering) {
	err := s.update(ctx, func(f *file) (dirty bool, _ error) {
		for _, r := range all {
			changes, err := s.remember(ctx, f, r.entry)
			r.err = err
			dirty = dirty || changes
		}
		return dirty, nil
	}, func() error { settleAll(all); return nil })
	if err != nil {
		for _, r := range all {
			r.err = errors.Join(r.err, err)
		}
	}
}

func (s *Store) remember(ctx context.Context, f *file, e *Entry) (changes bool, err error) {
	if old, ok := f.entry(e.ID); ok {
		return true, s.addTo(f, old, e)
	}
	if len(e.Owed()) == 0 {
		return false, nil
	}
	if err := s.evict(ctx, f); err != nil {
		return len(f.left) > 0, err
	}
	return true, f.put(e)
}

// settleAll marks the intents of what was remembered as settled, durably, with
// one flush for each journal: as a rule there is one.
func settleAll(all []*remembering) {
	lines := map[*openJournal][][]byte{}
	for _, r := range all {
		if r.intent == nil || r.err != nil {
			continue
		}
		b, err := json.Marshal(intentLine{ID: r.intent.id, Settled: true})
		if r.err = err; err == nil {
			lines[r.intent.in] = append(lines[r.intent.in], b)
		}
	}
	failed := map[*openJournal]error{}
	for in, l := range lines {
		failed[in] = in.file.AppendDurably(l...)
	}
	for _, r := range all {
		if r.intent != nil && r.err == nil {
			r.err = failed[r.intent.in]
		}
	}
}

// mentions reports whether an id may stand in the file. It is asked for every
// event that was delivered at once, and so it does not read more than bytes.
func (s *Store) mentions(id string) bool {
	b, err := s.doc.Read()
	return err == nil && bytes.Contains(b, []byte(id))
}

// addTo adds what a publish learned to the entry that its event has already. An
// acceptance is a fact. A send that nobody answered makes doubtful what waited
// to be sent. What was refused once more changes nothing.
func (s *Store) addTo(f *file, old, e *Entry) error {
	for name, d := range e.Deliveries {
		was := old.Deliveries[name]
		switch {
		case was == nil:
			old.Deliveries[name] = d
			old.Channels = append(old.Channels, name)
		case d.State == channels.StateAccepted && was.State != d.State:
			if err := was.move(d.State); err != nil {
				return err
			}
			was.Ref, was.Link, was.Claim = d.Ref, d.Link, ""
		case d.State == channels.StateUncertain && was.Claim == "" &&
			(was.State == channels.StatePending || was.State == channels.StateRefused):
			if err := was.move(d.State); err != nil {
				return err
			}
			was.Reason, was.Code, was.Detail, was.At = d.Reason, d.Code, d.Detail, d.At
			was.Attempts, was.FirstSentAt, was.Repeats = was.Attempts+d.Attempts, d.FirstSentAt, false
			old.LastError, old.LastAttemptAt = e.LastError, e.LastAttemptAt
		}
	}
	old.countAttempts()
	return s.putOrRemove(f, old)
}
