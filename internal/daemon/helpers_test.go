package daemon_test

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"the-loop/bus"
	"the-loop/channels"
	"the-loop/drain"
	"the-loop/internal/daemon"
	"the-loop/internal/eventlog"
	"the-loop/outbox"
	"the-loop/state"
	"the-loop/status"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type post func(ctx context.Context, d channels.Delivery) (channels.Receipt, error)

func (post) Name() string { return "room" }

func (f post) Post(ctx context.Context, d channels.Delivery) (channels.Receipt, error) {
	return f(ctx, d)
}

func refuse(context.Context, channels.Delivery) (channels.Receipt, error) {
	return channels.Receipt{}, &channels.Refusal{Reason: channels.ReasonDown, Code: "refused"}
}

// logged keeps what was logged.
type logged struct {
	mu    sync.Mutex
	lines []string // "message key=value …"
}

func (*logged) Enabled(context.Context, slog.Level) bool { return true }
func (l *logged) WithAttrs([]slog.Attr) slog.Handler     { return l }
func (l *logged) WithGroup(string) slog.Handler          { return l }

func (l *logged) Handle(_ context.Context, r slog.Record) error {
	line := r.Message
	r.Attrs(func(a slog.Attr) bool {
		line += " " + a.String()
		return true
	})
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, line)
	return nil
}

// with gives the lines that begin so.
func (l *logged) with(prefix string) []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(l.lines), func(s string) bool { return !strings.HasPrefix(s, prefix) })
}

// site is a root on which a daemon runs.
type site struct {
	root   *state.Root
	store  *outbox.Store
	log    *eventlog.Log
	logged *logged
	reload chan os.Signal
	opts   daemon.Options

	mu    sync.Mutex
	setup daemon.Setup
	err   error // of Setup
}

func newSite(t *testing.T, c channels.Channel) *site {
	t.Helper()
	root, err := state.Open(filepath.Join(t.TempDir(), "root"))
	if err != nil {
		t.Fatal(err)
	}
	return siteOn(root, c)
}

func siteOn(root *state.Root, c channels.Channel) *site {
	s := &site{root: root, logged: &logged{}, reload: make(chan os.Signal)}
	logger := slog.New(s.logged)
	s.log = eventlog.New(root, logger)
	s.store = outbox.Open(root, outbox.Options{Log: s.log})
	s.setup = daemon.Setup{ConfigHash: "one", Missing: func() []string { return []string{"variable X is not set"} }}
	if c != nil {
		s.setup.Drain = s.draining(func() []bus.Route {
			return []bus.Route{{Channel: c, Subscribe: []channels.Pattern{"*"}}}
		})
	}
	s.opts = daemon.Options{
		Service: "poller", Version: "v1.2.3", Root: root, Logger: logger, Log: s.log, Reload: s.reload,
		Setup: func() (daemon.Setup, error) {
			s.mu.Lock()
			defer s.mu.Unlock()
			return s.setup, s.err
		},
	}
	return s
}

func (s *site) draining(routes func() []bus.Route) *drain.Options {
	return &drain.Options{
		Store: s.store, Role: s.root.Role(state.DrainRole), Who: "poller, process 1", Routes: routes, Log: s.log,
	}
}

// becomes changes what Setup gives from now on.
func (s *site) becomes(change func(*daemon.Setup), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(&s.setup)
	s.err = err
}

// run runs the daemon and gives what stops it and returns its error.
func (s *site) run(t *testing.T) (stop func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- daemon.Run(ctx, s.opts) }()
	return sync.OnceValue(func() error {
		cancel()
		return <-done
	})
}

func (s *site) seed(t *testing.T) {
	t.Helper()
	e, err := outbox.NewEntry(channels.Event{ID: "e1", Type: "job.failed"}, time.Now(), []outbox.Attempted{{
		Channel: "room", Outcome: channels.Outcome{State: channels.StatePending, At: time.Now()},
	}})
	if err == nil {
		err = s.store.Remember(context.Background(), e, nil)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func (s *site) beat(t *testing.T) (h status.Heartbeat) {
	t.Helper()
	b, err := os.ReadFile(s.root.Path(state.Heartbeat(s.opts.Service)))
	if err == nil {
		err = json.Unmarshal(b, &h)
	}
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func (s *site) services(t *testing.T) (names []string) {
	t.Helper()
	err := eventlog.Read(s.root, func(l eventlog.Line) bool {
		if l.Service != "" {
			names = append(names, l.Event)
		}
		return true
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// eventually waits for what happens outside a bubble.
func eventually(t *testing.T, what string, f func() bool) {
	t.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	late := time.After(10 * time.Second)
	for !f() {
		select {
		case <-tick.C:
		case <-late:
			t.Fatalf("not within ten seconds: %s", what)
		}
	}
}

func get(address string) string {
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 5 * time.Second}
	resp, err := client.Get("http://" + address + "/healthz")
	if err != nil {
		return "nobody"
	}
	defer resp.Body.Close()
	b, _ := io.ReadAll(resp.Body)
	return string(b)
}
