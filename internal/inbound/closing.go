package inbound

import (
	"context"
	"errors"
	"time"

	"the-loop/internal/questions"
	"the-loop/state"
)

// A question is closed under the lock of what is owed, and what people must be
// shown of it is written down first: whoever dies in between leaves a debt of an
// open question, which is void, and never an answer that nobody is shown.

// Answer answers a question in another way than by a message: at the terminal,
// or by what was to count when nobody does. It is as questions.Reply, and what
// people must be shown is owed, durably.
func (p *Pipeline) Answer(ctx context.Context, id string, a questions.Answer) (questions.Question, error) {
	return p.closing(ctx, id, &a, func() (questions.Question, error) {
		return questions.Reply(ctx, p.o.Root, id, a)
	})
}

// Withdraw is Answer for questions.Close.
func (p *Pipeline) Withdraw(ctx context.Context, id string) (questions.Question, error) {
	return p.closing(ctx, id, nil, func() (questions.Question, error) {
		return questions.Close(ctx, p.o.Root, id, questions.Withdrawn)
	})
}

// Expire closes the open questions whose time was over at now, of those that may
// be closed (nil: all), and gives them. What came in before it was over, and is
// not read yet, is too late after that: who reads does so first. An error about
// one does not keep it from the others.
func (p *Pipeline) Expire(
	ctx context.Context, now time.Time, may func(questions.Question) bool,
) (expired []questions.Question, err error) {
	all, err := p.Questions()
	errs := []error{err}
	for _, q := range all {
		if q.State != questions.StateOpen || !q.PastAt(now) || may != nil && !may(q) {
			continue
		}
		q, err := p.closing(ctx, q.ID, nil, func() (questions.Question, error) {
			return questions.Close(ctx, p.o.Root, q.ID, questions.Expired)
		})
		var late *questions.ClosedError
		switch {
		case err == nil:
			expired = append(expired, q)
		case !errors.As(err, &late):
			errs = append(errs, err)
		}
	}
	return expired, errors.Join(errs...)
}

// closing has close close the question, with the answer a or without one.
func (p *Pipeline) closing(
	ctx context.Context, id string, a *questions.Answer, close func() (questions.Question, error),
) (q questions.Question, err error) {
	err = p.o.Root.Document(state.Owed).Update(ctx, func(tx *state.Tx) error {
		if q, err = questions.Get(p.o.Root, id); err != nil {
			return err
		}
		if q.State == questions.StateOpen {
			would := q
			would.Answer = a
			if err = addDebts(tx, p.debtsOf(would)); err != nil {
				return err
			}
		}
		q, err = close()
		return err
	})
	if err == nil {
		p.owe()
	}
	return q, err
}
