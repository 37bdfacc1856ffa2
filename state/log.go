package state

import (
	"bufio"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// Log is a file of lines that only grows, until it is turned over.
type Log struct {
	root *Root
	path string
	// Limit is the size in bytes past which the log is turned over: renamed to
	// its name with ".1", in place of the one before. 0 means never.
	Limit int64
}

// Log gives the log with that name.
func (r *Root) Log(name string) Log { return Log{root: r, path: r.Path(name)} }

// Path is the log's absolute path.
func (l Log) Path() string { return l.path }

// Append adds one line, which must hold no line break, in one write. What
// several processes append at once stands one after the other, whole. A last
// line that a crash left torn is ended first. The line is in the operating
// system's hands on return: it survives our death, and not a power cut.
func (l Log) Append(ctx context.Context, line []byte) error { return l.append(ctx, false, line) }

// AppendDurably is Append, and the line survives a power cut too. Several lines
// are one write and one flush; a crash may keep the first of them alone.
func (l Log) AppendDurably(ctx context.Context, lines ...[]byte) error {
	if len(lines) == 0 {
		return nil
	}
	return l.append(ctx, true, lines...)
}

func (l Log) append(ctx context.Context, durable bool, lines ...[]byte) error {
	path, err := target(l.path)
	if err != nil {
		return err
	}
	f, err := l.open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	var buf []byte
	if torn, err := endsTorn(f, size); err != nil {
		return err
	} else if torn {
		buf = append(buf, '\n')
	}
	for _, line := range lines {
		buf = append(append(buf, line...), '\n')
	}
	if err := l.root.at(OpAppend, path); err != nil {
		return err
	}
	if _, err := f.Write(buf); err != nil {
		return err
	}
	if durable {
		if err := l.root.at(OpSync, path); err != nil {
			return err
		}
		if err := f.Sync(); err != nil {
			return err
		}
		// Whoever created the file may not have made its name durable.
		if err := l.root.syncDir(filepath.Dir(path)); err != nil {
			return err
		}
	}
	if l.Limit > 0 && size+int64(len(buf)) > l.Limit {
		// The line stands. A log that cannot be turned over grows on, and the
		// next append tries again.
		_ = l.turnOver(ctx, path)
	}
	return nil
}

// open opens the file for reading its end and appending, and creates it.
func (l Log) open(path string) (*os.File, error) {
	const flags = os.O_RDWR | os.O_APPEND
	f, err := os.OpenFile(path, flags, 0)
	if !errors.Is(err, fs.ErrNotExist) {
		return f, err
	}
	if err := l.root.mkdirs(filepath.Dir(path)); err != nil {
		return nil, err
	}
	if err := l.root.at(OpCreate, path); err != nil {
		return nil, err
	}
	return os.OpenFile(path, flags|os.O_CREATE, 0o600)
}

func endsTorn(f *os.File, size int64) (bool, error) {
	if size == 0 {
		return false, nil
	}
	var last [1]byte
	if _, err := f.ReadAt(last[:], size-1); err != nil {
		return false, err
	}
	return last[0] != '\n', nil
}

// turnOver renames the full log. Of several processes that find it full one
// renames it; the others see a small file again. A line that is written to the
// old file at that moment stands there.
func (l Log) turnOver(ctx context.Context, path string) error {
	lock, err := l.root.lockFile(ctx, path+".lock")
	if err != nil {
		return err
	}
	defer func() { _ = lock.Unlock() }()
	fi, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) || err == nil && fi.Size() <= l.Limit {
		return nil // another process was first
	}
	if err != nil {
		return err
	}
	if err := l.root.at(OpReplace, path); err != nil {
		return err
	}
	if err := os.Rename(path, path+".1"); err != nil {
		return err
	}
	return l.root.syncDir(filepath.Dir(path))
}

// MaxLine is the longest line that Lines gives; longer ones are passed over.
const MaxLine = 16 << 20

// Lines calls yield for every whole line, those of the turned-over file first,
// until yield returns false. It takes no lock; a torn last line is left out.
// An absent log has no lines.
func (l Log) Lines(yield func(line []byte) bool) error {
	older, newer, err := l.generations()
	if err != nil {
		return err
	}
	defer closeAll(older, newer)
	for _, f := range []*os.File{older, newer} {
		if f == nil {
			continue
		}
		if more, err := eachLine(f, yield); err != nil || !more {
			return err
		}
	}
	return nil
}

// generations opens the turned-over file and the one that grows; either may be
// nil. When the log is turned over in between, both names would lead to what
// was one file, and the lines before it be missed: then it looks again.
func (l Log) generations() (older, newer *os.File, err error) {
	path, err := target(l.path)
	if err != nil {
		return nil, nil, err
	}
	for {
		if newer, err = openIfThere(path); err != nil {
			return nil, nil, err
		}
		if older, err = openIfThere(path + ".1"); err != nil {
			closeAll(newer)
			return nil, nil, err
		}
		if !sameFile(older, newer) {
			return older, newer, nil
		}
		closeAll(older, newer)
	}
}

func openIfThere(path string) (*os.File, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return f, err
}

func sameFile(a, b *os.File) bool {
	if a == nil || b == nil {
		return false
	}
	fa, errA := a.Stat()
	fb, errB := b.Stat()
	return errA == nil && errB == nil && os.SameFile(fa, fb)
}

func closeAll(files ...*os.File) {
	for _, f := range files {
		if f != nil {
			_ = f.Close()
		}
	}
}

func eachLine(f *os.File, yield func(line []byte) bool) (more bool, err error) {
	sc := bufio.NewReaderSize(f, 64<<10)
	for {
		line, err := sc.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return true, nil // what is left has no line break: torn
		}
		if err != nil {
			return false, err
		}
		line = line[:len(line)-1]
		if len(line) == 0 || len(line) > MaxLine {
			continue
		}
		if !yield(line) {
			return false, nil
		}
	}
}
