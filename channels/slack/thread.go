package slack

import (
	"context"
	"errors"

	"the-loop/channels"
)

// thread is where one delivery's messages go, and what becomes of the binding
// meanwhile. A binding that cannot be read or kept never stops a post: the
// worst that comes of it is a second thread.
type thread struct {
	c     *Channel
	event channels.Event
	root  string // the root's ts, "" while there is none
	last  string // the ts of the message posted last

	claim string // we are the one who opens the item's thread
	bound bool   // root is the item's thread, by the binding
}

// openThread finds the thread that the delivery belongs to. It fails with a
// *channels.Refusal when ctx ends while somebody else is opening it.
func (c *Channel) openThread(ctx context.Context, d channels.Delivery) (*thread, error) {
	t := &thread{c: c, event: d.Event}
	item := d.Event.WorkItem
	switch {
	case len(d.Parts) > 0:
		t.root = d.Parts[0]
		if c.threads == nil || item == "" {
			return t, nil
		}
		if b, err := c.threads.find(item); err == nil && b.TS != "" {
			t.root, t.bound = b.TS, true
		}
	case c.threads != nil && item != "":
		var err error
		t.root, t.claim, err = c.threads.enter(ctx, item)
		if errors.Is(err, errBusy) {
			return nil, &channels.Refusal{Reason: channels.ReasonOther, Code: "thread_busy", Err: ctx.Err()}
		}
		t.bound = t.root != ""
		t.note(err)
	}
	return t, nil
}

// accepted takes note of a message that is there. The first one without a root
// is the root. A reply whose root is gone is posted by Slack into the room
// itself, which shows in the answer alone: it becomes the new root.
func (t *thread) accepted(ctx context.Context, a answer) {
	t.last = a.TS
	if t.root != "" && (a.Message == nil || a.Message.ThreadTS != "") {
		return
	}
	old := t.root
	t.root = a.TS
	if t.claim != "" || t.bound {
		t.note(t.c.threads.move(ctx, t.event.WorkItem, old, t.root))
		t.claim, t.bound = "", true
	}
}

// failed takes note of a verdict. When the thread's root is gone, the binding
// is forgotten, so that the next attempt opens a new thread.
func (t *thread) failed(ctx context.Context, err error) {
	var refusal *channels.Refusal
	if t.bound && errors.As(err, &refusal) && refusal.Code == "thread_not_found" {
		t.note(t.c.threads.move(ctx, t.event.WorkItem, t.root, ""))
	}
}

// close gives up the claim of a thread that was not opened.
func (t *thread) close(ctx context.Context) {
	if t.claim != "" {
		t.note(t.c.threads.release(ctx, t.event.WorkItem, t.claim))
	}
}

func (t *thread) note(err error) {
	if err != nil {
		t.c.o.Log.Warn("thread binding not kept", "channel", t.c.o.Name, "entry_id", t.event.ID, "error", err)
	}
}
