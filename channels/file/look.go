package file

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"syscall"
	"time"

	"the-loop/channels"
	"the-loop/state"
)

// Look implements channels.Witness. It searches the file for a whole line with
// the event's id, and looks at no other file. Lines hold no time, so since is
// not used: an id is written once.
//
// How far the file goes is settled under its lock; what stands there by then
// is read without it. A file that is not there holds no line. A last line that
// is torn is no event and never becomes one, unless its line break alone is
// missing: the next append adds that, and until then the sighting is not
// Complete. What was rotated away or truncated by others is not seen.
//
// A path that leads to something other than a file is a *channels.Refusal with
// ReasonConfig; a file or a lock that cannot be had is another error.
func (c *Channel) Look(ctx context.Context, d channels.Delivery, _ time.Time) (channels.Sighting, error) {
	s, err := c.look(ctx, d.Event.ID)
	var refusal *channels.Refusal
	if err != nil && !errors.As(err, &refusal) {
		err = fmt.Errorf("look into %s: %w", c.base(), err)
	}
	return s, err
}

func (c *Channel) look(ctx context.Context, id string) (channels.Sighting, error) {
	if err := ctx.Err(); err != nil {
		return channels.Sighting{}, err
	}
	if id == "" {
		return channels.Sighting{}, errors.New("the event has no id")
	}
	// Locking would create the folders of a file that is not there.
	if _, err := os.Stat(c.log.Path()); errors.Is(err, fs.ErrNotExist) {
		return channels.Sighting{Complete: true}, nil
	}
	var f *os.File
	var size int64
	err := c.doc.Update(ctx, func(*state.Tx) (err error) {
		f, size, err = openRegular(c.log.Path())
		return err
	})
	if errors.Is(err, fs.ErrNotExist) {
		return channels.Sighting{Complete: true}, nil
	}
	if err != nil {
		return channels.Sighting{}, c.notAFile(err)
	}
	defer f.Close()
	return scan(ctx, io.LimitReader(f, size), id)
}

var errNotAFile = errors.New("not a file")

// openRegular opens the file for reading and gives its size. Opening a pipe
// that took its place does not wait for a writer.
func openRegular(path string) (*os.File, int64, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, 0, err
	}
	fi, err := f.Stat()
	if err == nil && !fi.Mode().IsRegular() {
		err = errNotAFile
	}
	if err != nil {
		_ = f.Close()
		return nil, 0, err
	}
	return f, fi.Size(), nil
}

// notAFile makes a refusal of an error that says that the path leads to no
// file, and leaves others as they are.
func (c *Channel) notAFile(err error) error {
	for _, lasting := range []error{errNotAFile, syscall.ENOTDIR, syscall.EISDIR, syscall.ELOOP, state.ErrNotOurs} {
		if errors.Is(err, lasting) {
			return &channels.Refusal{Reason: channels.ReasonConfig, Code: "not_a_file", Detail: c.base(), Err: err}
		}
	}
	return err
}

// scan reads lines until one holds the event with that id.
func scan(ctx context.Context, r io.Reader, id string) (channels.Sighting, error) {
	lines := bufio.NewReaderSize(r, 64<<10)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil && !errors.Is(err, io.EOF) {
			return channels.Sighting{}, err
		}
		switch is := holds(line, id); {
		case is && err == nil:
			return channels.Sighting{Found: []string{id}, Whole: true}, nil
		case err != nil:
			return channels.Sighting{Complete: !is}, nil
		}
		if err := ctx.Err(); err != nil {
			return channels.Sighting{}, err
		}
	}
}

// holds reports whether the line is the event with that id. Few lines contain
// the id at all, and only those are decoded; JSON writes it as it is unless it
// has characters that no id of ours has.
func holds(line []byte, id string) bool {
	if channels.ValidName(strings.ToLower(id)) && !bytes.Contains(line, []byte(id)) {
		return false
	}
	e, err := channels.DecodeEvent(line)
	return err == nil && e.ID == id
}
