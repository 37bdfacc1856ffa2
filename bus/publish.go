package bus

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"the-loop/channels"
	"the-loop/internal/eventlog"
	"the-loop/outbox"
	"the-loop/state"
)

// Publish takes an event: it records it when its type is recorded, asks every
// channel owed it side by side, and remembers it when that settled nothing.
// It returns when all of them answered, or their timeouts are over.
//
// When ctx ends, what is in the air is settled as uncertain, and written down,
// before Publish returns.
func (b *Bus) Publish(ctx context.Context, ev channels.Event) Result {
	ev, notes, err := b.take(ev)
	p := &publish{bus: b, at: time.Now(), res: Result{
		ID: ev.ID, Event: ev, Notes: notes, Recorded: RecordedUnneeded, Posts: []Post{}, Err: err,
	}}
	if err != nil {
		return p.res
	}
	p.address()
	// The order of these steps is the promise: what is intended is on disk
	// before the record is written and before the first byte leaves.
	p.begin(ctx)
	p.record(ctx)
	p.fanOut(ctx)
	p.settle(context.WithoutCancel(ctx))
	return p.res
}

// PostTo asks the given channels and nobody else. Their failures are the
// caller's to interpret: nothing is recorded, remembered or logged, whatever
// the bus has.
func (b *Bus) PostTo(ctx context.Context, ev channels.Event, routes ...Route) Result {
	given := Bus{Routes: routes, MaxText: b.MaxText, asksAll: true}
	return given.Publish(ctx, ev)
}

// publish is one event on its way through the bus.
type publish struct {
	bus    *Bus
	res    Result
	at     time.Time
	owed   []owed
	intent *outbox.Intent
}

// owed is a channel that is owed the event.
type owed struct {
	route     Route
	asker     outbox.Asker
	held      *channels.Outcome // why it is not asked, nil when it is
	slot      time.Time         // when its pace allows the send
	attempted outbox.Attempted
}

func (p *publish) address() {
	for _, r := range p.bus.Routes {
		if p.bus.asksAll || r.Owes(p.res.Event) {
			p.owed = append(p.owed, owed{route: r})
		}
	}
}

// begin decides who is asked, and writes the intent. When it cannot be written,
// the event is sent once without it, and the result says so.
func (p *publish) begin(ctx context.Context) {
	if len(p.owed) == 0 {
		return // nothing is stored
	}
	p.res.Stored = p.bus.Store != nil
	var planned []outbox.Planned
	for i := range p.owed {
		o := &p.owed[i]
		o.asker = outbox.Asker{Channel: o.route.Channel.Name()}
		_ = guard("standing", func() error {
			o.asker = o.route.Asker()
			o.asker.Publishing = true
			if o.held = p.mayAsk(ctx, o.asker); o.held == nil {
				o.held = p.takeSlot(ctx, o)
			}
			return nil
		})
		planned = append(planned, outbox.Planned{
			Channel: o.route.Channel.Name(), Required: o.route.Required, Held: o.held,
		})
	}
	if p.bus.Store == nil {
		return
	}
	err := guard("the store", func() (err error) {
		p.intent, err = p.bus.Store.Begin(ctx, p.res.Event, p.at, planned, p.isRecorded())
		return err
	})
	switch {
	case errors.Is(err, state.ErrNotLocked):
		p.note("the state root has no locks, so nothing can be retried there", err)
	case err != nil:
		p.unstored("the event could not be written down before it was sent", err)
	}
}

// mayAsk gives why the channel is not asked, nil when it is. A disk that cannot
// be written must not stop the message: on an error the channel is asked.
func (p *publish) mayAsk(ctx context.Context, a outbox.Asker) *channels.Outcome {
	if p.bus.Standing == nil {
		return nil
	}
	ok, st, err := p.bus.Standing.MayAsk(ctx, a)
	if ok || err != nil {
		return nil
	}
	return held(st.Code)
}

func held(code string) *channels.Outcome {
	return &channels.Outcome{State: channels.StatePending, Reason: channels.ReasonHeld, Code: code, At: time.Now()}
}

