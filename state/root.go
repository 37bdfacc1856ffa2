// Package state knows every path that the-loop writes and the two ways in
// which it writes them: a Document is rewritten whole, under a lock, by an
// atomic rename; a Log grows by one line per write.
//
// Any number of processes share a root. Folders are 0700 and files 0600 from
// the first byte. Reading takes no lock.
package state

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/oklog/ulid/v2"
)

// Root is a state folder. It need not exist yet: the first write creates it.
// A Root holds nothing open and is safe for use by several goroutines.
type Root struct {
	dir  string
	step func(op Op, path string) error
}

// Op names one operation on a file, for the observer of WithSteps.
type Op string

// The operations, in the order in which a Document's update makes them.
const (
	OpMkdir   Op = "mkdir"
	OpLock    Op = "lock"
	OpRead    Op = "read"
	OpCreate  Op = "create"
	OpWrite   Op = "write"
	OpSync    Op = "sync"
	OpReplace Op = "replace" // rename
	OpSyncDir Op = "syncdir"
	OpAside   Op = "aside"  // rename to a name that is set aside
	OpAppend  Op = "append" // one write with O_APPEND
	OpRemove  Op = "remove"
)

// Open gives the root in dir. It touches nothing.
func Open(dir string) (*Root, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("state root: %w", err)
	}
	return &Root{dir: abs}, nil
}

// WithSteps gives the same root with an observer that is called before every
// operation; an error from it is returned in the operation's place. Tests use
// it to fail a step, to stop at one, or to die there.
func (r *Root) WithSteps(step func(op Op, path string) error) *Root {
	return &Root{dir: r.dir, step: step}
}

// Dir is the root's absolute path.
func (r *Root) Dir() string { return r.dir }

// Path gives the absolute path of a declared, slash-separated name.
func (r *Root) Path(name string) string { return filepath.Join(r.dir, filepath.FromSlash(name)) }

func (r *Root) at(op Op, path string) error {
	if r.step == nil {
		return nil
	}
	return r.step(op, path)
}

// NewID gives a fresh ULID. Those of one process rise strictly; those that two
// processes make in one millisecond are in no order.
func NewID() string { return ulid.Make().String() }

// ErrNotOurs is returned for a symbolic link that belongs to another user:
// following it would let them choose what we write.
var ErrNotOurs = errors.New("is a link that belongs to another user")

// target follows the link that path may be, and nothing else: the last
// component is resolved, links in the folders above are the system's own.
func target(path string) (string, error) {
	for range 16 {
		fi, err := os.Lstat(path)
		if err != nil || fi.Mode()&fs.ModeSymlink == 0 {
			return path, nil // absent or unreadable: the operation itself will say so
		}
		if st, ok := fi.Sys().(*syscall.Stat_t); ok && int(st.Uid) != os.Geteuid() {
			return "", &fs.PathError{Op: "open", Path: path, Err: ErrNotOurs}
		}
		to, err := os.Readlink(path)
		if err != nil {
			return "", err
		}
		if !filepath.IsAbs(to) {
			// ".." in it counts from the folder that the link is really in.
			dir, err := filepath.EvalSymlinks(filepath.Dir(path))
			if err != nil {
				return "", err
			}
			to = filepath.Join(dir, to)
		}
		path = to
	}
	return "", &fs.PathError{Op: "open", Path: path, Err: syscall.ELOOP}
}

// mkdirs creates the folder and those above it that are missing, 0700, and
// makes each of them durable.
func (r *Root) mkdirs(dir string) error {
	if fi, err := os.Stat(dir); err == nil {
		if !fi.IsDir() {
			return &fs.PathError{Op: "mkdir", Path: dir, Err: syscall.ENOTDIR}
		}
		return nil
	}
	parent := filepath.Dir(dir)
	if parent == dir {
		return &fs.PathError{Op: "mkdir", Path: dir, Err: fs.ErrNotExist}
	}
	if err := r.mkdirs(parent); err != nil {
		return err
	}
	if err := r.at(OpMkdir, dir); err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	if err := r.syncDir(parent); err != nil {
		_ = os.Remove(dir) // whoever finds it there would take it to be durable
		return err
	}
	return nil
}

// syncDir makes a rename or a new name in dir durable.
func (r *Root) syncDir(dir string) error {
	if err := r.at(OpSyncDir, dir); err != nil {
		return err
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}

// setAside renames a damaged file to a new name beside it and returns that.
// Its bytes are kept as they are.
func (r *Root) setAside(path string) (string, error) {
	aside := path + ".corrupt-" + strings.ToLower(NewID())
	if err := r.at(OpAside, path); err != nil {
		return "", err
	}
	if err := os.Rename(path, aside); err != nil {
		return "", err
	}
	if err := os.Chmod(aside, 0o600); err != nil {
		return "", err
	}
	return aside, r.syncDir(filepath.Dir(path))
}
