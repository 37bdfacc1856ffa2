package drain

import (
	"context"
	"errors"
	"time"

	"the-loop/bus"
	"the-loop/channels"
	"the-loop/outbox"
)

// lane drains one channel, one message at a time.
type lane struct {
	drainer *Drainer
	route   bus.Route
	asker   outbox.Asker
	until   time.Time // no send is started after it
	// probing: the channel is not in good standing. doubted: one send of this
	// lane was left without an answer, and one more has been tried since.
	probing, doubted bool

	due    int            // deliveries to be sent
	doubts []outbox.Doubt // uncertain deliveries that can be looked up

	accepted, refused, uncertain int
	settled                      int // by look-ups
	heldUntil                    time.Time
}

func (l *lane) run(ctx context.Context) error {
	l.asker = l.route.Asker()
	// The sends first: look-ups may be slow, or be told to wait again and again,
	// and nothing that is due stands behind them.
	var sent error
	if l.due > 0 { // else its probe would be taken for nothing
		sent = l.sendDue(ctx)
	}
	return errors.Join(sent, l.lookUp(ctx))
}

// sendDue sends what is due, as long as the channel may be asked.
func (l *lane) sendDue(ctx context.Context) error {
	store := l.drainer.opts.Store
	for l.goesOn(ctx) {
		ok, standing, err := store.MayAsk(ctx, l.asker)
		if err != nil {
			return err
		}
		if !ok {
			l.heldUntil = standing.Until
			return nil
		}
		n, last := l.drainer.opts.Budget, ""
		if l.probing = standing != nil; l.probing {
			n, last = 1, standing.LastEntry
		}
		claims, err := store.Claim(ctx, l.route.Channel.Name(), n, last)
		if err != nil || len(claims) == 0 {
			return err
		}
		left, err := l.sendAll(ctx, claims)
		if err != nil || len(left) > 0 {
			// Whatever stopped us, claims that cannot be given back are cleared
			// by the next cycle.
			_ = store.Unclaim(context.WithoutCancel(ctx), left)
			return err
		}
	}
	return nil
}

// goesOn reports whether one more send may be started.
func (l *lane) goesOn(ctx context.Context) bool {
	sent := l.accepted + l.refused + l.uncertain
	healthy := l.accepted > 0
	return ctx.Err() == nil && time.Now().Before(l.until) && (healthy || sent < l.drainer.opts.Budget)
}

// sendAll sends claims in order. It stops, and gives back what is left, when
// the channel shows that it would say the same to all of them.
func (l *lane) sendAll(ctx context.Context, claims []outbox.Claimed) (left []outbox.Claimed, err error) {
	for i, c := range claims {
		if !l.drainer.pace(ctx, l.route, l.until) || !l.goesOn(ctx) || !l.probing && l.held() {
			return claims[i:], nil
		}
		if l.tooLate(c) {
			if err := l.drainer.opts.Store.LeaveUncertain(context.WithoutCancel(ctx), c); err != nil {
				return claims[i:], err
			}
			continue
		}
		o, sent, err := l.send(ctx, c)
		if err != nil {
			return claims[i:], err
		}
		if sent && l.stops(o) {
			return nil, l.drainer.opts.Store.Unclaim(context.WithoutCancel(ctx), claims[i+1:])
		}
	}
	return nil, nil
}

// held reports whether the channel is paused, or told somebody to wait.
func (l *lane) held() bool {
	st := l.drainer.opts.Store.Standing(l.asker)
	return st != nil && st.Verdict != outbox.Failing && time.Now().Before(st.Until)
}

// tooLate reports whether a repeat could arrive when the receiver does not drop
// it any more.
func (l *lane) tooLate(c outbox.Claimed) bool {
	arrives := time.Now().Add(l.asker.Timeout)
	return !c.RepeatOf.IsZero() && !arrives.Before(c.RepeatOf.Add(l.route.Lane().DropsRepeats))
}

// stops reports whether the channel would say the same to the next one too.
// When a channel in good standing leaves one send without an answer it may be
// that message's fault: one more is tried before the lane is given up.
func (l *lane) stops(o channels.Outcome) bool {
	switch {
	case o.State == channels.StateAccepted:
		l.doubted = false
		return false
	case o.Reason == channels.ReasonUnknown && !l.probing && !l.doubted:
		l.doubted = true
		return false
	}
	return o.Reason.Standing() || o.Reason == channels.ReasonRate
}

// send makes one attempt: written down, sent, settled, in this order.
func (l *lane) send(ctx context.Context, c outbox.Claimed) (o channels.Outcome, sent bool, err error) {
	store := l.drainer.opts.Store
	d, ok, err := store.Start(ctx, c)
	if err != nil || !ok {
		return o, false, err
	}
	inFlight, cancel := withGrace(ctx)
	defer cancel()
	d.OnPart = func(ref string) error { return store.RecordPart(inFlight, c, ref) }
	if ended := l.drainer.opts.Ended; ended != nil {
		d.Ended = ended(inFlight, l.asker.Channel, c.Event)
	}
	o = bus.Attempt(inFlight, l.route, d)

	done := context.WithoutCancel(ctx)
	settled, err := store.Settle(done, c, o)
	if err != nil {
		l.drainer.keepUnsaved(c, o)
	}
	if inFlight.Err() == nil { // when we gave up ourselves, it says nothing about the channel
		_ = store.Observe(done, l.asker, c.Event.ID, o)
	}
	l.count(o)
	if err == nil {
		l.drainer.report(done, c, o, settled)
	}
	if l.drainer.opts.Outcome != nil {
		l.drainer.opts.Outcome(c, o)
	}
	return o, true, err
}

func (l *lane) count(o channels.Outcome) {
	switch o.State {
	case channels.StateAccepted:
		l.accepted++
	case channels.StateRefused:
		l.refused++
	default:
		l.uncertain++
	}
}

// withGrace gives a context that outlives ctx by Grace.
func withGrace(ctx context.Context) (context.Context, context.CancelFunc) {
	inFlight, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		sleep(inFlight, Grace)
		cancel()
	})
	return inFlight, func() { stop(); cancel() }
}
