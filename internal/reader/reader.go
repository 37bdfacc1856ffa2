// Package reader reads what must be asked for: the threads, tickets and
// repositories in which somebody may have answered. It decides when each place
// is read, keeps the pace and how far each was read, and hands on what came.
//
// Every message is handed on at least once: a cursor passes it only after it
// was taken. Of all processes of a root one reads at a time.
package reader

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"the-loop/channels"
	"the-loop/state"
)

const (
	// ReadWithin is how long a source may take from one request to the next,
	// its waits for the call budget not counted.
	ReadWithin = 30 * time.Second
	// MaxQuiet is how long the reader stays away from a place that says
	// nothing, or fails.
	MaxQuiet = time.Hour
	// takeWithin is how long taking what came, or writing down how far was
	// read, may take. Both are local.
	takeWithin = 10 * time.Second
	// look is how often it is looked who else reads, what is asked about, and
	// whether the machine slept.
	look = 3 * time.Second
)

// ErrElsewhere is returned when another process reads this root: what there is
// to read is read there.
var ErrElsewhere = errors.New("another process reads for this root")

// Source is a surface that is read by asking. Its methods are used by several
// goroutines, Read by one at a time.
type Source interface {
	// Name says which source it is: "slack", "github".
	Name() string
	// Places are what there is to read now, without the network. items are the
	// work items that are watched.
	Places(items []Watched) []ReadPlace
	// Read gives what came after the cursor (nil: from the beginning), oldest
	// first, all pages, and the cursor behind it, which is opaque JSON of a few
	// hundred bytes. With an error the messages that came before it may be
	// given together with a cursor that covers exactly them. before is called
	// before each request, with the method that the provider counts it under;
	// it returns when the call budget allows one more, or with an error, which
	// Read then returns. Read returns soon after ctx ends.
	Read(ctx context.Context, p ReadPlace, cursor json.RawMessage,
		before func(ctx context.Context, method string) error) ([]channels.Message, json.RawMessage, error)
}

// Watched is a work item that somebody was asked about.
type Watched = channels.Watched

// ReadPlace is one thing to read.
type ReadPlace = channels.ReadPlace

// Paced is a source that is read at its own pace, in place of the reader's and
// never more rarely: one whose messages come in by another way too, and that is
// only caught up with.
type Paced interface {
	Source
	Every() time.Duration
}

// Options say what is read, and how. Root, Role and Take are needed.
type Options struct {
	// Root keeps the cursors, and the pace that all its processes share.
	Root *state.Root
	// Role is the reader's lock: whoever holds it reads for the root.
	Role state.Role
	// Who is written into the lock for others to read.
	Who     string
	Sources []Source
	// Beside is what else a process does for as long as it is the one that
	// reads. Each is called when Start has taken the role, and returns soon
	// after its ctx ends; only then is the role given up.
	Beside []func(ctx context.Context)
	// Watched gives the work items that are watched. It is called every few
	// seconds, and uses no network. nil: none.
	Watched func() []Watched
	// Take stores the messages, durably on return. It is given what it has
	// again after a crash or an error, and must know it.
	Take func(ctx context.Context, ms ...channels.Message) error
	// Interval is how often a place is read. One that says nothing is read ever
	// more rarely, down to once per MaxQuiet. Defaults to a minute.
	Interval time.Duration
	// Urgent is how often a place with an open question is read. Defaults to
	// the smaller of Interval and five seconds.
	Urgent time.Duration
	// Budget bounds the calls per minute, source and method. Defaults to 40.
	Budget int
	// Log gets the failures, without a word of what came in. nil discards.
	Log *slog.Logger
	// Trouble, when set, is told what is logged: a failure that is new or an
	// hour old, and nil when all that failed at the source is over. It must not
	// block.
	Trouble func(source string, err error)
}

// SourceState says how a source is.
type SourceState struct {
	Name       string
	LastReadAt time.Time // that it gave an answer; zero: never yet
	LastError  string    // "" when nothing fails
	Places     int       // that there are to read
	// WaitingUntil is until when the provider told us to wait; zero: it did
	// not.
	WaitingUntil time.Time
}

// Reader reads. Make one with New.
type Reader struct {
	opts    Options
	cursors cursors
	sources []*source

	mu     sync.Mutex // of the two below
	cancel context.CancelFunc
	done   chan struct{}

	roleMu  sync.Mutex // of the two below; held for local work only
	readers int        // in this process, under the one role
	release func()
}

