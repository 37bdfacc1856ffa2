package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode"

	"github.com/urfave/cli/v2"

	"the-loop/internal/inbound"
	"the-loop/internal/questions"
	"the-loop/internal/term"
)

// exitNobody is what `timeout` says too: no answer has this code.
const exitNobody = 124

// The ends that a wait may have without an answer.
var (
	errNobody = errors.New("nobody has answered")
	errOver   = errors.New("the question's time is over")
)

// closedWithin is for how long at most whoever waits leaves it to others to close
// a question whose time is over.
const closedWithin = 10 * time.Second

// waiting is a question whose answer somebody waits for.
type waiting struct {
	questions.Question
	limit  time.Duration     // 0: until it is closed
	orElse *questions.Answer // counts when the limit is reached
	asJSON bool
}

func askWait(c *cli.Context, w world, d *deployment) error {
	asJSON, err := wantsJSON(c)
	if err != nil {
		return err
	}
	q, err := d.question(c)
	if err != nil {
		return err
	}
	wt := waiting{Question: q, asJSON: asJSON}
	if c.IsSet("wait") {
		limit, err := positive("wait", c.String("wait"))
		if err != nil {
			return err
		}
		wt.limit = limit
	}
	if q.State == questions.StateOpen {
		sayWaiting(w, d, q)
	}
	return awaitAnswer(c, w, d, wt)
}

// sayWaiting says at once, before anything can take long, what is waited for.
func sayWaiting(w world, d *deployment, q questions.Question) {
	printf(w.stderr, "question %s\n", nameOf(q))
	if len(d.config.People) == 0 {
		printf(w.stderr, "note: nobody may answer, for people is empty in the config; only\n"+
			"`the-loop questions answer %s TEXT` can\n", q.ID)
	}
}

// awaitAnswer waits for the answer and prints it, alone. What people must be shown
// of it comes after that.
func awaitAnswer(c *cli.Context, w world, d *deployment, wt waiting) error {
	began := time.Now()
	ctx := c.Context
	if wt.limit > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, wt.limit, errNobody)
		defer cancel()
	}
	s := d.serve(c.Context, c.Context)
	closed := false // by ourselves
	defer func() {
		if !s.stop() && closed {
			d.pay(c.Context) // whoever serves would do it in a while
		}
	}()
	q, closed, err := d.await(ctx, wt)
	if errors.Is(err, errNobody) {
		q, err = d.lastWord(c.Context, s, wt)
	}
	if errors.Is(err, errNobody) {
		notes(w, s.troubles())
		q, closed, err = d.nobody(c.Context, q, wt)
	}
	if c.Context.Err() != nil && (err != nil || q.State == questions.StateOpen) {
		printf(w.stderr, "question %s stays open: `the-loop ask wait %s` waits on\n", wt.ID, wt.ID)
		return failed(context.Cause(c.Context))
	}
	switch {
	case errors.Is(err, errNobody):
		return (&failure{
			code: exitNobody, err: fmt.Errorf("nobody answered %s within %s; the question stays open",
				wt.ID, term.Span(wt.limit)),
		}).withHint("the-loop ask wait %s", wt.ID)
	case err != nil:
		return failed(err)
	case q.Answer == nil:
		return failed(fmt.Errorf("question %s is closed: %s", q.ID, inbound.Ending(q)))
	}
	return printAnswer(w, q, time.Since(began), wt.asJSON)
}

// await waits until the question is closed. When its time is over, whoever serves
// reads once more what may answer it, and closes it; where nobody has after a
// while it is closed here.
func (d *deployment) await(ctx context.Context, wt waiting) (q questions.Question, closed bool, err error) {
	for {
		until, cancel := ctx, context.CancelFunc(func() {})
		if !wt.ExpiresAt.IsZero() {
			over := time.Now()
			if wt.ExpiresAt.After(over) {
				over = wt.ExpiresAt
			}
			over = over.Add(d.readOnceMore())
			until, cancel = context.WithDeadlineCause(ctx, over, errOver)
		}
		q, err = questions.Await(until, d.root, wt.ID)
		cancel()
		if !errors.Is(err, errOver) {
			return q, closed, err
		}
		expired, err := d.pipeline().Expire(context.WithoutCancel(ctx), time.Now(), func(q questions.Question) bool {
			return q.ID == wt.ID
		})
		for _, q := range expired {
			_ = d.log.Expired(ctx, subjectOf(q))
			closed = true
		}
		if now, err2 := questions.Get(d.root, wt.ID); err2 != nil || now.State == questions.StateOpen && err != nil {
			return q, closed, errors.Join(err2, err)
		}
	}
}

