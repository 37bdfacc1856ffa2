package state

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/gofrs/flock"
	"github.com/google/renameio/v2"
)

// Document is a file that is rewritten whole.
type Document struct {
	root *Root
	path string
}

// Document gives the document with that name.
func (r *Root) Document(name string) Document { return Document{r, r.Path(name)} }

// Path is the document's absolute path.
func (d Document) Path() string { return d.path }

// Read gives the bytes as some writer left them, without a lock; a rename is
// atomic, so they are never half of one state and half of another. An absent
// file is fs.ErrNotExist.
func (d Document) Read() ([]byte, error) {
	path, err := target(d.path)
	if err != nil {
		return nil, err
	}
	if err := d.root.at(OpRead, path); err != nil {
		return nil, err
	}
	return readRegular(path)
}

var errNoFile = errors.New("is a device or a pipe, and no file")

// readRegular is os.ReadFile for what has an end: a device, or a pipe, that stands
// where a file of ours should might never come to one.
func readRegular(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err == nil && !info.IsDir() && !info.Mode().IsRegular() {
		err = &fs.PathError{Op: "read", Path: path, Err: errNoFile}
	}
	if err != nil {
		return nil, err
	}
	return os.ReadFile(path)
}

// Update runs change with the document's lock held: what it reads through tx
// stays so until it returns. It waits for the lock until ctx ends or
// LockTimeout has passed (ErrLockTimeout). Folders and the lock file are
// created. Update returns what change returned.
//
// change must not sleep, wait for the network, or call Update on the same
// document.
func (d Document) Update(ctx context.Context, change func(tx *Tx) error) error {
	path, err := target(d.path)
	if err != nil {
		return err
	}
	if err := d.root.mkdirs(filepath.Dir(path)); err != nil {
		return err
	}
	lock, err := d.root.lockFile(ctx, path+".lock")
	if err != nil {
		return err
	}
	defer func() { _ = lock.Unlock() }()
	return change(&Tx{root: d.root, path: path, lock: lock})
}

// Tx is a document under its lock. It is used by one goroutine.
type Tx struct {
	root *Root
	path string
	lock *flock.Flock
}

// ErrLockGone is returned by Write when the lock file was deleted while its
// lock was held: another process may hold the new one's by now, and what it
// wrote would be overwritten.
var ErrLockGone = errors.New("its lock file was deleted meanwhile")

// Read gives the document's bytes, nil when there is none.
func (tx *Tx) Read() ([]byte, error) {
	if err := tx.root.at(OpRead, tx.path); err != nil {
		return nil, err
	}
	b, err := readRegular(tx.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return b, err
}

// Write replaces the document. On return without an error it is durable, the
// name included; with one, the old document stands whole, or (when only the
// folder's fsync failed) the new one.
func (tx *Tx) Write(parts ...[]byte) (err error) {
	dir := filepath.Dir(tx.path)
	if err := tx.root.at(OpCreate, tx.path); err != nil {
		return err
	}
	f, err := renameio.NewPendingFile(tx.path, renameio.WithTempDir(dir), renameio.WithStaticPermissions(0o600))
	if err != nil {
		return err
	}
	defer func() { _ = f.Cleanup() }() // once the file is in place it only closes it
	if err := tx.root.at(OpWrite, tx.path); err != nil {
		return err
	}
	for _, p := range parts {
		if _, err := f.Write(p); err != nil {
			return err
		}
	}
	if err := tx.root.at(OpSync, f.Name()); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	if err := tx.root.at(OpReplace, tx.path); err != nil {
		return err
	}
	// As late as can be, which is why renameio does not do both at once.
	if !isCurrent(tx.lock) {
		return fmt.Errorf("%s: %w", filepath.Base(tx.path), ErrLockGone)
	}
	if err := os.Rename(f.Name(), tx.path); err != nil {
		return err
	}
	return tx.root.syncDir(dir)
}

// SetAside renames the damaged document out of the way, keeping its bytes, and
// returns its new path. The document is then absent.
func (tx *Tx) SetAside() (string, error) {
	aside, err := tx.root.setAside(tx.path)
	if err != nil {
		return "", fmt.Errorf("set aside %s: %w", filepath.Base(tx.path), err)
	}
	return aside, nil
}

// Keep writes bytes that belong to the document but could not be understood
// into a set-aside file of their own beside it, durably, and returns its path.
func (tx *Tx) Keep(b []byte) (string, error) {
	aside := &Tx{root: tx.root, path: tx.path + ".corrupt-" + NewID(), lock: tx.lock}
	return aside.path, aside.Write(b)
}
