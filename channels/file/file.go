// Package file is the channel kind that appends an event to a file as one line
// of JSON. It is what there is when nothing is configured.
package file

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"the-loop/channels"
	"the-loop/state"
)

// Channel appends to one file. A line is the event as Event.Encode gives it,
// written in one write and fsynced under the exclusive lock on the sibling
// file with ".lock": who reads under that lock sees whole lines only, who reads
// without it may have to pass over a last line that has no line break, and
// after a full disk over one line that is not JSON.
type Channel struct {
	name string
	doc  state.Document // its lock
	log  state.Log
}

// New gives the channel that appends to path, which is absolute or below the
// root. File and folders are created by the first event.
func New(name, path string, root *state.Root) *Channel {
	if rel, err := filepath.Rel(root.Dir(), path); err == nil && filepath.IsAbs(path) {
		path = rel
	}
	return &Channel{name: name, doc: root.Document(path), log: root.Log(path)}
}

// Name is the channel's name in the config.
func (c *Channel) Name() string { return c.name }

// Credential is the path: another file is another surface.
func (c *Channel) Credential() string { return c.log.Path() }

// Post appends the event and returns when it is durable. The receipt's Ref is
// the event's id.
func (c *Channel) Post(ctx context.Context, d channels.Delivery) (channels.Receipt, error) {
	line, err := d.Event.Encode()
	if err != nil || d.Event.ID == "" {
		return channels.Receipt{}, &channels.Refusal{Reason: channels.ReasonUnacceptable, Code: "bad_event", Err: err}
	}
	if err := ctx.Err(); err != nil {
		return channels.Receipt{}, c.refusal(err)
	}
	var written int64
	err = c.doc.Update(ctx, func(*state.Tx) error {
		before := c.size()
		err := c.log.AppendDurably(ctx, line)
		written = c.size() - before
		return err
	})
	if err != nil && ctx.Err() != nil {
		err = errors.Join(ctx.Err(), err) // which may be the context's own cause
	}
	switch {
	case err == nil:
		return channels.Receipt{Ref: d.Event.ID}, nil
	case written >= int64(len(line)):
		return channels.Receipt{}, &channels.Uncertain{Code: code(err), Detail: c.base(), Err: err}
	default: // at most a part of the line stands there, which is no event
		return channels.Receipt{}, c.refusal(err)
	}
}

// ReadBack looks for the line.
func (c *Channel) ReadBack(ctx context.Context, r channels.Receipt) error {
	found := false
	err := c.log.Lines(func(line []byte) bool {
		e, err := channels.DecodeEvent(line)
		found = err == nil && e.ID == r.Ref
		return !found && ctx.Err() == nil
	})
	switch {
	case found:
		return nil
	case err != nil:
		return fmt.Errorf("read back from %s: %w", c.base(), err)
	case ctx.Err() != nil:
		return ctx.Err()
	}
	return fmt.Errorf("read back from %s: no line holds %s", c.base(), r.Ref)
}

func (c *Channel) base() string { return filepath.Base(c.log.Path()) }

// size is the file's length, 0 when it cannot be told.
func (c *Channel) size() int64 {
	fi, err := os.Stat(c.log.Path())
	if err != nil {
		return 0
	}
	return fi.Size()
}

// refusal gives ReasonDown for what passes by itself, a full disk or a lock
// that is held; ReasonConfig for a place that somebody has to put right.
func (c *Channel) refusal(err error) *channels.Refusal {
	r := &channels.Refusal{Reason: channels.ReasonDown, Code: code(err), Detail: c.base(), Err: err}
	for _, lasting := range []error{
		syscall.EROFS, syscall.EACCES, syscall.EPERM, syscall.ENOTDIR, syscall.EISDIR, syscall.ENOENT,
		syscall.ELOOP, syscall.ENAMETOOLONG, syscall.ENXIO, syscall.ESPIPE, state.ErrNotOurs,
	} {
		if errors.Is(err, lasting) {
			r.Reason = channels.ReasonConfig
		}
	}
	return r
}

// code is the error number's name in lower case, or our own word.
func code(err error) string {
	var errno syscall.Errno
	switch {
	case errors.Is(err, state.ErrLockTimeout):
		return "locked"
	case errors.Is(err, state.ErrNotOurs):
		return "not_ours"
	case errors.Is(err, context.Canceled):
		return "canceled"
	case errors.Is(err, context.DeadlineExceeded):
		return "timeout"
	case errors.As(err, &errno):
		return channels.SafeCode(strings.ToLower(unix.ErrnoName(errno)))
	}
	return "other"
}
