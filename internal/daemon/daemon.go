// Package daemon runs a service of a root in the foreground: it holds the run
// lock, drains, says how it is in a heartbeat, takes up a new config, and
// stops without losing what it learned. The services differ in what else they
// run beside the drainer.
package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"the-loop/drain"
	"the-loop/internal/eventlog"
	"the-loop/state"
	"the-loop/status"
)

// HeartbeatEvery is how often a daemon that has nothing new to say repeats
// that it is there. It has when its first cycle ended, when a cycle fails in
// another way than the one before or not any more, and after a reload.
const HeartbeatEvery = time.Minute

// ErrRunning is returned when the service already runs on this root.
var ErrRunning = errors.New("is already running on this root")

// Setup is what a config asks of a daemon.
type Setup struct {
	// Drain is how it drains; nil where no channel is configured. Trouble is
	// set by the daemon.
	Drain *drain.Options
	// Listen is the address of the HTTP listener, "" for none, and Handler
	// serves it.
	Listen  string
	Handler http.Handler
	// Runs is what else the service runs, until it stops or takes up a new
	// config. Nothing that must be stopped runs before they are started: a Setup
	// may be refused, and is dropped then.
	Runs []Runner
	// Inbound says what came in, for the heartbeat. nil: nothing does.
	Inbound func() status.Inbound
	// ConfigHash changes when the config does.
	ConfigHash string
	// Missing names the variables and files that are not there, right now.
	Missing func() []string
}

// Runner is what a service runs beside the drainer. Stop waits for its end.
type Runner interface {
	Start(ctx context.Context)
	Stop()
}

// Options say which service is run.
type Options struct {
	Service string
	Version string
	Root    *state.Root
	Logger  *slog.Logger // nil discards
	Log     *eventlog.Log
	// Setup reads the config, at the start and at every Reload.
	Setup func() (Setup, error)
	// Reload asks for the config to be read anew.
	Reload <-chan os.Signal
}

// Run runs the service until ctx ends. It fails when the config cannot be
// read, the service already runs (ErrRunning), the run lock cannot be taken,
// or the listener cannot be opened.
func Run(ctx context.Context, o Options) error {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	setup, err := o.Setup()
	if err != nil {
		return err
	}
	release, err := takeRole(o.Root.Role(state.RunRole(o.Service)), o.Service)
	if err != nil {
		return err
	}
	defer release()
	d := &service{opts: o, news: make(chan struct{}, 1), beat: status.Heartbeat{
		Version: o.Version, PID: os.Getpid(), StartedAt: time.Now().UTC().Truncate(time.Second),
	}}
	if err := d.apply(ctx, setup); err != nil {
		return err
	}
	_ = o.Log.Service(ctx, o.Service, "started")
	d.loop(ctx)
	d.stop()
	_ = o.Log.Service(context.WithoutCancel(ctx), o.Service, "stopped")
	return nil
}

// takeRole takes the run lock, or says who has it.
func takeRole(role state.Role, service string) (release func(), err error) {
	release, held, err := role.Take(fmt.Sprintf("%s, process %d", service, os.Getpid()))
	if err != nil {
		return nil, fmt.Errorf("take the run lock: %w", err)
	}
	if held {
		return release, nil
	}
	holder, _ := role.Holder()
	return nil, fmt.Errorf("the %s %w (%s)", service, ErrRunning, holder)
}

// service is a running daemon.
type service struct {
	opts    Options
	setup   Setup
	drainer *drain.Drainer
	server  *server // nil: none
	handler atomic.Pointer[http.Handler]
	trouble trouble // of the cycles
	beating trouble // of the heartbeat
	told    status.Inbound
	news    chan struct{}

	mu   sync.Mutex
	beat status.Heartbeat
}

// lookEvery is how often it is looked whether something came in that the
// heartbeat should tell of. Outsiders decide how often that is so, and cost no
// more than one small write then.
const lookEvery = 5 * time.Second

func (s *service) loop(ctx context.Context) {
	ticker, look := time.NewTicker(HeartbeatEvery), time.NewTicker(lookEvery)
	defer ticker.Stop()
	defer look.Stop()
	for {
		s.writeHeartbeat(ctx)
		if !s.wait(ctx, ticker.C, look.C) {
			return
		}
	}
}

