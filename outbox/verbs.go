package outbox

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"the-loop/channels"
)

// ErrNoEntry is returned for an id that is not in the outbox.
var ErrNoEntry = errors.New("no such entry in the outbox")

// Retried says what `retry` did with one entry.
type Retried struct {
	ID string `json:"id"`
	// Due lists the channels that will be asked next.
	Due []string `json:"due"`
	// Left says, by channel, why a delivery was left as it is.
	Left map[string]string `json:"left,omitempty"`
}

// Retry makes deliveries due now, those given up included; no ids mean all
// entries. Standing is not touched, see Release. A delivery that is uncertain
// is left: whether it arrived is not known, and asking again could double it.
// One that is being sent is left too. An id that is not there is ErrNoEntry,
// and then nothing is changed.
func (s *Store) Retry(ctx context.Context, ids ...string) ([]Retried, error) {
	var out []Retried
	err := s.updateAll(ctx, func(f *file) (bool, error) {
		out = nil
		for _, id := range ids {
			if _, ok := f.entry(id); !ok {
				return false, fmt.Errorf("%w: %s", ErrNoEntry, id)
			}
		}
		for _, e := range f.entries() {
			if len(ids) > 0 && !slices.Contains(ids, e.ID) {
				continue
			}
			r, err := e.retry(time.Now().UTC().Truncate(time.Millisecond))
			if err != nil {
				return false, err
			}
			out = append(out, r)
			if err := f.put(e); err != nil {
				return false, err
			}
		}
		return len(out) > 0, nil
	})
	return out, err
}

func (e *Entry) retry(now time.Time) (Retried, error) {
	r := Retried{ID: e.ID, Due: []string{}}
	leave := func(name, why string) {
		if r.Left == nil {
			r.Left = map[string]string{}
		}
		r.Left[name] = why
	}
	for _, name := range e.Owed() {
		d := e.Deliveries[name]
		switch {
		case d.State == channels.StateSending:
			leave(name, "it is being sent right now")
		case d.Claim != "":
			leave(name, "a drainer has it in hand")
		case d.State == channels.StateUncertain:
			leave(name, channels.ReasonUnknown.Words())
		case d.State == channels.StateLost:
			leave(name, channels.ReasonLost.Words())
		default:
			if d.State != channels.StatePending {
				if err := d.move(channels.StatePending); err != nil {
					return r, err
				}
			}
			d.At, d.WantedAt, d.Rejected, d.Orphaned = now, now, 0, 0
			r.Due = append(r.Due, name)
		}
	}
	return r, nil
}

// ErrInHand is returned for an entry that a drainer has in hand.
var ErrInHand = errors.New("is in a drainer's hand right now")

// Drop removes an entry for good and returns it. One that a drainer has
// claimed, or is sending, is ErrInHand: its outcome is about to be known.
func (s *Store) Drop(ctx context.Context, id string) (*Entry, error) {
	var dropped *Entry
	err := s.updateAll(ctx, func(f *file) (bool, error) {
		e, ok := f.entry(id)
		if !ok {
			return false, fmt.Errorf("%w: %s", ErrNoEntry, id)
		}
		if e.inHand() {
			return false, fmt.Errorf("%s %w", id, ErrInHand)
		}
		dropped = e
		f.leave(e, LeftDropped, "")
		return true, nil
	})
	if err != nil {
		return nil, err
	}
	ev, err := dropped.Event()
	if err == nil {
		_ = s.opts.Log.Dropped(ctx, subject(id, ev))
	}
	return dropped, nil
}
