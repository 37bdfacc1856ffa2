package reader

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"the-loop/channels"
	"the-loop/state"
)

// source is one Source with its places. Whoever has the turn uses what stands
// above mu; it is kept across a read, so that nobody reads at the same time.
type source struct {
	r    *Reader
	src  Source
	wake chan struct{}
	turn chan struct{}

	schedule  schedule
	refreshed time.Time
	clock     time.Time // with both its clocks, when it was last looked at
	wall      time.Time // the same without the monotonic one

	mu       sync.Mutex // of the rest; held for an instant
	now      SourceState
	listed   map[string]ReadPlace // by key; nil: not asked yet
	listedAt time.Time            // when that was asked for last
	readAt   map[string]time.Time // by key: when the last read began that went well
	guesses  int                  // pauses in a row that the provider gave no time for
	trouble  trouble
}

// The keys of troubles that belong to no place.
const (
	roleTrouble = "\x00role"
	listTrouble = "\x00list"
)

func newSource(r *Reader, src Source) *source {
	interval, urgent, most := r.opts.Interval, r.opts.Urgent, max(r.opts.Interval, MaxQuiet)
	if paced, ok := src.(Paced); ok {
		every := paced.Every()
		interval, urgent, most = every, every, every
	}
	return &source{
		r: r, src: src, wake: make(chan struct{}, 1), turn: make(chan struct{}, 1),
		schedule: newSchedule(interval, urgent, most, r.opts),
		now:      SourceState{Name: src.Name()}, readAt: map[string]time.Time{},
		trouble: newTrouble(),
	}
}

func (s *source) state() SourceState {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.now
	// By the wall clock, as the provider means it; one that was set back must
	// not make the wait longer than any that we were told.
	if d := time.Until(st.WaitingUntil); d <= 0 || d > MaxQuiet {
		st.WaitingUntil = time.Time{}
	}
	return st
}

func (s *source) addListed(keys map[string]bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key := range s.listed {
		keys[key] = true
	}
	return s.listed != nil
}

// readSince reports whether every place that covers the work item was read, and
// that well, by a read that began after t.
func (s *source) readSince(workItem string, t time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.listedAt.After(t) {
		return false // there may be a place that we do not know of
	}
	for key, p := range s.listed {
		if p.Covers(workItem) && !s.readAt[key].After(t) {
			return false
		}
	}
	return true
}

