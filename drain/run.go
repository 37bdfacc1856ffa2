package drain

import (
	"context"
	"fmt"
	"runtime/debug"
	"time"
)

// slack is how much later than asked a timer may fire before we conclude that
// the machine slept, or that we were stopped.
const slack = time.Minute

// Start runs cycles until Stop, or until ctx ends: one at once, then one per
// Interval. Failing channels are probed in the first, and after the machine
// slept. Starting a running Drainer does nothing.
func (d *Drainer) Start(ctx context.Context) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.done != nil {
		return
	}
	ctx, d.cancel = context.WithCancel(ctx)
	d.done = make(chan struct{})
	go d.loop(ctx, d.done)
}

// Stop ends the cycles and waits. What is in the air gets Grace, and what was
// learned is written down. Stopping a Drainer that is not running does nothing.
func (d *Drainer) Stop() {
	d.mu.Lock()
	cancel, done := d.cancel, d.done
	d.cancel, d.done = nil, nil
	d.mu.Unlock()
	if done == nil {
		return
	}
	cancel()
	<-done
}

// Wake runs a cycle now, and lets failing channels be probed in it.
func (d *Drainer) Wake() {
	select {
	case d.wake <- struct{}{}:
	default:
	}
}

func (d *Drainer) loop(ctx context.Context, done chan struct{}) {
	defer close(done)
	probe := true
	for ctx.Err() == nil {
		d.tell(d.cycle(ctx, probe))
		began := time.Now().Round(0) // wall time: the monotonic clock sleeps with the machine
		timer := time.NewTimer(d.opts.Interval)
		probe = false
		select {
		case <-ctx.Done():
		case <-d.wake:
			probe = true
		case <-timer.C:
			probe = slept(time.Now().Round(0).Sub(began), d.opts.Interval)
		}
		timer.Stop()
	}
}

// slept reports whether a wait took so much longer than asked that whatever
// was true of the network before it is old.
func slept(waited, asked time.Duration) bool { return waited > asked+slack }

func (d *Drainer) cycle(ctx context.Context, probe bool) error {
	if probe {
		if err := d.opts.Store.Release(ctx); err != nil {
			d.tell(fmt.Errorf("release failing channels: %w", err))
		}
	}
	return survive(func() error {
		_, err := d.Cycle(ctx)
		return err
	})
}

// survive turns a panic into an error: one bad entry or channel must not end
// the others' deliveries.
func survive(f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	return f()
}

func (d *Drainer) tell(err error) {
	if d.opts.Trouble != nil {
		d.opts.Trouble(err)
	}
}
