package main

import (
	"context"
	"slices"
	"sync"
	"time"

	"the-loop/drain"
	"the-loop/internal/daemon"
	"the-loop/state"
	"the-loop/status"
)

// pollerLook is how often it is looked whether a poller runs, by who stands in
// for one.
const pollerLook = time.Second

// whilePolled tells change whether a poller runs on this root: at once, and
// whenever that is otherwise, until ctx ends.
func (d *deployment) whilePolled(ctx context.Context, change func(polled bool)) {
	tick := time.NewTicker(pollerLook)
	defer tick.Stop()
	polled := d.pollerRuns()
	for change(polled); ; {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if now := d.pollerRuns(); now != polled {
			polled = now
			change(polled)
		}
	}
}

// pollerRuns reports whether a poller runs on this root. What cannot be told is
// no: then the roles decide who reads.
func (d *deployment) pollerRuns() bool {
	process, err := d.root.Role(state.RunRole("poller")).Holder()
	return err == nil && process != ""
}

// serving reads what comes in, shows what became of it, and drains, while
// somebody waits for an answer and no poller does it. Of several who wait each
// part is done by the one that has its role.
type serving struct {
	d       *deployment
	ctx     context.Context // the waiting command's
	lasting context.Context
	run     loop

	mu      sync.Mutex
	replies *replies // nil: a poller serves
	runs    []daemon.Runner
}

// serveWhileWaiting serves until stop, which gives what kept replies from coming
// in.
func (d *deployment) serveWhileWaiting(ctx context.Context) (stop func() []string) {
	s := d.serve(ctx, nil)
	return func() []string {
		troubles := s.troubles()
		s.stop()
		return troubles
	}
}

// serve serves until stop. What is owed then is paid before it ends, as far as
// that takes no more than a moment, and unless lasting has ended; nil: it is left
// to who comes next.
func (d *deployment) serve(ctx, lasting context.Context) *serving {
	s := &serving{d: d, ctx: ctx, lasting: lasting}
	s.run.run = func(ctx context.Context) { d.whilePolled(ctx, s.change) }
	s.run.Start(context.WithoutCancel(ctx)) // it ends when it is stopped, and has told how it was
	return s
}

func (s *serving) change(polled bool) {
	if polled {
		s.end()
		return
	}
	r := newReplies(s.d, "ask", false)
	r.lasting = s.lasting
	runs := r.runs()
	if len(s.d.routes) > 0 {
		runs = append(runs, drain.New(s.d.drain("ask")))
	}
	for _, run := range runs {
		run.Start(context.WithoutCancel(s.ctx))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.replies, s.runs = r, runs
}

func (s *serving) end() {
	s.mu.Lock()
	runs := s.runs
	s.replies, s.runs = nil, nil
	s.mu.Unlock()
	for _, run := range slices.Backward(runs) {
		run.Stop()
	}
}

// troubles gives what keeps replies from coming in: to us, or to the poller.
func (s *serving) troubles() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.replies != nil {
		in := s.replies.state()
		return in.Troubles(time.Now())
	}
	h, err := status.ReadHeartbeat(s.d.root, "poller")
	if err != nil || h == nil || h.Inbound == nil {
		return nil
	}
	return h.Inbound.Troubles(time.Now())
}

// whenRead calls do once we have read all that may answer the work item, by reads
// that begin after t; never while a poller serves. It returns when ctx ends.
func (s *serving) whenRead(ctx context.Context, workItem string, t time.Time, do func()) {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for woken := false; ; {
		s.mu.Lock()
		r := s.replies
		s.mu.Unlock()
		switch {
		case r == nil:
		case !woken:
			r.reader.Wake()
			woken = true
		case r.reader.ReadSince(workItem, t):
			do()
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// stop ends it. served is false when a poller has served, which pays what is owed.
func (s *serving) stop() (served bool) {
	s.run.Stop()
	served = s.replies != nil
	s.end()
	return served
}
