package proof

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"sync"
	"syscall"
	"testing"
	"time"

	"the-loop/bus"
	"the-loop/channels"
	"the-loop/channels/channelstest"
	"the-loop/channels/slack"
	"the-loop/channels/webhook"
	"the-loop/drain"
	"the-loop/internal/eventlog"
	"the-loop/internal/ledger"
	"the-loop/outbox"
	"the-loop/state"
)

// roleEnv makes the test binary a process with one role on a root, as the JSON
// of a role says. It ends when its standard input does, so that none is left
// behind.
const roleEnv = "THE_LOOP_PROOF_ROLE"

// role is what a child process is.
type role struct {
	Name   string // publish, drain, cycle
	Root   string
	Seed   uint64
	Events int // how many a publisher publishes
	// The addresses of the receivers, "" for none.
	Idempotent, Plain, Slack string
}

// The channels of a role. An acceptance by the idempotent one settles no other.
const (
	onIdempotent = "idempotent"
	onPlain      = "plain"
	onSlack      = "slack"
)

// said is a line that a publisher prints.
type said struct {
	Did    string // begins, taken, ends
	ID     string
	Type   string
	Result *bus.Result `json:",omitempty"`
	Notes  []string    `json:",omitempty"`
	Lost   bool        `json:",omitempty"`
}

func (r role) start(t testing.TB) (cmd *exec.Cmd, out io.ReadCloser) {
	t.Helper()
	spec, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	cmd = exec.Command(os.Args[0], "-test.run=^$")
	cmd.Env = append(os.Environ(), roleEnv+"="+string(spec), tokenEnv+"="+channelstest.SlackToken)
	cmd.Stderr = os.Stderr
	if _, err := cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if out, err = cmd.StdoutPipe(); err != nil {
		t.Fatal(err)
	}
	return cmd, out
}

// tokenEnv holds the token of the Slack fake.
const tokenEnv = "THE_LOOP_PROOF_TOKEN"

// soakTypes are the events of the soak: who is owed each of them, and whether
// it is recorded first.
func soakTypes() map[string][]string {
	return map[string][]string{
		"job.failed":             {onIdempotent},
		"job.succeeded":          {onPlain},
		"session.failed":         {onSlack},
		"work_item.blocked":      {onIdempotent, onPlain, onSlack}, // recorded
		"session.awaiting_input": {onPlain, onSlack},               // recorded
	}
}

// remembers is how long the idempotent receiver drops repeats: longer than the
// clock jumps.
const remembers = 30 * 24 * time.Hour

func (r role) routes(root *state.Root) []bus.Route {
	owed := map[string][]channels.Pattern{}
	for eventType, names := range soakTypes() {
		for _, name := range names {
			owed[name] = append(owed[name], channels.Pattern(eventType))
		}
	}
	var routes []bus.Route
	add := func(c channels.Channel, required bool) {
		routes = append(routes, bus.Route{
			Channel: c, Subscribe: owed[c.Name()], Required: required, Timeout: 300 * time.Millisecond,
		})
	}
	if r.Idempotent != "" {
		add(webhook.New(webhook.Options{Name: onIdempotent, URL: r.Idempotent, Idempotent: remembers}), true)
	}
	if r.Plain != "" {
		add(webhook.New(webhook.Options{Name: onPlain, URL: r.Plain}), false)
	}
	if r.Slack != "" {
		add(slack.New(slack.Options{
			Name: onSlack, Channel: channelstest.SlackRoom, Token: channels.Secret{Env: tokenEnv},
			APIURL: r.Slack, Root: root,
		}), false)
	}
	return routes
}

func openStore(root *state.Root) *outbox.Store {
	return outbox.Open(root, outbox.Options{
		Cap:     1 << 20, // what the cap evicts is another proof's
		Backoff: outbox.Backoff{Base: 100 * time.Millisecond, Max: time.Second},
		Probe:   100 * time.Millisecond,
		Log:     eventlog.New(root, nil),
	})
}

// play is the child's main.
func (r role) play() {
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(3)
	}()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	root, err := state.Open(r.Root)
	if err != nil {
		panic(err)
	}
	store := openStore(root)
	switch r.Name {
	case "publish":
		r.publish(ctx, root, store)
	case "drain":
		d := r.drainer(root, store)
		d.Start(ctx)
		<-ctx.Done()
		d.Stop()
	case "cycle":
		report, err := r.drainer(root, store).Cycle(ctx)
		fmt.Println(report.Sent(), err)
	}
	_ = store.Close()
}

func (r role) drainer(root *state.Root, store *outbox.Store) *drain.Drainer {
	random := rand.New(rand.NewPCG(r.Seed, 1))
	return drain.New(drain.Options{
		Store: store, Role: root.Role(state.DrainRole), Who: fmt.Sprintf("drainer %d", os.Getpid()),
		Routes:   func() []bus.Route { return r.routes(root) },
		Interval: time.Duration(50+random.IntN(150)) * time.Millisecond,
		Log:      eventlog.New(root, nil),
	})
}

func (r role) publish(ctx context.Context, root *state.Root, store *outbox.Store) {
	random := rand.New(rand.NewPCG(r.Seed, 2))
	types := []string{"job.failed", "job.succeeded", "session.failed", "work_item.blocked", "session.awaiting_input"}
	b := &bus.Bus{
		Routes: r.routes(root), Store: tellingStore{store}, Standing: store,
		Ledger: ledger.NewLocal(root), Log: eventlog.New(root, nil),
	}
	for n := range r.Events {
		ev := channels.Event{
			ID: state.NewID(), Type: types[random.IntN(len(types))],
			WorkItem: fmt.Sprintf("local:soak#%d", 1+random.IntN(5)),
		}
		if r.Events == 1 {
			ev.Type = types[r.Seed%uint64(len(types))]
		}
		ev.Text = "soak/" + ev.ID
		say(said{Did: "begins", ID: ev.ID, Type: ev.Type})
		res := b.Publish(ctx, ev)
		say(said{Did: "ends", ID: ev.ID, Type: ev.Type, Result: &res, Lost: res.Lost(), Notes: res.Notes})
		if ctx.Err() != nil {
			return
		}
		if n+1 < r.Events {
			pause(ctx, time.Duration(random.IntN(30))*time.Millisecond)
		}
	}
}

// tellingStore says when an event is taken: its intent is durable.
type tellingStore struct{ *outbox.Store }

func (s tellingStore) Begin(
	ctx context.Context, ev channels.Event, at time.Time, planned []outbox.Planned, recorded bool,
) (*outbox.Intent, error) {
	in, err := s.Store.Begin(ctx, ev, at, planned, recorded)
	if err == nil {
		say(said{Did: "taken", ID: ev.ID, Type: ev.Type})
	}
	return in, err
}

// say prints a line in one write, which a pipe takes whole or not at all.
func say(s said) {
	b, err := json.Marshal(s)
	if err != nil {
		panic(err)
	}
	_, _ = os.Stdout.Write(append(b, '\n'))
}

func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// dice are rolled by several goroutines.
type dice struct {
	mu sync.Mutex
	r  *rand.Rand
}

func newDice(seed, stream uint64) *dice { return &dice{r: rand.New(rand.NewPCG(seed, stream))} }

func (d *dice) n(n int) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.r.IntN(n)
}

// between gives a time in [a, b) milliseconds.
func (d *dice) between(a, b int) time.Duration { return time.Duration(a+d.n(b-a)) * time.Millisecond }
