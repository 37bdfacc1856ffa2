package slack

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"time"

	"the-loop/channels"
)

const (
	// lookBack is how far before the send the reading begins. A message's ts
	// is Slack's time and since is ours: a clock of ours that was ahead by
	// less than this hides nothing, and some more messages cost little.
	lookBack = 5 * time.Minute
	// visibleFor is how old a send may be. A workspace on the free plan shows
	// the messages of the last 90 days.
	visibleFor = 89 * 24 * time.Hour
	// One look-up reads at most maxPages pages of pageSize messages, one after
	// the other. The methods allow some 50 calls a minute.
	pageSize = 200
	maxPages = 50
	// maxPage is how many bytes a page may have: strangers' messages come
	// whole, of 40,000 characters each at most, and with their blocks.
	maxPage = 16 << 20
)

// Look implements channels.Witness. The parts that d.Parts names count as
// found; the others are searched for by the id in the metadata.
//
// Read are the replies of the thread that the work item is bound to and of
// d.Parts[0], then the room itself, since Slack puts a reply there when its
// root is gone, then the replies of what was found there. Looking ends when all
// parts are found: the sighting is then Whole, and not Complete. A message
// counts when its author is the token's own; what else bears the id is passed
// over.
//
// The bot needs the scope channels:history (groups:history in a private
// channel). Slack's documentation does not say that more is needed to see the
// metadata of one's own messages; where they come without it, that is a
// refusal with the code "no_metadata" and not a message that is missing.
//
// A thread whose root is gone is a refusal too ("thread_not_found"), unless the
// message is in the room: whether it was a reply there, nobody can tell any
// more. So is what the workspace's plan may hide ("too_old").
func (c *Channel) Look(ctx context.Context, d channels.Delivery, since time.Time) (channels.Sighting, error) {
	s, err := c.look(ctx, d, since)
	if err != nil {
		return channels.Sighting{}, lookError(err)
	}
	return s, nil
}

func (c *Channel) look(ctx context.Context, d channels.Delivery, since time.Time) (channels.Sighting, error) {
	if err := ctx.Err(); err != nil {
		return channels.Sighting{}, err
	}
	if d.Event.ID == "" {
		return channels.Sighting{}, errors.New("the event has no id")
	}
	if time.Since(since) > visibleFor {
		return channels.Sighting{}, tooOld()
	}
	token, err := c.o.Token.Value()
	if err != nil {
		return channels.Sighting{}, err
	}
	me, err := c.whoAmI(ctx, token)
	if err != nil {
		return channels.Sighting{}, err
	}
	roots, err := c.rootsOf(d)
	if err != nil {
		return channels.Sighting{}, err
	}
	l := &search{c: c, token: token, me: me, id: d.Event.ID, oldest: since.Add(-lookBack), refs: map[int]string{}}
	for i, ref := range d.Parts {
		l.refs[i+1] = ref
	}
	if err := l.run(ctx, roots); err != nil {
		return channels.Sighting{}, err
	}
	s := channels.Sighting{Found: l.found(), Whole: l.whole()}
	if s.Whole {
		return s, nil
	}
	err = l.unjudgeable(ctx)
	if err != nil && len(s.Found) <= len(d.Parts) {
		return channels.Sighting{}, err
	}
	s.Complete = err == nil && !l.cut
	return s, nil
}

// rootsOf gives the threads that the delivery's messages may be in, as far as
// we know without asking Slack.
func (c *Channel) rootsOf(d channels.Delivery) (roots []string, err error) {
	if c.threads != nil && d.Event.WorkItem != "" {
		b, err := c.threads.find(d.Event.WorkItem)
		switch {
		case err == nil && b.TS != "":
			roots = append(roots, b.TS)
		case err != nil && !errors.Is(err, fs.ErrNotExist):
			return nil, fmt.Errorf("read thread bindings: %w", err)
		}
	}
	if len(d.Parts) > 0 && !slices.Contains(roots, d.Parts[0]) {
		roots = append(roots, d.Parts[0])
	}
	return roots, nil
}
