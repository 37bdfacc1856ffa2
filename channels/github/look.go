package github

import (
	"context"
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
	me, err := c.Self(ctx)
	if err != nil {
		return nil, false, err
	}
	opts := &gh.IssueListCommentsOptions{ListOptions: gh.ListOptions{PerPage: 100, Page: 1}}
	if !since.IsZero() {
		opts.Since = &since
	}
	for range lookPages {
		var page []*gh.IssueComment
		a, err := c.CallIf(ctx, "", func(api *gh.Client) (resp *gh.Response, err error) {
			page, resp, err = api.Issues.ListComments(ctx, t.owner, t.repo, t.number, opts)
			return resp, err
		})
		if err != nil {
			return nil, false, err
		}
		for _, comment := range page {
			mark := ParseMark(comment.GetBody())
			if mark != nil && mark.ID == e.ID && comment.GetUser().GetID() == me.ID {
				return &channels.Receipt{Ref: commentRef(comment.GetID()), Link: comment.GetHTMLURL()}, false, nil
			}
		}
		if a.Next == 0 {
			return nil, true, nil
		}
		opts.Page = a.Next
	}
	return nil, false, nil
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
