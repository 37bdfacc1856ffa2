// Package questions keeps what was asked: one file per question, from the
// moment before it is recorded until nobody wants to know any more.
//
// Every operation that changes a question does so under its document's lock, and
// is durable when it returns, so that of all processes of a root one alone
// closes a question.
package questions

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"reflect"
	"slices"
	"time"

	"the-loop/internal/lazy"
	"the-loop/state"
)

// State is where a question stands.
type State string

// The states of a question. All but StateOpen are closed, and final.
const (
	StateOpen State = "open" // Open is the function that lists them
	Answered  State = "answered"
	Withdrawn State = "withdrawn"
	Expired   State = "expired"
)

// Question is questions/<id>.json. Its ID is its event's.
type Question struct {
	Version  int    `json:"version"`
	ID       string `json:"id"`
	Code     string `json:"code,omitempty"` // "" in what an older version asked
	WorkItem string `json:"workItem"`
	Text     string `json:"text"`
	// Choices are what there is to choose from, none for any text.
	Choices []string `json:"choices,omitempty"`
	// FreeText: with choices, any other text counts too.
	FreeText  bool      `json:"freeText,omitempty"`
	State     State     `json:"state"`
	AskedAt   time.Time `json:"askedAt"`
	ExpiresAt time.Time `json:"expiresAt,omitzero"` // zero: never
	ClosedAt  time.Time `json:"closedAt,omitzero"`
	// Sent: its event was published, which the one who asked writes down after
	// that. Without it nobody may have been asked: that one may have died.
	Sent bool `json:"sent,omitempty"`
	// Link is that of the record, "" when there is none.
	Link string `json:"link,omitempty"`
	// CommentAt is when its comment on the ticket was written, by GitHub's clock;
	// zero: nobody has read it yet.
	CommentAt time.Time `json:"commentAt,omitzero"`
	// Refs are the provider's ids of its message by channel, when known.
	Refs map[string][]string `json:"refs,omitempty"`
	// Missed are the channels that did not take it and will not be asked again,
	// for others have it: nobody was asked there.
	Missed []string `json:"missed,omitempty"`
	// Answer is nil unless it is answered.
	Answer *Answer `json:"answer,omitempty"`

	extra state.Extra
}

// The ways that an answer may come in by.
const (
	ViaSlack    = "slack"
	ViaGitHub   = "github"
	ViaTerminal = "terminal"
	ViaTimeout  = "timeout" // nobody answered, and the asker had said what counts then
)

// Answer is what closed a question, and where it came from.
type Answer struct {
	Text   string    `json:"text"`
	Choice int       `json:"choice,omitempty"` // from 1; 0: no choice
	By     Person    `json:"by,omitzero"`
	Via    string    `json:"via"`
	At     time.Time `json:"at"`
	// Key is channels.Message.Key. Answering again under the same key changes
	// nothing and is no error.
	Key  string `json:"key,omitempty"`
	Link string `json:"link,omitempty"`
	// Mirror says what became of the copy in the ledger.
	Mirror string `json:"mirror,omitempty"`

	extra state.Extra
}

// What may become of an answer's copy in the ledger. "" is as good as MirrorOff.
const (
	MirrorPending = "pending" // it is going to be made, and the asker waits for that a little
	MirrorDone    = "done"
	MirrorOff     = "off"
	MirrorFailed  = "failed"
)

// Person is who answered.
type Person struct {
	Name  string `json:"name,omitempty"`  // as in the config's people, or the system's
	ID    string `json:"id,omitempty"`    // the surface's, or the system's
	Login string `json:"login,omitempty"` // on GitHub

	extra state.Extra
}

var (
	// ErrNone is returned for an id that no question has.
	ErrNone = errors.New("no such question")
	// ErrNewer is returned for a file that a newer version wrote; it is left alone.
	ErrNewer = errors.New("was written by a newer version: upgrade the-loop")
	// ErrDamaged is returned for a file that is no question's.
	ErrDamaged = errors.New("is damaged")
	// ErrNoAnswer is returned for an answer that is none to that question.
	ErrNoAnswer = errors.New("that is no answer to the question")
)

// ClosedError says that a question was closed before.
type ClosedError struct {
	ID       string
	State    State
	Question Question // as it stands: who answered what
}

func (e *ClosedError) Error() string { return fmt.Sprintf("question %s is %s already", e.ID, e.State) }

func closed(q Question) error { return &ClosedError{ID: q.ID, State: q.State, Question: q} }

var idPattern = lazy.Regexp(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)

