package proof

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"the-loop/bus"
	"the-loop/channels"
	"the-loop/internal/eventlog"
	"the-loop/outbox"
	"the-loop/state"
)

// The interleavings. Two actors share a root, as two processes do: each has its
// own Store and opens every file itself. One is stopped before each of its file
// operations in turn; then the other runs to its end, or up to a lock that the
// first one holds; then the first one goes on, or is dead: it does nothing more
// and its locks come free. In the end two cycles run, and what arrived is
// counted. Here all play in this process; actors_test.go has the orders that
// matter most with real processes and a real SIGKILL.

// The events of an order. The room has refused all of them once.
const (
	idWaits  = "01KB3Z00000000000000WA1TS0" // an entry in the outbox
	idOrphan = "01KB3Z000000000000000RPHAN" // in the journal of a dead publisher
	idFirst  = "01KB3Z000000000000000F1RST" // published by the one that is stopped
	idSecond = "01KB3Z00000000000000SEC0ND" // published by the other
)

// played is what an actor was told in the end.
type played struct {
	res     bus.Result // of a publish
	dropped bool
	err     error
}

// An actor does one thing to a root. id is what it publishes.
type actor struct {
	name string
	play func(ctx context.Context, root *state.Root, r *room, id string) played
}

func theActors() []actor {
	return []actor{
		{"publish", func(ctx context.Context, root *state.Root, r *room, id string) played {
			store := outbox.Open(root, atOnce(root))
			b := &bus.Bus{
				Routes: []bus.Route{r.route(false)}, Store: store, Standing: store, Log: eventlog.New(root, nil),
			}
			res := b.Publish(ctx, channels.Event{ID: id, Type: "job.failed", Text: "x"})
			return played{res: res, err: store.Close()}
		}},
		{"drain", func(ctx context.Context, root *state.Root, r *room, _ string) played {
			d := newDrainer(root, outbox.Open(root, atOnce(root)), []bus.Route{r.route(false)})
			_, err := d.Cycle(ctx)
			return played{err: err}
		}},
		{"recover", func(ctx context.Context, root *state.Root, r *room, _ string) played {
			release, held, err := root.Role(state.DrainRole).Take("a recoverer")
			if err != nil || !held {
				return played{err: err}
			}
			defer release()
			return played{err: outbox.Open(root, atOnce(root)).Sweep(ctx, []outbox.Lane{r.route(false).Lane()})}
		}},
		{"retry", func(ctx context.Context, root *state.Root, _ *room, _ string) played {
			_, err := outbox.Open(root, atOnce(root)).Retry(ctx)
			return played{err: err}
		}},
		{"drop", func(ctx context.Context, root *state.Root, _ *room, _ string) played {
			_, err := outbox.Open(root, atOnce(root)).Drop(ctx, idWaits)
			if errors.Is(err, outbox.ErrNoEntry) || errors.Is(err, outbox.ErrInHand) {
				return played{}
			}
			return played{dropped: err == nil, err: err}
		}},
	}
}

var errDied = errors.New("this actor is dead")

// gate stops an actor before its n-th operation.
type gate struct {
	n       int
	reached chan struct{}
	goOn    chan bool // false: it died there

	mu   sync.Mutex
	dead bool
	ops  []string
}

func newGate(n int) *gate { return &gate{n: n, reached: make(chan struct{}), goOn: make(chan bool, 1)} }

func (g *gate) step(op state.Op, path string) error {
	g.mu.Lock() // while one goroutine of the actor is stopped, so are the others
	defer g.mu.Unlock()
	if g.dead {
		return errDied
	}
	if len(g.ops)+1 == g.n {
		close(g.reached)
		if g.dead = !<-g.goOn; g.dead {
			return errDied
		}
	}
	g.ops = append(g.ops, fmt.Sprint(op, " ", path))
	return nil
}

// wouldBlock reports whether somebody has the lock that is about to be waited for.
func wouldBlock(op state.Op, path string) bool {
	if op != state.OpLock || !strings.HasSuffix(path, ".json.lock") {
		return false
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return false
	}
	defer f.Close()
	return syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) != nil
}

// order is one order of two actors' steps.
type order struct {
	class  string
	first  actor
	second actor
	n      int // where the first one is stopped
	dies   bool
	// unlocked: the lock files are deleted while the first one is stopped.
	unlocked bool
}

func (o order) String() string {
	end := map[bool]string{true: "dies", false: "goes on"}[o.dies]
	if o.unlocked {
		end = "goes on without its lock files"
	}
	return fmt.Sprintf("%s: %s up to step %d, %s, %s", o.class, o.first.name, o.n, o.second.name, end)
}