// wait returns true when there is something to say, and false when ctx ended.
func (s *service) wait(ctx context.Context, tick, look <-chan time.Time) bool {
	for {
		select {
		case <-ctx.Done():
			return false
		case <-tick:
		case <-s.news:
		case <-s.opts.Reload:
			s.reload(ctx)
		case <-look:
			if s.setup.Inbound == nil || reflect.DeepEqual(s.setup.Inbound().News(), s.told.News()) {
				continue
			}
		}
		return true
	}
}

// reload takes up a new config. One that is broken is refused, and the old one
// stays.
func (s *service) reload(ctx context.Context) {
	setup, err := s.opts.Setup()
	if err == nil {
		err = s.apply(ctx, setup)
	}
	if err != nil {
		s.opts.Logger.ErrorContext(ctx, "new config refused, the old one stays", "error", err)
		_ = s.opts.Log.ConfigRefused(ctx, s.opts.Service)
		return
	}
	_ = s.opts.Log.Service(ctx, s.opts.Service, "reloaded")
}

// apply makes the setup the running one. What can fail comes first.
func (s *service) apply(ctx context.Context, setup Setup) error {
	if setup.Listen != s.setup.Listen {
		if err := s.listen(ctx, setup); err != nil {
			return err
		}
	} else if setup.Handler != nil {
		s.handler.Store(&setup.Handler)
	}
	s.stopRuns()
	s.setup = setup
	s.mu.Lock()
	s.beat.ConfigHash = setup.ConfigHash
	s.mu.Unlock()
	if setup.Drain != nil {
		opts := *setup.Drain
		opts.Trouble = s.cycled
		s.drainer = drain.New(opts)
		s.drainer.Start(ctx)
	}
	for _, r := range setup.Runs {
		r.Start(ctx)
	}
	return nil
}

// stopRuns ends what the present setup runs.
func (s *service) stopRuns() {
	if s.drainer != nil {
		s.drainer.Stop()
		s.drainer = nil
	}
	for _, r := range slices.Backward(s.setup.Runs) {
		r.Stop()
	}
	s.setup.Runs = nil
}

// listen opens the new listener before it closes the old one.
func (s *service) listen(ctx context.Context, setup Setup) error {
	var next *server
	bound := ""
	if setup.Listen != "" {
		l, err := net.Listen("tcp", setup.Listen)
		if err != nil {
			return fmt.Errorf("listen on %s: %w", setup.Listen, err)
		}
		bound = l.Addr().String()
		s.handler.Store(&setup.Handler)
		next = serve(l, http.HandlerFunc(s.serve), s.opts.Logger)
		s.opts.Logger.InfoContext(ctx, "listening", "address", bound)
	}
	s.server.close()
	s.server = next
	s.mu.Lock()
	s.beat.Listen = bound
	s.mu.Unlock()
	return nil
}

// serve lets the handler of the running setup answer.
func (s *service) serve(w http.ResponseWriter, r *http.Request) { (*s.handler.Load()).ServeHTTP(w, r) }

// stop closes the door first: what still comes in is answered before what takes
// it in ends.
func (s *service) stop() {
	s.server.close()
	s.stopRuns()
}

// cycled is told how each cycle of the drainer ended.
func (s *service) cycled(err error) {
	s.trouble.report(s.opts.Logger, "drain cycle failed", err)
	text := ""
	if err != nil {
		text = firstLine(err)
	}
	s.mu.Lock()
	news := s.beat.LastCycleAt.IsZero() || kind(text) != kind(s.beat.LastError)
	s.beat.LastCycleAt, s.beat.LastError = time.Now().UTC().Truncate(time.Second), text
	s.mu.Unlock()
	if news {
		select {
		case s.news <- struct{}{}:
		default:
		}
	}
}

func (s *service) writeHeartbeat(ctx context.Context) {
	s.mu.Lock()
	beat := s.beat
	s.mu.Unlock()
	beat.Missing = []string{}
	if s.setup.Missing != nil {
		beat.Missing = append(beat.Missing, s.setup.Missing()...)
	}
	if s.setup.Inbound != nil {
		s.told = s.setup.Inbound()
		beat.Inbound = &s.told
	}
	b, err := json.MarshalIndent(beat, "", "  ")
	if err == nil {
		err = s.opts.Root.Document(state.Heartbeat(s.opts.Service)).Update(ctx, func(tx *state.Tx) error {
			return tx.Write(append(b, '\n'))
		})
	}
	if ctx.Err() == nil {
		s.beating.report(s.opts.Logger, "heartbeat cannot be written", err)
	}
}
