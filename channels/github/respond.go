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
	now, a, err := r.client.commentBy(ctx, t, id)
	if err != nil {
		return unlessGone(lookError(a, err))
	}
	mark, sum, rest := readMark(now.GetBody())
	if mark == nil || mark.ID != q.Event.ID || mark.Closed {
		return nil
	}
	rest = strings.TrimRight(strings.TrimSuffix(strings.ReplaceAll(rest, "\r\n", "\n"), hintOf(q.Event)), "\n")
	rest = cut(endingOf(how)+"\n\n"+rest, maxComment-maxMarker)
	closed := channels.Mark{ID: mark.ID, Code: mark.Code, Closed: true}
	body, err := sign(closed, rest)
	if err != nil {
		return err
	}
	if !mark.Ours {
		body = signWith(closed, sum, rest) // somebody's words stand in it, which must not become ours
	}
	a, err = r.client.Call(ctx, func(api *gh.Client) (*gh.Response, error) {
		_, resp, err := api.Issues.UpdateComment(ctx, t.owner, t.repo, id, gh.IssueCommentRequest{Body: body})
		return resp, err
	})
	return unlessGone(lookError(a, err))
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

// unlessGone is the error of lookError, and nil when it says that the comment,
// or its ticket, is not there.
func unlessGone(err error) error {
	var r *channels.Refusal
	if errors.As(err, &r) && r.Reason == channels.ReasonConfig &&
		(r.Code == "http_404" || r.Code == "http_410" || r.Code == "deleted") {
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
	body, err := sign(channels.Mark{ID: id}, cut(defuseAll(text), maxComment-maxMarker))
	if err != nil {
		return err
	}
	var thread int64
	if kind, ref, ok := parseRef(at.ID); ok && kind == "inline" {
		if thread, err = r.threadOf(ctx, t, ref); err != nil {
			return err
		}
	}
	if thread == 0 {
		_, err := r.client.comment(ctx, t, body)
		return err
	}
	var made *gh.PullRequestComment
	_, err = r.client.Call(ctx, func(api *gh.Client) (resp *gh.Response, err error) {
		made, resp, err = api.PullRequests.CreateCommentInReplyTo(ctx, t.owner, t.repo, t.number, body, thread)
		return resp, err
	})
	if err == nil && made.GetID() <= 0 {
		return &channels.Uncertain{Code: "no_id"}
	}
	return err
}

// threadOf gives the inline comment that one belongs under: GitHub takes no reply
// to a reply (docs.github.com/rest, "Create a reply for a review comment"). It
// is 0 when the comment is gone. Nothing is written: the error is a refusal, so
// that what was to be said is tried again.
func (r *Responder) threadOf(ctx context.Context, t ticket, id int64) (int64, error) {
	var there *gh.PullRequestComment
	a, err := r.client.Call(ctx, func(api *gh.Client) (resp *gh.Response, err error) {
		there, resp, err = api.PullRequests.GetComment(ctx, t.owner, t.repo, id)
		return resp, err
	})
	var unknown *channels.Uncertain
	if err == nil && there.GetID() != id {
		err = &channels.Uncertain{Code: "no_id"}
	}
	if errors.As(err, &unknown) {
		return 0, &channels.Refusal{
			Reason: channels.ReasonOther, Code: unknown.Code, Detail: unknown.Detail, Err: unknown.Err,
		}
	}
	if err != nil {
		return 0, unlessGone(lookError(a, err))
	}
	if of := there.GetInReplyTo(); of > 0 {
		return of, nil
	}
	return id, nil
}
