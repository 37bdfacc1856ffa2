package state

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/gofrs/flock"
)

// Journal is a log that belongs to one process and is locked while it lives.
// When its lock is free its process is dead, and what stands in it is all that
// the process left. It is safe for concurrent use within its process.
type Journal struct {
	root *Root
	path string
	lock *flock.Flock

	mu sync.Mutex // of the rest; held for a write, and not for a flush
	f  *os.File
	// written are the bytes that stand in it, of which so many are durable.
	written, durable int64
	flushing         bool
	flushed          sync.Cond // a flush has ended
	lost             int       // how often one failed
	lostBy           error     // why the last one did
}

// ErrNotLocked is returned by NewJournal together with a journal that is
// usable and could not be locked: the file system has no locks. Nobody can
// tell whether its process lives, and nobody will take it over.
var ErrNotLocked = errors.New("this file system has no locks")

// NewJournal makes a journal with its first line in a folder under the root.
// It is durable on return, and nobody ever saw it unlocked: it is written and
// locked under a hidden name, and then renamed.
func (r *Root) NewJournal(dir string, first []byte) (*Journal, error) {
	dir = r.Path(dir)
	if err := r.mkdirs(dir); err != nil {
		return nil, err
	}
	name := fmt.Sprintf("%d-%s.jsonl", os.Getpid(), NewID())
	hidden := filepath.Join(dir, "."+name)
	j := &Journal{root: r, path: filepath.Join(dir, name)}
	j.flushed.L = &j.mu
	if err := r.at(OpCreate, hidden); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(hidden, os.O_RDWR|os.O_CREATE|os.O_EXCL|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	j.f = f
	locked, err := j.fill(hidden, first)
	if err != nil {
		_ = os.Remove(hidden)
		_ = os.Remove(j.path) // and unlocked only then: nobody may take it over
		j.release()
		return nil, err
	}
	if !locked {
		return j, ErrNotLocked
	}
	return j, nil
}

func (j *Journal) fill(hidden string, first []byte) (locked bool, err error) {
	if err := j.root.at(OpLock, hidden); err != nil {
		return false, err
	}
	j.lock = flock.New(hidden, flock.SetFlag(os.O_RDWR))
	locked, err = retryEINTR(j.lock.TryLock)
	locked = locked && err == nil
	if err := j.AppendDurably(first); err != nil {
		return locked, err
	}
	if err := j.root.at(OpReplace, j.path); err != nil {
		return locked, err
	}
	if err := os.Rename(hidden, j.path); err != nil {
		return locked, err
	}
	return locked, j.root.syncDir(filepath.Dir(j.path))
}

// Append adds a line. It survives our death, and not a power cut. With an error
// nothing of it stands.
func (j *Journal) Append(line []byte) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.write(line)
}

// AppendDurably adds lines that survive a power cut too. What several goroutines
// add meanwhile shares one flush. With an error none of its lines stands, nor
// what others have added since the last flush.
func (j *Journal) AppendDurably(lines ...[]byte) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if err := j.write(lines...); err != nil {
		return err
	}
	written, lost := j.written, j.lost
	for j.durable < written && j.lost == lost {
		if j.flushing {
			j.flushed.Wait()
		} else {
			j.flush()
		}
	}
	if j.lost != lost {
		return j.lostBy
	}
	return nil
}

// write adds lines in one write. The lock is held.
func (j *Journal) write(lines ...[]byte) error {
	if j.f == nil {
		return fs.ErrClosed
	}
	if err := j.root.at(OpAppend, j.path); err != nil {
		return err
	}
	n, err := j.f.Write(append(bytes.Join(lines, []byte("\n")), '\n'))
	if err != nil {
		if n > 0 { // half a line would spoil the next one
			_ = j.f.Truncate(j.written)
		}
		return err
	}
	j.written += int64(n)
	return nil
}

// flush makes durable what is written. The lock is held, but not meanwhile. What
// cannot be made durable is taken out, for a whole line that is not durable would
// be believed although its writer was told that it is not.
func (j *Journal) flush() {
	j.flushing = true
	upTo, f := j.written, j.f
	j.mu.Unlock()
	err := j.root.at(OpSync, j.path)
	if err == nil {
		err = f.Sync()
	}
	j.mu.Lock()
	j.flushing = false
	if err == nil {
		j.durable = upTo
	} else {
		_ = f.Truncate(j.durable)
		j.written, j.lostBy = j.durable, err
		j.lost++
	}
	j.flushed.Broadcast()
}

// Size is how many bytes were written to it.
func (j *Journal) Size() int64 {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.written
}

