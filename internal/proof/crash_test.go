// Package proof holds the proofs of delivery: it breaks a root in every way it
// can, and counts what arrived.
package proof

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"the-loop/bus"
	"the-loop/channels"
	"the-loop/channels/webhook"
	"the-loop/drain"
	"the-loop/internal/eventlog"
	"the-loop/internal/ledger"
	"the-loop/outbox"
	"the-loop/state"
)

// The kill sweep. A child process does one thing to a root, and kills itself
// (SIGKILL) before its n-th file operation, for every n until it gets through.
// After each kill the parent looks at what is there, drains twice with healthy
// receivers, and counts what arrived.

// crashEnv makes the test binary the child: "scenario/class n root url-a url-b".
const crashEnv = "THE_LOOP_CRASH_CHILD"

func TestMain(m *testing.M) {
	if spec := os.Getenv(roleEnv); spec != "" {
		var r role
		if err := json.Unmarshal([]byte(spec), &r); err != nil {
			panic(err)
		}
		r.play()
		os.Exit(0)
	}
	if args := strings.Fields(os.Getenv(crashEnv)); len(args) == 5 {
		crashChild(args)
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func crashRoutes(class string, a, b string) []bus.Route {
	repeats := time.Duration(0)
	if class == "idempotent" {
		repeats = 24 * time.Hour
	}
	all := []channels.Pattern{"*"}
	routes := []bus.Route{{
		Channel:   webhook.New(webhook.Options{Name: "a", URL: a, Idempotent: repeats}),
		Subscribe: all, Timeout: 5 * time.Second,
	}}
	if b != "-" {
		routes = append(routes, bus.Route{
			Channel:   webhook.New(webhook.Options{Name: "b", URL: b, Idempotent: repeats}),
			Subscribe: all, Timeout: 5 * time.Second, Required: true,
		})
	}
	return routes
}

const crashID = "01KB3Z0000000000000000000A"

// crashChild runs one scenario and dies before its n-th operation. It prints
// each operation before it makes it.
func crashChild(args []string) {
	scenario, class, _ := strings.Cut(args[0], "/")
	n, _ := strconv.Atoi(args[1])
	var mu sync.Mutex
	count := 0
	root, _ := state.Open(args[2])
	root = root.WithSteps(func(op state.Op, path string) error {
		mu.Lock()
		defer mu.Unlock()
		if count++; count == n {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {}
		}
		fmt.Printf("%s %s\n", op, path)
		return nil
	})
	store := outbox.Open(root, outbox.Options{Log: eventlog.New(root, nil)})
	routes := crashRoutes(class, args[3], args[4])
	if class == "witnessed" {
		store, routes = outbox.Open(root, atOnce(root)), witnessedRoutes(root, args[3])
	}
	ctx := context.Background()
	switch scenario {
	case "publish", "ask", "split":
		b := &bus.Bus{Routes: routes, Store: store, Standing: store, Log: eventlog.New(root, nil)}
		ev := channels.Event{ID: crashID, Type: "job.failed", Text: "x"}
		if scenario != "publish" {
			b.Ledger, ev.Type, ev.WorkItem = ledger.NewLocal(root), "session.awaiting_input", "local:x#1"
		}
		if scenario == "split" {
			ev.Text = longText()
		}
		b.Publish(ctx, ev)
	case "drain":
		d := drain.New(drain.Options{
			Store: store, Role: root.Role(state.DrainRole), Who: "child",
			Routes: func() []bus.Route { return routes },
		})
		if _, err := d.Cycle(ctx); err != nil {
			fmt.Println("error", err)
		}
	case "quiet":
		_, err := drainUntilQuiet(ctx, root, store, routes)
		giveUp(err)
	case "again-uncertain", "again-lost":
		_, err := store.SendAgain(ctx, crashID, scenario == "again-uncertain", nobodyLooks)
		giveUp(err)
	}
	_ = store.Close()
	fmt.Println("through")
}

// receiver counts the requests by id, and refuses while it is told to.
type receiver struct {
	*httptest.Server
	mu      sync.Mutex
	refuses bool
	got     map[string]int
}

func newReceiver(t *testing.T, refuses bool) *receiver {
	r := &receiver{refuses: refuses, got: map[string]int{}}
	r.Server = httptest.NewServer(r)
	t.Cleanup(r.Close)
	return r
}

func (r *receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	_, _ = io.Copy(io.Discard, req.Body)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.refuses {
		w.WriteHeader(http.StatusForbidden)
		return
	}
	r.got[req.Header.Get("webhook-id")]++
}

func (r *receiver) heal() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.refuses = false
}

func (r *receiver) counts() map[string]int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.got)
}

