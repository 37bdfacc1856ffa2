package inbound

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"sync"
	"time"

	"the-loop/channels"
	"the-loop/internal/lazy"
	"the-loop/internal/questions"
	"the-loop/state"
)

// Responder shows on a surface what became of a reply. Repeating any of its
// methods but Tell changes nothing. Errors are those of channels.Channel.Post.
type Responder interface {
	// Taken marks the message as taken. Where the scope for it is missing, or
	// the surface has no such mark, nothing is done and nil returned.
	Taken(ctx context.Context, at channels.Place) error
	// Settle rewrites the question's own message so that it says how it ended,
	// and takes its buttons away. refs are the provider's ids of it; without
	// them it is looked for. nil when it is not there at all.
	Settle(ctx context.Context, q channels.Delivery, refs []string, how string) error
	// Tell says text in reply to what stands at the place, to the user alone
	// when private and where the surface can. id rides in our marker.
	Tell(ctx context.Context, at channels.Place, id, user, text string, private bool) error
}

// Settler settles over the network what the pipeline owes.
type Settler struct {
	Pipeline *Pipeline
	// Responder gives the responder of a channel by its name or, for what came
	// from GitHub, of Ledger; nil where there is none any more.
	Responder func(name string) Responder
	// Mirror copies an answer to the ledger, under the answer's own id so that
	// it stands there once however often it is called. It gives the copy's link,
	// or off when the ledger must not have it. nil: no ledger has answers.
	Mirror func(ctx context.Context, q questions.Question) (link string, off bool, err error)
	// Ending says how a question ended, for that channel to show. nil: as the
	// function Ending, with the answer's text.
	Ending func(ctx context.Context, name string, q questions.Question) (string, error)

	mu    sync.Mutex
	notes map[string]bool // that were said by us, by the debt's id
}

func (s *Settler) told(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.notes[id]
}

func (s *Settler) tell(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.notes == nil {
		s.notes = map[string]bool{}
	}
	s.notes[id] = true
}

// settleWithin bounds one step.
const settleWithin = 10 * time.Second

// Settle pays what is due until nothing is or ctx ends: the copies, and what
// each channel must show, side by side, each of them oldest first. Of all
// processes of a root one settles at a time; held is false when another one
// does. What fails is tried again later. A note whose outcome is unknown is not
// repeated: it may be there.
func (s *Settler) Settle(ctx context.Context) (held bool, err error) {
	p := s.Pipeline
	owed, err := p.readDebts()
	if err != nil || len(owed) == 0 {
		return true, err
	}
	release, held, err := p.o.Root.Role(state.SettlerRole).Take("settling")
	if err != nil || !held {
		return false, err
	}
	defer release()
	running, ended := map[string]bool{}, make(chan paidLane)
	again := time.NewTicker(time.Second)
	defer again.Stop()
	var errs []error
	for {
		owed, err := p.readDebts()
		errs = append(errs, err)
		for lane, due := range lanes(owed, time.Now()) {
			if ctx.Err() == nil && errors.Join(errs...) == nil && !running[lane] {
				running[lane] = true
				go func() { ended <- paidLane{lane, s.settleAll(ctx, due)} }()
			}
		}
		if len(running) == 0 {
			return true, errors.Join(errs...)
		}
		select {
		case l := <-ended:
			delete(running, l.lane)
			errs = append(errs, l.err)
		case <-p.owes: // another lane may have work
		case <-again.C: // or something is due that was put off
		}
	}
}

// paidLane is a lane that has come to an end, and what our own disk said.
type paidLane struct {
	lane string
	err  error
}

// lanes gives what is due by who is to show it.
func lanes(owed []debt, now time.Time) map[string][]debt {
	due := map[string][]debt{}
	for _, d := range owed {
		if !now.Before(d.NextAt) {
			lane := d.Kind
			if d.Kind != debtMirror {
				lane = "show " + d.responder()
			}
			due[lane] = append(due[lane], d)
		}
	}
	return due
}

func (s *Settler) settleAll(ctx context.Context, due []debt) error {
	for _, d := range due {
		if ctx.Err() != nil {
			return nil
		}
		if err := s.settle(ctx, d); err != nil {
			return err
		}
	}
	return nil
}

// settle pays one debt, or puts it off. The error is of our own disk.
func (s *Settler) settle(ctx context.Context, d debt) error {
	p := s.Pipeline
	within, cancel := context.WithTimeoutCause(ctx, settleWithin, errors.New("no answer within 10s"))
	defer cancel()
	kept := context.WithoutCancel(ctx)
	if d.Kind == debtTell {
		if s.told(d.ID) { // and could not be crossed off
			return p.paid(kept, d.ID)
		}
		if err := p.begun(kept, d); err != nil {
			return err // what cannot be crossed off then would be said again and again
		}
	}
	err := s.pay(within, d)
	if err == nil && d.Kind == debtTell {
		s.tell(d.ID)
	}
	o := channels.OutcomeOf(channels.Receipt{}, err)
	switch {
	case err == nil:
	case errors.Is(err, errStillOpen):
		return p.void(kept, d)
	case ctx.Err() != nil && o.State == channels.StateRefused:
		return nil // interrupted before it was sent
	case d.Kind == debtTell && o.State == channels.StateUncertain:
		_ = p.o.Log.ReplyUncertain(kept, d.Question, d.Channel, o.Code)
	case time.Since(d.At) > debtLife, o.Reason == channels.ReasonUnacceptable:
		_ = p.o.Log.ReplyGivenUp(kept, d.Question, d.Channel, o.Code)
		if d.Kind == debtMirror {
			_ = s.mirrored(kept, d.Question, questions.MirrorFailed, "")
		}
	default:
		p.o.Logger.WarnContext(ctx, "what became of a reply could not be shown yet",
			"kind", d.Kind, "channel", d.Channel, "code", o.Code)
		if d.Kind == debtMirror && d.Attempts == 0 {
			// Nobody waits for the copy any longer; it is made when it can be.
			if err := s.mirrored(kept, d.Question, questions.MirrorFailed, ""); err != nil {
				return err
			}
		}
		return p.later(kept, d, o.RetryAfter)
	}
	return p.paid(kept, d.ID)
}

