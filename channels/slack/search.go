package slack

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	slackapi "github.com/slack-go/slack"

	"the-loop/channels"
)

// search is one look-up on its way through the pages.
type search struct {
	c      *Channel
	token  string
	me     author
	id     string
	oldest time.Time

	refs  map[int]string // by part, from 1
	parts int            // how many there are, by the metadata; 0: not known

	pages   int
	cut     bool // something was left unread
	gone    bool // a thread was not there
	limited bool // the plan hides older messages

	bare     bool // a message of ours came without metadata
	stripped bool // or with our event type and no id
	readable bool // a message of ours came with metadata
}

// run reads until all parts are found or everything is read.
func (l *search) run(ctx context.Context, roots []string) error {
	for _, root := range roots {
		if err := l.replies(ctx, root); err != nil || l.whole() {
			return err
		}
	}
	before := len(l.found())
	if err := l.history(ctx); err != nil || l.whole() || len(l.found()) == before {
		return err
	}
	return l.replies(ctx, l.refs[before+1]) // what is in the room may be a thread's root
}

func (l *search) history(ctx context.Context) error {
	return l.read(ctx, func(api *slackapi.Client, cursor string) error {
		_, err := api.GetConversationHistoryContext(ctx, &slackapi.GetConversationHistoryParameters{
			ChannelID: l.c.o.Channel, Oldest: timestamp(l.oldest), Inclusive: true,
			Cursor: cursor, Limit: pageSize, IncludeAllMetadata: true,
		})
		return err
	})
}

func (l *search) replies(ctx context.Context, root string) error {
	err := l.read(ctx, func(api *slackapi.Client, cursor string) error {
		_, _, _, err := api.GetConversationRepliesContext(ctx, &slackapi.GetConversationRepliesParameters{
			ChannelID: l.c.o.Channel, Timestamp: root, Oldest: timestamp(l.oldest), Inclusive: true,
			Cursor: cursor, Limit: pageSize, IncludeAllMetadata: true,
		})
		return err
	})
	var refusal *channels.Refusal
	if errors.As(err, &refusal) && refusal.Code == "thread_not_found" {
		l.gone = true
		return nil
	}
	return err
}

// read reads page after page until there is no further one or all parts are
// found.
func (l *search) read(ctx context.Context, fetch func(api *slackapi.Client, cursor string) error) error {
	for cursor := ""; ; {
		if l.pages == maxPages {
			l.cut = true
			return nil
		}
		a, err := l.page(ctx, func(api *slackapi.Client) error { return fetch(api, cursor) })
		if err != nil {
			return err
		}
		for _, m := range a.Messages {
			l.see(m)
		}
		l.limited = l.limited || a.IsLimited
		cursor = a.Next.Cursor
		if cursor == "" {
			l.cut = l.cut || a.HasMore
			return nil
		}
		if l.whole() {
			return nil
		}
	}
}

// page makes one call and checks that what came is a page, and that Slack's
// clock is not so far behind ours that the message may lie before it begins.
func (l *search) page(ctx context.Context, fetch func(api *slackapi.Client) error) (answer, error) {
	if err := ctx.Err(); err != nil {
		return answer{}, err
	}
	l.pages++
	api, one := l.c.api(l.token)
	one.limit = maxPage
	a, err := one.verdict(fetch(api))
	switch {
	case err != nil:
		return answer{}, err
	case a.Messages == nil:
		return answer{}, &channels.Uncertain{Code: "no_messages", Detail: one.exchange.Host}
	}
	if there, err := http.ParseTime(one.exchange.Header.Get("Date")); err == nil && time.Since(there) > lookBack {
		return answer{}, errors.New("our clock is ahead of Slack's by more than " + lookBack.String())
	}
	return a, nil
}

// see takes note of one message.
func (l *search) see(m message) {
	if !l.me.wrote(m) {
		return
	}
	var meta struct {
		EventType string          `json:"event_type"`
		Payload   json.RawMessage `json:"event_payload"`
	}
	_ = json.Unmarshal(m.Metadata, &meta) // what is no metadata is none
	var p struct {
		ID    string `json:"id"`
		Part  int    `json:"part"`
		Parts int    `json:"parts"`
	}
	ours := json.Unmarshal(meta.Payload, &p) == nil && p.ID != "" && p.Part > 0
	switch {
	case meta.EventType == "":
		l.bare = true
		return
	case meta.EventType != EventType:
		return
	case !ours:
		l.stripped = true
		return
	}
	l.readable = true
	if p.ID != l.id || before(m.TS, l.oldest) {
		return
	}
	l.parts = max(l.parts, p.Parts)
	if l.refs[p.Part] == "" {
		l.refs[p.Part] = m.TS
	}
}

