package github

import (
	"context"
	"time"

	gh "github.com/google/go-github/v92/github"

	"the-loop/channels"
)

// ChannelOptions say what a channel posts.
type ChannelOptions struct {
	Name   string
	Client *Client
	// Verbosity is how much of an event is shown. Defaults to channels.Normal.
	Verbosity channels.Verbosity
	// Except are the events that stand on the ticket already, as its ledger's.
	// nil: none do.
	Except func(channels.Event) bool
}

// Channel posts events as comments on the tickets that they are about.
type Channel struct{ o ChannelOptions }

// NewChannel gives the channel. It reads and sends nothing.
func NewChannel(o ChannelOptions) *Channel {
	if o.Verbosity == "" {
		o.Verbosity = channels.Normal
	}
	return &Channel{o}
}

// Name implements channels.Channel.
func (c *Channel) Name() string { return c.o.Name }

// Carries implements channels.Selective: it carries what is about a ticket and
// does not stand on it already.
func (c *Channel) Carries(e channels.Event) bool {
	_, ok := ticketOf(e.WorkItem)
	return ok && (c.o.Except == nil || !c.o.Except(e))
}

// Credential implements channels.Credentialed.
func (c *Channel) Credential() string { return c.o.Client.credential() }

// Post implements channels.Channel: one comment, whose Ref is "comment:" and its
// number.
func (c *Channel) Post(ctx context.Context, d channels.Delivery) (channels.Receipt, error) {
	return c.o.Client.post(ctx, d, c.o.Verbosity)
}

// post comments on the event's ticket.
func (c *Client) post(ctx context.Context, d channels.Delivery, v channels.Verbosity) (channels.Receipt, error) {
	t, ok := ticketOf(d.Event.WorkItem)
	if !ok {
		return channels.Receipt{}, noTicket()
	}
	body, err := rendered(d, v, time.Now())
	if err != nil {
		return channels.Receipt{}, err
	}
	return c.comment(ctx, t, body)
}

func (c *Client) comment(ctx context.Context, t ticket, body string) (channels.Receipt, error) {
	var made *gh.IssueComment
	_, err := c.Call(ctx, func(api *gh.Client) (resp *gh.Response, err error) {
		made, resp, err = api.Issues.CreateComment(ctx, t.owner, t.repo, t.number, gh.IssueCommentRequest{Body: body})
		return resp, err
	})
	switch {
	case err != nil:
		return channels.Receipt{}, err
	case made.GetID() <= 0:
		return channels.Receipt{}, &channels.Uncertain{Code: "no_id"}
	}
	return channels.Receipt{Ref: commentRef(made.GetID()), Link: made.GetHTMLURL()}, nil
}

// commentBy reads a comment of the ticket's repository.
func (c *Client) commentBy(ctx context.Context, t ticket, id int64) (*gh.IssueComment, Answer, error) {
	var there *gh.IssueComment
	a, err := c.Call(ctx, func(api *gh.Client) (resp *gh.Response, err error) {
		there, resp, err = api.Issues.GetComment(ctx, t.owner, t.repo, id)
		return resp, err
	})
	if err == nil && there.GetID() != id {
		err = &channels.Uncertain{Code: "no_id"}
	}
	return there, a, err
}

// ReadBack implements channels.Reader.
func (c *Channel) ReadBack(ctx context.Context, r channels.Receipt) error {
	kind, id, ok := parseRef(r.Ref)
	m := linkPattern().FindStringSubmatch(r.Link)
	if !ok || kind != "comment" || m == nil {
		return &channels.Refusal{Reason: channels.ReasonConfig, Code: "bad_ref"}
	}
	_, _, err := c.o.Client.commentBy(ctx, ticket{owner: m[1], repo: m[2]}, id)
	return err
}

// Taken, Settle and Tell show on the ticket what became of replies to what the
// channel posted, as a Responder does. What it does not carry is not its own to
// settle.

// Taken is Responder.Taken.
func (c *Channel) Taken(ctx context.Context, at channels.Place) error {
	return NewResponder(c.o.Client).Taken(ctx, at)
}

// Settle is Responder.Settle.
func (c *Channel) Settle(ctx context.Context, q channels.Delivery, refs []string, how string) error {
	if !c.Carries(q.Event) {
		return nil
	}
	return NewResponder(c.o.Client).Settle(ctx, q, refs, how)
}

// Tell is Responder.Tell.
func (c *Channel) Tell(ctx context.Context, at channels.Place, id, user, text string, private bool) error {
	return NewResponder(c.o.Client).Tell(ctx, at, id, user, text, private)
}