// runChild gives the operations that the child made, and whether it got through.
func runChild(t *testing.T, scenario string, n int, root, a, b string) (ops []string, through bool) {
	t.Helper()
	ops, through, err := tryChild(scenario, n, root, a, b)
	if err != nil {
		t.Fatal(err)
	}
	return ops, through
}

// tryChild is runChild for a goroutine that is not the test's.
func tryChild(scenario string, n int, root, a, b string) (ops []string, through bool, err error) {
	cmd := exec.Command(os.Args[0], "-test.run=^$")
	cmd.Env = append(os.Environ(), "GORACE=atexit_sleep_ms=0",
		crashEnv+"="+strings.Join([]string{scenario, strconv.Itoa(n), root, a, b}, " "))
	out, err := cmd.Output()
	sc := bufio.NewScanner(bytes.NewReader(out))
	for sc.Scan() {
		ops = append(ops, sc.Text())
	}
	if len(ops) > 0 && ops[len(ops)-1] == "through" {
		return ops[:len(ops)-1], true, nil
	}
	if ws, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); !ok || ws.Signal() != syscall.SIGKILL {
		return ops, false, fmt.Errorf("child %s %d ended with %w: %s", scenario, n, err, out[max(0, len(out)-1000):])
	}
	return ops, false, nil
}

// taken reports whether the intent was durable when the child died, and
// visible whether others could see it already: its journal had been renamed.
func taken(ops []string) (durable, visible bool) {
	for _, op := range ops {
		visible = visible || strings.HasPrefix(op, "replace ") && strings.Contains(op, state.Sending()+"/")
		durable = durable || visible && strings.HasPrefix(op, "syncdir ") && strings.HasSuffix(op, state.Sending())
	}
	return durable, visible
}

