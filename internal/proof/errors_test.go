package proof

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"the-loop/bus"
	"the-loop/channels"
	"the-loop/internal/eventlog"
	"the-loop/internal/ledger"
	"the-loop/outbox"
	"the-loop/state"
)

// The error sweep. The n-th file operation fails, for every n, alone or with
// all that follow, and then the disk is well again.

// fault fails the n-th operation on a root, and with onwards all after it.
type fault struct {
	n       int
	err     error
	onwards bool

	mu     sync.Mutex
	count  int
	failed string // the operation that failed first
	healed bool
}

func (f *fault) step(op state.Op, path string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.count++
	if f.healed || f.count < f.n || f.count > f.n && !f.onwards {
		return nil
	}
	if f.failed == "" {
		f.failed = fmt.Sprint(op, " ", filepath.Base(path))
	}
	return &os.PathError{Op: string(op), Path: path, Err: f.err}
}

func (f *fault) heal() (hit bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.healed = true
	return f.failed != ""
}

// sweep is one run of something under one fault.
type sweep struct {
	t     *testing.T
	class string
	dies  bool // the process that met the fault ends without closing anything
	*fault
	root   *state.Root // without the fault
	faulty *state.Root
	a, b   *room
}

func (s *sweep) errorf(format string, args ...any) {
	s.t.Helper()
	s.t.Errorf("%s, %v at operation %d (%s), onwards %v, dies %v: %s",
		s.class, s.err, s.n, s.failed, s.onwards, s.dies, fmt.Sprintf(format, args...))
}

// everyFault plays something with each error at each operation, and with each
// operation as the first of many that fail, and counts the runs.
func everyFault(t *testing.T, least int, play func(s *sweep)) {
	t.Parallel()
	errs := []error{syscall.EIO, syscall.ENOSPC, syscall.EACCES, syscall.EINTR}
	runs := 0
	for _, class := range []string{"idempotent", "plain"} {
		for i := range len(errs) + 1 {
			for n, hit := 1+i%stride, true; hit; n += stride {
				root, remove := scratch(t)
				f := &fault{n: n, err: errs[(n+i)%len(errs)], onwards: i == len(errs)}
				s := &sweep{
					t: t, class: class, dies: (n+i)%3 == 0, fault: f, root: root, faulty: root.WithSteps(f.step),
					a: newRoom("a", class), b: newRoom("b", class),
				}
				play(s)
				if hit = s.heal(); hit {
					runs++
				}
				if names := temporary(root); len(names) > 0 {
					s.errorf("left behind: %v", names)
				}
				remove()
			}
		}
	}
	t.Logf("%d runs", runs)
	if runs < least/stride {
		t.Errorf("only %d runs: the sweep does not reach what it should", runs)
	}
}

// inJournals reports whether any journal, a living one too, speaks of the event.
func inJournals(root *state.Root, id string) bool {
	paths, _ := filepath.Glob(root.Path(state.Sending()) + "/*.jsonl")
	for _, path := range paths {
		if b, err := os.ReadFile(path); err == nil && bytes.Contains(b, []byte(id)) {
			return true
		}
	}
	return false
}

// publishing is a publish under a fault.
type publishing struct {
	refusedByA, required, recorded, evicts, second bool
}

func (p publishing) play(s *sweep) {
	ctx := s.t.Context()
	id := idFirst
	routes := []bus.Route{s.a.route(false)}
	if p.refusedByA {
		s.a.refuse[id] = 1
	}
	if p.required {
		s.b.refuse[id] = 1
		routes = append(routes, s.b.route(true))
	}
	opts := atOnce(s.faulty)
	if p.evicts {
		opts.Cap = 2
		waiting(s.t, s.root, idWaits, "a")
		waiting(s.t, s.root, idSecond, "a")
	}
	store := outbox.Open(s.faulty, opts)
	b := &bus.Bus{Routes: routes, Store: store, Standing: store, Log: eventlog.New(s.faulty, nil)}
	ev := channels.Event{ID: id, Type: "job.failed", Text: "x"}
	if p.second {
		before := s.n
		s.n = 1 << 30
		b.Publish(ctx, channels.Event{ID: state.NewID(), Type: "job.failed", Text: "x"})
		s.n, s.count = before, 0
	}
	if p.recorded {
		b.Ledger, ev.Type, ev.WorkItem = ledger.NewLocal(s.faulty), "session.awaiting_input", "local:x#1"
	}
	written := true // when the request arrived
	s.a.onPost = func(string) { written = inJournals(s.root, id) }
	res := b.Publish(ctx, ev)
	s.a.onPost = nil
	healed := s.fault.heal()
	p.checkResult(s, res, written)

	// The publisher lives, and somebody drains.
	rest := p.drain(s, routes, 1)
	if (res.Queued || !healed) && s.a.count(id) == 0 && rest[id] == nil && !inJournals(s.root, id) {
		s.errorf("queued, and nowhere")
	}
	if s.dies {
		letDie(held(s.t, s.root.Dir()))
	} else if err := store.Close(); err != nil {
		s.errorf("close: %v", err)
	}
	rest = p.drain(s, routes, 2)
	p.checkEnd(s, res, rest)
}

