package state_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"the-loop/state"
)

func lines(t *testing.T, log state.Log) (out []string) {
	t.Helper()
	if err := log.Lines(func(b []byte) bool { out = append(out, string(b)); return true }); err != nil {
		t.Fatal(err)
	}
	return out
}

func add(t *testing.T, log state.Log, line string) {
	t.Helper()
	if err := log.Append(t.Context(), []byte(line)); err != nil {
		t.Fatal(err)
	}
}

func tear(t *testing.T, log state.Log, text string) {
	t.Helper()
	f, err := os.OpenFile(log.Path(), os.O_WRONLY|os.O_APPEND, 0)
	if err == nil {
		_, err = f.WriteString(text)
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
}

func TestATornLastLineIsLeftOutAndEndedFirst(t *testing.T) {
	log := open(t).Log(state.EventLog)
	add(t, log, "one")
	tear(t, log, "tor")
	if got := lines(t, log); !slices.Equal(got, []string{"one"}) {
		t.Errorf("with a torn last line: %q", got)
	}
	add(t, log, "two")
	if got := read(t, log.Path()); got != "one\ntor\ntwo\n" {
		t.Errorf("the file: %q", got)
	}
}

func TestLinesStopsWhenToldAndPassesOverWhatIsTooLong(t *testing.T) {
	log := open(t).Log(state.EventLog)
	add(t, log, "one")
	add(t, log, strings.Repeat("x", state.MaxLine+1))
	add(t, log, "")
	add(t, log, "two")
	add(t, log, "three")
	var got []string
	err := log.Lines(func(b []byte) bool {
		got = append(got, string(b))
		return string(b) != "two"
	})
	if err != nil || !slices.Equal(got, []string{"one", "two"}) {
		t.Errorf("%d lines, %v", len(got), err)
	}
}

func TestLinesOfManyWritersStandWhole(t *testing.T) {
	root := open(t)
	want := map[string]bool{}
	var wg sync.WaitGroup
	for i := range 4 {
		who := string(rune('a' + i))
		cmd := process(t, root, "append", who)
		wg.Go(func() {
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
	for i := range 4 {
		who := string(rune('p' + i))
		wg.Go(func() {
			if err := appendMany(root, who, 25); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	for _, who := range strings.Split("abcdpqrs", "") {
		for i := range 25 {
			want[string(longLine(who, i))] = true
		}
	}
	got := lines(t, root.Log(state.EventLog))
	for _, line := range got {
		if !want[line] {
			t.Errorf("a line that nobody wrote, or twice: %.40q, %d bytes", line, len(line))
		}
		delete(want, line)
	}
	if len(want) > 0 {
		t.Errorf("%d of 200 lines are missing", len(want))
	}
}

func TestTurnOverUnderConcurrentAppendsLosesNothing(t *testing.T) {
	root := open(t)
	log := root.Log(state.EventLog)
	const writers, each, size = 8, 40, 100
	log.Limit = writers * each * size * 2 / 3 // so that it is turned over once
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for i := range each {
				line := fmt.Sprintf("%d %d %s", w, i, strings.Repeat("x", size))[:size-1]
				if err := log.Append(t.Context(), []byte(line)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	got := lines(t, log)
	slices.Sort(got)
	if n := len(slices.Compact(slices.Clone(got))); n != writers*each || len(got) != n {
		t.Errorf("%d lines, %d distinct, of %d", len(got), n, writers*each)
	}
	if _, err := os.Stat(log.Path() + ".1"); err != nil {
		t.Errorf("it was not turned over: %v", err)
	}
}

func TestTwoThatFindTheLogFullBothSucceed(t *testing.T) {
	root := open(t)
	fast := root.Log(state.EventLog)
	fast.Limit = 1
	once := false
	slow := root.WithSteps(func(op state.Op, _ string) error {
		if op == state.OpLock && !once { // the first has written, and is about to turn over
			once = true
			return fast.Append(t.Context(), []byte("fast"))
		}
		return nil
	}).Log(state.EventLog)
	slow.Limit = 1
	if err := slow.Append(t.Context(), []byte("slow")); err != nil {
		t.Errorf("the other one turned it over, and that is an error: %v", err)
	}
	if got := lines(t, fast); !once || !slices.Equal(got, []string{"slow", "fast"}) {
		t.Errorf("%q", got)
	}
}

func TestAppendFailsWholeAtEveryStep(t *testing.T) {
	for _, durable := range []bool{false, true} {
		for n := 0; ; n++ {
			root := open(t)
			broken, op := failAt(root, n)
			log := broken.Log(state.EventLog)
			appendLine := log.Append
			if durable {
				appendLine = func(ctx context.Context, line []byte) error { return log.AppendDurably(ctx, line) }
			}
			err := appendLine(t.Context(), []byte("the line"))
			if *op == "" {
				if err != nil {
					t.Fatal(err)
				}
				break
			}
			if !errors.Is(err, syscall.EIO) {
				t.Errorf("%s failed, and Append says %v", *op, err)
			}
			before := lines(t, root.Log(state.EventLog))
			if len(before) > 0 && !slices.Equal(before, []string{"the line"}) {
				t.Errorf("%s failed: %q", *op, before)
			}
			add(t, root.Log(state.EventLog), "works again")
			if got := lines(t, root.Log(state.EventLog)); !slices.Equal(got, append(before, "works again")) {
				t.Errorf("%s failed, afterwards: %q", *op, got)
			}
		}
	}
}

func TestALogThatCannotBeTurnedOverGrowsOn(t *testing.T) {
	for _, op := range []state.Op{state.OpLock, state.OpReplace, state.OpSyncDir} {
		root := open(t)
		add(t, root.Log(state.EventLog), "first")
		failing := true
		log := root.WithSteps(func(o state.Op, _ string) error {
			if failing && o == op {
				return syscall.EIO
			}
			return nil
		}).Log(state.EventLog)
		log.Limit = 1
		if err := log.Append(t.Context(), []byte("second")); err != nil {
			t.Errorf("%s failed: the line stands, and yet: %v", op, err)
		}
		failing = false
		add(t, log, "third")
		if got := lines(t, log); !strings.HasSuffix(strings.Join(got, " "), "third") ||
			op != state.OpSyncDir && !slices.Equal(got, []string{"first", "second", "third"}) {
			t.Errorf("%s failed: %q", op, got)
		}
		if _, err := os.Stat(log.Path() + ".1"); err != nil {
			t.Errorf("%s failed: it was never turned over: %v", op, err)
		}
	}
}

func TestADurableLineInAFileThatAnotherCreated(t *testing.T) {
	root := open(t)
	add(t, root.Log(state.EventLog), "by somebody who did not wait for the disk")
	var ops []string
	watched := root.WithSteps(func(op state.Op, path string) error {
		ops = append(ops, string(op)+" "+filepath.Base(path))
		return nil
	})
	if err := watched.Log(state.EventLog).AppendDurably(t.Context(), []byte("durable")); err != nil {
		t.Fatal(err)
	}
	want := []string{"append events.jsonl", "sync events.jsonl", "syncdir logs"}
	if !slices.Equal(ops, want) {
		t.Errorf("%q, want %q: the file's name must be durable too", ops, want)
	}
}

func TestALinkedLogIsReadWhereItWasTurnedOver(t *testing.T) {
	root := open(t)
	real := linked(t, root, "../elsewhere/real.jsonl")
	log := root.Log(state.Outbox)
	log.Limit = 10
	for _, line := range []string{"one", "two two two", "three"} {
		add(t, log, line)
	}
	if got := lines(t, log); !slices.Equal(got, []string{"one", "two two two", "three"}) {
		t.Errorf("%q", got)
	}
	if _, err := os.Stat(real + ".1"); err != nil {
		t.Error(err)
	}
}

func TestFollowGoesOnPastATurnOver(t *testing.T) {
	root := open(t)
	log := root.Log(state.EventLog)
	log.Limit = 25
	for _, line := range []string{"turned over", "before it began"} { // 12 + 16 bytes
		add(t, log, line)
	}
	add(t, log, "there")
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var got []string
		done := make(chan error, 1)
		go func() {
			done <- log.Follow(ctx, time.Second, func(line []byte) bool {
				got = append(got, string(line))
				return string(line) != "stop"
			})
		}()
		synctest.Wait()
		tear(t, log, "half a ")
		time.Sleep(1500 * time.Millisecond)
		synctest.Wait()
		want := []string{"turned over", "before it began", "there"}
		if !slices.Equal(got, want) {
			t.Errorf("so far: %q", got)
		}
		tear(t, log, "line\n")
		add(t, log, "the last in the old file")
		add(t, log, "new")
		time.Sleep(time.Second)
		synctest.Wait()
		add(t, log, "stop")
		add(t, log, "unread")
		if err := <-done; err != nil {
			t.Error(err)
		}
		want = append(want, "half a line", "the last in the old file", "new", "stop")
		if !slices.Equal(got, want) {
			t.Errorf("%q\nwant %q", got, want)
		}
	})
}

func TestFollowWaitsForAnAbsentLogAndEndsWithItsContext(t *testing.T) {
	log := open(t).Log(state.EventLog)
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		var got []string
		done := make(chan error, 1)
		go func() {
			done <- log.Follow(ctx, time.Second, func(line []byte) bool {
				got = append(got, string(line))
				return true
			})
		}()
		time.Sleep(3 * time.Second)
		add(t, log, "one")
		time.Sleep(2 * time.Second)
		synctest.Wait()
		cancel()
		if err := <-done; err != nil || !slices.Equal(got, []string{"one"}) {
			t.Errorf("%q, %v", got, err)
		}
	})
}
