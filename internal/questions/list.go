package questions

import (
	"cmp"
	"errors"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	"the-loop/state"
)

// List reads all questions, the oldest first. Files that cannot be read are
// named.
func List(root *state.Root) (all []Question, unreadable []string, err error) {
	all, bad, err := read(root)
	for id := range bad {
		unreadable = append(unreadable, id+".json")
	}
	slices.Sort(unreadable)
	return all, unreadable, err
}

// All is List for whoever must not pass over a question that is there. unusable
// counts those that are damaged or of a newer version; an error of the file
// system is an error.
func All(root *state.Root) (all []Question, unusable int, err error) {
	all, bad, err := read(root)
	for _, cause := range bad {
		if !errors.Is(cause, ErrDamaged) && !errors.Is(cause, ErrNewer) {
			err = errors.Join(err, cause)
		}
	}
	return all, len(bad), err
}

// read reads all questions, and says of those that cannot be read why.
func read(root *state.Root) (all []Question, bad map[string]error, err error) {
	ids, err := ids(root)
	bad = map[string]error{}
	for _, id := range ids {
		q, err := Get(root, id)
		switch {
		case errors.Is(err, ErrNone): // gone meanwhile, or no question's name
		case err != nil:
			bad[id] = err
		default:
			all = append(all, q)
		}
	}
	slices.SortFunc(all, older)
	return all, bad, err
}

// older sorts by time, and what was asked in one second by id: ids that we give
// sort by time, those given by hand do not.
func older(a, b Question) int { return cmp.Or(a.AskedAt.Compare(b.AskedAt), cmp.Compare(a.ID, b.ID)) }

func ids(root *state.Root) (ids []string, err error) {
	list, err := os.ReadDir(root.Path("questions"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	for _, f := range list {
		id, ok := strings.CutSuffix(f.Name(), ".json")
		if ok && !strings.HasPrefix(id, ".") {
			ids = append(ids, id)
		}
	}
	return ids, err
}

// Open gives the open questions, the oldest first. With an error, those that
// could be read: it names the others.
func Open(root *state.Root) (open []Question, err error) {
	all, bad, err := read(root)
	errs := []error{err}
	for _, cause := range bad {
		errs = append(errs, cause)
	}
	open = slices.DeleteFunc(all, func(q Question) bool { return q.State != StateOpen })
	return open, errors.Join(errs...)
}

func sameAs(open []Question, workItem, text string, choices []string) (Question, bool) {
	now := time.Now()
	for _, q := range open {
		if q.Asks(workItem, text, choices) && !q.PastAt(now) {
			return q, true
		}
	}
	return Question{}, false
}

// Asks reports whether the question asks just that.
func (q Question) Asks(workItem, text string, choices []string) bool {
	return q.WorkItem == workItem && q.Text == text && slices.Equal(q.Choices, choices)
}

// Wanted reports whether sending an event of that id once more is still wanted:
// not when it is a question that is closed. What cannot be read is wanted.
func Wanted(root *state.Root, id string) bool {
	q, err := Get(root, id)
	return err != nil || q.State == StateOpen
}
