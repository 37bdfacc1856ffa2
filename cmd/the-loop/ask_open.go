package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"syscall"

	"the-loop/bus"
	"the-loop/channels"
	"the-loop/internal/eventlog"
	"the-loop/internal/questions"
	"the-loop/internal/term"
	"the-loop/state"
)

// opened is a question that stands in its file.
type opened struct {
	questions.Question
	there  bool // it is being asked already
	send   bool // it is ours to publish
	record bool // it was sent, and not recorded: it is ours to do that
	// release ends our turn at it. It may be called twice.
	release func()
}

// openQuestion writes the question down, or finds the one that it is. What cannot
// be written down is not asked: a reply to it would have nobody to go to.
//
// Whoever publishes a question holds its lock until that is over. A question
// that is there, was not sent, and is in nobody's hands was left by a process
// that died before it had begun to send: it is sent now, and not passed off as
// one that people have seen.
func (d *deployment) openQuestion(ctx context.Context, a asked) (o opened, err error) {
	o.release = func() {}
	known := false // it is the one of that id, whatever else asks the same
	if a.named {
		old, err := questions.Get(d.root, a.ID)
		known = err == nil
		switch {
		case err == nil:
			if err := a.sameAs(old); err != nil {
				return o, err
			}
		case !errors.Is(err, questions.ErrNone):
			return o, d.notKept(a.ID, err)
		}
	}
	mine, mayHold := d.takeTurn(a.ID)
	add := questions.AskOnce
	if a.again || known {
		add = func(ctx context.Context, root *state.Root, q questions.Question) (questions.Question, bool, error) {
			q, err := questions.Ask(ctx, root, q)
			return q, known, err
		}
	}
	o.Question, o.there, err = add(ctx, d.root, a.Question)
	if err != nil {
		mine()
		if !a.named { // the id is ours alone, and nobody will ask under it again
			_ = os.Remove(d.root.Path(state.Question(a.ID) + ".lock"))
			_ = os.Remove(d.root.Path(state.Question("."+a.ID) + ".lock"))
		}
		return o, d.notKept(a.ID, err)
	}
	if o.there {
		if err := a.sameAs(o.Question); err != nil {
			mine()
			return o, err
		}
	}
	if o.ID != a.ID {
		mine()
		mine, mayHold = d.takeTurn(o.ID)
	}
	o.release = mine
	switch {
	case !mayHold.can: // nobody can tell who is asking it: whoever has added it is
		o.send = !o.there
	case mayHold.held && o.there:
		if q, err := questions.Get(d.root, o.ID); err == nil {
			o.Question = q // it may have been sent while we waited
		}
		open := o.State == questions.StateOpen
		o.send = open && !o.Sent && !d.wasPublished(o.ID)
		o.record = open && o.Sent && o.Link == "" && d.bus().Ledger != nil
	default:
		o.send = mayHold.held
	}
	return o, nil
}

// notKept says why a question is not asked, in the system's own words, and what
// to do about that.
func (d *deployment) notKept(id string, err error) error {
	if errors.Is(err, questions.ErrDamaged) || errors.Is(err, questions.ErrNewer) {
		return unusable(id, err)
	}
	return d.unkept(fmt.Errorf("the question is not asked, for it cannot be kept: %w", err))
}

// unkept is the end of a command that could not write what it had to.
func (d *deployment) unkept(err error) *failure {
	f := failed(err)
	dir := term.Clean(d.root.Dir())
	switch {
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return f.withHint("make room for %s, and run the same again", dir)
	case errors.Is(err, state.ErrLockTimeout):
		return f.withHint("run the same again")
	}
	return f.withHint("let %s be written, or name another folder (state.root, THE_LOOP_STATE)", dir)
}

// sameAs says why a question of that id cannot be the one that is asked.
func (a asked) sameAs(old questions.Question) error {
	switch {
	case old.ID == a.ID && a.again:
		return usage("--id %s is another question's, and --again wants a new one", a.ID)
	case !old.Asks(a.WorkItem, a.Text, a.Choices):
		return usage("--id %s is another question's, and that one asks something else", a.ID).
			withHint("the-loop questions show %s", a.ID)
	}
	return nil
}

type turn struct {
	can  bool // the root has locks
	held bool
}

// takeTurn takes a question for as long as it is being published. The lock's
// name begins with a dot, as no question's does.
func (d *deployment) takeTurn(id string) (release func(), t turn) {
	name := state.Question("."+id) + ".lock"
	unlock, held, err := d.root.Role(name).Take(fmt.Sprintf("ask, process %d", os.Getpid()))
	if err != nil || !held {
		return func() {}, turn{can: err == nil}
	}
	done := false
	return func() {
		if !done {
			done = true
			_ = os.Remove(d.root.Path(name)) // while it is ours; whoever waits for it makes another
			unlock()
		}
	}, turn{can: true, held: true}
}

// wasPublished reports whether an event of that id was taken by a publish, even
// one that died: it stands somewhere then, or has left, or somebody may have it.
// One that all channels refused, and that could not be kept, has been nowhere.
func (d *deployment) wasPublished(id string) bool {
	if _, left := d.left(id); left || d.waits(id) {
		return true
	}
	return slices.ContainsFunc(d.story(id), func(l eventlog.Line) bool {
		switch l.Event {
		case "channel.undelivered", "channel.uncertain":
			return true
		case "bus.published":
			return l.ChannelsPosted == nil || *l.ChannelsPosted > 0 || len(l.Channels) == 0
		}
		return false
	})
}

// nowhere reports whether nobody can have the event, nor will.
func nowhere(res bus.Result) bool {
	uncertain := func(p bus.Post) bool { return p.State == channels.StateUncertain }
	return res.Lost() && !slices.ContainsFunc(res.Posts, uncertain)
}

// noteAsked writes down what became of the question: that it was sent, where its
// record is, and which messages show it.
func (d *deployment) noteAsked(ctx context.Context, o opened, res bus.Result) {
	if !o.send && !o.record {
		return
	}
	if res.Recorded != bus.RecordedNo {
		_ = d.log.Asked(ctx, subjectOf(o.Question), res.Accepted())
	}
	// Without it nothing is lost: its messages are then found by their marker.
	_, _ = questions.Update(context.WithoutCancel(ctx), d.root, o.ID, func(q *questions.Question) {
		q.Sent = q.Sent || !nowhere(res) // else whoever asks it next sends it
		if res.Record != "" {
			q.Link = res.Record
		}
		if o.send {
			q.Missed = nil
		}
		for _, p := range res.Posts {
			switch {
			case p.State == channels.StateAccepted && p.Ref != "":
				q.Refs[p.Channel] = []string{p.Ref}
			case p.State == channels.StateRefused, p.State == channels.StatePending:
				if !res.Queued && res.Accepted() > 0 {
					q.Missed = append(q.Missed, p.Channel)
				}
			}
		}
	})
}
