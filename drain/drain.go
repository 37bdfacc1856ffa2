// Package drain delivers what waits in the outbox. A cycle claims what is due,
// sends it, and settles; a Drainer runs cycles until it is stopped.
package drain

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"the-loop/bus"
	"the-loop/channels"
	"the-loop/internal/eventlog"
	"the-loop/outbox"
	"the-loop/state"
)

// Grace is how long the send in flight may go on after the drain is told to
// stop; after that it is settled as uncertain.
const Grace = 4 * time.Second

// Options say what is drained, and how. Store, Role and Routes are needed.
type Options struct {
	Store *outbox.Store
	// Root, when set, is asked before each cycle whether it is still on the
	// machine that it belongs to (state.ErrMoved).
	Root *state.Root
	// Role is the drainer's lock: whoever holds it drains the root.
	Role state.Role
	// Who is written into the lock for others to read.
	Who string
	// Routes gives the channels. It is called for every cycle, so that a new
	// config is taken up.
	Routes func() []bus.Route
	// Interval is the time between two cycles, and how long a cycle starts
	// sends. Defaults to a minute.
	Interval time.Duration
	// Budget bounds what one cycle sends to a channel that has not accepted
	// anything in it yet. Defaults to 20.
	Budget int
	// EvidenceAfter is how old a doubt must be before a look-up that does not
	// find the message counts. Defaults to DefaultEvidenceAfter.
	EvidenceAfter time.Duration
	// Ended says how a question ended in the meantime, "" for what is still to be
	// asked: see channels.Delivery. nil: everything is.
	Ended func(ctx context.Context, channel string, ev channels.Event) string
	// Log gets the facts. May be nil.
	Log *eventlog.Log
	// Outcome, when set, is told of every send. It must not block.
	Outcome func(c outbox.Claimed, o channels.Outcome)
	// Trouble, when set, is told of every cycle's error, nil included.
	Trouble func(error)
}

// Report is what a cycle did.
type Report struct {
	Accepted, Refused, Uncertain int
	// Resolved counts the uncertain deliveries that a look-up settled.
	Resolved int
	// Drainer says who else drains this root right now: nothing was done.
	Drainer string
	// Held tells, by channel, until when it is not asked.
	Held map[string]time.Time
}

// Sent is how many sends the cycle made.
func (r Report) Sent() int { return r.Accepted + r.Refused + r.Uncertain }

// Drainer runs cycles. Make one with New.
type Drainer struct {
	opts Options
	wake chan struct{}

	mu      sync.Mutex
	cancel  context.CancelFunc
	done    chan struct{}
	unsaved []unsaved           // outcomes that no disk has taken yet
	watched map[doubtKey]*watch // uncertain deliveries that are looked up
}

type unsaved struct {
	claim   outbox.Claimed
	outcome channels.Outcome
}

// New gives a Drainer that is not running.
func New(o Options) *Drainer {
	if o.Interval <= 0 {
		o.Interval = time.Minute
	}
	if o.Budget <= 0 {
		o.Budget = 20
	}
	if o.EvidenceAfter <= 0 {
		o.EvidenceAfter = DefaultEvidenceAfter
	}
	return &Drainer{opts: o, wake: make(chan struct{}, 1), watched: map[doubtKey]*watch{}}
}

// Cycle runs one cycle: every channel that has something due is drained by its
// own lane, side by side, oldest first, until nothing is due, the channel fails
// or the interval is over. A lane stands for one channel and never holds up
// another. When ctx ends nothing more is started, and what is in the air gets
// Grace. Nothing is sent that could not be written down first.
func (d *Drainer) Cycle(ctx context.Context) (Report, error) {
	entries, bad, damaged, err := d.opts.Store.Entries()
	if err != nil || len(entries) == 0 && bad == 0 && !damaged && !d.hasUnsaved() {
		return Report{}, err
	}
	release, who, err := d.takeRole()
	if err != nil || release == nil {
		return Report{Drainer: who}, err
	}
	defer release()
	if err := d.save(ctx); err != nil {
		return Report{}, err
	}
	if d.opts.Root != nil {
		if err := d.opts.Root.CheckMachine(ctx); err != nil {
			return Report{}, err
		}
	}
	routes := d.opts.Routes()
	lanes := make([]outbox.Lane, len(routes))
	for i, r := range routes {
		lanes[i] = r.Lane()
	}
	if err := d.opts.Store.Sweep(ctx, lanes); err != nil {
		return Report{}, fmt.Errorf("prepare the outbox: %w", err)
	}
	if entries, _, _, err = d.opts.Store.Entries(); err != nil {
		return Report{}, err
	}
	return d.runLanes(ctx, routes, entries)
}

