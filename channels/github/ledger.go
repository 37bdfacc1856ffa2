package github

import (
	"context"
	"errors"
	"time"

	"the-loop/channels"
)

// Ledger records events as comments on the tickets that they are about.
type Ledger struct{ client *Client }

// NewLedger gives the ledger. It reads and sends nothing.
func NewLedger(c *Client) *Ledger { return &Ledger{c} }

// How often, and how much later each time, a write without an answer is looked
// for.
const (
	recordLooks  = 3
	recordWait   = 500 * time.Millisecond
	recordWithin = 5 * time.Second // all of it
)

// Record writes the event as a comment, and gives its link. It POSTs once: a
// write that nobody answered is looked up, a few times, and when it is not found
// the error says that its outcome is unknown, for it may appear yet. An answer
// may be recorded again after a crash, so that it is looked for first.
func (l *Ledger) Record(ctx context.Context, ev channels.Event) (string, error) {
	if ev.Type == "session.reply" {
		if link, found, err := l.Find(ctx, ev); found || err != nil {
			return link, err
		}
	}
	r, err := l.client.post(ctx, channels.Delivery{Event: ev}, channels.Normal)
	var unknown *channels.Uncertain
	if !errors.As(err, &unknown) {
		return r.Link, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, recordWithin, errors.New("not seen within 5s"))
	defer cancel()
	for n := range recordLooks {
		if !pause(ctx, recordWait<<n) {
			break
		}
		if link, found, _ := l.Find(ctx, ev); found {
			return link, nil
		}
	}
	return "", err
}

// Find looks for the event's comment: our own, by its marker, over all pages.
func (l *Ledger) Find(ctx context.Context, ev channels.Event) (link string, found bool, err error) {
	r, complete, err := l.client.find(ctx, ev, takenAt(ev))
	switch {
	case err != nil:
		return "", false, err
	case r == nil && !complete:
		return "", false, &channels.Refusal{Reason: channels.ReasonOther, Code: "too_many_pages"}
	case r == nil:
		return "", false, nil
	}
	return r.Link, true, nil
}

func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
