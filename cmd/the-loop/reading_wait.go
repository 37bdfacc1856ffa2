package main

import (
	"context"
	"slices"
	"time"

	"the-loop/drain"
	"the-loop/state"
)

// pollerLook is how often a waiting command looks whether a poller runs.
const pollerLook = time.Second

// serveWhileWaiting reads what comes in, and drains, while somebody waits for an
// answer and no poller does it. Of several who wait each part is done by the one
// that has its role. stop ends that, and gives what kept replies from coming in.
func (d *deployment) serveWhileWaiting(ctx context.Context) (stop func() []string) {
	var troubles []string
	l := &loop{run: func(ctx context.Context) { troubles = d.serve(ctx) }}
	l.Start(ctx)
	return func() []string {
		l.Stop()
		return troubles
	}
}

// serve serves whenever no poller runs, until ctx ends.
func (d *deployment) serve(ctx context.Context) (troubles []string) {
	tick := time.NewTicker(pollerLook)
	defer tick.Stop()
	stop := func() []string { return nil }
	serving := false
	for {
		switch polled := d.pollerRuns(); {
		case polled && serving:
			stop()
			serving = false
		case !polled && !serving:
			stop = d.startServing(context.WithoutCancel(ctx)) // it ends when it is stopped, and has told how it was
			serving = true
		}
		select {
		case <-ctx.Done():
			if serving {
				troubles = stop()
			}
			return troubles
		case <-tick.C:
		}
	}
}

// pollerRuns reports whether a poller runs on this root. What cannot be told is
// no: then the roles decide who reads.
func (d *deployment) pollerRuns() bool {
	process, err := d.root.Role(state.RunRole("poller")).Holder()
	return err == nil && process != ""
}

func (d *deployment) startServing(ctx context.Context) (stop func() []string) {
	replies := newReplies(d, "ask")
	runs := replies.runs(true)
	if len(d.routes) > 0 {
		runs = append(runs, drain.New(d.drain("ask")))
	}
	for _, r := range runs {
		r.Start(ctx)
	}
	return func() []string {
		in := replies.state()
		for _, r := range slices.Backward(runs) {
			r.Stop()
		}
		return in.Troubles(time.Now())
	}
}
