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
// that has its role.
func (d *deployment) serveWhileWaiting(ctx context.Context) (stop func()) {
	l := &loop{run: d.serve}
	l.Start(ctx)
	return l.Stop
}

// serve serves whenever no poller runs, until ctx ends.
func (d *deployment) serve(ctx context.Context) {
	tick := time.NewTicker(pollerLook)
	defer tick.Stop()
	stop := func() {}
	serving := false
	for {
		switch polled := d.pollerRuns(); {
		case polled && serving:
			stop()
			serving = false
		case !polled && !serving:
			stop = d.startServing(ctx)
			serving = true
		}
		select {
		case <-ctx.Done():
			if serving {
				stop()
			}
			return
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

func (d *deployment) startServing(ctx context.Context) (stop func()) {
	runs := newReplies(d, "ask").runs(true)
	if len(d.routes) > 0 {
		runs = append(runs, drain.New(d.drain("ask")))
	}
	for _, r := range runs {
		r.Start(ctx)
	}
	return func() {
		for _, r := range slices.Backward(runs) {
			r.Stop()
		}
	}
}
