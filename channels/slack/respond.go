package slack

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"sync"

	slackapi "github.com/slack-go/slack"

	"the-loop/channels"
)

const (
	takenEmoji = "white_check_mark"
	// maxHow bounds the line that says how a question ended. A message that is
	// updated may have 4,000 characters, and a part has maxMessage at most.
	maxHow = 400
)

// told remembers what has been logged, so that it is logged once.
type told struct {
	mu   sync.Mutex
	said map[string]bool
}

func (t *told) first(what string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.said[what] {
		return false
	}
	if t.said == nil {
		t.said = map[string]bool{}
	}
	t.said[what] = true
	return true
}

// forget lets what be said again.
func (t *told) forget(what string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.said, what)
}

// Taken puts a check mark below the message. It may be repeated.
//
// Reactions are optional: without the scope reactions:write nothing is done,
// which is logged once, and no error. Nor is it one when the message is gone
// or takes no reactions.
func (c *Channel) Taken(ctx context.Context, at channels.Place) error {
	if !tsPattern().MatchString(at.ID) {
		return nil
	}
	token, err := c.o.Token.Value()
	if err != nil {
		return err
	}
	api, one := c.api(token)
	_, err = one.verdict(api.AddReactionContext(ctx, takenEmoji, slackapi.NewRefToMessage(c.roomOf(at), at.ID)))
	switch codeOf(err) {
	case "already_reacted", "message_not_found", "too_many_emoji", "too_many_reactions", "not_reactable", "thread_locked":
		return nil
	case "missing_scope":
		if c.told.first("no reactions") {
			c.o.Log.Warn("what is taken gets no check mark: the bot has no scope reactions:write", "channel", c.o.Name)
		}
		return nil
	}
	return err
}

// Settle says in the question's own message how it ended, takes its buttons
// away and closes its marker; what was asked still stands there. Of a text in
// parts the first and the last are changed. refs are the receipt's, all parts
// in order; without any they are looked for as by Look. It may be repeated.
//
// A message that is gone, too old to be shown or no longer to be edited is no
// error.
func (c *Channel) Settle(ctx context.Context, q channels.Delivery, refs []string, how string) error {
	token, err := c.o.Token.Value()
	if err != nil {
		return err
	}
	if refs = slices.DeleteFunc(slices.Clone(refs), func(ref string) bool { return ref == "" }); len(refs) == 0 {
		if refs, err = c.refsOf(ctx, q); err != nil {
			return err
		}
	}
	ending := endingOf(how)
	for n := len(refs) - 1; n >= 0; n -= max(1, len(refs)-1) { // the buttons, then the head
		if err := c.settlePart(ctx, token, q, refs, n, ending); err != nil {
			return err
		}
	}
	return nil
}

// endingOf is the line that says how a question ended.
func endingOf(how string) string { return "✅ " + escapeShort(channels.OneLine(how), maxHow) }

// settlePart changes part n, from 0. The text is what was posted: whether the
// headline says that it went out late depends on when that was.
func (c *Channel) settlePart(
	ctx context.Context, token string, q channels.Delivery, refs []string, n int, ending string,
) error {
	posted, ok := tsTime(refs[0])
	if !ok || !tsPattern().MatchString(refs[n]) {
		return nil // none of our refs
	}
	texts := c.render(q, posted, ending)
	if n >= len(texts) {
		return nil // it was posted by another version, that split it otherwise
	}
	if n < len(texts)-1 {
		texts[n] += "\n" + ending
	}
	p := partOf(q.Event, texts, n, stateClosed)
	// No blocks takes away those that are there.
	options := append(p.options(), slackapi.MsgOptionBlocks())
	api, one := c.api(token)
	_, _, _, err := api.UpdateMessageContext(ctx, c.o.Channel, refs[n], options...)
	_, err = one.verdict(err)
	switch codeOf(err) {
	case "message_not_found", "cant_update_message", "edit_window_closed":
		return nil
	}
	return err
}

// refsOf looks for the question's message. Nothing found, for now or for good,
// is nothing to change.
func (c *Channel) refsOf(ctx context.Context, q channels.Delivery) ([]string, error) {
	q.Parts = nil
	seen, err := c.Look(ctx, q, q.At)
	switch codeOf(err) {
	case "too_old", "thread_not_found":
		return nil, nil
	}
	return seen.Found, err
}

// Tell says text in the thread of the message at the place, to everybody or,
// when private, to user alone, who sees it until they reload. id rides in the
// metadata, which an ephemeral message has not: that one leaves no trace.
//
// Errors are those of Post.
func (c *Channel) Tell(ctx context.Context, at channels.Place, id, user, text string, private bool) error {
	token, err := c.o.Token.Value()
	if err != nil {
		return err
	}
	clean, _ := channels.CleanText(text)
	p := part{text: tellText(clean)}
	root := cmp.Or(at.Thread, at.ID)
	if !tsPattern().MatchString(root) {
		root = ""
	}
	if !private {
		// With part and parts it is like any other message to a look-up.
		p.meta = map[string]any{"id": id, "part": 1, "parts": 1}
		_, err = c.send(ctx, token, c.roomOf(at), root, p)
		return err
	}
	options := p.options()
	if root != "" {
		options = append(options, slackapi.MsgOptionTS(root))
	}
	api, one := c.api(token)
	_, err = api.PostEphemeralContext(ctx, c.roomOf(at), user, options...)
	_, err = one.verdict(err)
	return err
}

// tellText is the escaped text, cut to one message.
func tellText(text string) string {
	const more = " …"
	pieces, left := cutText(text, 1, maxMessage-len(more), 0)
	if left != "" {
		pieces = append(pieces, more)
	}
	return escape(strings.Join(pieces, ""))
}

func (c *Channel) roomOf(at channels.Place) string { return cmp.Or(at.Conversation, c.o.Channel) }

// codeOf is the code of a *channels.Refusal, "" for anything else.
func codeOf(err error) string {
	var refusal *channels.Refusal
	if errors.As(err, &refusal) {
		return refusal.Code
	}
	return ""
}
