package outbox

import (
	"context"
	"time"

	"the-loop/state"
)

// Pace takes the next slot in which a channel may be sent a message, apart
// after the one before; all processes of the root share them. A slot past limit
// is not taken: ok is false.
func (s *Store) Pace(
	ctx context.Context, channel string, apart time.Duration, limit time.Time,
) (at time.Time, ok bool, err error) {
	if apart <= 0 {
		return time.Now(), true, nil
	}
	return s.root.Slots(state.Pace(channel)).Take(ctx, apart, limit)
}