// Remove ends the journal: nothing in it is wanted any more. When that failed
// once, somebody else may have removed it since.
func (j *Journal) Remove() error {
	defer j.release()
	if err := j.root.at(OpRemove, j.path); err != nil {
		return err
	}
	if err := os.Remove(j.path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// Leave closes the journal and leaves its file to whoever recovers it.
func (j *Journal) Leave() { j.release() }

func (j *Journal) release() {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.f != nil {
		_ = j.f.Close()
		j.f = nil
	}
	if j.lock != nil {
		_ = j.lock.Unlock()
	}
}

// DeadJournal is the journal of a dead process, in our hand: its lock is ours.
type DeadJournal struct {
	Lines [][]byte // the whole ones

	root *Root
	path string
	lock *flock.Flock
}

// Remove removes the journal, durably, for what stood in it stands elsewhere
// now; the name could come back after a power cut otherwise.
func (d *DeadJournal) Remove() error {
	if err := d.root.at(OpRemove, d.path); err != nil {
		return err
	}
	if err := os.Remove(d.path); err != nil {
		return err
	}
	return d.root.syncDir(filepath.Dir(d.path))
}

// Release gives the journal back: it is as it was, or removed.
func (d *DeadJournal) Release() { _ = d.lock.Unlock() }

// TakeJournals takes the journals in a folder whose processes are dead. It
// creates nothing, and waits for no living process. All must be released. With
// an error (a *JournalError for each) taken are those that could be.
func (r *Root) TakeJournals(ctx context.Context, dir string) (taken []*DeadJournal, err error) {
	err = r.eachJournal(dir, func(path string) error {
		l := flock.New(path, flock.SetFlag(os.O_RDWR))
		d, err := r.ifDead(l, lockDead(ctx, l))
		if d != nil {
			taken = append(taken, d)
		}
		return err
	})
	return taken, err
}

// JournalError says which journal could not be read. It costs the others nothing.
type JournalError struct {
	Name string // below the root
	Err  error
}

func (e *JournalError) Error() string { return e.Name + ": " + e.Err.Error() }

// Unwrap gives the cause.
func (e *JournalError) Unwrap() error { return e.Err }

// DeadJournals reads what TakeJournals would take, and changes nothing.
func (r *Root) DeadJournals(dir string) (journals [][][]byte, err error) {
	err = r.eachJournal(dir, func(path string) error {
		l := flock.New(path, flock.SetFlag(os.O_RDONLY))
		d, err := r.ifDead(l, l.TryRLock)
		if d != nil {
			journals = append(journals, d.Lines)
			d.Release()
		}
		return err
	})
	return journals, err
}

func (r *Root) eachJournal(dir string, f func(path string) error) error {
	list, err := os.ReadDir(r.Path(dir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var errs []error
	for _, entry := range list {
		name := entry.Name()
		if strings.HasPrefix(name, ".") || !strings.HasSuffix(name, ".jsonl") {
			continue
		}
		if err := f(filepath.Join(r.Path(dir), name)); err != nil {
			errs = append(errs, &JournalError{dir + "/" + name, err})
		}
	}
	return errors.Join(errs...)
}

// lockDead tries for a journal's lock. The one who has it may be a reader who
// only looks, and such an instant must not pass for a life: where the process
// that the journal is named after is not there, a reader is waited for.
func lockDead(ctx context.Context, l *flock.Flock) func() (bool, error) {
	return func() (bool, error) {
		ok, err := l.TryLock()
		pid, _, _ := strings.Cut(filepath.Base(l.Path()), "-")
		n, bad := strconv.Atoi(pid)
		if ok || err != nil || bad != nil || syscall.Kill(n, 0) != syscall.ESRCH {
			return ok, err
		}
		// Not in the kernel: the process may live in another process namespace,
		// and who waits there waits as long as it does.
		for range 10 {
			if err := pause(ctx, 5*time.Millisecond); err != nil {
				return false, err
			}
			if ok, err = l.TryLock(); ok || err != nil {
				break
			}
		}
		return ok, err
	}
}

func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// ifDead reads a journal when its lock can be had; nil says that its process
// lives, or that somebody else has removed it.
func (r *Root) ifDead(l *flock.Flock, lock func() (bool, error)) (d *DeadJournal, err error) {
	if err := r.at(OpLock, l.Path()); err != nil {
		return nil, err
	}
	ok, err := retryEINTR(lock)
	if !ok || err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
		return nil, err
	}
	defer func() {
		if d == nil {
			_ = l.Unlock()
		}
	}()
	if !isCurrent(l) {
		return nil, nil
	}
	if err := r.at(OpRead, l.Path()); err != nil {
		return nil, err
	}
	b, err := os.ReadFile(l.Path())
	if err != nil {
		return nil, err
	}
	return &DeadJournal{Lines: wholeLines(b), root: r, path: l.Path(), lock: l}, nil
}

// wholeLines splits b into its lines, without a torn last one.
func wholeLines(b []byte) [][]byte {
	lines := bytes.Split(b, []byte("\n"))
	return slices.DeleteFunc(lines[:len(lines)-1], func(l []byte) bool { return len(l) == 0 })
}
