package questions

import (
	"errors"
	"io/fs"
	"os"
	"slices"
	"sync"
	"time"

	"the-loop/state"
)

// Index knows all questions of a root, for whoever asks for them again and
// again: it reads only the files that have changed since, and while none has,
// looks at the folder alone, as a rule. It is safe for use by several goroutines. Its zero
// value is not ready: see NewIndex.
type Index struct {
	root *state.Root

	mu     sync.Mutex
	known  map[string]indexed // by id
	all    []Question         // those that can be read, the oldest first
	bad    int                // how many cannot
	err    error              // of the file system, about those
	folder time.Time          // when the folder was changed last, as it was seen
	asOf   time.Time          // when that look began
}

type indexed struct {
	size   int64
	mod    time.Time
	q      Question
	err    error // why it cannot be read
	listed bool
}

// unsettled is how young a file's or a folder's time must be for it to tell
// nothing: what is changed again within one tick of the file system's clock has
// the same time. The coarsest clock of any has two seconds.
const unsettled = 2 * time.Second

// lookAgain is when every file is looked at although the folder has not changed:
// an editor may write into one.
const lookAgain = 10 * time.Second

// NewIndex gives the index of a root. It reads nothing.
func NewIndex(root *state.Root) *Index { return &Index{root: root, known: map[string]indexed{}} }

// All gives what the function All does. The questions are the index's own: the
// caller changes nothing in them.
func (x *Index) All() (all []Question, unusable int, err error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if err := x.refresh(); err != nil {
		return nil, 0, err
	}
	return x.all, x.bad, x.err
}

func (x *Index) refresh() error {
	began := time.Now()
	dir := x.root.Path("questions")
	info, err := os.Stat(dir)
	if errors.Is(err, fs.ErrNotExist) {
		x.asOf = time.Time{}
		x.take(map[string]indexed{})
		return nil
	}
	if err != nil {
		return err
	}
	recent := began.Sub(x.asOf) < lookAgain
	if recent && x.settled(info.ModTime(), x.asOf) && info.ModTime().Equal(x.folder) {
		x.lookAtBad()
		return nil
	}
	list, err := ids(x.root)
	if err != nil {
		return err
	}
	changed := false
	now := make(map[string]indexed, len(list))
	for _, id := range list {
		was, known := x.known[id]
		f, fresh := x.look(id, was, known)
		if !f.listed {
			continue
		}
		now[id] = f
		changed = changed || fresh && (f.err == nil || was.err == nil)
	}
	if changed || len(now) != len(x.known) {
		x.take(now)
	}
	x.folder, x.asOf = info.ModTime(), began
	return nil
}

// lookAtBad looks again at what could not be read: it may be mended in its place.
func (x *Index) lookAtBad() {
	if x.bad == 0 {
		return
	}
	changed := false
	for id, was := range x.known {
		if was.err == nil {
			continue
		}
		if f, _ := x.look(id, was, true); f.listed && f.err == nil {
			x.known[id], changed = f, true
		}
	}
	if changed {
		x.take(x.known)
	}
}

// take makes the index that of these files.
func (x *Index) take(now map[string]indexed) {
	x.known, x.all, x.bad, x.err = now, nil, 0, nil
	for _, f := range now {
		if f.err == nil {
			x.all = append(x.all, f.q)
			continue
		}
		x.bad++
		if !errors.Is(f.err, ErrDamaged) && !errors.Is(f.err, ErrNewer) {
			x.err = errors.Join(x.err, f.err)
		}
	}
	slices.SortFunc(x.all, older)
}

// settled reports whether a time of change that was seen in a look tells that
// nothing was changed after that look.
func (x *Index) settled(mod, look time.Time) bool { return look.Sub(mod) > unsettled }

// look reads the file unless it stands as it did.
func (x *Index) look(id string, was indexed, known bool) (f indexed, fresh bool) {
	info, err := os.Stat(x.root.Path(state.Question(id)))
	if err == nil && known && was.err == nil && info.Size() == was.size && info.ModTime().Equal(was.mod) &&
		x.settled(was.mod, x.asOf) {
		return was, false
	}
	f.q, f.err = Get(x.root, id)
	if errors.Is(f.err, ErrNone) { // gone meanwhile, or no question's name
		return indexed{}, true
	}
	if err == nil {
		f.size, f.mod = info.Size(), info.ModTime()
	}
	f.listed = true
	return f, true
}
