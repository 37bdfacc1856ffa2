// Package bus takes an event, records it, and fans it out to every channel
// that is owed it. What no channel accepted goes to the outbox.
package bus

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"the-loop/channels"
	"the-loop/internal/eventlog"
	"the-loop/outbox"
)

// Ledger is the one channel of record.
type Ledger interface {
	// Record writes the event down, durably, and gives the record's link. An
	// http(s) link rides on the event to the channels.
	Record(ctx context.Context, ev channels.Event) (link string, err error)
}

// Store keeps what no channel accepted, and knows which channels may be asked.
// *outbox.Store is one.
type Store interface {
	MayAsk(ctx context.Context, a outbox.Asker) (bool, *outbox.Standing, error)
	Observe(ctx context.Context, a outbox.Asker, entryID string, o channels.Outcome) error
	Remember(ctx context.Context, e *outbox.Entry) error
}

// MaxText is how long an event's text may be by default, in bytes.
const MaxText = 1 << 20

// Bus publishes events. Its fields are set before the first Publish and not
// changed after it; Publish is then safe for concurrent use.
type Bus struct {
	Routes []Route
	// Ledger records the types that the catalogue says are recorded. nil: none.
	Ledger Ledger
	// Store remembers. nil: nothing is remembered and no folder is created.
	Store Store
	// Log gets the facts. May be nil.
	Log *eventlog.Log
	// MaxText is the longest text in bytes. Defaults to MaxText.
	MaxText int
}

// Recorded says what became of the record.
type Recorded string

// What may become of the record.
const (
	RecordedYes      Recorded = "yes"
	RecordedNo       Recorded = "no"       // it failed
	RecordedUnneeded Recorded = "unneeded" // of a type that is not recorded, or no ledger
)

// Post is what one channel said.
type Post struct {
	Channel string          `json:"channel"`
	State   channels.State  `json:"state"` // accepted, refused, uncertain; pending: not asked
	Reason  channels.Reason `json:"reason"`
	Code    string          `json:"code"`
	Error   string          `json:"error"`
	Ref     string          `json:"ref"`
	Link    string          `json:"link,omitempty"`
}

// Result is what became of a publish. No failure of a channel, a disk or the
// outbox is an error or a panic in the caller: it is in here.
type Result struct {
	ID       string   `json:"id"`
	Recorded Recorded `json:"recorded"`
	Record   string   `json:"record,omitempty"` // its link
	Posts    []Post   `json:"posts"`            // one per channel owed, in the routes' order
	// Queued: something is still owed, and stands in the outbox.
	Queued bool `json:"queued"`
	// Stored: what had to be kept is on disk. False when the state root cannot
	// be written, or when there is none.
	Stored bool `json:"stored"`

	// Event is the event as it was taken, with its id.
	Event channels.Event `json:"-"`
	// Notes are for the person at the terminal: what was changed in the event,
	// what could not be written.
	Notes []string `json:"-"`
	// Err says why the event was not taken at all: its id, type or work item is
	// malformed, its text too long, its detail no JSON. Nothing was written or
	// sent then.
	Err error `json:"-"`
	// RecordErr is the ledger's error with RecordedNo.
	RecordErr error `json:"-"`
}

// Accepted counts the channels that took the event.
func (r Result) Accepted() int {
	n := 0
	for _, p := range r.Posts {
		if p.State == channels.StateAccepted {
			n++
		}
	}
	return n
}

// Lost reports whether the event is nowhere: owed, not accepted, not stored.
func (r Result) Lost() bool { return len(r.Posts) > 0 && r.Accepted() == 0 && !r.Queued }

// Publish takes an event: it records it when its type is recorded, asks every
// channel owed it side by side, and remembers it when that settled nothing.
// It returns when all of them answered, or their timeouts are over.
//
// When ctx ends, what is in the air is settled as uncertain, and written down,
// before Publish returns.
func (b *Bus) Publish(ctx context.Context, ev channels.Event) Result {
	ev, notes, err := b.take(ev)
	res := Result{ID: ev.ID, Event: ev, Notes: notes, Recorded: RecordedUnneeded, Posts: []Post{}, Err: err}
	if err != nil {
		return res
	}
	at := time.Now()
	owed := b.owed(ev)
	// The order of these steps is the promise: the intent of this publish is
	// written here, before the ledger and before the first byte leaves.
	b.record(ctx, &res)
	attempted := b.fanOut(ctx, res.Event, at, owed)
	for _, a := range attempted {
		res.Posts = append(res.Posts, post(a))
	}
	b.settle(context.WithoutCancel(ctx), &res, at, owed, attempted)
	return res
}

