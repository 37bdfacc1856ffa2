package outbox

import (
	"context"
	"time"

	"the-loop/channels"
	"the-loop/state"
)

// Paused is the verdict of a channel that a person paused: nothing is asked of
// it, and what waits for it costs nothing.
const Paused = "paused"

// forever is the end of a pause that has none.
func forever() time.Time { return time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC) }

// pause is how health.json keeps it, by the channel's name: whatever its
// credential becomes meanwhile, it stays paused.
type pause struct {
	Since time.Time `json:"since"`
	Until time.Time `json:"until"`

	extra state.Extra
}

// UnmarshalJSON keeps the members that this version does not know.
func (p *pause) UnmarshalJSON(b []byte) (err error) {
	type plain pause
	p.extra, err = state.UnmarshalKeeping(b, (*plain)(p))
	return err
}

// MarshalJSON gives them back.
func (p pause) MarshalJSON() ([]byte, error) {
	type plain pause
	return state.MarshalKeeping(plain(p), p.extra)
}

func (p pause) standing() *Standing {
	return &Standing{Verdict: Paused, Reason: channels.ReasonHeld, Code: Paused, Since: p.Since, Until: p.Until}
}

// Ends reports whether the standing changes by itself: a pause may have no end.
func (st Standing) Ends() bool { return st.Until.Before(forever()) }

// Pause keeps a channel from being asked until then, or until Resume when
// until is zero. It ends by itself.
func (s *Store) Pause(ctx context.Context, channel string, until time.Time) error {
	if until.IsZero() {
		until = forever()
	}
	return s.changeHealth(ctx, func(h *health) bool {
		h.Paused[channel] = pause{Since: time.Now().UTC(), Until: until.UTC()}
		return true
	})
}

// Resume ends a pause; was is false when there was none.
func (s *Store) Resume(ctx context.Context, channel string) (was bool, err error) {
	err = s.changeHealth(ctx, func(h *health) bool {
		var p pause
		p, was = h.Paused[channel]
		was = was && time.Now().Before(p.Until)
		delete(h.Paused, channel)
		return was
	})
	return was, err
}