// found gives the parts from the first to the last before one is missing.
func (l *search) found() (refs []string) {
	for l.refs[len(refs)+1] != "" {
		refs = append(refs, l.refs[len(refs)+1])
	}
	return refs
}

func (l *search) whole() bool { return l.parts > 0 && len(l.found()) >= l.parts }

// unjudgeable says why not having seen a part tells nothing, and will not next
// time: a *channels.Refusal; or why that could not be found out.
func (l *search) unjudgeable(ctx context.Context) error {
	switch {
	case l.stripped, l.bare && !l.readable:
		return &channels.Refusal{
			Reason: channels.ReasonAuth, Code: "no_metadata",
			Detail: "our own messages come without their metadata: it may need metadata.message:read",
		}
	case l.gone:
		return &channels.Refusal{
			Reason: channels.ReasonConfig, Code: "thread_not_found", Detail: "the thread it belongs to is gone",
		}
	case l.limited:
		return l.reachesBack(ctx)
	}
	return nil
}

// reachesBack looks at a workspace that hides old messages for one that is
// shown and older than all that were read: then those are hidden that are
// older still. Without one, what was searched for may be hidden too.
func (l *search) reachesBack(ctx context.Context) error {
	a, err := l.page(ctx, func(api *slackapi.Client) error {
		_, err := api.GetConversationHistoryContext(ctx, &slackapi.GetConversationHistoryParameters{
			ChannelID: l.c.o.Channel, Latest: timestamp(l.oldest), Limit: 1,
		})
		return err
	})
	if err == nil && len(a.Messages) == 0 {
		err = tooOld()
	}
	return err
}

func tooOld() error {
	return &channels.Refusal{
		Reason: channels.ReasonConfig, Code: "too_old", Detail: "the workspace may no longer show messages of that time",
	}
}

// lookError gives the error of a look-up for what a call ended with. Only
// Slack itself can say that it will never tell: a page in between cannot.
func lookError(err error) error {
	var refusal *channels.Refusal
	if !errors.As(err, &refusal) {
		return fmt.Errorf("look up in slack: %w", err)
	}
	r := *refusal
	switch {
	case strings.HasPrefix(r.Code, "http_") && r.Reason != channels.ReasonRate:
		r.Reason = channels.ReasonOther
	case r.Code == "missing_scope" && r.Detail == "":
		r.Detail = "needs channels:history, or groups:history in a private channel"
	}
	return &r
}

// author is who a token posts as.
type author struct{ bot, user string }

// wrote reports whether m is a message that we posted. What Slack says in our
// name ("has joined the channel") has a subtype.
func (a author) wrote(m message) bool {
	switch m.Subtype {
	case "", "bot_message", "thread_broadcast":
	default:
		return false
	}
	if a.bot != "" {
		return m.BotID == a.bot
	}
	return m.User == a.user
}

// self remembers who the token last used posts as.
type self struct {
	mu     sync.Mutex
	token  string
	author author
}

// known gives who the token last used posts as, nothing when nobody has asked.
func (s *self) known() author {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.author
}

// knows reports whether it has been asked for this token.
func (s *self) knows(token string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.token == token && s.author != author{}
}

// whoAmI asks Slack, once for each token, who it posts as.
func (c *Channel) whoAmI(ctx context.Context, token string) (author, error) {
	c.self.mu.Lock()
	known, me := c.self.token == token, c.self.author
	c.self.mu.Unlock()
	if known {
		return me, nil
	}
	api, one := c.api(token)
	_, err := api.AuthTestContext(ctx)
	a, err := one.verdict(err)
	if err != nil {
		return author{}, err
	}
	me = author{bot: a.BotID, user: a.UserID}
	if me == (author{}) {
		return author{}, &channels.Uncertain{Code: "no_author", Detail: one.exchange.Host}
	}
	c.self.mu.Lock()
	defer c.self.mu.Unlock()
	c.self.token, c.self.author = token, me
	return me, nil
}

// timestamp writes t as Slack writes a ts.
func timestamp(t time.Time) string { return fmt.Sprintf("%d.%06d", t.Unix(), t.Nanosecond()/1000) }

// before reports whether ts is before t. Both are written alike since 2001.
func before(ts string, t time.Time) bool { return ts < timestamp(t) }