// takeSlot takes the channel's next slot. When all that begin in the first half
// of the timeout are taken the channel is left to the drain.
func (p *publish) takeSlot(ctx context.Context, o *owed) *channels.Outcome {
	if p.bus.Standing == nil || o.route.Apart() == 0 {
		return nil
	}
	at, ok, err := p.bus.Standing.Pace(ctx, o.asker.Channel, o.route.Apart(), p.at.Add(o.route.timeout()/2))
	if ok || err != nil {
		o.slot = at
		return nil
	}
	return held("pace")
}

func (p *publish) isRecorded() bool {
	t, _ := channels.LookupType(p.res.Event.Type)
	return p.bus.Ledger != nil && t.Recorded
}

func (p *publish) record(ctx context.Context) {
	if !p.isRecorded() {
		return
	}
	var link string
	err := guard("the ledger", func() (err error) {
		link, err = p.bus.Ledger.Record(ctx, p.res.Event)
		return err
	})
	if err != nil {
		p.res.Recorded, p.res.RecordErr = RecordedNo, err
	} else {
		p.res.Recorded, p.res.Record = RecordedYes, link
		if p.res.Event.URL == "" && (strings.HasPrefix(link, "https://") || strings.HasPrefix(link, "http://")) {
			p.res.Event.URL = link
		}
	}
	if err := p.intent.Recorded(err == nil, p.res.Event.URL); err != nil {
		// The intent still says that nothing can have left, and if we die now
		// whoever takes it over sends: so we must not.
		p.note("the event is left to the next drain, for its journal cannot be written", err)
		for i := range p.owed {
			if o := &p.owed[i]; o.held == nil {
				o.held = held("not_noted")
			}
		}
	}
}

// fanOut asks all that may be asked, side by side, each under its own timeout.
func (p *publish) fanOut(ctx context.Context) {
	var wg sync.WaitGroup
	for i := range p.owed {
		o := &p.owed[i]
		o.attempted = outbox.Attempted{Channel: o.route.Channel.Name(), Required: o.route.Required}
		if o.held != nil {
			o.attempted.Outcome = *o.held
			continue
		}
		wg.Go(func() { p.ask(ctx, o) })
	}
	wg.Wait()
	for _, o := range p.owed {
		p.res.Posts = append(p.res.Posts, post(o.attempted))
	}
}

// ask makes the attempt at one channel, within its timeout, and writes down what
// came of it. One that is told to wait for less than what is left of the
// timeout waits, and asks once more.
func (p *publish) ask(ctx context.Context, o *owed) {
	name := o.route.Channel.Name()
	d := channels.Delivery{Event: p.res.Event, At: p.at, Attempt: 1}
	if p.intent != nil {
		d.OnPart = func(ref string) error { return p.intent.Part(name, ref) }
	}
	o.attempted.At = time.Now()
	within, cancel := context.WithDeadline(ctx, o.attempted.At.Add(o.route.timeout()))
	defer cancel()
	if wait(within, time.Until(o.slot)); within.Err() != nil { // nothing was sent, and that is known
		o.attempted.Outcome = *held("interrupted")
		_ = p.intent.Outcome(o.attempted)
		return
	}
	o.attempted.Outcome = Attempt(within, o.route, d)
	if told := o.attempted.Outcome; told.Reason == channels.ReasonRate && fits(within, told.RetryAfter) {
		p.observe(ctx, o) // whoever would ask meanwhile is told to wait too
		if wait(within, told.RetryAfter); within.Err() == nil && p.nextSlot(within, o) {
			d.Attempt, d.Parts = 2, told.Receipt.Parts
			o.attempted.Outcome = Attempt(within, o.route, d)
		}
	}
	// Neither is worth failing for: an outcome that is not in the journal is in
	// our hand still, and a standing that cannot be written costs the next
	// publisher a request, and nobody an event.
	_ = p.intent.Outcome(o.attempted)
	p.observe(ctx, o)
}

func (p *publish) observe(ctx context.Context, o *owed) {
	if p.bus.Standing == nil || ctx.Err() != nil { // when we gave up ourselves, it says nothing about the channel
		return
	}
	_ = guard("standing", func() error {
		return p.bus.Standing.Observe(ctx, o.asker, p.res.ID, o.attempted.Outcome)
	})
}

