package state_test

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/gofrs/flock"

	"the-loop/state"
)

func sendingFiles(t *testing.T, root *state.Root) []string {
	t.Helper()
	list, err := os.ReadDir(root.Path(state.Sending()))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	var names []string
	for _, f := range list {
		names = append(names, f.Name())
	}
	return names
}

func newJournal(t *testing.T, root *state.Root, first string) *state.Journal {
	t.Helper()
	j, err := root.NewJournal(state.Sending(), []byte(first))
	if err != nil {
		t.Fatal(err)
	}
	return j
}

func takeAll(t *testing.T, root *state.Root) (lines [][]string) {
	t.Helper()
	dead, err := root.TakeJournals(t.Context(), state.Sending())
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range dead {
		lines = append(lines, texts(d.Lines))
		d.Release()
	}
	return lines
}

func texts(lines [][]byte) (out []string) {
	for _, l := range lines {
		out = append(out, string(l))
	}
	return out
}

// TestP1_AJournalIsNeverVisibleUnlocked: at every step of its making another
// process finds no journal, or a locked and complete one.
func TestP1_AJournalIsNeverVisibleUnlocked(t *testing.T) {
	root := open(t)
	steps := 0
	watched := root.WithSteps(func(op state.Op, path string) error {
		steps++
		if got := output(t, process(t, root, "dead journals", "")); got != "" {
			t.Errorf("before %s another process would take over %q", op, got)
		}
		for _, name := range sendingFiles(t, root) {
			if strings.HasPrefix(name, ".") {
				continue
			}
			if b := read(t, filepath.Join(root.Path(state.Sending()), name)); b != "first\n" {
				t.Errorf("before %s a visible journal holds %q", op, b)
			}
		}
		return nil
	})
	j := newJournal(t, watched, "first")
	if got := output(t, process(t, root, "dead journals", "")); got != "" || steps < 6 {
		t.Errorf("after %d steps another process would take over %q", steps, got)
	}
	if err := j.Append([]byte("second")); err != nil {
		t.Fatal(err)
	}
	j.Leave()
	if got := output(t, process(t, root, "dead journals", "")); got != "first|second\n" {
		t.Errorf("once it is dead another process finds %q", got)
	}
}

func TestP1_ADeadProcesssJournalIsTakenAndALivingOnesIsNot(t *testing.T) {
	root := open(t)
	output(t, process(t, root, "die with a journal", "left"))
	live := newJournal(t, root, "live")
	defer live.Leave()
	if got := takeAll(t, root); len(got) != 1 || !slices.Equal(got[0], []string{"left", "more"}) {
		t.Errorf("taken %v", got)
	}
	if n := len(sendingFiles(t, root)); n != 2 {
		t.Errorf("released is as it was: %d files", n)
	}
}

// TestAReaderDoesNotMakeADeadJournalPassForALivingOne: readers hold its lock for
// an instant; whoever recovers waits for that.
func TestAReaderDoesNotMakeADeadJournalPassForALivingOne(t *testing.T) {
	root := open(t)
	output(t, process(t, root, "die with a journal", "left"))
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					if _, err := root.DeadJournals(state.Sending()); err != nil {
						t.Error(err)
						return
					}
				}
			}
		})
	}
	missed := 0
	for range 100 {
		if len(takeAll(t, root)) != 1 {
			missed++
		}
	}
	close(stop)
	wg.Wait()
	if missed > 2 { // a scheduler may be unkind once; the next cycle takes it
		t.Errorf("missed %d times in 100", missed)
	}
}

// TestALongLifeElsewhereLeavesNobodyWaiting: the process that a journal is named
// after is not to be seen from here, and lives. goleak finds who waits for it.
func TestALongLifeElsewhereLeavesNobodyWaiting(t *testing.T) {
	root := open(t)
	output(t, process(t, root, "die with a journal", "left"))
	name := sendingFiles(t, root)[0]
	l := flock.New(filepath.Join(root.Path(state.Sending()), name))
	if ok, err := l.TryLock(); !ok || err != nil {
		t.Fatal(ok, err)
	}
	t.Cleanup(func() { _ = l.Unlock() })
	before := openFiles(t)
	for range 5 {
		if got := takeAll(t, root); len(got) > 0 {
			t.Errorf("taken %v", got)
		}
	}
	if after := openFiles(t); after > before {
		t.Errorf("%d files open, were %d: somebody waits in the kernel", after, before)
	}
}

