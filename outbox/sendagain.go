package outbox

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"the-loop/channels"
	"the-loop/state"
)

// ErrMayDouble is returned for a delivery that may have arrived: nothing can
// prove that it did not, and only a person may take the risk.
var ErrMayDouble = errors.New("it may have arrived, and nothing can tell")

// ErrNothingLost is returned when no delivery of the entry is lost or unjudgeable.
var ErrNothingLost = errors.New("nothing of it is lost: what waits goes out by itself, and retry makes it due now")

// ErrNotWanted is returned for a question that was closed meanwhile.
var ErrNotWanted = errors.New("the question is closed: nobody waits for it to arrive")

// SentAgainError says that the one second attempt was made before.
type SentAgainError struct{ ID, As string }

func (e *SentAgainError) Error() string {
	return fmt.Sprintf("%s was already sent again as %s", e.ID, e.As)
}

// SendAgain is the one deliberate second attempt: it makes a new entry, with a
// new id, of the entry's deliveries that are lost, and with mayDouble also of
// those that are uncertain. The old ones are gone from then on and remember the
// new id. Both are one durable change. judged reports whether look-ups may
// still tell what became of a channel's delivery: such a one is not touched.
func (s *Store) SendAgain(
	ctx context.Context, id string, mayDouble bool, judged func(channel string) bool,
) (newID string, err error) {
	err = s.updateAll(ctx, func(f *file) (bool, error) {
		e, ok := f.entry(id)
		if !ok {
			return false, s.noEntry(id)
		}
		if e.inHand() {
			return false, fmt.Errorf("%s %w", id, ErrInHand)
		}
		if !s.wanted(e) {
			return false, ErrNotWanted
		}
		var names []string
		nothing := ErrNothingLost
		if e.ResentAs != "" {
			nothing = &SentAgainError{id, e.ResentAs}
		}
		for _, name := range e.Owed() {
			switch d := e.Deliveries[name]; {
			case d.State == channels.StateLost:
				names = append(names, name)
			case d.State != channels.StateUncertain || judged(name) && d.Unjudgeable == "":
			case mayDouble:
				names = append(names, name)
			default:
				nothing = fmt.Errorf("%s: %w", name, ErrMayDouble)
			}
		}
		if len(names) == 0 {
			return false, nothing
		}
		if newID, err = s.makeAgain(f, e, names, time.Now()); err != nil {
			return false, err
		}
		return true, s.putOrRemove(f, e)
	})
	return newID, err
}

// makeAgain makes a new entry of some of an entry's deliveries, which are not
// owed by the old one any more. wanted is when a person asked for it, zero when
// nobody did.
func (s *Store) makeAgain(f *file, e *Entry, names []string, wanted time.Time) (newID string, err error) {
	now := time.Now().UTC().Truncate(time.Millisecond)
	again := &Entry{
		ID: state.NewID(), At: e.At, LastError: e.LastError, Channels: names, Deliveries: map[string]*Delivery{},
		SentAgainFrom: e.origin(), event: e.event,
	}
	for _, name := range names {
		old := e.Deliveries[name]
		again.Deliveries[name] = &Delivery{
			State: channels.StatePending, At: now, Required: old.Required, Parts: slices.Clone(old.Parts),
			WantedAt: wanted.UTC().Truncate(time.Millisecond),
		}
		old.ResentAs = again.ID // what arrived of it has arrived: its parts stay
	}
	e.ResentAs = again.ID
	return again.ID, f.put(again)
}

// noEntry says what is known of an id that is not in the outbox.
func (s *Store) noEntry(id string) error {
	left, ok, err := s.Left(id)
	switch {
	case err != nil || !ok:
		return fmt.Errorf("%w: %s", ErrNoEntry, id)
	case left.ResentAs != "":
		return &SentAgainError{id, left.ResentAs}
	}
	return fmt.Errorf("%w: %s was %s", ErrNoEntry, id, left.How)
}