// nextSlot waits for one more slot of the channel's pace. ok is false when none
// begins in time.
func (p *publish) nextSlot(ctx context.Context, o *owed) (ok bool) {
	if p.bus.Standing == nil || o.route.Apart() == 0 {
		return true
	}
	deadline, _ := ctx.Deadline()
	_ = guard("standing", func() (err error) {
		at, free, err := p.bus.Standing.Pace(ctx, o.asker.Channel, o.route.Apart(), deadline.Add(-time.Second))
		if ok = free || err != nil; free {
			wait(ctx, time.Until(at))
		}
		return err
	})
	return ok && ctx.Err() == nil
}

// fits reports whether there is time left for a send after a wait.
func fits(ctx context.Context, d time.Duration) bool {
	deadline, ok := ctx.Deadline()
	return ok && ctx.Err() == nil && time.Until(deadline)-d >= time.Second
}

func wait(ctx context.Context, d time.Duration) {
	if d <= 0 {
		return
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// guard runs what somebody else wrote. Its panic is an error, without the
// panic's text, which nobody has checked for secrets.
func guard(what string, f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%s panicked", what)
		}
	}()
	return f()
}

// settle remembers what is still owed, and writes down the facts.
func (p *publish) settle(ctx context.Context) {
	if p.bus.Store == nil {
		return
	}
	attempted := make([]outbox.Attempted, len(p.owed))
	for i, o := range p.owed {
		attempted[i] = o.attempted
	}
	lastError := ""
	e, err := outbox.NewEntry(p.res.Event, p.at, attempted)
	if err == nil && len(attempted) > 0 {
		lastError = e.LastError
		err = guard("the store", func() error { return p.bus.Store.Remember(ctx, e, p.intent) })
		// An intent that is not settled stands in its journal, and the next
		// drain cycle makes the entry of it.
		p.res.Queued = len(e.Owed()) > 0 && (err == nil || p.intent != nil)
	}
	if err != nil && !p.res.Queued {
		p.unstored("the event could not be kept", err)
	} else if err != nil {
		p.note("the event is kept in the journal of this process until the next drain", err)
	}
	p.log(ctx, attempted, lastError)
}

func (p *publish) log(ctx context.Context, attempted []outbox.Attempted, lastError string) {
	log := p.bus.Log
	sub := eventlog.Subject{EntryID: p.res.ID, EventType: p.res.Event.Type, WorkItem: p.res.Event.WorkItem}
	var all, posted, missed []string
	for _, a := range attempted {
		all = append(all, a.Channel)
		if a.Took() {
			posted = append(posted, a.Channel)
		} else {
			missed = append(missed, a.Channel)
		}
		if a.Outcome.State == channels.StateUncertain {
			_ = log.Uncertain(ctx, sub, a.Channel, a.Outcome.Code)
		}
	}
	switch {
	case p.res.Queued && len(posted) == 0:
		_ = log.Undelivered(ctx, sub, missed, lastError)
	case len(posted) > 0 && len(missed) > 0:
		_ = log.PartlyDelivered(ctx, sub, missed, lastError)
	}
	if err := log.Published(ctx, sub, posted, all, string(p.res.Recorded)); err != nil {
		p.note("the event log could not be written", err)
	}
}

func (p *publish) note(what string, err error) {
	p.res.Notes = append(p.res.Notes, fmt.Sprintf("%s: %v", what, err))
}

func (p *publish) unstored(what string, err error) {
	p.res.Stored = false
	p.note(what, err)
}

func post(a outbox.Attempted) Post {
	o := a.Outcome
	p := Post{
		Channel: a.Channel, State: o.State, Reason: o.Reason, Code: o.Code, Error: o.Error(),
		Ref: o.Receipt.Ref, Link: o.Receipt.Link,
	}
	if parts := o.Receipt.Parts; o.State != channels.StateAccepted && len(parts) > 0 {
		p.State, p.Ref = channels.StateAccepted, parts[0]
		p.Error = fmt.Sprintf("from part %d on: %s", len(parts)+1, p.Error)
	}
	return p
}