// PostTo asks the given channels and nobody else. Their failures are the
// caller's to interpret: nothing is recorded, remembered or logged, whatever
// the bus has.
func (b *Bus) PostTo(ctx context.Context, ev channels.Event, routes ...Route) Result {
	only := Bus{Routes: routes, MaxText: b.MaxText}
	ev, notes, err := only.take(ev)
	res := Result{ID: ev.ID, Event: ev, Notes: notes, Recorded: RecordedUnneeded, Posts: []Post{}, Err: err}
	if err != nil {
		return res
	}
	for _, a := range only.fanOut(ctx, ev, time.Now(), routes) {
		res.Posts = append(res.Posts, post(a))
	}
	return res
}

func (b *Bus) owed(ev channels.Event) []Route {
	return slices.DeleteFunc(slices.Clone(b.Routes), func(r Route) bool { return !r.Owes(ev) })
}

func (b *Bus) record(ctx context.Context, res *Result) {
	t, _ := channels.LookupType(res.Event.Type)
	if b.Ledger == nil || !t.Recorded {
		return
	}
	var link string
	err := guard("the ledger", func() (err error) {
		link, err = b.Ledger.Record(ctx, res.Event)
		return err
	})
	if err != nil {
		res.Recorded, res.RecordErr = RecordedNo, err
		return
	}
	res.Recorded, res.Record = RecordedYes, link
	if res.Event.URL == "" && (strings.HasPrefix(link, "https://") || strings.HasPrefix(link, "http://")) {
		res.Event.URL = link
	}
}

// fanOut asks all that may be asked, side by side, each under its own timeout.
func (b *Bus) fanOut(ctx context.Context, ev channels.Event, at time.Time, owed []Route) []outbox.Attempted {
	out := make([]outbox.Attempted, len(owed))
	var wg sync.WaitGroup
	for i, r := range owed {
		wg.Go(func() { out[i] = b.ask(ctx, ev, at, r) })
	}
	wg.Wait()
	return out
}

func (b *Bus) ask(ctx context.Context, ev channels.Event, at time.Time, r Route) (a outbox.Attempted) {
	a = outbox.Attempted{Channel: r.Channel.Name(), Required: r.Required}
	asker := outbox.Asker{Channel: a.Channel}
	err := guard("standing", func() error {
		asker = r.Asker()
		asker.Publishing = true
		if b.Store == nil {
			return nil
		}
		ok, st, err := b.Store.MayAsk(ctx, asker)
		if ok || err != nil || st == nil {
			return err
		}
		a.Outcome = channels.Outcome{
			State: channels.StatePending, Reason: channels.ReasonHeld, Code: st.Code, At: time.Now(),
		}
		return nil
	})
	// A disk that cannot be written must not stop the message: on an error the
	// channel is asked.
	if err == nil && a.Outcome.State == channels.StatePending {
		return a
	}
	a.At = time.Now()
	a.Outcome = Attempt(ctx, r, channels.Delivery{Event: ev, At: at, Attempt: 1})
	if b.Store != nil && ctx.Err() == nil { // when we gave up ourselves, it says nothing about the channel
		// Standing that cannot be written costs the next publisher a request,
		// and nobody an event.
		_ = guard("standing", func() error { return b.Store.Observe(ctx, asker, ev.ID, a.Outcome) })
	}
	return a
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
func (b *Bus) settle(
	ctx context.Context, res *Result, at time.Time, owed []Route, attempted []outbox.Attempted,
) {
	if b.Store == nil {
		return
	}
	sub := eventlog.Subject{EntryID: res.ID, EventType: res.Event.Type, WorkItem: res.Event.WorkItem}
	var posted, names, missed []string
	for i, a := range attempted {
		names = append(names, owed[i].Channel.Name())
		if a.Took() {
			posted = append(posted, a.Channel)
		} else {
			missed = append(missed, a.Channel)
		}
	}
	res.Stored = true
	e, err := outbox.NewEntry(res.Event, at, attempted)
	if err != nil {
		e = &outbox.Entry{}
	} else if len(e.Owed()) > 0 {
		err = guard("the outbox", func() error { return b.Store.Remember(ctx, e) })
		res.Queued = err == nil
	}
	if err != nil {
		res.Stored = false
		res.Notes = append(res.Notes, fmt.Sprintf("the event could not be kept: %v", err))
	}
	switch {
	case res.Queued && len(posted) == 0:
		_ = b.Log.Undelivered(ctx, sub, e.Channels, e.LastError)
	case len(posted) > 0 && len(missed) > 0:
		_ = b.Log.PartlyDelivered(ctx, sub, missed, e.LastError)
	}
	for _, a := range attempted {
		if a.Outcome.State == channels.StateUncertain {
			_ = b.Log.Uncertain(ctx, sub, a.Channel, a.Outcome.Code)
		}
	}
	if err := b.Log.Published(ctx, sub, posted, names, string(res.Recorded)); err != nil {
		res.Stored = res.Stored && res.Queued // the outbox has it, or nothing on this disk does
		res.Notes = append(res.Notes, fmt.Sprintf("the event log could not be written: %v", err))
	}
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
