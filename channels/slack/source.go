package slack

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	slackapi "github.com/slack-go/slack"

	"the-loop/channels"
)

// Source reads the replies in the threads of all Slack channels' work items:
// one source, because they share what Slack allows. It is safe for several
// goroutines.
//
// The bot needs the scope channels:history (groups:history in a private
// channel), and metadata.message:read to see the markers of other apps.
type Source struct{ channels []*Channel }

// NewSource gives the source of these channels.
func NewSource(cs ...*Channel) *Source { return &Source{cs} }

// Name implements reader.Source.
func (s *Source) Name() string { return Surface }

// methodReplies and methodWhoAmI are what requests count under.
const (
	methodReplies = "conversations.replies"
	methodWhoAmI  = "auth.test"
)

// Places gives one place for each thread that a watched work item is bound to.
// There are none while the bindings cannot be read, which is logged once.
func (s *Source) Places(items []channels.Watched) (places []channels.ReadPlace) {
	watched := make(map[string]bool, len(items))
	for _, item := range items {
		watched[item.WorkItem] = true
	}
	for _, c := range s.channels {
		for _, t := range c.ours() {
			if !watched[t.WorkItem] {
				continue
			}
			key := placeKey(t.Conversation, t.TS)
			if n := len(places); n > 0 && places[n-1].Key == key { // they come in the order of their ts
				places[n-1].WorkItems = append(places[n-1].WorkItems, t.WorkItem)
				continue
			}
			places = append(places, channels.ReadPlace{Key: key, WorkItems: []string{t.WorkItem}})
		}
	}
	return places
}

func placeKey(conversation, thread string) string { return "slack:" + conversation + ":" + thread }

// after is the cursor: the ts of the last message that was read.
type after struct {
	After string `json:"after"`
}

// Read gives the replies after the cursor, ours among them: they tell by their
// marker what was asked there. The thread's root is no reply. A thread that is
// gone has nothing to read, which is logged once and no error.
//
// When a page fails, what came before is given. The cursor then moves only if
// at least two pages came in the order of time: then none of the others can be
// older.
func (s *Source) Read(
	ctx context.Context, p channels.ReadPlace, cursor json.RawMessage,
	before func(ctx context.Context, method string) error,
) ([]channels.Message, json.RawMessage, error) {
	c, thread, item := s.find(p)
	if c == nil {
		return nil, cursor, errors.New("not a thread in one of the channels: " + p.Key)
	}
	token, err := c.o.Token.Value()
	if err != nil {
		return nil, cursor, err
	}
	if !c.self.knows(token) {
		if err := before(ctx, methodWhoAmI); err != nil {
			return nil, cursor, err
		}
		if _, err := c.whoAmI(ctx, token); err != nil {
			return nil, cursor, readError(err)
		}
	}
	r := replies{c: c, token: token, thread: thread, after: thread}
	var from after
	if json.Unmarshal(cursor, &from) == nil && tsPattern().MatchString(from.After) {
		r.after = max(thread, from.After) // what is no cursor is none: it is read again from the root
	}
	err = r.read(ctx, before)
	gone := codeOf(err) == "thread_not_found"
	switch {
	case gone && c.told.first(p.Key):
		c.o.Log.Warn("the thread is gone: nothing is read there", "channel", c.o.Name, "thread", thread)
	case err == nil:
		c.told.forget(p.Key)
	}
	messages := r.messages(item)
	if err != nil && !gone {
		if r.inOrder && r.pages > 1 {
			cursor = encodeAfter(r.last)
		}
		return messages, cursor, readError(err)
	}
	return messages, encodeAfter(cmp.Or(r.last, r.after)), nil
}

// find gives the place's channel, thread and work item, as WorkItem does; nil
// when it is in none of the channels. The binding may be gone by now.
func (s *Source) find(p channels.ReadPlace) (of *Channel, thread, item string) {
	for _, c := range s.channels {
		ts, ok := strings.CutPrefix(p.Key, placeKey(c.o.Channel, ""))
		if !ok || !tsPattern().MatchString(ts) {
			continue
		}
		if item, ok := c.WorkItem(c.o.Channel, ts); ok {
			return c, ts, item
		}
		if of == nil && len(p.WorkItems) > 0 {
			of, thread, item = c, ts, p.WorkItems[0]
		}
	}
	return of, thread, item
}

func encodeAfter(ts string) json.RawMessage {
	b, _ := json.Marshal(after{ts}) // cannot fail
	return b
}

// replies is one reading of a thread on its way through the pages.
type replies struct {
	c             *Channel
	token         string
	thread, after string

	raw     []rawMessage
	last    string // the highest ts, "" while there is none
	pages   int
	inOrder bool // each page is later than the one before
}

// read reads page after page.
func (r *replies) read(ctx context.Context, before func(ctx context.Context, method string) error) error {
	r.inOrder = true
	for cursor := ""; ; {
		if err := before(ctx, methodReplies); err != nil {
			return err
		}
		next, err := r.page(ctx, cursor)
		if err != nil {
			return err
		}
		if next == "" {
			return nil
		}
		if next == cursor {
			return &channels.Uncertain{Code: "same_page"}
		}
		cursor = next
	}
}

// page reads one page and gives the cursor of the next, "" after the last.
func (r *replies) page(ctx context.Context, cursor string) (next string, err error) {
	api, one := r.c.api(r.token)
	one.limit = maxPage
	_, _, _, err = api.GetConversationRepliesContext(ctx, &slackapi.GetConversationRepliesParameters{
		ChannelID: r.c.o.Channel, Timestamp: r.thread, Oldest: r.after,
		Cursor: cursor, Limit: pageSize, IncludeAllMetadata: true,
	})
	a, err := one.verdict(err)
	if err != nil {
		return "", err
	}
	var page struct {
		Messages []json.RawMessage `json:"messages"`
	}
	if err := json.Unmarshal(one.exchange.Body, &page); err != nil || page.Messages == nil {
		return "", &channels.Uncertain{Code: "no_messages", Detail: one.exchange.Host}
	}
	r.pages++
	r.take(page.Messages)
	if a.Next.Cursor == "" && a.HasMore {
		return "", &channels.Uncertain{Code: "no_cursor", Detail: one.exchange.Host}
	}
	return a.Next.Cursor, nil
}

// take takes what is new on a page, which the root never is. A message that cannot be read as one costs
// none of the others.
func (r *replies) take(page []json.RawMessage) {
	last := r.last
	for _, b := range page {
		var m rawMessage
		if json.Unmarshal(b, &m) != nil || !tsPattern().MatchString(m.TS) || m.TS <= r.after {
			continue
		}
		if m.TS <= last {
			r.inOrder = false
		}
		r.last = max(r.last, m.TS)
		r.raw = append(r.raw, m)
	}
}

// messages gives what was read, the oldest first.
func (r *replies) messages(item string) (ms []channels.Message) {
	slices.SortFunc(r.raw, func(a, b rawMessage) int { return cmp.Compare(a.TS, b.TS) })
	for _, raw := range r.raw {
		if m, ok := r.c.message(raw, item, r.thread); ok {
			ms = append(ms, m)
		}
	}
	return ms
}

// readError is the error of a reading for what a call ended with.
func readError(err error) error {
	var refusal *channels.Refusal
	if !errors.As(err, &refusal) {
		return fmt.Errorf("read replies in slack: %w", err)
	}
	r := *refusal
	if r.Code == "missing_scope" && r.Detail == "" {
		r.Detail = "needs channels:history, or groups:history in a private channel"
	}
	return &r
}
