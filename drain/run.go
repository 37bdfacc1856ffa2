package drain

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"strings"
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
		select {
		case <-d.done: // it has ended
		default:
			return
		}
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
	if err := d.save(context.WithoutCancel(ctx)); err != nil {
		d.tell(fmt.Errorf("what the last cycle learned is not written down: %w", err))
	}
}

// slept reports whether a wait took so much longer than asked that whatever
// was true of the network before it is old.
func slept(waited, asked time.Duration) bool { return waited > asked+slack }

func (d *Drainer) cycle(ctx context.Context, probe bool) error {
	var released error
	if probe {
		if released = d.opts.Store.Release(ctx); released != nil {
			released = fmt.Errorf("release failing channels: %w", released)
		}
	}
	err := survive(func() error {
		_, err := d.Cycle(ctx)
		return err
	})
	if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		err = nil // we were told to stop
	}
	return errors.Join(released, err)
}

// survive turns a panic into an error: one bad entry or channel must not end
// the others' deliveries. The error says where it was. Of the panic's own words
// it keeps those of Go's runtime; any other may hold what nobody has checked.
func survive(f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			what := fmt.Sprintf("%T", p)
			if e, ok := p.(runtime.Error); ok {
				what = e.Error()
			}
			err = fmt.Errorf("panic: %s%s", what, panickedAt())
		}
	}()
	return f()
}

// panickedAt names the innermost functions of a panic in our own words, the
// same ones each time.
func panickedAt() string {
	var pcs [32]uintptr
	frames := runtime.CallersFrames(pcs[:runtime.Callers(3, pcs[:])])
	var at strings.Builder
	for n := 0; n < 6; {
		f, more := frames.Next()
		if !strings.HasPrefix(f.Function, "runtime.") {
			fmt.Fprintf(&at, " < %s:%d", filepath.Base(f.File), f.Line)
			n++
		}
		if !more {
			break
		}
	}
	return at.String()
}

func (d *Drainer) tell(err error) {
	if d.opts.Trouble != nil {
		d.opts.Trouble(err)
	}
}
