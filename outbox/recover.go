package outbox

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"the-loop/channels"
	"the-loop/state"
)

// recoverInto folds what dead processes left in their journals into the file.
// The caller holds the file's lock, writes the file, and only then removes the
// journals: an event stands in one of the two at any instant.
func (s *Store) recoverInto(ctx context.Context, f *file) (dead []*state.DeadJournal, dirty bool, err error) {
	// A journal that cannot be read is named by `status`, and costs the others
	// nothing.
	dead, _ = s.root.TakeJournals(ctx, state.Sending())
	for _, j := range dead {
		entries, bad := foldJournal(j.Lines, time.Now())
		f.bad = append(f.bad, bad...)
		if entries, err = s.notLeft(f, entries); err != nil {
			return dead, false, err
		}
		for _, e := range entries {
			if err := s.evict(ctx, f); err != nil {
				return dead, false, err
			}
			if err := f.put(e); err != nil {
				return dead, false, err
			}
			dirty = true
			if ev, err := e.Event(); err == nil {
				_ = s.opts.Log.Orphaned(ctx, subject(e.ID, ev), e.Channels)
			}
		}
	}
	return dead, dirty, nil
}

// orphans reads, without a lock and without changing anything, what recovery
// would fold into a file.
func (s *Store) orphans() (entries []*Entry, bad int, err error) {
	journals, err := s.root.DeadJournals(state.Sending())
	for _, lines := range journals {
		e, b := foldJournal(lines, time.Now())
		entries, bad = append(entries, e...), bad+len(b)
	}
	var one *state.JournalError
	if errors.As(err, &one) {
		err = nil // UnreadableJournals names it
	}
	return entries, bad, err
}

// UnreadableJournals names the publishers' journals that cannot be read. What
// stands in them waits until they can be.
func (s *Store) UnreadableJournals() (names []*state.JournalError) {
	_, err := s.root.DeadJournals(state.Sending())
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return nil
	}
	for _, err := range joined.Unwrap() {
		var one *state.JournalError
		if errors.As(err, &one) {
			names = append(names, one)
		}
	}
	return names
}

// notLeft leaves those out that stand in the file, and those that have been in
// it and left: their publisher could store them and not write down that it had.
// An id that is published again after that is taken at another time. That one
// was sent again is told before the file is written: it counts when the entry
// that was made of it came to be.
func (s *Store) notLeft(f *file, entries []*Entry) ([]*Entry, error) {
	entries = slices.DeleteFunc(entries, func(e *Entry) bool { return f.raw[e.ID] != nil })
	if len(entries) == 0 {
		return entries, nil
	}
	left := map[string][]Left{}
	err := s.settledLog().Lines(func(line []byte) bool {
		var l Left
		if json.Unmarshal(line, &l) == nil {
			left[l.ID] = append(left[l.ID], l)
		}
		return true
	})
	return slices.DeleteFunc(entries, func(e *Entry) bool {
		return slices.ContainsFunc(left[e.ID], func(l Left) bool {
			came := l.ResentAs == "" || f.raw[l.ResentAs] != nil || len(left[l.ResentAs]) > 0
			return came && l.At.Equal(e.At)
		})
	}), err
}

// openIntent is an intent as a journal tells it.
type openIntent struct {
	first    intentLine
	recorded string
	url      string
	outcomes map[string]*outcomeJSON
	parts    map[string][]string
}

// foldJournal makes an entry of every intent that is not settled and that
// still owes something, in the journal's order. Lines that cannot be read are
// given back as bad.
func foldJournal(lines [][]byte, now time.Time) (entries []*Entry, bad []badEntry) {
	open := map[string]*openIntent{}
	var order []string
	for _, raw := range lines {
		var l intentLine
		if err := json.Unmarshal(raw, &l); err != nil || l.ID == "" {
			text, _ := json.Marshal(string(raw)) // a string always encodes
			bad = append(bad, badEntry{"journal", text})
			for _, i := range open { // it may have said of any that bytes could leave
				i.recorded = ""
			}
			continue
		}
		i := open[l.ID]
		switch {
		case l.Event != nil:
			if i == nil {
				order = append(order, l.ID)
			}
			open[l.ID] = &openIntent{
				first: l, recorded: l.Recorded, outcomes: map[string]*outcomeJSON{}, parts: map[string][]string{},
			}
		case i == nil:
		case l.Settled:
			delete(open, l.ID)
		case l.Recorded != "":
			i.recorded, i.url = l.Recorded, l.URL
		case l.Outcome != nil:
			i.outcomes[l.Channel] = l.Outcome
		case l.Part != "":
			i.parts[l.Channel] = append(i.parts[l.Channel], l.Part)
		}
	}
	for _, id := range order {
		i := open[id]
		if i == nil {
			continue
		}
		e, err := i.entry(now)
		if err != nil {
			raw, _ := json.Marshal(i.first) // it was decoded from JSON
			bad = append(bad, badEntry{id, raw})
			continue
		}
		if len(e.Owed()) > 0 {
			entries = append(entries, e)
		}
	}
	return entries, bad
}

// entry is what the dead publish would have remembered. A channel whose outcome
// is known keeps it; one that may have been asked is uncertain; one that cannot
// have been, for the record was not written yet, is to be asked.
func (i *openIntent) entry(now time.Time) (*Entry, error) {
	ev, err := channels.DecodeEvent(i.first.Event)
	if err != nil {
		return nil, err
	}
	ev.ID = i.first.ID
	if ev.URL == "" {
		ev.URL = i.url
	}
	var attempted []Attempted
	for _, p := range i.first.Planned {
		a := Attempted{Channel: p.Channel, Required: p.Required, At: i.first.At}
		switch o := i.outcomes[p.Channel]; {
		case o != nil:
			a.At, a.Outcome = o.Started, o.outcome()
		case p.Held != nil:
			a.Outcome = p.Held.outcome()
		case i.recorded == "pending":
			a.Outcome = channels.Outcome{State: channels.StatePending, Code: "process_died", At: now}
		default:
			a.Outcome = channels.Outcome{
				State: channels.StateUncertain, Reason: channels.ReasonUnknown, Code: "process_died", At: now,
				Receipt: channels.Receipt{Parts: i.parts[p.Channel]},
			}
		}
		attempted = append(attempted, a)
	}
	return NewEntry(ev, i.first.At, attempted)
}
