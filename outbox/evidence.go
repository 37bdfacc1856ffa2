package outbox

import (
	"context"
	"errors"
	"slices"
	"time"

	"the-loop/channels"
)

// Doubt is an uncertain delivery for which evidence is looked for.
type Doubt struct {
	Event   channels.Event
	At      time.Time // when the event was taken
	Channel string
	Parts   []string
	// Last: it was a second attempt already.
	Last bool
	// Since is just before the first byte of the first attempt could leave.
	Since time.Time
	// Uncertain is when it became uncertain: with Since, it tells one attempt
	// from another.
	Uncertain time.Time
}

// Doubts lists a channel's uncertain deliveries, oldest first.
func Doubts(entries []*Entry, channel string) []Doubt {
	var out []Doubt
	for _, e := range entries {
		d := e.Deliveries[channel]
		if d == nil || d.State != channels.StateUncertain || !slices.Contains(e.Owed(), channel) {
			continue
		}
		if ev, err := e.Event(); err == nil {
			out = append(out, Doubt{
				Event: ev, At: e.At, Channel: channel, Parts: slices.Clone(d.Parts),
				Last:  d.Attempts > 1 || e.SentAgainFrom != "",
				Since: d.FirstSentAt, Uncertain: d.At,
			})
		}
	}
	return out
}

// Resolved is what became of an entry by a look-up.
type Resolved struct {
	// Applied: the delivery was still uncertain in the same attempt.
	Applied bool
	Gone    bool // the entry left
	// ResentAs is the id of the new entry, where loss made one by itself.
	ResentAs string
	Waited   time.Duration
}

// resolve changes one uncertain delivery, if it still is what d saw.
func (s *Store) resolve(ctx context.Context, d Doubt, change func(f *file, e *Entry, row *Delivery) error) (
	r Resolved, err error,
) {
	err = s.update(ctx, func(f *file) (bool, error) {
		r = Resolved{}
		e, ok := f.entry(d.Event.ID)
		if !ok || e.Deliveries[d.Channel] == nil {
			return false, nil
		}
		row := e.Deliveries[d.Channel]
		if row.State != channels.StateUncertain || !row.At.Equal(d.Uncertain) {
			return false, nil
		}
		if err := change(f, e, row); err != nil {
			return false, err
		}
		r.Applied, r.Waited, r.Gone = true, time.Since(e.At), len(e.Owed()) == 0
		r.ResentAs = row.ResentAs
		return true, s.putOrRemove(f, e)
	})
	return r, err
}

// Saw settles an uncertain delivery that a look-up found: it was delivered.
func (s *Store) Saw(ctx context.Context, d Doubt, receipt channels.Receipt) (Resolved, error) {
	return s.resolve(ctx, d, func(_ *file, _ *Entry, row *Delivery) error {
		row.Looks++
		o := channels.Outcome{State: channels.StateAccepted, Receipt: receipt, At: time.Now()}
		if err := row.apply(o); err != nil {
			return err
		}
		row.Reason, row.Unjudgeable = channels.ReasonFound, ""
		return nil
	})
}

// SawPart takes note of a split message of which the first parts arrived and
// the next one provably did not: it goes on after them.
func (s *Store) SawPart(ctx context.Context, d Doubt, parts []string) (Resolved, error) {
	return s.resolve(ctx, d, func(_ *file, _ *Entry, row *Delivery) error {
		row.Looks++
		row.Parts, row.Unjudgeable = parts, ""
		row.At = time.Now().UTC().Truncate(time.Millisecond)
		return row.move(channels.StatePending)
	})
}

// Lost takes note of proof that the send never arrived, or no more of it than
// d.Parts. With again, which is the channel's sendAgain: auto, the second
// attempt is made of it at once, unless this one was a second attempt itself.
func (s *Store) Lost(ctx context.Context, d Doubt, again bool) (Resolved, error) {
	return s.resolve(ctx, d, func(f *file, e *Entry, row *Delivery) error {
		row.Looks++
		row.Reason, row.Code, row.Detail, row.Unjudgeable = channels.ReasonLost, "not_found_twice", "", ""
		if len(d.Parts) > len(row.Parts) {
			row.Parts = slices.Clone(d.Parts)
		}
		row.At = time.Now().UTC().Truncate(time.Millisecond)
		e.LastError = d.Channel + ": lost: not found by two complete look-ups"
		if err := row.move(channels.StateLost); err != nil || !again || e.SentAgainFrom != "" || !s.wanted(e) {
			return err
		}
		_, err := s.makeAgain(f, e, []string{d.Channel}, time.Time{})
		return err
	})
}

// errNothingNew stops an update that would write what stands there already.
var errNothingNew = errors.New("nothing new")

// Unjudgeable takes note of why no look-up will tell, in the provider's code
// and words for people.
func (s *Store) Unjudgeable(ctx context.Context, d Doubt, code, detail string) error {
	_, err := s.resolve(ctx, d, func(_ *file, _ *Entry, row *Delivery) error {
		if row.Unjudgeable == code && row.Detail == detail {
			return errNothingNew
		}
		row.Looks++
		row.Unjudgeable, row.Detail = code, detail
		return nil
	})
	if errors.Is(err, errNothingNew) {
		return nil
	}
	return err
}
