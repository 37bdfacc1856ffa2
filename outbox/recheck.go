package outbox

import (
	"context"
	"time"

	"the-loop/channels"
)

// Recheck doubts everything that waits, for a root that was copied or restored:
// whatever it says is to be sent, another machine may have sent meanwhile. Each
// delivery that is owed becomes uncertain, and is looked up, repeated by id or
// left to a person as any other. It returns how many there were.
func (s *Store) Recheck(ctx context.Context) (n int, err error) {
	err = s.updateAll(ctx, func(f *file) (bool, error) {
		n = 0
		now := time.Now().UTC().Truncate(time.Millisecond)
		for _, e := range f.entries() {
			for _, name := range e.Owed() {
				changed, err := e.Deliveries[name].doubt(e.At, now)
				if err != nil {
					return false, err
				}
				if changed {
					n++
				}
			}
			if err := s.putOrRemove(f, e); err != nil {
				return false, err
			}
		}
		return n > 0, nil
	})
	return n, err
}

// doubt makes a delivery uncertain that could have been sent by somebody else
// at any time since the event was taken.
func (d *Delivery) doubt(taken, now time.Time) (changed bool, err error) {
	switch {
	case d.State == channels.StateDead && d.Reason == channels.ReasonGone: // it comes back with its channel
		if err := d.move(channels.StatePending); err != nil {
			return false, err
		}
	case d.State == channels.StatePending, d.State == channels.StateRefused, d.State == channels.StateSending:
	default:
		return false, nil
	}
	if err := d.move(channels.StateUncertain); err != nil {
		return false, err
	}
	if d.FirstSentAt.IsZero() {
		d.FirstSentAt = taken
	}
	d.Reason, d.Code, d.Detail, d.Claim, d.At = channels.ReasonMoved, "root_moved", "", "", now
	return true, nil
}
