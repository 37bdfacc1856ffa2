// Package questions keeps what was asked: one file per question, from the
// moment before it is recorded until nobody wants to know any more.
package questions

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"regexp"
	"strings"
	"time"

	"the-loop/state"
)

// State is where a question stands.
type State string

// The states of a question. All but Open are closed, and final.
const (
	Open      State = "open"
	Answered  State = "answered"
	Withdrawn State = "withdrawn"
	Expired   State = "expired"
)

// Question is questions/<id>.json. Its ID is its event's.
type Question struct {
	Version  int       `json:"version"`
	ID       string    `json:"id"`
	WorkItem string    `json:"workItem"`
	Text     string    `json:"text"`
	State    State     `json:"state"`
	AskedAt  time.Time `json:"askedAt"`
	ClosedAt time.Time `json:"closedAt,omitzero"`

	extra state.Extra
}

var (
	// ErrNone is returned for an id that no question has.
	ErrNone = errors.New("no such question")
	// ErrNewer is returned for a file that a newer version wrote; it is left alone.
	ErrNewer = errors.New("was written by a newer version: upgrade the-loop")
)

// ClosedError says that a question was closed before.
type ClosedError struct {
	ID    string
	State State
}

func (e *ClosedError) Error() string { return fmt.Sprintf("question %s is %s already", e.ID, e.State) }

var idPattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)

func document(root *state.Root, id string) state.Document { return root.Document(state.Question(id)) }

// Ask writes a question down as open, durably. One of that id that is there
// already stays as it is.
func Ask(ctx context.Context, root *state.Root, q Question) error {
	q.Version, q.State = 1, Open
	return document(root, q.ID).Update(ctx, func(tx *state.Tx) error {
		if b, err := tx.Read(); err != nil || len(b) > 0 {
			return err
		}
		return write(tx, q)
	})
}

// Close closes an open question for good, durably. The first one that closes it
// is right: for the others it is a *ClosedError.
func Close(ctx context.Context, root *state.Root, id string, how State) (q Question, err error) {
	if _, err := Get(root, id); err != nil {
		return q, err // without making a lock for a question that is none
	}
	err = document(root, id).Update(ctx, func(tx *state.Tx) error {
		b, err := tx.Read()
		if err != nil {
			return err
		}
		if q, err = decode(id, b); err != nil {
			return err
		}
		if q.State != Open {
			return &ClosedError{id, q.State}
		}
		q.State, q.ClosedAt = how, time.Now().UTC().Truncate(time.Second)
		return write(tx, q)
	})
	return q, err
}

// Get reads one question, without a lock. Errors are ErrNone, ErrNewer, and
// what the file system says.
func Get(root *state.Root, id string) (Question, error) {
	if !idPattern.MatchString(id) { // it is going to be a file's name
		return Question{}, fmt.Errorf("%w: %q", ErrNone, id)
	}
	b, err := document(root, id).Read()
	if errors.Is(err, fs.ErrNotExist) {
		return Question{}, fmt.Errorf("%w: %s", ErrNone, id)
	}
	if err != nil {
		return Question{}, err
	}
	return decode(id, b)
}

// List reads all questions, the oldest first, for ids sort by their time. Files
// that cannot be read are named.
func List(root *state.Root) (all []Question, unreadable []string, err error) {
	list, err := os.ReadDir(root.Path("questions"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, nil
	}
	for _, f := range list {
		id, ok := strings.CutSuffix(f.Name(), ".json")
		if !ok || strings.HasPrefix(f.Name(), ".") {
			continue
		}
		q, err := Get(root, id)
		if err != nil {
			unreadable = append(unreadable, f.Name())
			continue
		}
		all = append(all, q)
	}
	return all, unreadable, err
}

// Wanted reports whether sending an event of that id once more is still wanted:
// not when it is a question that is closed. What cannot be read is wanted.
func Wanted(root *state.Root, id string) bool {
	q, err := Get(root, id)
	return err != nil || q.State == Open
}

func decode(id string, b []byte) (q Question, err error) {
	if q.extra, err = state.UnmarshalKeeping(state.TrimBOM(b), &q); err != nil {
		return q, fmt.Errorf("question %s is damaged: %w", id, err)
	}
	if q.Version > 1 {
		return q, fmt.Errorf("question %s %w", id, ErrNewer)
	}
	q.ID = id
	return q, nil
}

func write(tx *state.Tx, q Question) error {
	b, err := state.MarshalKeeping(q, q.extra)
	if err != nil {
		return err
	}
	return tx.Write(append(b, '\n'))
}