func openFiles(t *testing.T) int {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}

func TestTwoDoNotTakeOneDeadJournal(t *testing.T) {
	root := open(t)
	newJournal(t, root, "left").Leave()
	dead, err := root.TakeJournals(t.Context(), state.Sending())
	if err != nil || len(dead) != 1 {
		t.Fatal(dead, err)
	}
	if got := takeAll(t, root); len(got) > 0 {
		t.Errorf("taken twice: %v", got)
	}
	var ops []string
	watched := root.WithSteps(func(op state.Op, _ string) error {
		ops = append(ops, string(op))
		return nil
	})
	dead[0].Release()
	if dead, err = watched.TakeJournals(t.Context(), state.Sending()); err != nil || len(dead) != 1 {
		t.Fatal(dead, err)
	}
	ops = nil
	if err := dead[0].Remove(); err != nil {
		t.Fatal(err)
	}
	dead[0].Release()
	if !slices.Equal(ops, []string{"remove", "syncdir"}) || len(sendingFiles(t, root)) > 0 {
		t.Errorf("removed by %v, left %v", ops, sendingFiles(t, root))
	}
}

func TestATornLastLineIsLeftOut(t *testing.T) {
	root := open(t)
	j := newJournal(t, root, "whole")
	j.Leave()
	path := filepath.Join(root.Path(state.Sending()), sendingFiles(t, root)[0])
	if err := os.WriteFile(path, []byte("whole\n\nsecond\ntor"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := takeAll(t, root); len(got) != 1 || !slices.Equal(got[0], []string{"whole", "second"}) {
		t.Errorf("lines %q", got)
	}
}

// TestAJournalThatCannotBeMadeLeavesNothing at whichever step it fails.
func TestAJournalThatCannotBeMadeLeavesNothing(t *testing.T) {
	broken := errors.New("broken")
	for n := 1; ; n++ {
		root := open(t)
		steps, last := 0, state.Op("")
		j, err := root.WithSteps(func(op state.Op, _ string) error {
			if steps++; steps == n {
				last = op
				return broken
			}
			return nil
		}).NewJournal(state.Sending(), []byte("first"))
		if steps < n {
			j.Leave()
			if n < 8 {
				t.Fatalf("only %d steps", steps)
			}
			return
		}
		if j != nil || !errors.Is(err, broken) {
			t.Errorf("step %d, %s: %v, %v", n, last, j, err)
		}
		if left := sendingFiles(t, root); len(left) > 0 {
			t.Errorf("step %d, %s: left %v", n, last, left)
		}
	}
}

func TestAnAppendThatFailedLeavesNothingOfItsLine(t *testing.T) {
	for _, failing := range []state.Op{state.OpAppend, state.OpSync} {
		root := open(t)
		armed := false
		j := newJournal(t, root.WithSteps(func(op state.Op, _ string) error {
			if armed && op == failing {
				return errors.New("broken")
			}
			return nil
		}), "first")
		armed = true
		if err := j.AppendDurably([]byte("not durable")); err == nil {
			t.Fatalf("%s: no error", failing)
		}
		armed = false
		if err := errors.Join(j.AppendDurably([]byte("second")), j.Append([]byte("third"))); err != nil {
			t.Fatal(err)
		}
		if want := int64(len("first\nsecond\nthird\n")); j.Size() != want {
			t.Errorf("%s: size %d, want %d", failing, j.Size(), want)
		}
		j.Leave()
		if got := takeAll(t, root); !slices.Equal(got[0], []string{"first", "second", "third"}) {
			t.Errorf("%s: lines %v", failing, got)
		}
		if err := j.Append([]byte("late")); !errors.Is(err, os.ErrClosed) {
			t.Errorf("%s: after its end: %v", failing, err)
		}
	}
}

func TestAJournalWithoutALockIsUsableAndSaysSo(t *testing.T) {
	root := open(t)
	var other *flock.Flock
	j, err := root.WithSteps(func(op state.Op, path string) error {
		if op != state.OpLock {
			return nil
		}
		other = flock.New(path)
		_, err := other.TryLock()
		return err
	}).NewJournal(state.Sending(), []byte("first"))
	if j == nil || !errors.Is(err, state.ErrNotLocked) {
		t.Fatalf("%v, %v", j, err)
	}
	if err := errors.Join(j.Append([]byte("second")), j.Remove(), other.Unlock()); err != nil {
		t.Error(err)
	}
	if left := sendingFiles(t, root); len(left) > 0 {
		t.Errorf("left %v", left)
	}
}

func TestAJournalIsRemovedOnceAndLeftToNobody(t *testing.T) {
	root := open(t)
	j := newJournal(t, root, "first")
	if err := j.Remove(); err != nil {
		t.Fatal(err)
	}
	if err := j.Remove(); err != nil {
		t.Errorf("the second time: %v", err)
	}
	j.Leave()
	none := open(t)
	if got := takeAll(t, none); len(got) > 0 {
		t.Errorf("taken %v", got)
	}
	if _, err := os.Stat(none.Dir()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("looking for journals made the root: %v", err)
	}
}

func TestManyGoroutinesShareOneJournal(t *testing.T) {
	root := open(t)
	j := newJournal(t, root, "first")
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for range 20 {
				if err := j.Append([]byte(strings.Repeat(string(rune('a'+i)), 5000))); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	j.Leave()
	got := takeAll(t, root)[0]
	if len(got) != 161 {
		t.Errorf("%d lines", len(got))
	}
	for _, l := range got[1:] {
		if len(l) != 5000 || strings.Trim(l, l[:1]) != "" {
			t.Fatalf("a mixed line: %.20q", l)
		}
	}
}

// While one is being flushed others are written, and the next flush is for all of
// them.
func TestManyGoroutinesShareAFlush(t *testing.T) {
	root := open(t)
	const many = 64
	flushing, let := make(chan struct{}), make(chan struct{})
	flushes := 0
	j := newJournal(t, root.WithSteps(func(op state.Op, _ string) error {
		if op == state.OpSync {
			if flushes++; flushes == 2 { // the first one was of the first line
				close(flushing)
				<-let
			}
		}
		return nil
	}), "first")
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := j.AppendDurably([]byte("alone")); err != nil {
			t.Error(err)
		}
	})
	<-flushing
	for range many {
		wg.Go(func() {
			if err := j.AppendDurably([]byte("one"), []byte("two")); err != nil {
				t.Error(err)
			}
		})
	}
	want := int64(len("first\nalone\n") + many*len("one\ntwo\n"))
	for j.Size() < want { // all of them have written
		runtime.Gosched()
	}
	close(let)
	wg.Wait()
	if flushes != 3 {
		t.Errorf("%d flushes, want 3", flushes)
	}
	j.Leave()
	if got := takeAll(t, root)[0]; len(got) != 2+2*many {
		t.Errorf("%d lines", len(got))
	}
}

// A flush that fails fails for everyone whose line it was to make durable, and
// none of these lines stands.
func TestAFlushThatFailedLeavesNothingOfAnybodysLine(t *testing.T) {
	root := open(t)
	flushing, let := make(chan struct{}), make(chan struct{})
	flushes := 0
	j := newJournal(t, root.WithSteps(func(op state.Op, _ string) error {
		if op == state.OpSync {
			if flushes++; flushes == 2 {
				close(flushing)
				<-let
				return errors.New("broken")
			}
		}
		return nil
	}), "first")
	errs := make(chan error, 9)
	add := func() { errs <- j.AppendDurably([]byte("lost")) }
	go add()
	<-flushing
	for range 8 {
		go add()
	}
	for j.Size() < int64(len("first\n")+9*len("lost\n")) {
		runtime.Gosched()
	}
	close(let)
	for range 9 {
		if err := <-errs; err == nil || err.Error() != "broken" {
			t.Errorf("%v", err)
		}
	}
	if err := j.AppendDurably([]byte("second")); err != nil {
		t.Fatal(err)
	}
	j.Leave()
	if got := takeAll(t, root)[0]; !slices.Equal(got, []string{"first", "second"}) {
		t.Errorf("%q", got)
	}
}