// New gives a Reader that is not running.
func New(o Options) *Reader {
	if o.Interval <= 0 {
		o.Interval = time.Minute
	}
	if o.Urgent <= 0 {
		o.Urgent = min(o.Interval, 5*time.Second)
	}
	if o.Budget <= 0 {
		o.Budget = 40
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Watched == nil {
		o.Watched = func() []Watched { return nil }
	}
	r := &Reader{opts: o, cursors: cursors{o.Root.Document(state.Cursors), o.Log}}
	for _, s := range o.Sources {
		r.sources = append(r.sources, newSource(r, s))
	}
	return r
}

// Start reads until Stop, or until ctx ends. While another process reads for
// the root it waits for that one's end. Starting a running Reader does nothing.
func (r *Reader) Start(ctx context.Context) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.done != nil {
		select {
		case <-r.done: // it has ended
		default:
			return
		}
	}
	ctx, r.cancel = context.WithCancel(ctx)
	r.done = make(chan struct{})
	go r.run(ctx, r.done)
}

// Stop ends the reading that Start began, and waits. A read in the air is
// broken off; what came of it comes again. Stopping a Reader that is not
// running does nothing.
func (r *Reader) Stop() {
	r.mu.Lock()
	cancel, done := r.cancel, r.done
	r.mu.Unlock()
	if done == nil {
		return
	}
	cancel()
	<-done
}

// Wake looks at once at what is watched, and reads what is due and every place
// with an open question. It does nothing where nobody reads.
func (r *Reader) Wake() {
	for _, s := range r.sources {
		select {
		case s.wake <- struct{}{}:
		default:
		}
	}
}

// CatchUp reads every place once, due or not, those with an open question
// first, and returns when all have been read. It works beside Start and without
// it, and gives ErrElsewhere where another process reads. What the provider
// told us to wait for is waited for by nobody here: it is an error, and so is
// every place that could not be read; the others are read nevertheless.
func (r *Reader) CatchUp(ctx context.Context) error {
	if err := r.takeRole(); err != nil {
		return err
	}
	defer r.leaveRole()
	errs := make([]error, len(r.sources))
	var wg sync.WaitGroup
	for i, s := range r.sources {
		wg.Go(func() { errs[i] = s.catchUp(ctx) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// ReadSince reports whether every place in which the work item may be answered
// was read, and all that came was taken, by a read that began after t: what was
// written there before t is known then. With no such place it is true, and false
// while this process is not the one that reads. It never waits for the network.
func (r *Reader) ReadSince(workItem string, t time.Time) bool {
	r.roleMu.Lock()
	reads := r.readers > 0
	r.roleMu.Unlock()
	return reads && !slices.ContainsFunc(r.sources, func(s *source) bool { return !s.readSince(workItem, t) })
}

// State says how each source is, in the order of Options. It never waits for
// the network.
func (r *Reader) State() []SourceState {
	out := make([]SourceState, len(r.sources))
	for i, s := range r.sources {
		out[i] = s.state()
	}
	return out
}

func (r *Reader) run(ctx context.Context, done chan struct{}) {
	defer close(done)
	for ctx.Err() == nil {
		err := r.takeRole()
		if err == nil {
			r.read(ctx)
			r.leaveRole()
			return
		}
		if errors.Is(err, ErrElsewhere) {
			err = nil
		}
		for _, s := range r.sources {
			s.settle(roleTrouble, err)
		}
		_ = sleep(ctx, look)
	}
}

// read runs the sources, and what there is beside them, until ctx ends.
func (r *Reader) read(ctx context.Context) {
	var wg sync.WaitGroup
	for _, s := range r.sources {
		s.settle(roleTrouble, nil)
		wg.Go(func() { s.loop(ctx) })
	}
	for _, do := range r.opts.Beside {
		wg.Go(func() { do(ctx) })
	}
	<-ctx.Done() // also where there is nothing to read: then all of it is read
	wg.Wait()
}

// takeRole makes this process the one that reads. Its goroutines share the
// role.
func (r *Reader) takeRole() error {
	r.roleMu.Lock()
	defer r.roleMu.Unlock()
	if r.readers == 0 {
		release, held, err := r.opts.Role.Take(r.opts.Who)
		if err != nil {
			return err
		}
		if !held {
			return ErrElsewhere
		}
		r.release = release
	}
	r.readers++
	return nil
}

func (r *Reader) leaveRole() {
	r.roleMu.Lock()
	defer r.roleMu.Unlock()
	if r.readers--; r.readers == 0 {
		r.release()
	}
}

// listed gives the keys of all places that there are to read. ok is false while
// a source has not been asked.
func (r *Reader) listed() (keys map[string]bool, ok bool) {
	keys = map[string]bool{}
	for _, s := range r.sources {
		if !s.addListed(keys) {
			return nil, false
		}
	}
	return keys, true
}

// sleep returns an error when ctx ends first.
func sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return context.Cause(ctx)
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
