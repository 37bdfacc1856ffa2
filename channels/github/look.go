package github

import (
	"context"
	"errors"
	"strings"
	"time"

	gh "github.com/google/go-github/v92/github"
	"github.com/oklog/ulid/v2"

	"the-loop/channels"
)

const (
	// lookBack is how far before the send the reading begins: our clock may be
	// ahead of GitHub's.
	lookBack = 5 * time.Minute
	// lookPages bounds one look-up, at a hundred comments a page.
	lookPages = 50
)

// Look implements channels.Witness: it reads the ticket's comments since the
// send, all pages, for one that bears the event's marker and is by the account
// of our token. What it does not see after a complete reading is not there.
//
// The token needs to read the issues of the repository. What does not come from
// GitHub itself, and an answer of another time than ours, proves nothing.
func (c *Channel) Look(ctx context.Context, d channels.Delivery, since time.Time) (channels.Sighting, error) {
	r, complete, err := c.o.Client.find(ctx, d.Event, since.Add(-lookBack))
	switch {
	case err != nil:
		return channels.Sighting{}, err
	case r == nil:
		return channels.Sighting{Complete: complete}, nil
	}
	return channels.Sighting{Found: []string{r.Ref}, Whole: true}, nil
}

// find looks for the event's comment among our own since that time; zero is from
// the beginning. complete: all of them were read.
func (c *Client) find(ctx context.Context, e channels.Event, since time.Time) (
	found *channels.Receipt, complete bool, err error,
) {
	t, ok := ticketOf(e.WorkItem)
	if !ok {
		return nil, false, noTicket()
	}
	me, a, err := c.self(ctx)
	if err != nil {
		return nil, false, lookError(a, err)
	}
	asked, _ := channels.AskedOf(e) // an id that was given by hand may be another machine's question too
	opts := &gh.IssueListCommentsOptions{ListOptions: gh.ListOptions{PerPage: PageSize, Page: 1}}
	if !since.IsZero() {
		opts.Since = &since
	}
	for range lookPages {
		var page []*gh.IssueComment
		a, err := c.CallIf(ctx, "", func(api *gh.Client) (resp *gh.Response, err error) {
			page, resp, err = api.Issues.ListComments(ctx, t.owner, t.repo, t.number, opts)
			return resp, err
		})
		switch {
		case err != nil:
			return nil, false, lookError(a, err)
		case page == nil: // "null"
			return nil, false, &channels.Uncertain{Code: "not_json"}
		}
		for _, comment := range page {
			if comment.GetID() <= 0 {
				return nil, false, &channels.Uncertain{Code: "no_id"}
			}
			mark := ParseMark(comment.GetBody())
			if mark != nil && mark.ID == e.ID && mark.Code == asked.Code && comment.GetUser().GetID() == me.ID {
				return &channels.Receipt{Ref: commentRef(comment.GetID()), Link: comment.GetHTMLURL()}, false, nil
			}
		}
		switch {
		case a.Next != 0:
			opts.Page = a.Next
		case len(page) >= PageSize: // a full page may be followed by one, whoever lost the link to it
			opts.Page++
		case !since.IsZero() && !a.Date.IsZero() && time.Since(a.Date) > lookBack:
			// Our clock is ahead of GitHub's by more than we look back.
			return nil, false, &channels.Uncertain{Code: "clock"}
		default:
			return nil, true, nil
		}
	}
	return nil, false, nil
}

// lookError gives the error of a look-up for what a call ended with. Only GitHub
// itself can say that it will never tell: a page in between cannot.
func lookError(a Answer, err error) error {
	var refusal *channels.Refusal
	if !errors.As(err, &refusal) {
		return err
	}
	r := *refusal
	switch standing := r.Reason == channels.ReasonAuth || r.Reason == channels.ReasonConfig; {
	case standing && strings.HasPrefix(r.Code, "http_") && !a.own:
		r.Reason = channels.ReasonOther
	case r.Code == "deleted":
		r.Reason = channels.ReasonConfig
	case standing && r.Code == "http_404":
		r.Detail = "it is not there, or the token may not read it: it needs issues=read"
	case standing && r.Code == "http_403":
		r.Detail = "the token needs issues=read"
	}
	return &r
}

// takenAt is when the event got its id, as far as the id tells; zero when it was
// given by hand.
func takenAt(e channels.Event) time.Time {
	id, _, _ := strings.Cut(e.ID, ".")
	u, err := ulid.ParseStrict(id)
	if err != nil {
		return time.Time{}
	}
	return u.Timestamp().Add(-lookBack)
}