// ValidID reports whether an id that was given by hand may be a question's.
func ValidID(id string) bool { return idPattern().MatchString(id) }

func document(root *state.Root, id string) state.Document { return root.Document(state.Question(id)) }

// folder is locked while a question is added, so that no two of them that are
// open have the same code. The document itself is never written.
func folder(root *state.Root) state.Document { return root.Document(state.Question("")) }

// Ask writes a question down as open, durably, and gives it with its code. One
// of that id that is there already stays as it is, and is given. With an error
// the question that is given has a code all the same, for asking goes on.
func Ask(ctx context.Context, root *state.Root, q Question) (Question, error) {
	q, _, err := add(ctx, root, q, false)
	return q, err
}

// AskOnce is Ask, but gives the open question that asks just that when there is
// one, whatever its id, and says so. Of any number of processes that ask the
// same at the same time one alone adds a question.
func AskOnce(ctx context.Context, root *state.Root, q Question) (got Question, there bool, err error) {
	return add(ctx, root, q, true)
}

func add(ctx context.Context, root *state.Root, q Question, once bool) (got Question, there bool, err error) {
	seed := seedOf(root, q.ID)
	q.Version, q.State, q.Code = 1, StateOpen, code(seed, q.ID, nil)
	q.AskedAt, q.ExpiresAt = q.AskedAt.UTC(), q.ExpiresAt.UTC()
	if !idPattern().MatchString(q.ID) { // it is going to be a file's name
		return q, false, fmt.Errorf("question id %q is malformed", q.ID)
	}
	got = q
	err = folder(root).Update(ctx, func(*state.Tx) error {
		open, _ := Open(root) // what cannot be read is named where questions are listed
		if once {
			if first, ok := sameAs(open, q.WorkItem, q.Text, q.Choices); ok {
				got, there = first, true
				return nil
			}
		}
		got.Code = code(seed, q.ID, open)
		return document(root, q.ID).Update(ctx, func(tx *state.Tx) error {
			b, err := tx.Read()
			if err != nil {
				return err
			}
			if len(b) == 0 {
				return write(tx, got)
			}
			old, err := decode(q.ID, b)
			if err == nil {
				got, there = old, true
			}
			return err
		})
	})
	return got, there, err
}

// Reply answers an open question, durably. The first valid answer wins; for the
// others it is a *ClosedError that holds the question as it stands, except that
// the same Key again gives the question and no error. What was written after the
// question's time was over is late although nobody has closed it yet, and does not
// close it: what was written in time may not be read yet.
//
// A choice may be given by its number alone. An answer that is neither a choice
// nor allowed otherwise is ErrNoAnswer: see Match.
func Reply(ctx context.Context, root *state.Root, id string, a Answer) (Question, error) {
	var late error
	q, err := change(ctx, root, id, func(q *Question) error {
		if q.State == Answered && q.Answer != nil && a.Key != "" && q.Answer.Key == a.Key {
			return errUnchanged
		}
		if q.State != StateOpen {
			return closed(*q)
		}
		if err := a.fit(*q); err != nil {
			return err
		}
		if a.At.IsZero() {
			a.At = time.Now()
		}
		a.At = a.At.UTC()
		if a.Via != ViaTimeout && q.PastAt(a.At) {
			over := *q
			over.close(Expired)
			late = closed(over)
			return errUnchanged
		}
		q.close(Answered)
		q.Answer = &a
		return nil
	})
	if err == nil {
		err = late
	}
	return q, err
}

// fit makes the answer one of the question's, or says that it is none.
func (a *Answer) fit(q Question) error {
	switch {
	case a.Choice < 0 || a.Choice > len(q.Choices):
		return ErrNoAnswer
	case a.Choice > 0:
		a.Text = q.Choices[a.Choice-1]
	case a.Text == "" || len(q.Choices) > 0 && !q.FreeText:
		return ErrNoAnswer
	}
	return nil
}

// Close closes an open question for good, durably. The first one that closes it
// is right: for the others it is a *ClosedError.
func Close(ctx context.Context, root *state.Root, id string, how State) (Question, error) {
	return change(ctx, root, id, func(q *Question) error {
		if q.State != StateOpen {
			return closed(*q)
		}
		q.close(how)
		return nil
	})
}

func (q *Question) close(how State) {
	q.State, q.ClosedAt = how, time.Now().UTC().Truncate(time.Second)
}

// PastAt reports whether the question's time was over at t.
func (q Question) PastAt(t time.Time) bool { return !q.ExpiresAt.IsZero() && t.After(q.ExpiresAt) }