func (p publishing) drain(s *sweep, routes []bus.Route, n int) map[string]*outbox.Entry {
	s.t.Helper()
	if err := cycles(s.root, n, routes); err != nil {
		s.errorf("%v", err)
	}
	rest, err := left(s.root)
	if err != nil {
		s.errorf("%v", err)
	}
	return rest
}

// checkResult checks what the caller was told against what there is.
func (p publishing) checkResult(s *sweep, res bus.Result, written bool) {
	s.t.Helper()
	id := idFirst
	if res.Err != nil || strings.Contains(strings.Join(res.Notes, " "), "panicked") {
		s.errorf("%v, %v", res.Err, res.Notes)
	}
	if got := s.a.count(id); got == 1 != (res.Posts[0].State == channels.StateAccepted) || got > 1 {
		s.errorf("%d requests were accepted, and the result is %+v", got, res.Posts)
	}
	if res.Stored && !written {
		s.errorf("stored, and nothing was written down before the request")
	}
	owed := res.Accepted() == 0 || p.required
	inFile, err := left(s.root)
	if err != nil {
		s.errorf("%v", err)
	}
	isThere := inFile[id] != nil || inJournals(s.root, id)
	switch {
	case res.Queued && (!owed || !isThere):
		s.errorf("queued, and owed %v, there %v", owed, isThere)
	case res.Stored && owed && !res.Queued:
		s.errorf("stored, and not queued: %+v", res)
	case res.Lost() && isThere:
		s.errorf("lost, and there: %v", res.Notes)
	case !res.Stored && len(res.Notes) == 0:
		s.errorf("not stored, and no word about it")
	}
	if p.recorded {
		b, _ := os.ReadFile(s.root.Path(state.LedgerFile(ledger.Slug("local:x#1"))))
		if yes := res.Recorded == bus.RecordedYes; yes && !bytes.Contains(b, []byte(id)) {
			s.errorf("recorded, and not in the ledger")
		}
	}
}

// checkEnd checks what arrived in the end.
func (p publishing) checkEnd(s *sweep, res bus.Result, rest map[string]*outbox.Entry) {
	s.t.Helper()
	owing := map[*room][]string{s.a: {idFirst}}
	if p.required {
		owing[s.b] = []string{idFirst}
	}
	if p.evicts {
		owing[s.a] = append(owing[s.a], idWaits, idSecond)
	}
	gone, err := outbox.Open(s.root, outbox.Options{}).Evicted()
	if err != nil {
		s.errorf("%v", err)
	}
	for r, ids := range owing {
		for _, id := range ids {
			got, e := r.count(id), rest[id]
			waits := e != nil && e.Deliveries[r.name] != nil && e.Deliveries[r.name].State == channels.StateUncertain
			evicted := false
			for _, g := range gone {
				evicted = evicted || g.ID == id
			}
			told := id == idFirst && !res.Queued && r.count(id) == 0
			switch {
			case got > 1 && s.class == "plain":
				s.errorf("%s got %s %d times: %+v", r.name, id, got, res)
			case got == 0 && !waits && !told && !evicted:
				s.errorf("%s never got %s, and nobody was told: %+v", r.name, id, res)
			case told && e != nil:
				s.errorf("%s: said to be lost, and waits", id)
			case e != nil && (s.class == "idempotent" || !waits && got == 0):
				s.errorf("%s waits as %s", id, e.State())
			}
		}
	}
}

func TestP7_PublishUnderEveryFault(t *testing.T) {
	for name, p := range map[string]publishing{
		"accepted": {}, "refused": {refusedByA: true}, "partly": {required: true}, "recorded": {recorded: true},
		"refused and recorded": {refusedByA: true, recorded: true}, "evicting": {refusedByA: true, evicts: true},
		"second of a process": {second: true, refusedByA: true},
	} {
		t.Run(name, func(t *testing.T) { everyFault(t, 150, p.play) })
	}
}