// lastWord waits, when the wait is over, until everything was read once more: what
// was written in time counts before what counts when nobody answers.
func (d *deployment) lastWord(ctx context.Context, s *serving, wt waiting) (questions.Question, error) {
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	limit := d.readOnceMore()
	if wt.orElse == nil { // it can be waited for again
		limit = min(limit, time.Second)
	}
	if !wt.ExpiresAt.IsZero() { // else it is closed before the default counts
		limit = min(limit, max(0, time.Until(wt.ExpiresAt.Add(onItsWay/2))))
	}
	enough := time.AfterFunc(limit, func() { end(errNobody) })
	defer enough.Stop()
	go s.whenRead(ctx, wt.WorkItem, time.Now(), func() { end(errNobody) })
	return questions.Await(ctx, d.root, wt.ID)
}

// readOnceMore is how long whoever waits leaves the others to read once more what
// was written in time.
func (d *deployment) readOnceMore() time.Duration {
	return min(2*d.config.Polling.Interval, closedWithin)
}

// nobody ends a wait in which nobody answered: with what was to count then, if
// there is such a thing, or with the answer that came in the last moment.
func (d *deployment) nobody(
	ctx context.Context, q questions.Question, wt waiting,
) (_ questions.Question, closed bool, err error) {
	if q.State != questions.StateOpen && q.Answer != nil { // its copy is on its way still
		return q, false, nil
	}
	if wt.orElse == nil {
		return q, false, errNobody
	}
	a := *wt.orElse
	a.Key, a.Mirror = "timeout:"+q.ID, d.mirror(q)
	q, err = d.pipeline().Answer(ctx, wt.ID, a)
	var late *questions.ClosedError
	if errors.As(err, &late) {
		return late.Question, false, nil
	}
	if err == nil {
		_ = d.log.Answered(ctx, subjectOf(q), a.Via)
	}
	return q, err == nil, err
}

// answerView is the answer as `--format json` has it.
type answerView struct {
	ID     string `json:"id"`
	Answer string `json:"answer"`
	Choice *int   `json:"choice"`
	// By is who answered, or "timeout".
	By            any       `json:"by"`
	Via           string    `json:"via"`
	At            time.Time `json:"at"`
	WaitedSeconds int       `json:"waitedSeconds"`
	Link          string    `json:"link"`
}

type personView struct {
	Name    string `json:"name"`
	Surface string `json:"surface"`
	ID      string `json:"id"`
}

func printAnswer(w world, q questions.Question, waited time.Duration, asJSON bool) error {
	a := q.Answer
	if !asJSON {
		printf(w.stdout, "%s\n", plainText(a.Text))
		return nil
	}
	v := answerView{
		ID: q.ID, Answer: plainText(a.Text), By: personView{a.By.Name, a.Via, a.By.ID}, Via: a.Via, At: a.At,
		WaitedSeconds: int(waited.Seconds()), Link: firstOf(a.Link, q.Link),
	}
	if a.Choice > 0 {
		v.Choice = &a.Choice
	}
	if a.Via == questions.ViaTimeout {
		v.By = questions.ViaTimeout
	}
	return printJSON(w.stdout, v)
}

// plainText is what a person wrote, for a program to read: without what would
// make a terminal do something, or show it in another order than it stands.
// Lines and tabs stay.
func plainText(s string) string {
	s = strings.ReplaceAll(s, "\r\n", "\n")
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t':
			return r
		case r == '\u2028' || r == '\u2029':
			return '\n'
		case unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r):
			return -1
		}
		return r // what is not UTF-8 has become U+FFFD
	}, s)
}