// Update changes what became of a question, durably: Sent, Link, CommentAt, Refs
// (never nil for f), Missed, and the Link and Mirror of its answer. What was asked, and how it was
// closed, stays whatever f does. When f changes nothing, nothing is written.
func Update(ctx context.Context, root *state.Root, id string, f func(*Question)) (Question, error) {
	return change(ctx, root, id, func(q *Question) error {
		was := *q
		q.Choices, q.Missed = slices.Clone(q.Choices), slices.Clone(q.Missed)
		if q.Answer != nil {
			a := *q.Answer
			q.Answer = &a
		}
		q.Refs = map[string][]string{}
		for name, refs := range was.Refs {
			q.Refs[name] = slices.Clone(refs)
		}
		f(q)
		now := was
		now.Sent, now.Link, now.CommentAt, now.Missed = q.Sent, q.Link, q.CommentAt, q.Missed
		if len(q.Refs)+len(was.Refs) > 0 {
			now.Refs = q.Refs
		}
		if was.Answer != nil && q.Answer != nil {
			a := *was.Answer
			a.Link, a.Mirror = q.Answer.Link, q.Answer.Mirror
			now.Answer = &a
		}
		*q = now
		return nil
	})
}

// errUnchanged ends a change without writing, and is no error.
var errUnchanged = errors.New("unchanged")

// change changes a question under its lock. It makes no lock, nor anything else,
// for a question that is none.
func change(ctx context.Context, root *state.Root, id string, f func(*Question) error) (q Question, err error) {
	if q, err := Get(root, id); err != nil {
		return q, err
	}
	err = document(root, id).Update(ctx, func(tx *state.Tx) error {
		b, err := tx.Read()
		if err != nil {
			return err
		}
		if len(b) == 0 {
			return fmt.Errorf("%w: %s", ErrNone, id)
		}
		if q, err = decode(id, b); err != nil {
			return err
		}
		was := q
		if err := f(&q); err != nil || reflect.DeepEqual(was, q) {
			return err
		}
		return write(tx, q)
	})
	if errors.Is(err, errUnchanged) {
		err = nil
	}
	return q, err
}

// Get reads one question, without a lock. Errors are ErrNone, ErrNewer,
// ErrDamaged, and what the file system says.
func Get(root *state.Root, id string) (Question, error) {
	if !idPattern().MatchString(id) {
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

func decode(id string, b []byte) (q Question, err error) {
	b = state.TrimBOM(b)
	q.extra, err = state.UnmarshalKeeping(b, &q)
	if q.Version > 1 || err != nil && isNewer(b) { // whose other keys may be anything
		return q, fmt.Errorf("question %s %w", id, ErrNewer)
	}
	if err != nil {
		return q, fmt.Errorf("question %s %w: %w", id, ErrDamaged, err)
	}
	switch q.State {
	case StateOpen, Withdrawn, Expired:
	case Answered:
		if q.Answer == nil {
			return q, fmt.Errorf("question %s %w: answered, and no answer", id, ErrDamaged)
		}
	default: // what is not known to be closed must not be taken to be
		return q, fmt.Errorf("question %s %w: state %q", id, ErrDamaged, q.State)
	}
	q.ID = id
	return q, nil
}

func isNewer(b []byte) bool {
	var f struct {
		Version int `json:"version"`
	}
	return json.Unmarshal(b, &f) == nil && f.Version > 1
}

func write(tx *state.Tx, q Question) error {
	b, err := state.MarshalKeeping(q, q.extra)
	if err != nil {
		return err
	}
	return tx.Write(append(b, '\n'))
}

// UnmarshalJSON keeps what it does not know.
func (a *Answer) UnmarshalJSON(b []byte) (err error) {
	type plain Answer
	if string(b) == "null" {
		return nil
	}
	a.extra, err = state.UnmarshalKeeping(b, (*plain)(a))
	return err
}

// MarshalJSON writes what was not known, too.
func (a Answer) MarshalJSON() ([]byte, error) {
	type plain Answer
	return state.MarshalKeeping(plain(a), a.extra)
}

// UnmarshalJSON keeps what it does not know.
func (p *Person) UnmarshalJSON(b []byte) (err error) {
	type plain Person
	if string(b) == "null" {
		return nil
	}
	p.extra, err = state.UnmarshalKeeping(b, (*plain)(p))
	return err
}

// MarshalJSON writes what was not known, too.
func (p Person) MarshalJSON() ([]byte, error) {
	type plain Person
	return state.MarshalKeeping(plain(p), p.extra)
}

var (
	_ json.Marshaler   = Answer{}
	_ json.Unmarshaler = (*Person)(nil)
)
