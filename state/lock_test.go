package state_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"the-loop/state"
)

var errGaveUp = errors.New("the test gave up")

// shortly gives a context that ends before a lock that is held comes free. A
// goroutine that waits in flock would hang a synctest bubble.
func shortly(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, 30*time.Millisecond, errGaveUp)
}

func TestF02_TheLockOutlivesTheRewriteByRename(t *testing.T) {
	root := open(t)
	doc := root.Document(state.Outbox)
	err := doc.Update(t.Context(), func(tx *state.Tx) error {
		for _, text := range []string{"one", "two", "three"} {
			if err := tx.Write([]byte(text)); err != nil {
				return err
			}
			ctx, cancel := shortly(t.Context())
			err := root.Document(state.Outbox).Update(ctx, func(*state.Tx) error {
				t.Error("a second goroutine got in")
				return nil
			})
			cancel()
			if !errors.Is(err, errGaveUp) {
				t.Errorf("waiting ended with %v, want the context's cause", err)
			}
		}
		if got := output(t, process(t, root, "try", "")); got != "locked" {
			t.Errorf("a second process found the lock %q", got)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if got := output(t, process(t, root, "try", "")); got != "free" {
		t.Errorf("afterwards a second process found the lock %q", got)
	}
}

func TestF02_ASecondWriterWaitsForTheFirst(t *testing.T) {
	root := open(t)
	var released atomic.Bool
	started := make(chan struct{})
	second := root.WithSteps(func(op state.Op, _ string) error {
		if op == state.OpLock {
			close(started)
		}
		return nil
	})
	done := make(chan error, 1)
	err := root.Document(state.Outbox).Update(t.Context(), func(tx *state.Tx) error {
		go func() {
			done <- second.Document(state.Outbox).Update(t.Context(), func(tx *state.Tx) error {
				if !released.Load() {
					t.Error("the second writer did not wait")
				}
				b, err := tx.Read()
				if string(b) != "last" {
					t.Errorf("the second writer read %q", b)
				}
				return err
			})
		}()
		<-started
		for _, text := range strings.Fields("a b c d e f g h last") {
			if err := tx.Write([]byte(text)); err != nil {
				return err
			}
		}
		released.Store(true)
		return nil
	})
	if err := errors.Join(err, <-done); err != nil {
		t.Fatal(err)
	}
}

func TestF02_NoIncrementIsLost(t *testing.T) {
	root := open(t)
	var wg sync.WaitGroup
	for range 8 {
		cmd := process(t, root, "increment", "10")
		wg.Go(func() {
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
	for range 12 {
		wg.Go(func() {
			for range 10 {
				if err := increment(root); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if got := read(t, root.Path(state.Outbox)); got != "200" {
		t.Errorf("200 increments by 12 goroutines and 8 processes made %s", got)
	}
}

// awaitWaiter returns when somebody waits in the kernel for the lock on path.
func awaitWaiter(t *testing.T, path string) {
	t.Helper()
	fi, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	inode := inodeOf(fi)
	for deadline := time.Now().Add(5 * time.Second); time.Now().Before(deadline); {
		b, err := os.ReadFile("/proc/locks")
		if err != nil {
			t.Logf("cannot see who waits for a lock (%v): the waiter may come late, and the test proves less", err)
			return
		}
		for line := range strings.Lines(string(b)) {
			if strings.Contains(line, "->") && strings.Contains(line, inode+" ") {
				return
			}
		}
	}
	t.Fatal("nobody waits for the lock")
}

func TestLockFileDeletedUnderAWaiter(t *testing.T) {
	root := open(t)
	doc := root.Document(state.Outbox)
	lock := doc.Path() + ".lock"
	ctx := t.Context()
	var thirdDone atomic.Bool
	second, third := make(chan error, 1), make(chan error, 1)
	inThird, firstDone := make(chan struct{}), make(chan struct{})
	err := doc.Update(ctx, func(*state.Tx) error {
		go func() {
			second <- doc.Update(ctx, func(*state.Tx) error {
				if !thirdDone.Load() {
					t.Error("the waiter holds the lock of a file that is gone, beside the new one's holder")
				}
				return nil
			})
		}()
		awaitWaiter(t, lock)
		if err := os.Remove(lock); err != nil {
			return err
		}
		go func() {
			third <- doc.Update(ctx, func(tx *state.Tx) error {
				close(inThird)
				<-firstDone
				for range 10 {
					if err := tx.Write([]byte("third")); err != nil {
						return err
					}
				}
				thirdDone.Store(true)
				return nil
			})
		}()
		<-inThird
		return nil
	})
	close(firstDone)
	if err := errors.Join(err, <-second, <-third); err != nil {
		t.Fatal(err)
	}
}

func TestWaitingForALockEndsWithTheContext(t *testing.T) {
	root := open(t)
	doc := root.Document(state.Outbox)
	err := doc.Update(t.Context(), func(*state.Tx) error {
		ctx, cancel := shortly(t.Context())
		defer cancel()
		err := doc.Update(ctx, func(*state.Tx) error { return nil })
		if !errors.Is(err, errGaveUp) || !strings.Contains(err.Error(), "undelivered.json.lock") {
			t.Errorf("got %v, want the cause and the lock's name", err)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	write(t, doc, "free again") // the one that gave up holds nothing
}

func TestChangesErrorIsUpdatesError(t *testing.T) {
	root := open(t)
	doc := root.Document(state.Outbox)
	if err := doc.Update(t.Context(), func(*state.Tx) error { return errGaveUp }); !errors.Is(err, errGaveUp) {
		t.Errorf("got %v", err)
	}
	write(t, doc, "unlocked")
}

func TestRoleIsHeldByOne(t *testing.T) {
	root := open(t)
	role := root.Role(state.DrainRole)
	release, held, err := role.Take("poller, process 4711")
	if err != nil || !held {
		t.Fatalf("held %v, %v", held, err)
	}
	if who, err := role.Holder(); err != nil || who != "poller, process 4711" {
		t.Errorf("holder %q, %v", who, err)
	}
	if _, held, err := role.Take("another"); err != nil || held {
		t.Errorf("a second one got it: %v, %v", held, err)
	}
	if who, _ := role.Holder(); who != "poller, process 4711" {
		t.Errorf("the one who did not get it wrote its name: %q", who)
	}
	release()
	if who, err := role.Holder(); err != nil || who != "" {
		t.Errorf("released, and the holder is %q, %v", who, err)
	}
	again, held, err := role.Take("another")
	if err != nil || !held {
		t.Fatalf("released, and not free: %v, %v", held, err)
	}
	release() // twice: it must not end the other's
	if who, _ := role.Holder(); who != "another" {
		t.Errorf("holder %q after a second release by the first", who)
	}
	again()
}

func TestRoleHolderCreatesNothing(t *testing.T) {
	root := open(t)
	if who, err := root.Role(state.DrainRole).Holder(); err != nil || who != "" {
		t.Errorf("holder %q, %v", who, err)
	}
	if _, err := os.Lstat(root.Dir()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("asking who holds a role created %s", filepath.Base(root.Dir()))
	}
}

func TestRoleIsFreeForTheTakerWhileOthersLook(t *testing.T) {
	role := open(t).Role(state.DrainRole)
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					if _, err := role.Holder(); err != nil {
						t.Error(err)
						return
					}
				}
			}
		})
	}
	for i := range 300 {
		release, held, err := role.Take("taker")
		if err != nil || !held {
			t.Errorf("take %d: held %v, %v: somebody looking is not somebody holding", i, held, err)
			break
		}
		release()
	}
	close(stop)
	wg.Wait()
}
