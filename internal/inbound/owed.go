package inbound

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"time"

	"the-loop/channels"
	"the-loop/internal/questions"
	"the-loop/state"
)

// Ledger is the name in Options.Surfaces, and in a question's Refs, of the
// ledger's own message about it.
const Ledger = "ledger"

// The kinds of debts.
const (
	debtMirror = "mirror" // copy the answer to the ledger
	debtTaken  = "taken"  // mark the reply as taken
	debtSettle = "settle" // rewrite the question's own message
	debtTell   = "tell"   // tell the writer something
)

// debt is what somebody must be shown yet.
type debt struct {
	ID       string         `json:"id"`
	Kind     string         `json:"kind"`
	Question string         `json:"question,omitempty"`
	Surface  string         `json:"surface,omitempty"`
	Channel  string         `json:"channel,omitempty"`
	Place    channels.Place `json:"place,omitzero"`
	User     string         `json:"user,omitempty"`
	Text     string         `json:"text,omitempty"` // ours; it may repeat an answer
	Private  bool           `json:"private,omitempty"`
	// Answer is the key of the answer that it shows as taken: of any other it
	// shows nothing.
	Answer string `json:"answer,omitempty"`

	At       time.Time `json:"at"`
	Attempts int       `json:"attempts"`
	NextAt   time.Time `json:"nextAt,omitzero"`
}

// same reports whether both show the same people the same.
func (d debt) same(other debt) bool {
	other.ID, other.At, other.Attempts, other.NextAt = d.ID, d.At, d.Attempts, d.NextAt
	return d == other
}

// A debt is tried again with a growing wait, and given up after a week: what
// nobody was shown by then helps nobody.
const (
	debtBase = 30 * time.Second
	debtMax  = time.Hour
	debtLife = 7 * 24 * time.Hour
)

// debtsOf is what is owed when a question is closed: the copy first.
func (p *Pipeline) debtsOf(q questions.Question) (owed []debt) {
	if q.Answer != nil && q.Answer.Mirror == questions.MirrorPending {
		owed = append(owed, debt{Kind: debtMirror, Question: q.ID})
	}
	for _, name := range p.o.Surfaces {
		owed = append(owed, debt{Kind: debtSettle, Question: q.ID, Channel: name})
	}
	return owed
}

// owedFile is inbound/owed.json.
type owedFile struct {
	Version int    `json:"version"`
	Owed    []debt `json:"owed"`

	extra state.Extra
}

func decodeOwed(b []byte) (f owedFile, err error) {
	f.Version = 1
	if len(b) > 0 {
		if f.extra, err = state.UnmarshalKeeping(state.TrimBOM(b), &f); err != nil {
			return owedFile{Version: 1}, fmt.Errorf("%s is damaged: %w", state.Owed, err)
		}
	}
	if f.Version > 1 {
		return f, errOwedNewer
	}
	return f, nil
}

var errOwedNewer = errors.New(state.Owed + " was written by a newer version: upgrade the-loop")

// changeDebts lets change work on the file under its lock. One that is damaged
// is set aside, its bytes kept.
func changeDebts(tx *state.Tx, change func(f *owedFile)) error {
	b, err := tx.Read()
	if err != nil {
		return err
	}
	f, err := decodeOwed(b)
	switch {
	case errors.Is(err, errOwedNewer):
		return err
	case err != nil:
		if _, err := tx.SetAside(); err != nil {
			return err
		}
	}
	change(&f)
	if b, err = state.MarshalKeeping(f, f.extra); err != nil {
		return err
	}
	return tx.Write(append(b, '\n'))
}

func addDebts(tx *state.Tx, owed []debt) error {
	if len(owed) == 0 {
		return nil
	}
	return changeDebts(tx, func(f *owedFile) {
		for _, d := range owed {
			if slices.ContainsFunc(f.Owed, d.same) { // written down by one who died before the message was seen
				continue
			}
			d.ID, d.At = state.NewID(), time.Now().UTC()
			f.Owed = append(f.Owed, d)
		}
	})
}

// readDebts gives what is owed, oldest first, without a lock.
func (p *Pipeline) readDebts() ([]debt, error) {
	b, err := p.o.Root.Document(state.Owed).Read()
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	f, err := decodeOwed(b)
	return f.Owed, err
}

// Owed counts what people have not been shown yet.
func (p *Pipeline) Owed() (int, error) {
	owed, err := p.readDebts()
	return len(owed), err
}

// paid takes a debt off; later puts it off.
func (p *Pipeline) paid(ctx context.Context, id string) error {
	return p.o.Root.Document(state.Owed).Update(ctx, func(tx *state.Tx) error {
		return changeDebts(tx, func(f *owedFile) {
			f.Owed = slices.DeleteFunc(f.Owed, func(d debt) bool { return d.ID == id })
		})
	})
}

// void takes off a debt of a question that is still open: who wrote it down died
// before closing it, for under this lock nobody is about to.
func (p *Pipeline) void(ctx context.Context, d debt) error {
	return p.o.Root.Document(state.Owed).Update(ctx, func(tx *state.Tx) error {
		if q, err := questions.Get(p.o.Root, d.Question); err != nil || q.State != questions.StateOpen {
			return err
		}
		return changeDebts(tx, func(f *owedFile) {
			f.Owed = slices.DeleteFunc(f.Owed, func(o debt) bool { return o.ID == d.ID })
		})
	})
}

// begun writes down that a note is going to be said, as something that is put off:
// a disk that cannot take that could not take that it was said.
func (p *Pipeline) begun(ctx context.Context, d debt) error { return p.later(ctx, d, 0) }

func (p *Pipeline) later(ctx context.Context, d debt, wait time.Duration) error {
	d.Attempts++
	if wait == 0 {
		wait = min(debtBase<<min(d.Attempts-1, 10), debtMax)
	}
	return p.o.Root.Document(state.Owed).Update(ctx, func(tx *state.Tx) error {
		return changeDebts(tx, func(f *owedFile) {
			i := slices.IndexFunc(f.Owed, func(o debt) bool { return o.ID == d.ID })
			if i >= 0 {
				f.Owed[i].Attempts, f.Owed[i].NextAt = d.Attempts, time.Now().UTC().Add(wait)
			}
		})
	})
}