// errStillOpen says that a debt is of a question that nobody has closed.
var errStillOpen = errors.New("the question is open")

func (s *Settler) pay(ctx context.Context, d debt) error {
	if d.Kind == debtTell {
		return s.with(d, func(r Responder) error { return r.Tell(ctx, d.Place, d.ID, d.User, d.Text, d.Private) })
	}
	if d.Kind != debtMirror && d.Kind != debtTaken && d.Kind != debtSettle {
		return &channels.Refusal{Reason: channels.ReasonOther, Code: "unknown_kind"} // a newer version's
	}
	q, err := questions.Get(s.Pipeline.o.Root, d.Question)
	switch {
	case errors.Is(err, questions.ErrNone):
		return nil
	case err != nil:
		return err
	case q.State == questions.StateOpen:
		return errStillOpen
	}
	switch d.Kind {
	case debtMirror:
		return s.mirror(ctx, q)
	case debtTaken:
		if d.Answer != "" && (q.Answer == nil || q.Answer.Key != d.Answer) {
			return nil
		}
		return s.with(d, func(r Responder) error { return r.Taken(ctx, d.Place) })
	}
	how := Ending(q)
	if s.Ending != nil {
		if how, err = s.Ending(ctx, d.Channel, q); err != nil {
			return err
		}
	}
	return s.with(d, func(r Responder) error { return r.Settle(ctx, deliveryOf(q), refsOf(q, d.Channel), how) })
}

// with gives the debt's responder to do. Without one there is nobody to show
// anything.
func (s *Settler) with(d debt, do func(Responder) error) error {
	r := s.Responder(d.responder())
	if r == nil {
		return nil
	}
	return do(r)
}

// responder is the name of the responder that pays the debt.
func (d debt) responder() string {
	if d.Surface == "github" {
		return Ledger
	}
	return d.Channel
}

func (s *Settler) mirror(ctx context.Context, q questions.Question) error {
	if q.Answer == nil || q.Answer.Mirror == questions.MirrorDone {
		return nil
	}
	if s.Mirror == nil {
		return s.mirrored(ctx, q.ID, questions.MirrorOff, "")
	}
	link, off, err := s.Mirror(ctx, q)
	switch {
	case err != nil:
		return err
	case off:
		return s.mirrored(ctx, q.ID, questions.MirrorOff, "")
	}
	return s.mirrored(ctx, q.ID, questions.MirrorDone, link)
}

func (s *Settler) mirrored(ctx context.Context, id, how, link string) error {
	_, err := questions.Update(ctx, s.Pipeline.o.Root, id, func(q *questions.Question) {
		if q.Answer == nil {
			return
		}
		q.Answer.Mirror = how
		if link != "" && q.Answer.Link == "" {
			q.Answer.Link = link
		}
	})
	return err
}

var commentLink = lazy.Regexp(`^https?://.*#issuecomment-([0-9]+)$`)

// refsOf gives the ids of the question's message in a channel, as far as they
// are known. The ledger's is in the link of its record.
func refsOf(q questions.Question, name string) []string {
	if m := commentLink().FindStringSubmatch(q.Link); m != nil && name == Ledger {
		return []string{"comment:" + m[1]}
	}
	return q.Refs[name]
}

// deliveryOf is the question as it was given to the channels.
func deliveryOf(q questions.Question) channels.Delivery {
	return channels.Delivery{At: q.AskedAt, Event: AskedEvent(q)}
}

// AskedEvent is the event that asked the question.
func AskedEvent(q questions.Question) channels.Event {
	asked := channels.Asked{Code: q.Code, Choices: q.Choices, FreeText: q.FreeText}
	return channels.Event{
		ID: q.ID, Type: "session.awaiting_input", WorkItem: q.WorkItem, Text: q.Text, URL: webLink(q.Link),
		Detail: asked.Detail(), Source: "cli",
	}
}

// AnswerEvent is the answer as the ledger records it. Its id is made of the
// question's and of what was answered, so that it is one record however often it
// is written, and another one than that of a question whose id, given by hand, is
// the same on another machine.
func AnswerEvent(q questions.Question) channels.Event {
	detail := map[string]any{"question": q.ID, "via": q.Answer.Via}
	if q.Code != "" {
		detail["code"] = q.Code
	}
	ids := map[string]string{}
	if q.Answer.By.ID != "" {
		ids[q.Answer.Via] = q.Answer.By.ID
	}
	name := q.Answer.By.Name
	if name == "" {
		name = q.Answer.By.Login
	}
	return channels.Event{
		ID: answerID(q), Type: "session.reply", WorkItem: q.WorkItem, Text: q.Answer.Text, URL: webLink(q.Answer.Link),
		Detail: detail, Source: q.Answer.Via, Actor: &channels.Actor{Name: name, IDs: ids},
	}
}

func answerID(q questions.Question) string {
	sum := sha256.Sum256([]byte(q.Text + "\x00" + q.Answer.Text + "\x00" + q.Answer.At.UTC().Format(time.RFC3339Nano)))
	ending := fmt.Sprintf(".answer-%x", sum[:4])
	return q.ID[:min(len(q.ID), 64-len(ending))] + ending
}

func webLink(link string) string {
	if len(link) > 8 && (link[:8] == "https://" || link[:7] == "http://") {
		return link
	}
	return ""
}
