package state

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"time"
)

// Follow calls yield for every whole line there is, like Lines, and then for
// every line that is added, looking each time that every has passed, until ctx
// ends or yield returns false. It goes on past a turn-over.
func (l Log) Follow(ctx context.Context, every time.Duration, yield func(line []byte) bool) error {
	older, newer, err := l.generations()
	if err != nil {
		return err
	}
	t := tail{f: newer}
	defer t.close()
	if older != nil {
		more, err := eachLine(older, yield)
		closeAll(older)
		if err != nil || !more {
			return err
		}
	}
	for {
		if more, err := t.read(l.path, yield); err != nil || !more {
			return err
		}
		timer := time.NewTimer(every)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return nil
		}
	}
}

// tail reads what is added to a file that may be replaced by a new one.
type tail struct {
	f    *os.File
	torn []byte // what was read of a line without its end
}

// read gives the lines that came since, and takes up a new file when the path
// leads to another one: the old one is then read to its end first.
func (t *tail) read(path string, yield func(line []byte) bool) (more bool, err error) {
	for {
		if t.f == nil {
			path, err := target(path)
			if err != nil {
				return false, err
			}
			if t.f, err = os.Open(path); errors.Is(err, fs.ErrNotExist) {
				t.f = nil
				return true, nil
			} else if err != nil {
				return false, err
			}
		}
		turnedOver := t.replaced(path)
		if more, err := t.rest(yield); err != nil || !more {
			return more, err
		}
		if !turnedOver {
			return true, nil
		}
		t.close()
	}
}

// replaced reports whether the path leads to another file by now. Ours is held
// open, so that its inode number is not another's.
func (t *tail) replaced(path string) bool {
	open, err := t.f.Stat()
	if err != nil {
		return false
	}
	now, err := os.Stat(path)
	return err == nil && !os.SameFile(open, now)
}

func (t *tail) rest(yield func(line []byte) bool) (more bool, err error) {
	r := bufio.NewReaderSize(t.f, 64<<10)
	for {
		b, err := r.ReadBytes('\n')
		t.torn = append(t.torn, b...)
		if errors.Is(err, io.EOF) {
			return true, nil
		}
		if err != nil {
			return false, err
		}
		line := bytes.TrimSuffix(t.torn, []byte("\n"))
		t.torn = nil
		if len(line) > 0 && !yield(line) {
			return false, nil
		}
	}
}

func (t *tail) close() {
	if t.f != nil {
		_ = t.f.Close()
	}
	*t = tail{}
}