func TestP1P2_DrainUnderEveryFault(t *testing.T) {
	ids := []string{idWaits, idFirst, idSecond, idOrphan}
	everyFault(t, 700, func(s *sweep) {
		for _, id := range ids[:3] {
			waiting(s.t, s.root, id, "a")
		}
		orphaned(s.t, s.root, idOrphan, "a") // which the cycle recovers
		routes := []bus.Route{s.a.route(false)}
		d := newDrainer(s.faulty, outbox.Open(s.faulty, atOnce(s.faulty)), routes)
		_, err := d.Cycle(s.t.Context())
		if hit := s.heal(); err != nil && !hit {
			s.errorf("%v", err)
		}
		if !s.dies { // it knows what it could not write
			if _, err := d.Cycle(s.t.Context()); err != nil {
				s.errorf("%v", err)
			}
		}
		rest := publishing{}.drain(s, routes, 2)
		uncertain := 0
		for _, id := range ids {
			got, e := s.a.count(id), rest[id]
			switch {
			case got == 0 && e == nil:
				s.errorf("%s is lost", id)
			case got > 1 && s.class == "plain":
				s.errorf("%s arrived %d times", id, got)
			case e != nil && (s.class == "idempotent" || e.State() != channels.StateUncertain || got == 1 && !s.dies):
				s.errorf("%s waits as %s, and arrived %d times", id, e.State(), got)
			case e != nil:
				uncertain++
			}
		}
		if uncertain > 1 {
			s.errorf("%d rows need a person", uncertain)
		}
	})
}

func TestP6_CommandsUnderEveryFault(t *testing.T) {
	for name, command := range map[string]func(ctx context.Context, store *outbox.Store) error{
		"retry": func(ctx context.Context, store *outbox.Store) error {
			_, err := store.Retry(ctx)
			return err
		},
		"drop": func(ctx context.Context, store *outbox.Store) error {
			_, err := store.Drop(ctx, idWaits)
			return err
		},
		"recover": func(ctx context.Context, store *outbox.Store) error {
			return store.Sweep(ctx, []outbox.Lane{{Channel: "a"}})
		},
	} {
		t.Run(name, func(t *testing.T) {
			everyFault(t, 80, func(s *sweep) {
				waiting(s.t, s.root, idWaits, "a")
				orphaned(s.t, s.root, idOrphan, "a")
				err := command(s.t.Context(), outbox.Open(s.faulty, atOnce(s.faulty)))
				if hit := s.heal(); err != nil && !hit {
					s.errorf("%v", err)
				}
				before, lerr := left(s.root)
				if lerr != nil {
					s.errorf("%v", lerr)
				}
				gone := before[idWaits] == nil
				// An error may come after the file was replaced: its folder's
				// fsync, or the removal of a dead process's journal.
				if name == "drop" && err == nil && !gone || name != "drop" && gone {
					s.errorf("it said %v, and gone is %v", err, gone)
				}
				rest := publishing{}.drain(s, []bus.Route{s.a.route(false)}, 2)
				if len(rest) > 0 || s.a.count(idOrphan) != 1 || s.a.count(idWaits) == 1 == gone {
					s.errorf("after two cycles: %v wait, arrived %v, gone %v", len(rest), s.a.got, gone)
				}
			})
		})
	}
}

func TestP6_StandingUnderEveryFault(t *testing.T) {
	everyFault(t, 100, func(s *sweep) {
		ctx := s.t.Context()
		asker := outbox.Asker{Channel: "a", Credential: "secret"}
		refused := channels.Outcome{
			State: channels.StateRefused, Reason: channels.ReasonAuth, Code: "invalid_auth", At: time.Now(),
		}
		accepted := channels.Outcome{State: channels.StateAccepted, At: time.Now()}
		store := outbox.Open(s.faulty, outbox.Options{Log: eventlog.New(s.faulty, nil)})
		err := store.Observe(ctx, asker, idFirst, refused)
		observed := err == nil
		if store.Standing(asker) == nil && observed && s.failed == "" {
			s.errorf("observed, and not there")
		}
		_ = store.Release(ctx)
		_, _, _ = store.MayAsk(ctx, asker)
		_ = store.Observe(ctx, asker, idFirst, accepted)
		s.heal()
		if st := outbox.Open(s.root, outbox.Options{}).Standing(asker); st != nil && st.Code != "invalid_auth" {
			s.errorf("standing is %+v", st)
		}
		if err := store.Observe(ctx, asker, idFirst, refused); err != nil || store.Standing(asker) == nil {
			s.errorf("after: %v, %+v", err, store.Standing(asker))
		}
		if err := store.Observe(ctx, asker, idFirst, accepted); err != nil || store.Standing(asker) != nil {
			s.errorf("in the end: %v, %+v", err, store.Standing(asker))
		}
		if _, err := left(s.root); err != nil {
			s.errorf("%v", err)
		}
	})
}
