package drain_test

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"the-loop/bus"
	"the-loop/channels"
	"the-loop/drain"
	"the-loop/internal/eventlog"
	"the-loop/outbox"
	"the-loop/state"
)

// A day of probes is mostly waiting for the disk. Where there is a file system
// in memory the roots stand there: its locks and renames are as real.
func TestMain(m *testing.M) {
	if dir, err := os.MkdirTemp("/dev/shm", "drain-test-"); err == nil {
		if err := os.Setenv("TMPDIR", dir); err != nil {
			panic(err)
		}
		goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
			_ = os.RemoveAll(dir)
			os.Exit(code)
		}))
	}
	goleak.VerifyTestMain(m)
}

// say is what a channel answers.
type say func(ctx context.Context, d channels.Delivery) (channels.Receipt, error)

func yes(context.Context, channels.Delivery) (channels.Receipt, error) {
	return channels.Receipt{}, nil
}

func no(reason channels.Reason, code string) say {
	return func(context.Context, channels.Delivery) (channels.Receipt, error) {
		return channels.Receipt{}, &channels.Refusal{Reason: reason, Code: code}
	}
}

func wait(d time.Duration) say {
	return func(context.Context, channels.Delivery) (channels.Receipt, error) {
		return channels.Receipt{}, &channels.Refusal{Reason: channels.ReasonRate, Code: "http_429", RetryAfter: d}
	}
}

func unknown(context.Context, channels.Delivery) (channels.Receipt, error) {
	return channels.Receipt{}, &channels.Uncertain{Code: "http_500"}
}

func hang(ctx context.Context, _ channels.Delivery) (channels.Receipt, error) {
	<-ctx.Done()
	return channels.Receipt{}, &channels.Uncertain{Code: "timeout", Err: ctx.Err()}
}

// fake is a channel that keeps what it was asked, and when.
type fake struct {
	name       string
	drops      time.Duration
	credential string

	mu   sync.Mutex
	say  say
	got  []channels.Delivery
	at   []time.Time
	took []string // ids of what it accepted, in order
}

func newFake(name string, s say) *fake { return &fake{name: name, say: s} }

func (f *fake) Name() string                { return f.name }
func (f *fake) DropsRepeats() time.Duration { return f.drops }

func (f *fake) Credential() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.credential
}

func (f *fake) Post(ctx context.Context, d channels.Delivery) (channels.Receipt, error) {
	f.mu.Lock()
	f.got, f.at = append(f.got, d), append(f.at, time.Now())
	s := f.say
	f.mu.Unlock()
	r, err := s(ctx, d)
	if err == nil {
		f.mu.Lock()
		f.took = append(f.took, d.Event.ID)
		f.mu.Unlock()
	}
	return r, err
}

func (f *fake) becomes(s say) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.say = s
}

func (f *fake) calls() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.at)
}

func (f *fake) times() []time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.at)
}

func (f *fake) accepted() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.took)
}

func (f *fake) asked() (ids []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, d := range f.got {
		ids = append(ids, d.Event.ID)
	}
	return ids
}

func route(c channels.Channel) bus.Route {
	return bus.Route{Channel: c, Subscribe: []channels.Pattern{"*"}}
}

func required(c channels.Channel) bus.Route {
	r := route(c)
	r.Required = true
	return r
}

// site is a root with channels.
type site struct {
	root   *state.Root
	store  *outbox.Store
	log    *eventlog.Log
	routes []bus.Route
	errs   []error // of cycles
	mu     sync.Mutex
}

func newSite(t *testing.T, routes ...bus.Route) *site {
	t.Helper()
	root, err := state.Open(filepath.Join(t.TempDir(), "root"))
	if err != nil {
		t.Fatal(err)
	}
	return siteOn(root, routes...)
}

func siteOn(root *state.Root, routes ...bus.Route) *site {
	s := &site{root: root, routes: routes, log: eventlog.New(root, nil)}
	s.store = outbox.Open(root, outbox.Options{Log: s.log})
	return s
}

func (s *site) bus() *bus.Bus {
	return &bus.Bus{Routes: s.routes, Store: s.store, Standing: s.store, Log: s.log}
}

func (s *site) options() drain.Options {
	return drain.Options{
		Store: s.store, Role: s.root.Role(state.DrainRole), Who: "test, process 1", Log: s.log,
		Routes: func() []bus.Route { return s.routes },
		Trouble: func(err error) {
			if err != nil {
				s.mu.Lock()
				defer s.mu.Unlock()
				s.errs = append(s.errs, err)
			}
		},
	}
}

func (s *site) drainer() *drain.Drainer { return drain.New(s.options()) }

func (s *site) failed() []error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.errs)
}

// seed stores n events that every channel is owed and that none was asked for,
// a second apart, the last one now, and gives their ids, oldest first.
func (s *site) seed(t *testing.T, n int) (ids []string) {
	t.Helper()
	for i := range n {
		ids = append(ids, s.seedAt(t, fmt.Sprintf("e%d", i+1), time.Now().Add(time.Duration(i-n+1)*time.Second)))
	}
	return ids
}

func (s *site) seedAt(t *testing.T, id string, at time.Time) string {
	t.Helper()
	var attempted []outbox.Attempted
	for _, r := range s.routes {
		attempted = append(attempted, outbox.Attempted{
			Channel: r.Channel.Name(), Required: r.Required,
			Outcome: channels.Outcome{State: channels.StatePending, Reason: channels.ReasonHeld, Code: "paused", At: at},
		})
	}
	ev := channels.Event{ID: id, Type: "session.awaiting_input", WorkItem: "local:work#1", Text: "PRIVATE " + id}
	e, err := outbox.NewEntry(ev, at, attempted)
	if err == nil {
		err = s.store.Remember(context.Background(), e, nil)
	}
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func (s *site) cycle(t *testing.T, d *drain.Drainer) drain.Report {
	t.Helper()
	r, err := d.Cycle(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func (s *site) entries(t *testing.T) map[string]*outbox.Entry {
	t.Helper()
	entries, bad, damaged, err := s.store.Entries()
	if err != nil || bad > 0 || damaged {
		t.Fatalf("outbox: %v, %d bad, damaged %v", err, bad, damaged)
	}
	byID := map[string]*outbox.Entry{}
	for _, e := range entries {
		byID[e.ID] = e
	}
	return byID
}

func (s *site) delivery(t *testing.T, id, channel string) *outbox.Delivery {
	t.Helper()
	e := s.entries(t)[id]
	if e == nil || e.Deliveries[channel] == nil {
		t.Fatalf("no entry %s with a delivery to %s", id, channel)
	}
	return e.Deliveries[channel]
}

func (s *site) wantEmpty(t *testing.T) {
	t.Helper()
	for id, e := range s.entries(t) {
		t.Errorf("%s is still there: %s, %s", id, e.State(), e.LastError)
	}
}

// lines counts the event log's lines by name; with an id only those about it.
func (s *site) lines(t *testing.T, id string) map[string]int {
	t.Helper()
	n := map[string]int{}
	err := eventlog.Read(s.root, func(l eventlog.Line) bool {
		if id == "" || l.EntryID == id {
			n[l.Event]++
		}
		return true
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func sum(counts map[string]int) (n int) {
	for _, c := range counts {
		n += c
	}
	return n
}

// roundTrip is an HTTP transport without a network.
type roundTrip func(*http.Request) *http.Response

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r), nil }

func newDrainer(o drain.Options) *drain.Drainer { return drain.New(o) }
