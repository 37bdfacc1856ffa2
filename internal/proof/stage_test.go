package proof

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"the-loop/bus"
	"the-loop/channels"
	"the-loop/drain"
	"the-loop/internal/eventlog"
	"the-loop/outbox"
	"the-loop/state"
)

// scratch gives a new folder for a root, in memory where the system has a place
// for that: these tests make thousands of roots, and what fsync does is the
// business of powercut_test.go. remove ends it before the test does.
func scratch(t *testing.T) (root *state.Root, remove func()) {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "the-loop-proof-")
	if err != nil {
		if dir, err = os.MkdirTemp("", "the-loop-proof-"); err != nil {
			t.Fatal(err)
		}
	}
	remove = func() { _ = os.RemoveAll(dir) }
	t.Cleanup(remove)
	if root, err = state.Open(filepath.Join(dir, "root")); err != nil {
		t.Fatal(err)
	}
	return root, remove
}

// room is a channel in memory. It counts what it accepted, by id.
type room struct {
	via     channels.Channel // posts in its place, when set
	name    string
	repeats time.Duration   // how long it drops repeated ids
	onPost  func(id string) // called when a request arrives
	mu      sync.Mutex
	refuse  map[string]int // by id: how many requests are still refused
	got     map[string]int
}

func newRoom(name, class string) *room {
	r := &room{name: name, refuse: map[string]int{}, got: map[string]int{}}
	if class == "idempotent" {
		r.repeats = 24 * time.Hour
	}
	return r
}

func (r *room) Name() string                { return r.name }
func (r *room) DropsRepeats() time.Duration { return r.repeats }

func (r *room) Post(ctx context.Context, d channels.Delivery) (channels.Receipt, error) {
	if r.via != nil {
		return r.via.Post(ctx, d)
	}
	id := d.Event.ID
	if r.onPost != nil {
		r.onPost(id)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.refuse[id] > 0 {
		r.refuse[id]--
		return channels.Receipt{}, &channels.Refusal{Reason: channels.ReasonOther, Code: "busy"}
	}
	r.got[id]++
	return channels.Receipt{Ref: id}, nil
}

func (r *room) count(id string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.got[id]
}

func (r *room) route(required bool) bus.Route {
	return bus.Route{
		Channel: r, Subscribe: []channels.Pattern{"*"}, Timeout: 5 * time.Second, Required: required,
	}
}

// atOnce is an outbox in which nobody waits: what was refused is due.
func atOnce(root *state.Root) outbox.Options {
	return outbox.Options{
		Log:     eventlog.New(root, nil),
		Backoff: outbox.Backoff{Base: time.Nanosecond, Max: time.Nanosecond},
		Probe:   time.Nanosecond,
	}
}

func newDrainer(root *state.Root, store *outbox.Store, routes []bus.Route) *drain.Drainer {
	return drain.New(drain.Options{
		Store: store, Role: root.Role(state.DrainRole), Who: "a test", Log: eventlog.New(root, nil),
		Routes: func() []bus.Route { return routes },
	})
}

// cycles runs n cycles of a new, healthy drainer.
func cycles(root *state.Root, n int, routes []bus.Route) error {
	store := outbox.Open(root, atOnce(root))
	d := newDrainer(root, store, routes)
	for range n {
		nextMilli()
		if err := store.Release(context.Background()); err != nil {
			return err
		}
		if r, err := d.Cycle(context.Background()); err != nil || r.Drainer != "" {
			return fmt.Errorf("cycle: %q drains: %w", r.Drainer, err)
		}
	}
	return nil
}

// nextMilli waits for the clock to have moved on by the unit in which due times
// are compared.
func nextMilli() {
	for now := time.Now().UnixMilli(); time.Now().UnixMilli() <= now; {
		runtime.Gosched()
	}
}

// waiting puts an entry for the room into the outbox.
func waiting(t *testing.T, root *state.Root, id string, names ...string) {
	t.Helper()
	store := outbox.Open(root, outbox.Options{})
	var at []outbox.Attempted
	for _, name := range names {
		at = append(at, outbox.Attempted{
			Channel: name, Outcome: channels.Outcome{State: channels.StatePending, At: time.Now()},
		})
	}
	e, err := outbox.NewEntry(channels.Event{ID: id, Type: "job.failed", Text: "x"}, time.Now(), at)
	if err == nil {
		err = store.Remember(t.Context(), e, nil)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// orphaned leaves the journal of a publish that died after the room had refused
// its event.
func orphaned(t *testing.T, root *state.Root, id, name string) {
	t.Helper()
	store := outbox.Open(root, outbox.Options{})
	in, err := store.Begin(t.Context(), channels.Event{ID: id, Type: "job.failed", Text: "x"}, time.Now(),
		[]outbox.Planned{{Channel: name}}, false)
	if err == nil {
		err = in.Outcome(outbox.Attempted{Channel: name, At: time.Now(), Outcome: channels.Outcome{
			State: channels.StateRefused, Reason: channels.ReasonOther, Code: "busy", At: time.Now(),
		}})
	}
	if err == nil {
		err = store.Close() // with an open intent: it leaves the journal
	}
	if err != nil {
		t.Fatal(err)
	}
}

// left is what is in the outbox or in a dead process's journal, by id.
func left(root *state.Root) (map[string]*outbox.Entry, error) {
	entries, bad, damaged, err := outbox.Open(root, outbox.Options{}).Entries()
	if err == nil && (bad > 0 || damaged) {
		err = fmt.Errorf("%d bad entries, damaged: %v", bad, damaged)
	}
	byID := map[string]*outbox.Entry{}
	for _, e := range entries {
		byID[e.ID] = e
	}
	if aside, aerr := outbox.SetAside(root); aerr != nil || len(aside) > 0 {
		err = fmt.Errorf("set aside: %v, %w", aside, aerr)
	}
	return byID, err
}

// temporary lists hidden files: they are nobody's, once all writers are done.
func temporary(root *state.Root) (names []string) {
	_ = filepath.WalkDir(root.Dir(), func(path string, _ fs.DirEntry, err error) error {
		if err == nil && strings.HasPrefix(filepath.Base(path), ".") {
			names = append(names, path)
		}
		return nil
	})
	return names
}

// held lists what this process has open under dir. The kernel frees the locks
// of a process that dies; for one of several that are played by this process,
// letDie does.
func held(t *testing.T, dir string) (fds []int) {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Skipf("this system does not tell what a process has open, so that none can be played dead: %v", err)
	}
	for _, f := range list {
		to, err := os.Readlink("/proc/self/fd/" + f.Name())
		if fd, bad := strconv.Atoi(f.Name()); err == nil && bad == nil && strings.HasPrefix(to, dir+"/") {
			fds = append(fds, fd)
		}
	}
	return fds
}

func letDie(fds []int) {
	for _, fd := range fds {
		_ = syscall.Flock(fd, syscall.LOCK_UN)
	}
}