// takeRole gives no release when somebody else, who is named, drains.
func (d *Drainer) takeRole() (release func(), who string, err error) {
	release, held, err := d.opts.Role.Take(d.opts.Who)
	if err != nil {
		return nil, "", fmt.Errorf("take the drainer's role: %w", err)
	}
	if held {
		return release, "", nil
	}
	if who, err = d.opts.Role.Holder(); who == "" && err == nil {
		who = "another process" // it has just ended
	}
	return nil, who, err
}

func (d *Drainer) runLanes(ctx context.Context, routes []bus.Route, entries []*outbox.Entry) (Report, error) {
	total := Report{Held: map[string]time.Time{}}
	var mu sync.Mutex
	var errs []error
	var wg sync.WaitGroup
	until := time.Now().Add(d.opts.Interval)
	for _, r := range routes {
		l := lane{drainer: d, route: r, until: until, due: d.opts.Store.Due(entries, r.Channel.Name())}
		if _, ok := r.Channel.(channels.Witness); ok {
			l.doubts = outbox.Doubts(entries, r.Channel.Name())
			d.forgetAllBut(r.Channel.Name(), l.doubts)
		}
		if len(l.doubts) == 0 && l.due == 0 {
			continue
		}
		wg.Go(func() {
			err := survive(func() error { return l.run(ctx) })
			mu.Lock()
			defer mu.Unlock()
			total.Accepted += l.accepted
			total.Refused += l.refused
			total.Uncertain += l.uncertain
			total.Resolved += l.settled
			if !l.heldUntil.IsZero() {
				total.Held[r.Channel.Name()] = l.heldUntil
			}
			if err != nil {
				errs = append(errs, fmt.Errorf("lane %s: %w", r.Channel.Name(), err))
			}
		})
	}
	wg.Wait()
	return total, errors.Join(errs...)
}

func (d *Drainer) hasUnsaved() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.unsaved) > 0
}

// save settles what was learned earlier and could not be written.
func (d *Drainer) save(ctx context.Context) error {
	for {
		d.mu.Lock()
		if len(d.unsaved) == 0 {
			d.mu.Unlock()
			return nil
		}
		u := d.unsaved[0]
		d.mu.Unlock()
		settled, err := d.opts.Store.Settle(ctx, u.claim, u.outcome)
		if err != nil {
			return err
		}
		d.mu.Lock()
		d.unsaved = d.unsaved[1:]
		d.mu.Unlock()
		d.report(ctx, u.claim, u.outcome, settled)
	}
}

func (d *Drainer) keepUnsaved(c outbox.Claimed, o channels.Outcome) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.unsaved = append(d.unsaved, unsaved{c, o})
}

// report writes down the facts of a settled attempt.
func (d *Drainer) report(ctx context.Context, c outbox.Claimed, o channels.Outcome, s outbox.Settled) {
	sub := subjectOf(c.Event)
	switch o.State {
	case channels.StateAccepted:
		_ = d.opts.Log.DeliveredLate(ctx, sub, c.Channel, s.Attempts, s.Waited)
		if len(s.Missed) > 0 {
			_ = d.opts.Log.PartlyDelivered(ctx, sub, s.Missed, s.Error)
		}
	case channels.StateUncertain:
		_ = d.opts.Log.Uncertain(ctx, sub, c.Channel, o.Code)
	default:
		if s.Dead {
			_ = d.opts.Log.Dead(ctx, sub, c.Channel, string(o.Reason), o.Code, s.Attempts)
		}
	}
}

// pace waits until the channel's rate allows one more send. ok is false when
// that would be after until, or cannot be told: the send is left to a later
// cycle, and so is its turn.
func (d *Drainer) pace(ctx context.Context, r bus.Route, until time.Time) (ok bool) {
	at, ok, err := d.opts.Store.Pace(ctx, r.Channel.Name(), r.Apart(), until)
	if err != nil || !ok {
		return false
	}
	sleep(ctx, time.Until(at))
	return true
}

func sleep(ctx context.Context, d time.Duration) {
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