// enter waits for the turn; leave gives it up.
func (s *source) enter(ctx context.Context) error {
	select {
	case s.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (s *source) leave() { <-s.turn }

// loop reads what is due until ctx ends.
func (s *source) loop(ctx context.Context) {
	for woken := false; ctx.Err() == nil; {
		woken = s.rest(ctx, s.step(ctx, woken))
	}
	if s.enter(context.WithoutCancel(ctx)) == nil {
		s.clock = time.Time{} // a pause of ours is no sleep of the machine's
		s.leave()
	}
}

// rest waits, and reports whether Wake ended it.
func (s *source) rest(ctx context.Context, d time.Duration) (woken bool) {
	if d <= 0 {
		select {
		case <-s.wake:
			return true
		default:
			return false
		}
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	case <-s.wake:
		return true
	}
	return false
}

// step reads the one place whose turn it is, if any, and says how long there is
// nothing to do.
func (s *source) step(ctx context.Context, woken bool) time.Duration {
	if s.enter(ctx) != nil {
		return 0
	}
	defer s.leave()
	now := time.Now()
	every := min(look, s.r.opts.Urgent)
	if woken || now.Sub(s.refreshed) >= min(every, time.Second) {
		s.refresh(now)
	}
	if s.slept(now) {
		s.r.opts.Log.InfoContext(ctx, "the clock jumped, or the machine slept: reading everything",
			"source", s.src.Name())
		s.schedule.allDue(now)
	}
	if woken {
		s.schedule.openDue(now)
	}
	if until := s.state().WaitingUntil; !until.IsZero() {
		return min(every, until.Sub(now))
	}
	p, wait := s.schedule.next(now)
	if p == nil {
		return min(every, wait)
	}
	_ = s.read(ctx, p)
	return 0
}

// slept reports whether the wall clock went on so much further than the
// monotonic one since the last look that the machine must have slept: no timer
// runs then.
func (s *source) slept(now time.Time) bool {
	was, wall := s.clock, s.wall
	s.clock, s.wall = now, now.Round(0)
	return !was.IsZero() && jumped(s.wall.Sub(wall), now.Sub(was), s.r.opts.Interval)
}

func jumped(wall, monotonic, interval time.Duration) bool { return wall-monotonic > 2*interval }

// refresh asks what there is to read now.
func (s *source) refresh(now time.Time) {
	var watched []Watched
	var places []ReadPlace
	err := survive(func() error {
		watched = s.r.opts.Watched()
		places = s.src.Places(watched)
		return nil
	})
	s.settle(listTrouble, err)
	if err != nil {
		return
	}
	s.refreshed = now
	gone := s.schedule.take(places, watched, now)
	listed := s.schedule.listed()
	s.mu.Lock()
	s.listed, s.listedAt, s.now.Places = listed, now, len(listed)
	for _, key := range gone {
		delete(s.readAt, key)
	}
	s.mu.Unlock()
	for _, key := range gone {
		s.settle(key, nil)
	}
}

// catchUp reads every place that nobody else has read since it began.
func (s *source) catchUp(ctx context.Context) error {
	began, failed := time.Now(), 0
	var first error
	done := map[string]bool{}
	for {
		more, err := s.catchUpOne(ctx, began, done)
		if ctx.Err() != nil {
			return fmt.Errorf("%s: catching up was ended: %w", s.src.Name(), context.Cause(ctx))
		}
		if err != nil {
			if failed++; first == nil {
				first = err
			}
		}
		if more {
			continue
		}
		if first != nil {
			return fmt.Errorf("%s: %d of %d places could not be read: %w",
				s.src.Name(), failed, len(done), first)
		}
		return nil
	}
}

func (s *source) catchUpOne(ctx context.Context, began time.Time, done map[string]bool) (more bool, err error) {
	if err := s.enter(ctx); err != nil {
		return false, err
	}
	defer s.leave()
	if len(done) == 0 {
		s.refresh(began)
	}
	p := s.schedule.first(func(p *place) bool { return !done[p.Key] })
	if p == nil {
		return false, nil
	}
	done[p.Key] = true
	if p.tried.After(began) {
		return true, p.err
	}
	if until := s.state().WaitingUntil; !until.IsZero() {
		return true, fmt.Errorf("told to wait until %s", until.UTC().Format(time.RFC3339))
	}
	return true, s.read(ctx, p)
}

// read reads a place, hands on what came, and settles when it is read again.
func (s *source) read(ctx context.Context, p *place) error {
	began := time.Now()
	came, err := s.readPlace(ctx, p.ReadPlace)
	if err != nil && ctx.Err() != nil {
		return err // we were told to stop, which says nothing of the place
	}
	now := time.Now()
	var told *channels.Refusal
	switch {
	case err == nil:
		s.schedule.answered(p, came, now)
		s.mu.Lock()
		s.guesses, s.now.LastReadAt, s.readAt[p.Key] = 0, now.Round(0), began
		s.mu.Unlock()
	case errors.As(err, &told) && told.Reason == channels.ReasonRate:
		s.schedule.told(p, s.pause(told, now), err, now)
	default:
		s.schedule.failed(p, err, now)
	}
	s.settle(p.Key, err)
	return err
}

// pause holds the whole source for as long as the provider says. A time that it
// did not say rises while it goes on.
func (s *source) pause(told *channels.Refusal, now time.Time) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	d := max(told.RetryAfter, time.Second)
	if told.Guessed {
		for range s.guesses {
			d = min(2*d, MaxQuiet)
		}
		s.guesses++
	}
	until := now.Add(min(d, MaxQuiet))
	s.now.WaitingUntil = until.Round(0)
	return until
}

// readPlace moves the cursor only past what was taken. What is in hand when we
// are told to stop is still taken.
func (s *source) readPlace(ctx context.Context, p ReadPlace) (came bool, err error) {
	cursor, err := s.r.cursors.get(ctx, p.Key)
	if err != nil {
		return false, err
	}
	ms, next, readErr := s.ask(ctx, p, cursor)
	local, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), takeWithin,
		fmt.Errorf("still not taken after %s", takeWithin))
	defer cancel()
	if len(ms) > 0 {
		if err := survive(func() error { return s.r.opts.Take(local, ms...) }); err != nil {
			return true, and(fmt.Errorf("what came could not be taken, and is read again: %w", err), readErr)
		}
	}
	if len(next) > 0 && !sameJSON(next, cursor) {
		listed, all := s.r.listed()
		if err := s.r.cursors.put(local, p.Key, next, listed, all); err != nil {
			return len(ms) > 0, and(fmt.Errorf("write how far was read: %w", err), readErr)
		}
	}
	return len(ms) > 0, readErr
}

func and(err, other error) error {
	if other == nil {
		return err
	}
	return fmt.Errorf("%w; %w", err, other)
}

// ask is one Read, which may be silent for ReadWithin between two requests.
func (s *source) ask(
	ctx context.Context, p ReadPlace, cursor json.RawMessage,
) (ms []channels.Message, next json.RawMessage, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	hung := fmt.Errorf("no answer from %s within %s", s.src.Name(), ReadWithin)
	timer := time.AfterFunc(ReadWithin, func() { cancel(hung) })
	defer timer.Stop()
	before := func(ctx context.Context, method string) error {
		timer.Stop()
		defer timer.Reset(ReadWithin)
		return s.pace(ctx, method)
	}
	err = survive(func() error {
		ms, next, err = s.src.Read(ctx, p, cursor, before)
		return err
	})
	if err != nil && context.Cause(ctx) == hung {
		err = hung
	}
	return ms, next, err
}

// pace waits until the call budget of the root allows one more call.
func (s *source) pace(ctx context.Context, method string) error {
	apart := time.Minute / time.Duration(s.r.opts.Budget)
	slots := s.r.opts.Root.Slots(state.Pace(paceName(s.src.Name(), method)))
	for {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		at, ok, err := slots.Take(ctx, apart, time.Now().Add(time.Minute))
		if err != nil {
			return fmt.Errorf("keep the call budget: %w", err)
		}
		if ok {
			return sleep(ctx, time.Until(at))
		}
		// Only a clock that was set back leaves slots so far ahead.
		if err := sleep(ctx, look); err != nil {
			return err
		}
	}
}

// paceName is the file of a method's slots, of characters that a file's name may
// have anywhere.
func paceName(source, method string) string {
	name := strings.Map(func(c rune) rune {
		switch {
		case 'a' <= c && c <= 'z', '0' <= c && c <= '9', c == '.', c == '_', c == '-':
			return c
		case 'A' <= c && c <= 'Z':
			return c - 'A' + 'a'
		}
		return '-'
	}, source+"."+method)
	return strings.TrimLeft(name[:min(len(name), 100)], ".")
}
