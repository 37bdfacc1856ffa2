package github

import (
	"context"
	"errors"
	"strings"

	gh "github.com/google/go-github/v92/github"

	"the-loop/channels"
)

// Responder shows on the ticket what became of a reply.
type Responder struct{ client *Client }

// NewResponder gives the responder. It reads and sends nothing.
func NewResponder(c *Client) *Responder { return &Responder{c} }

// Taken gives the comment a thumbs-up. Reviews have no reactions. A token that
// may not react, or a comment that is gone, is no error.
func (r *Responder) Taken(ctx context.Context, at channels.Place) error {
	t, ok := ticketAt(at.Conversation)
	kind, id, okRef := parseRef(at.ID)
	if !ok || !okRef || kind == "review" {
		return nil
	}
	_, err := r.client.Call(ctx, func(api *gh.Client) (resp *gh.Response, err error) {
		if kind == "inline" {
			_, resp, err = api.Reactions.CreatePullRequestCommentReaction(ctx, t.owner, t.repo, id, "+1")
		} else {
			_, resp, err = api.Reactions.CreateIssueCommentReaction(ctx, t.owner, t.repo, id, "+1")
		}
		return resp, err
	})
	var refusal *channels.Refusal
	if errors.As(err, &refusal) && refusal.Reason != channels.ReasonRate && refusal.Reason != channels.ReasonDown {
		r.client.o.Log.WarnContext(ctx, "a reply was not marked as taken", "code", refusal.Code)
		return nil
	}
	return err
}

// Settle rewrites the question's comment: how it ended stands on top, the hint
// how to answer is gone, and the marker says that it is closed. A comment that
// is gone, or settled already, is no error.
func (r *Responder) Settle(ctx context.Context, q channels.Delivery, refs []string, how string) error {
	t, ok := ticketOf(q.Event.WorkItem)
	if !ok {
		return nil
	}
	id, err := r.commentOf(ctx, q.Event, refs)
	if err != nil || id == 0 {
		return err
	}
	var now *gh.IssueComment
	_, err = r.client.Call(ctx, func(api *gh.Client) (resp *gh.Response, err error) {
		now, resp, err = api.Issues.GetComment(ctx, t.owner, t.repo, id)
		return resp, err
	})
	if err != nil {
		return unlessGone(err)
	}
	mark, _, rest := readMark(now.GetBody())
	if mark == nil || mark.ID != q.Event.ID || mark.Closed {
		return nil
	}
	rest = strings.TrimRight(strings.TrimSuffix(strings.ReplaceAll(rest, "\r\n", "\n"), hintOf(q.Event)), "\n")
	body, err := sign(channels.Mark{ID: mark.ID, Code: mark.Code, Closed: true},
		cut(endingOf(how)+"\n\n"+rest, maxComment-maxMarker))
	if err != nil {
		return err
	}
	_, err = r.client.Call(ctx, func(api *gh.Client) (*gh.Response, error) {
		_, resp, err := api.Issues.UpdateComment(ctx, t.owner, t.repo, id, gh.IssueCommentRequest{Body: body})
		return resp, err
	})
	return unlessGone(err)
}

// commentOf gives the number of the question's comment, 0 when it is not there.
func (r *Responder) commentOf(ctx context.Context, e channels.Event, refs []string) (int64, error) {
	for _, ref := range refs {
		if kind, id, ok := parseRef(ref); ok && kind == "comment" {
			return id, nil
		}
	}
	found, _, err := r.client.find(ctx, e, takenAt(e))
	if err != nil || found == nil {
		return 0, unlessGone(err)
	}
	_, id, _ := parseRef(found.Ref)
	return id, nil
}

// unlessGone is err, and nil when it says that the comment is not there.
func unlessGone(err error) error {
	var refusal *channels.Refusal
	if errors.As(err, &refusal) && (refusal.Code == "http_404" || refusal.Code == "http_410") {
		return nil
	}
	return err
}

// Tell comments on the ticket, or replies to the inline comment. GitHub has no
// way to tell one person alone.
func (r *Responder) Tell(ctx context.Context, at channels.Place, id, _, text string, _ bool) error {
	t, ok := ticketAt(at.Conversation)
	if !ok {
		return noTicket()
	}
	body, err := sign(channels.Mark{ID: id}, defuseAll(text))
	if err != nil {
		return err
	}
	kind, ref, ok := parseRef(at.ID)
	if !ok || kind != "inline" {
		_, err := r.client.comment(ctx, t, body)
		return err
	}
	_, err = r.client.Call(ctx, func(api *gh.Client) (*gh.Response, error) {
		_, resp, err := api.PullRequests.CreateCommentInReplyTo(ctx, t.owner, t.repo, t.number, body, ref)
		return resp, err
	})
	return err
}
