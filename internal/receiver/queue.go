package receiver

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"time"

	"the-loop/channels"
)

// maxBatch is how many messages one call of Take gets. Those of one request are
// not parted.
const maxBatch = 256

var (
	errClosed = errors.New("the receiver is closed")
	errLate   = errors.New("not taken within " + TakeWithin.String())
)

// queue hands what requests bring to Take, those that wait at the same time in
// one call: one flush to the disk serves them all.
type queue struct {
	takeAll func(ctx context.Context, ms ...channels.Message) error
	logger  *slog.Logger

	in   chan *request
	stop chan struct{} // closed: nothing is taken any more
	done chan struct{} // closed when the goroutine has ended

	mu      sync.Mutex // of the next two, and of closing stop
	started bool
	stopped bool

	// Of the last failure, for saying it once; the goroutine's own.
	failed string
	saidAt time.Time
	count  int
}

// request is what one HTTP request brought, and waits.
type request struct {
	messages []channels.Message
	until    time.Time
	result   chan error // of one, so that nobody waits for who has left
}

func newQueue(take func(context.Context, ...channels.Message) error, logger *slog.Logger) *queue {
	return &queue{
		takeAll: take, logger: logger,
		in: make(chan *request), stop: make(chan struct{}), done: make(chan struct{}),
	}
}

func (q *queue) start() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.started || q.stopped {
		return
	}
	q.started = true
	go q.run()
}

func (q *queue) close() {
	q.mu.Lock()
	if !q.stopped {
		q.stopped = true
		close(q.stop)
	}
	started := q.started
	q.mu.Unlock()
	if started {
		<-q.done
	}
}

// take returns nil when all messages are taken, errLate when that was not known
// in time: they may be taken yet. The sender's hanging up is no reason to drop
// them, since not every provider sends again.
func (q *queue) take(ms []channels.Message) error {
	if len(ms) == 0 {
		return nil
	}
	r := &request{messages: ms, until: time.Now().Add(TakeWithin), result: make(chan error, 1)}
	late := time.NewTimer(TakeWithin)
	defer late.Stop()
	select {
	case q.in <- r:
	case <-q.stop:
		return errClosed
	case <-late.C:
		return errLate
	}
	select {
	case err := <-r.result: // whoever was let in gets one, closing or not
		return err
	case <-late.C:
		return errLate
	}
}

func (q *queue) run() {
	defer close(q.done)
	var next *request // did not fit
	for {
		batch, n := []*request{}, 0
		if next == nil {
			select {
			case next = <-q.in:
			case <-q.stop:
				return
			}
		}
		for next != nil && (n == 0 || n+len(next.messages) <= maxBatch) {
			batch, n = append(batch, next), n+len(next.messages)
			select {
			case next = <-q.in:
			default:
				next = nil
			}
		}
		q.settle(batch)
	}
}

// settle takes the batch and tells everybody in it. When it fails as a whole,
// each message is tried once more alone, so that a bad one fails its own
// request only.
func (q *queue) settle(batch []*request) {
	var all []channels.Message
	var until time.Time
	for _, r := range batch {
		all = append(all, r.messages...)
		if r.until.After(until) {
			until = r.until
		}
	}
	err := q.try(until, all...)
	q.say(err)
	for _, r := range batch {
		if err != nil && len(all) > 1 {
			r.result <- q.alone(r)
		} else {
			r.result <- err
		}
	}
}

// say logs a failure when its text changes or an hour has passed, and its end.
func (q *queue) say(err error) {
	if err == nil {
		if q.count > 0 {
			q.logger.Info("recovered: what comes in is taken again", "after_attempts", q.count)
		}
		q.failed, q.count = "", 0
		return
	}
	q.count++
	if text := err.Error(); text != q.failed || time.Since(q.saidAt) >= time.Hour {
		q.failed, q.saidAt = text, time.Now()
		q.logger.Error("what came in could not be taken", "error", err)
	}
}

func (q *queue) alone(r *request) error {
	for _, m := range r.messages {
		if err := q.try(r.until, m); err != nil {
			return err
		}
	}
	return nil
}

// try calls Take, unless nobody waits for it any more.
func (q *queue) try(until time.Time, ms ...channels.Message) (err error) {
	ctx, cancel := context.WithDeadlineCause(context.Background(), until, errLate)
	defer cancel()
	if ctx.Err() != nil {
		return errLate
	}
	defer func() {
		if p := recover(); p != nil {
			err = describePanic(p)
		}
	}()
	return q.takeAll(ctx, ms...)
}

// describePanic is called by the function that recovered, and says where the
// panic was. Of its own words it keeps those of Go's runtime; any other may
// hold what came in.
func describePanic(p any) error {
	what := fmt.Sprintf("%T", p)
	if e, ok := p.(runtime.Error); ok {
		what = e.Error()
	}
	var pcs [32]uintptr
	frames := runtime.CallersFrames(pcs[:runtime.Callers(3, pcs[:])])
	var at strings.Builder
	for n := 0; n < 6; {
		f, more := frames.Next()
		if f.Function != "" && !strings.HasPrefix(f.Function, "runtime.") {
			fmt.Fprintf(&at, " < %s:%d", filepath.Base(f.File), f.Line)
			n++
		}
		if !more {
			break
		}
	}
	return fmt.Errorf("panic: %s%s", what, &at)
}