// run plays the order. through says that the first one has fewer steps than n.
func (o order) run(t *testing.T) (through bool) {
	t.Helper()
	root, remove := scratch(t)
	defer remove()
	r := newRoom("a", o.class)
	r.refuse = map[string]int{idFirst: 1, idSecond: 1}
	waiting(t, root, idWaits, "a")
	orphaned(t, root, idOrphan, "a")

	g := newGate(o.n)
	firstDone, secondDone := make(chan played, 1), make(chan played, 1)
	go func() { firstDone <- o.first.play(t.Context(), root.WithSteps(g.step), r, idFirst) }()
	var a, b played
	select {
	case <-g.reached:
	case <-firstDone:
		return true
	}
	locks := held(t, root.Dir()) // of the first one: the other has not begun
	if o.unlocked {
		files, _ := filepath.Glob(root.Dir() + "/*/*.lock")
		for _, f := range files {
			_ = os.Remove(f)
		}
	}
	blocked := make(chan struct{})
	signal := sync.OnceFunc(func() { close(blocked) })
	go func() {
		secondDone <- o.second.play(t.Context(), root.WithSteps(func(op state.Op, path string) error {
			if wouldBlock(op, path) {
				signal()
			}
			return nil
		}), r, idSecond)
	}()
	waits := false
	select {
	case b = <-secondDone:
	case <-blocked:
		waits = true
	}
	isTaken := true
	if o.dies {
		isTaken, _ = taken(g.ops)
		letDie(locks)
		defer func() { g.goOn <- false; <-firstDone }()
	} else {
		g.goOn <- true
		a = <-firstDone
	}
	if waits {
		b = <-secondDone
	}
	o.check(t, root, r, a, b, isTaken, g)
	return false
}

func (o order) check(t *testing.T, root *state.Root, r *room, a, b played, taken bool, g *gate) {
	t.Helper()
	at := o.String() + " (after " + lastOf(g.ops) + ")"
	if o.unlocked && errors.Is(a.err, state.ErrLockGone) {
		a.err = nil
	}
	if a.err != nil || b.err != nil {
		t.Errorf("%s: %v, %v", at, a.err, b.err)
	}
	if err := cycles(root, 2, []bus.Route{r.route(false)}); err != nil {
		t.Errorf("%s: %v", at, err)
	}
	rest, err := left(root)
	if err != nil {
		t.Errorf("%s: %v", at, err)
	}
	if names := temporary(root); len(names) > 0 && !o.dies {
		t.Errorf("%s: left behind: %v", at, names)
	}
	must := map[string]bool{idWaits: true, idOrphan: true}
	if o.first.name == "publish" {
		must[idFirst] = taken
	}
	if o.second.name == "publish" {
		must[idSecond] = true
		if !b.res.Queued || !b.res.Stored {
			t.Errorf("%s: the second publish: %+v", at, b.res)
		}
	}
	dropped := a.dropped || b.dropped
	if dropped && !o.unlocked && (r.count(idWaits) > 0 || rest[idWaits] != nil) {
		t.Errorf("%s: dropped, and arrived %d times, waits %v", at, r.count(idWaits), rest[idWaits] != nil)
	}
	if dropped || o.dies && o.first.name == "drop" {
		must[idWaits] = false
	}
	uncertain := 0
	for _, id := range slices.Sorted(maps.Keys(must)) {
		got, e := r.count(id), rest[id]
		isUncertain := e != nil && e.Deliveries["a"].State == channels.StateUncertain
		switch {
		case got == 0 && e == nil && must[id]:
			t.Errorf("%s: %s is lost", at, id)
		case got > 1 && o.class == "plain":
			t.Errorf("%s: %s arrived %d times", at, id, got)
		case e != nil && (o.class == "idempotent" || !isUncertain || !o.dies && !o.unlocked):
			t.Errorf("%s: %s waits as %s after two cycles", at, id, e.State())
		case isUncertain:
			uncertain++
		}
	}
	if uncertain > 1 {
		t.Errorf("%s: %d rows need a person, for one death", at, uncertain)
	}
}

func TestP1P2_EveryOrderOfTwoActorsSteps(t *testing.T) {
	for _, class := range []string{"idempotent", "plain"} {
		for _, first := range theActors() {
			t.Run(class+"/"+first.name, func(t *testing.T) {
				t.Parallel()
				orders, least := 0, map[string]int{"publish": 90, "drain": 150, "recover": 50, "retry": 50, "drop": 50}
				for _, second := range theActors() {
					for _, dies := range []bool{true, false} {
						if !dies && class == "idempotent" {
							continue // it would tell less than the plain one
						}
						for n := 1; ; n += stride {
							o := order{class: class, first: first, second: second, n: n, dies: dies}
							if o.run(t) {
								break
							}
							orders++
						}
					}
				}
				t.Logf("%d orders", orders)
				if orders < least[first.name]/stride {
					t.Errorf("only %d orders: they do not reach what they should", orders)
				}
			})
		}
	}
}

// Nothing may be lost and nothing doubled even then; only that a person is asked
// in vain, and a drop undone, cannot be helped.
func TestP1P2_LockFilesDeletedUnderAnActor(t *testing.T) {
	orders := 0
	for _, first := range theActors() {
		for _, second := range theActors() {
			for n := 1; ; n += stride {
				o := order{class: "plain", first: first, second: second, n: n, unlocked: true}
				if o.run(t) {
					break
				}
				orders++
			}
		}
	}
	t.Logf("%d orders", orders)
	if orders < 500/stride {
		t.Errorf("only %d orders: they do not reach what they should", orders)
	}
}
