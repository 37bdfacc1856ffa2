package state

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/gofrs/flock"
)

// LockTimeout is how long a data file's lock is waited for. Whoever holds one
// holds it for a few milliseconds; a longer wait means that something is wrong.
const LockTimeout = 5 * time.Second

// ErrLockTimeout is returned when a lock did not come free in LockTimeout.
var ErrLockTimeout = errors.New("still locked by another process after 5s")

// lockFile takes the exclusive lock on path, creating the file, and waits for
// it until ctx ends or LockTimeout has passed. Every call opens the file
// itself: two goroutines exclude each other as two processes do.
func (r *Root) lockFile(ctx context.Context, path string) (*flock.Flock, error) {
	if err := r.at(OpLock, path); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, LockTimeout, ErrLockTimeout)
	defer cancel()
	for {
		l := flock.New(path)
		if err := lockWithin(ctx, l); err != nil {
			return nil, fmt.Errorf("lock %s: %w", filepath.Base(path), err)
		}
		if isCurrent(l) {
			return l, nil
		}
		_ = l.Unlock() // the file was replaced while we waited; so is its lock
	}
}

// lockWithin blocks in the kernel rather than asking again and again: waiters
// are served in turn, and wake at once.
func lockWithin(ctx context.Context, l *flock.Flock) error {
	ok, err := retryEINTR(l.TryLock)
	if ok || err != nil {
		return err
	}
	done := make(chan error, 1)
	go func() {
		_, err := retryEINTR(func() (bool, error) { return true, l.Lock() })
		done <- err
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		go func() { // the kernel cannot be told to stop waiting
			if <-done == nil {
				_ = l.Unlock()
			}
		}()
		return context.Cause(ctx)
	}
}

func retryEINTR(f func() (bool, error)) (bool, error) {
	for {
		ok, err := f()
		if !errors.Is(err, syscall.EINTR) {
			return ok, err
		}
	}
}

// isCurrent reports whether the locked file is still the one at its path. The
// open file keeps its inode number from being used again meanwhile.
func isCurrent(l *flock.Flock) bool {
	open, err := l.Stat()
	if err != nil {
		return false
	}
	now, err := os.Stat(l.Path())
	return err == nil && os.SameFile(open, now)
}

// Role is a lock that stands for a part somebody plays: being the drainer,
// being the poller. It may be held for long, and nobody waits for it to end.
type Role struct {
	root *Root
	path string
}

// Role gives the role whose lock is the named file.
func (r *Root) Role(name string) Role { return Role{r, r.Path(name)} }

// Take tries to take the role and does not wait. who is written into the lock
// file for others to read ("poller, process 4711"). held is false when
// somebody else has it. release ends the role; it may be called twice.
func (ro Role) Take(who string) (release func(), held bool, err error) {
	if err := ro.root.mkdirs(filepath.Dir(ro.path)); err != nil {
		return nil, false, err
	}
	if err := ro.root.at(OpLock, ro.path); err != nil {
		return nil, false, err
	}
	for {
		l := flock.New(ro.path)
		ok, err := retryEINTR(l.TryLock)
		if err != nil {
			return nil, false, err
		}
		if !ok {
			if other, err := ro.Holder(); other != "" || err != nil {
				return nil, false, err
			}
			if err := outwait(l); err != nil {
				return nil, false, nil
			}
		}
		if !isCurrent(l) {
			_ = l.Unlock()
			continue
		}
		if err := os.WriteFile(ro.path, []byte(who+"\n"), 0o600); err != nil {
			_ = l.Unlock()
			return nil, false, err
		}
		return func() { _ = l.Unlock() }, true, nil
	}
}

// outwait waits in the kernel for the lock of somebody who was only looking who
// has the role, which takes an instant. Whoever has it longer has the role.
func outwait(l *flock.Flock) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	return lockWithin(ctx, l)
}

// Holder says who has the role now, "" when nobody has. It creates nothing.
func (ro Role) Holder() (who string, err error) {
	l := flock.New(ro.path, flock.SetFlag(os.O_RDONLY))
	ok, err := retryEINTR(l.TryRLock)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return "", nil
	case err != nil:
		return "", err
	case ok:
		return "", l.Unlock()
	}
	b, err := os.ReadFile(ro.path)
	if who = strings.TrimSpace(string(b)); who == "" {
		who = "another process"
	}
	return who, err
}
