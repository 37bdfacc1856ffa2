package state

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// Slots hands out times to all processes of a root, one after the other and
// never two closer together than asked: the pace that they keep together. What
// is handed out is not durable; a power cut at worst starts the pace anew.
type Slots struct {
	root *Root
	path string
}

// Slots gives the slots kept in the named file.
func (r *Root) Slots(name string) Slots { return Slots{r, r.Path(name)} }

// Take takes the next slot and says when it is. The one after it is no sooner
// than apart later. A slot that would begin after the limit is not taken: ok is
// false. A time in the file that lies further ahead than anybody could have
// taken was written by a clock that was wrong, and is passed over.
func (s Slots) Take(ctx context.Context, apart time.Duration, limit time.Time) (at time.Time, ok bool, err error) {
	if err := s.root.mkdirs(filepath.Dir(s.path)); err != nil {
		return at, false, err
	}
	lock, err := s.root.lockFile(ctx, s.path)
	if err != nil {
		return at, false, err
	}
	defer func() { _ = lock.Unlock() }()
	f, err := os.OpenFile(s.path, os.O_RDWR, 0)
	if err != nil {
		return at, false, err
	}
	defer f.Close()
	at = time.Now()
	if next, ok := readTime(f); ok && next.After(at) && next.Before(limit.Add(2*apart+wrongBy)) {
		at = next
	}
	if at.After(limit) {
		return at, false, nil
	}
	// 20 bytes, always: a write of the same length leaves no rest of the last.
	text := strconv.FormatInt(at.Add(apart).UnixNano(), 10)
	_, err = f.WriteAt([]byte(strings.Repeat(" ", max(0, 20-len(text)))+text), 0)
	return at, err == nil, err
}

// wrongBy is how much further ahead than its own limit a taker believes a slot
// that another one took.
const wrongBy = 5 * time.Minute

func readTime(f *os.File) (time.Time, bool) {
	var buf [20]byte
	n, err := f.ReadAt(buf[:], 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return time.Time{}, false
	}
	ns, err := strconv.ParseInt(strings.TrimSpace(string(buf[:n])), 10, 64)
	return time.Unix(0, ns), err == nil
}