// drainTwice is the next two cycles of a living drainer.
func drainTwice(t *testing.T, root *state.Root, routes []bus.Route) *outbox.Store {
	t.Helper()
	store := outbox.Open(root, outbox.Options{})
	d := drain.New(drain.Options{
		Store: store, Role: root.Role(state.DrainRole), Who: "parent",
		Routes: func() []bus.Route { return routes },
	})
	for range 2 {
		if err := store.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, err := d.Cycle(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	return store
}

func TestP1P2_KillSweepOfPublish(t *testing.T) {
	points := 0
	for _, class := range []string{"idempotent", "plain"} {
		for _, what := range []string{"accepted", "refused", "partly", "recorded"} {
			scenario := map[bool]string{true: "ask/", false: "publish/"}[what == "recorded"] + class
			n := 0
			for through := false; !through; points++ {
				n++
				through = killPublish(t, scenario, class, what, n)
			}
			t.Logf("%s, %s: %d points", class, what, n-1)
		}
	}
	if points < 100 {
		t.Errorf("only %d points: the sweep does not reach what it should", points)
	}
}

// killPublish kills one publish before its n-th operation and checks what is
// left; it reports whether the publish got through.
func killPublish(t *testing.T, scenario, class, what string, n int) (through bool) {
	t.Helper()
	dir := t.TempDir()
	a, b := newReceiver(t, what == "refused"), newReceiver(t, what == "partly")
	defer a.Close()
	defer b.Close()
	urlB := "-"
	if what == "partly" {
		urlB = b.URL
	}
	ops, through := runChild(t, scenario, n, dir, a.URL, urlB)
	at := fmt.Sprintf("%s %s, killed before operation %d (after %s)", scenario, what, n, lastOf(ops))

	root, _ := state.Open(dir)
	entries, bad, damaged, err := outbox.Open(root, outbox.Options{}).Entries()
	if err != nil || bad > 0 || damaged {
		t.Errorf("%s: bad %d, damaged %v, %v", at, bad, damaged, err)
	}
	arrived := a.counts()[crashID] > 0
	durable, visible := taken(ops)
	if durable && !through && !arrived && len(entries) != 1 {
		t.Errorf("%s: taken, and %d entries", at, len(entries))
	}
	if !durable && arrived || !visible && len(entries) > 0 {
		t.Errorf("%s: not taken, and arrived %v, %d entries", at, arrived, len(entries))
	}
	a.heal()
	b.heal()
	store := drainTwice(t, root, crashRoutes(class, a.URL, urlB))
	checkAfter(t, at, store, class, durable, a, b, urlB != "-")
	return through
}

// checkAfter checks the end: on an idempotent receiver exactly one effect; on
// another at most one request, and one uncertain row when it is not known.
func checkAfter(t *testing.T, at string, store *outbox.Store, class string, taken bool, a, b *receiver, both bool) {
	t.Helper()
	left, _, _, err := store.Entries()
	if err != nil {
		t.Errorf("%s: %v", at, err)
	}
	receivers := map[string]*receiver{"a": a}
	if both {
		receivers["b"] = b
	}
	for name, r := range receivers {
		got := r.counts()[crashID]
		uncertain := 0
		for _, e := range left {
			if d := e.Deliveries[name]; d != nil && d.State == channels.StateUncertain {
				uncertain++
			}
		}
		switch {
		case !taken && got == 0:
		case class == "idempotent" && got == 0:
			t.Errorf("%s: %s got nothing", at, name)
		case class == "plain" && (got > 1 || got == 0 && uncertain != 1 || uncertain > 1):
			t.Errorf("%s: %s got %d requests, %d uncertain rows", at, name, got, uncertain)
		}
	}
	if class == "idempotent" && len(left) > 0 {
		t.Errorf("%s: %d entries left", at, len(left))
	}
}

func lastOf(ops []string) string {
	if len(ops) == 0 {
		return "nothing"
	}
	op, path, _ := strings.Cut(ops[len(ops)-1], " ")
	return op + " " + filepath.Base(path)
}

func TestP1P2_KillSweepOfDrain(t *testing.T) {
	for _, class := range []string{"idempotent", "plain"} {
		n := 0
		for through := false; !through; {
			n++
			through = killDrain(t, class, n)
		}
		t.Logf("%s: %d points", class, n-1)
		if n < 50 {
			t.Errorf("only %d points: the sweep does not reach what it should", n)
		}
	}
}

// killDrain kills the drain of five entries before its n-th operation.
func killDrain(t *testing.T, class string, n int) (through bool) {
	t.Helper()
	root, _ := state.Open(t.TempDir())
	store := outbox.Open(root, outbox.Options{})
	var ids []string
	for i := range 5 {
		id := fmt.Sprintf("01KB3Z000000000000000000%02d", i)
		ids = append(ids, id)
		e, err := outbox.NewEntry(channels.Event{ID: id, Type: "job.failed", Text: "x"}, time.Now(), []outbox.Attempted{
			{Channel: "a", Outcome: channels.Outcome{State: channels.StatePending, At: time.Now()}},
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := store.Remember(t.Context(), e, nil); err != nil {
			t.Fatal(err)
		}
	}
	a := newReceiver(t, false)
	defer a.Close()
	ops, through := runChild(t, "drain/"+class, n, root.Dir(), a.URL, "-")
	at := fmt.Sprintf("drain %s, killed before operation %d (after %s)", class, n, lastOf(ops))
	store = drainTwice(t, root, crashRoutes(class, a.URL, "-"))
	left, bad, damaged, err := store.Entries()
	if err != nil || bad > 0 || damaged {
		t.Errorf("%s: bad %d, damaged %v, %v", at, bad, damaged, err)
	}
	uncertain := 0
	for _, id := range ids {
		got := a.counts()[id]
		waits := slices.ContainsFunc(left, func(e *outbox.Entry) bool { return e.ID == id })
		switch {
		case class == "idempotent" && (got == 0 || waits):
			t.Errorf("%s: %s: %d requests, waits %v", at, id, got, waits)
		case class == "plain" && (got > 1 || got == 0 && !waits):
			t.Errorf("%s: %s: %d requests, waits %v", at, id, got, waits)
		}
		if waits {
			uncertain++
		}
	}
	if uncertain > 1 {
		t.Errorf("%s: %d rows need a person, for one kill", at, uncertain)
	}
	return through
}
