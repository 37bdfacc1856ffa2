package drain

import (
	"context"
	"errors"
	"slices"
	"time"

	"the-loop/channels"
	"the-loop/internal/eventlog"
	"the-loop/outbox"
)

const (
	// DefaultEvidenceAfter is how long after a send was first seen uncertain a
	// look-up may begin that counts towards proof of loss. The proof rests on
	// one assumption: the provider applies a request within that time or never.
	DefaultEvidenceAfter = time.Minute
	// lookAgain is how long a delivery that no look-up can judge is left alone.
	lookAgain = 5 * time.Minute
	// maxLooks bounds the look-ups of one cycle on one channel.
	maxLooks = 20
)

// watch is what this drainer remembers of an uncertain delivery. It is kept in
// memory, for its times are monotonic: after a restart the proof begins anew.
type watch struct {
	first    time.Time // when we first saw it uncertain
	complete time.Time // when the first look-up began that counts; zero: none did
	next     time.Time // when it is looked up next
}

// lookUp looks for evidence of the lane's doubts, oldest first. A channel that
// is paused, or told us to wait, is not asked for that either.
func (l *lane) lookUp(ctx context.Context) error {
	witness, ok := l.route.Channel.(channels.Witness)
	if !ok || len(l.doubts) == 0 {
		return nil
	}
	looked := 0
	var errs []error
	for _, d := range l.doubts {
		if l.held() || looked == maxLooks || ctx.Err() != nil || !time.Now().Before(l.until) {
			break
		}
		w := l.drainer.watching(d)
		if time.Now().Before(w.next) {
			continue
		}
		looked++
		errs = append(errs, l.look(ctx, witness, d, w)) // one that fails must not hide the others
	}
	return errors.Join(errs...)
}

// look makes one look-up and applies what it proves.
func (l *lane) look(ctx context.Context, witness channels.Witness, d outbox.Doubt, w *watch) error {
	store, opts := l.drainer.opts.Store, l.drainer.opts
	begun := time.Now()
	w.next = begun.Add(max(opts.Interval, opts.EvidenceAfter/4))
	within, cancel := context.WithTimeout(ctx, l.asker.Timeout)
	var seen channels.Sighting
	var err error
	panicked := survive(func() error {
		seen, err = witness.Look(within, channels.Delivery{Event: d.Event, At: d.At, Parts: d.Parts}, d.Since)
		return nil
	})
	cancel()
	if panicked != nil {
		return panicked
	}
	done := context.WithoutCancel(ctx)
	var refusal *channels.Refusal
	switch {
	case errors.As(err, &refusal) && refusal.Reason == channels.ReasonRate:
		return store.Observe(done, l.asker, d.Event.ID, channels.OutcomeOf(channels.Receipt{}, refusal))
	case errors.As(err, &refusal) && (refusal.Reason == channels.ReasonAuth || refusal.Reason == channels.ReasonConfig):
		w.next, w.complete = begun.Add(lookAgain), time.Time{}
		return store.Unjudgeable(done, d, channels.SafeCode(refusal.Code), refusal.Detail)
	case err != nil:
		return nil // it proves nothing
	case seen.Whole:
		r, err := store.Saw(done, d, receiptOf(seen.Found))
		if err == nil && r.Applied {
			l.settled++
			_ = opts.Log.Found(done, subjectOf(d.Event), d.Channel, r.Waited)
			if st := store.Standing(l.asker); st != nil && st.Reason == channels.ReasonUnknown {
				// what made the channel doubtful turns out to have arrived
				err = store.Observe(done, l.asker, d.Event.ID, channels.OutcomeOf(channels.Receipt{}, nil))
			}
		}
		return err
	case !seen.Complete || begun.Sub(w.first) < opts.EvidenceAfter:
		return nil
	case w.complete.IsZero():
		w.complete = begun
		return nil
	}
	return l.missing(done, d, seen.Found)
}

// missing applies two complete look-ups that did not find the message, or no
// more than its first parts. The rest of a split message goes out by itself
// only where lost messages do, and not when a second attempt at it is lost too.
func (l *lane) missing(ctx context.Context, d outbox.Doubt, found []string) error {
	store := l.drainer.opts.Store
	if len(found) > 0 && l.route.SendAgain && (!d.Last || len(found) > len(d.Parts)) {
		r, err := store.SawPart(ctx, d, found)
		if r.Applied {
			l.settled++
		}
		return err
	}
	d.Parts = found
	r, err := store.Lost(ctx, d, l.route.SendAgain)
	if err == nil && r.Applied {
		l.settled++
		err = l.drainer.opts.Log.Lost(ctx, subjectOf(d.Event), d.Channel, r.ResentAs)
	}
	return err
}

func receiptOf(found []string) channels.Receipt {
	if len(found) == 1 {
		return channels.Receipt{Ref: found[0]}
	}
	return channels.Receipt{Ref: found[0], Parts: found}
}

func subjectOf(ev channels.Event) eventlog.Subject {
	return eventlog.Subject{EntryID: ev.ID, EventType: ev.Type, WorkItem: ev.WorkItem}
}

// doubtKey tells one attempt's doubt from another's.
type doubtKey struct {
	id, channel string
	uncertain   int64
}

func keyOf(d outbox.Doubt) doubtKey { return doubtKey{d.Event.ID, d.Channel, d.Uncertain.UnixMilli()} }

func (d *Drainer) watching(doubt outbox.Doubt) *watch {
	d.mu.Lock()
	defer d.mu.Unlock()
	w := d.watched[keyOf(doubt)]
	if w == nil {
		w = &watch{first: time.Now()}
		d.watched[keyOf(doubt)] = w
	}
	return w
}

// forgetAllBut forgets a channel's doubts that are no more.
func (d *Drainer) forgetAllBut(channel string, doubts []outbox.Doubt) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for key := range d.watched {
		if key.channel == channel && !slices.ContainsFunc(doubts, func(o outbox.Doubt) bool { return keyOf(o) == key }) {
			delete(d.watched, key)
		}
	}
}
