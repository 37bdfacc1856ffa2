package main

import (
	"context"
	"slices"

	"the-loop/channels"
	"the-loop/channels/github"
	"the-loop/internal/inbound"
	"the-loop/internal/questions"
	"the-loop/outbox"
)

// shown reports whether the question stands where the message was written. Until
// the asker has noted what became of it, and where that is not known, it may.
func (d *deployment) shown(q questions.Question, m channels.Message) bool {
	if !q.Sent {
		return true
	}
	onTicket := m.Surface == "github"
	if onTicket && d.config.Ledger == "github" && (q.Link != "" || !q.CommentAt.IsZero()) {
		return true
	}
	for _, r := range d.routes {
		name := r.Channel.Name()
		if _, ticket := r.Channel.(*github.Channel); ticket != onTicket || !onTicket && name != m.Channel {
			continue
		}
		if slices.Contains(q.Missed, name) {
			continue
		}
		if len(q.Refs[name]) > 0 || r.Owes(inbound.AskedEvent(q)) && !d.unsent(q.ID, name) {
			return true
		}
	}
	return false
}

// unsent reports whether nothing of the event has reached the channel: it waits
// for it in the outbox, or was refused, also where it has left for others took it.
// Where that is not known, it may have.
func (d *deployment) unsent(id, channel string) bool {
	deliveries := map[string]*outbox.Delivery{}
	e, ok, err := d.store.Entry(id)
	switch {
	case err != nil:
		return false
	case ok:
		deliveries = e.Deliveries
	default:
		if left, ok, err := d.store.Left(id); err == nil && ok {
			deliveries = left.Deliveries
		}
	}
	sent, ok := deliveries[channel]
	return ok && sent.Unsent()
}

// channel gives the channel of that name, nil when there is none.
func (d *deployment) channel(name string) channels.Channel {
	for _, r := range d.routes {
		if r.Channel.Name() == name {
			return r.Channel
		}
	}
	return nil
}

// responder gives who shows people what became of their replies.
func (d *deployment) responder(name string) inbound.Responder {
	if name == inbound.Ledger {
		if d.github == nil {
			return nil
		}
		return github.NewResponder(d.github)
	}
	r, _ := d.channel(name).(inbound.Responder)
	return r
}

// mirror is what an answer's Mirror begins as: "pending" where a copy of it is
// going to be made in the ledger.
func (d *deployment) mirror(questions.Question) string {
	if d.config.Ledger == "none" {
		return questions.MirrorOff
	}
	return questions.MirrorPending
}

// copyAnswer copies an answer to the ledger. What was answered on the ticket
// itself stands there already.
func (d *deployment) copyAnswer(ctx context.Context, q questions.Question) (link string, off bool, err error) {
	l := d.ledger()
	if l == nil {
		return "", true, nil
	}
	item, _ := channels.ParseWorkItem(q.WorkItem)
	if d.config.Ledger == "github" && item.Kind == "github" {
		if off, err := d.uncopied(ctx, q, item); off || err != nil {
			return "", off, err
		}
	}
	link, err = l.Record(ctx, inbound.AnswerEvent(q))
	return link, false, err
}

// uncopied reports whether the ticket must not get a copy of the answer.
func (d *deployment) uncopied(ctx context.Context, q questions.Question, item channels.WorkItem) (bool, error) {
	switch {
	case q.Answer.Via == questions.ViaGitHub, d.config.GitHub.MirrorAnswers == "never":
		return true, nil
	case d.config.GitHub.MirrorAnswers == "always":
		return false, nil
	}
	return d.github.Public(ctx, item.Owner+"/"+item.Name)
}

// ending says how a question ended, for that channel to show. Where a ticket must
// not get a copy of the answer, it does not get it so either.
func (d *deployment) ending(ctx context.Context, name string, q questions.Question) (string, error) {
	how := inbound.Ending(q)
	_, onTicket := d.channel(name).(*github.Channel)
	if q.Answer == nil || q.Answer.Via == questions.ViaGitHub || !onTicket && name != inbound.Ledger {
		return how, nil
	}
	item, err := channels.ParseWorkItem(q.WorkItem)
	if err != nil || item.Kind != "github" {
		return how, nil
	}
	off, err := d.uncopied(ctx, q, item)
	if off {
		how = "answered"
	}
	return how, err
}

// ended says how a question ended that goes out late, "" while it is open.
func (d *deployment) ended(ctx context.Context, channel string, ev channels.Event) string {
	q, err := questions.Get(d.root, ev.ID)
	if err != nil || q.State == questions.StateOpen {
		return ""
	}
	how, err := d.ending(ctx, channel, q)
	if err != nil {
		return "answered" // whether the ticket may have more of it is not known
	}
	return how
}
