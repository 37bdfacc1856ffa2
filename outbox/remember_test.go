package outbox

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"the-loop/channels"
	"the-loop/state"
)

// crowd has one Remember stand in its write and many others come meanwhile, and
// then lets the write go on, with that error. It gives what each of them said, and
// how often the file was written.
func crowd(t *testing.T, root *state.Root, many int, said error) (errs []error, writes int, live *Store) {
	t.Helper()
	writing, let := make(chan struct{}), make(chan struct{})
	armed := false
	live = Open(root.WithSteps(func(op state.Op, path string) error {
		if !armed || op != state.OpReplace || !strings.HasSuffix(path, state.Outbox) {
			return nil
		}
		if writes++; writes == 1 {
			close(writing)
			<-let
			return nil
		}
		return said
	}), Options{Cap: 2 * many})
	ended := make(chan error, many+1)
	publish := func(id string) {
		in := begin(t, live, id, false, Planned{Channel: "a"})
		e, err := NewEntry(channels.Event{ID: id, Type: "work_item.done"}, time.Now(), []Attempted{asked("a", down())})
		must(t, err)
		armed = true
		go func() { ended <- live.Remember(t.Context(), e, in) }()
	}
	publish("first")
	<-writing
	for n := range many {
		publish(fmt.Sprintf("e%d", n))
	}
	for waiting := 0; waiting < many; runtime.Gosched() {
		live.group.mu.Lock()
		waiting = len(live.group.waiting)
		live.group.mu.Unlock()
	}
	close(let)
	for range many + 1 {
		errs = append(errs, <-ended)
	}
	return errs, writes, live
}

func TestWhatComesDuringAWriteSharesTheNext(t *testing.T) {
	const many = 50
	_, root := store(t, Options{})
	errs, writes, live := crowd(t, root, many, nil)
	must(t, errs...)
	must(t, live.Close())
	if n := len(entriesOf(t, live)); n != many+1 || writes != 2 {
		t.Errorf("%d entries in %d writes", n, writes)
	}
	if left := journals(t, root); len(left) > 0 {
		t.Errorf("journals %v", left)
	}
}

// A write that fails has failed for everyone in it, and their intents stay for the
// next cycle.
func TestP1_AWriteThatFailsForManyLosesNobodysEvent(t *testing.T) {
	const many = 20
	broken := errors.New("broken")
	s, root := store(t, Options{})
	errs, _, live := crowd(t, root, many, broken)
	failed := 0
	for _, err := range errs {
		if errors.Is(err, broken) {
			failed++
		}
	}
	b := bytesOf(t, root, state.Outbox)
	if n := strings.Count(string(b), "eventType"); failed != many || n != 1 {
		t.Errorf("%d have failed, and %d entries stand in the file", failed, n)
	}
	must(t, live.Close())
	sweep(t, s, Lane{Channel: "a"})
	if n := len(entriesOf(t, s)); n != many+1 {
		t.Errorf("%d entries after recovery", n)
	}
}
