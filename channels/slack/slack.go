// Package slack is the channel kind that posts into a Slack conversation with
// a bot token: one thread per work item, long texts split into parts, what it
// did not write itself shown as literal text.
package slack

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"time"

	slackapi "github.com/slack-go/slack"

	"the-loop/channels"
	"the-loop/channels/internal/wire"
	"the-loop/internal/lazy"
	"the-loop/state"
)

// DefaultAPIURL is Slack's own address.
const DefaultAPIURL = slackapi.APIURL

// EventType is the event_type of the metadata that every message carries. Its
// payload is {"id": the event's id, "part": from 1, "parts": how many}; that of
// a question's first part has its "code" too, and a "state", open or closed.
const EventType = "the_loop_event"

const (
	// gap is the pace within one delivery. Slack takes one message a second
	// per conversation, and promises nothing for bursts.
	gap = 1100 * time.Millisecond
	// partTime is what a part needs of the context's time, beyond the gap: a
	// part that is cut off in flight would be uncertain, one that waits for
	// the next attempt is not.
	partTime = 2 * time.Second
)

// Options says where to post and how.
type Options struct {
	Name    string          // the channel's name in the config
	Channel string          // the conversation's id, such as "C0123456"
	Token   channels.Secret // the bot token; read anew at every Post
	// APIURL is where the methods are. Defaults to DefaultAPIURL; a trailing
	// slash is added when it is missing.
	APIURL string
	// Verbosity is how much of an event is shown. Defaults to channels.Normal.
	Verbosity channels.Verbosity
	// Mention is put in front of every event as it is, in Slack's markup:
	// "<!here>", "<@U012ABCDEF>". It is the only text that is not escaped, and
	// comes from the operator.
	Mention string
	// Root keeps which thread belongs to which work item, in
	// channels/<name>.json. With nil nothing is kept, and every event stands
	// in the room by itself.
	Root *state.Root
	// Client sends the requests. Defaults to wire.NewClient().
	Client *http.Client
	// Log hears of bindings that could not be kept. nil discards.
	Log *slog.Logger
}

// Channel posts into one conversation.
type Channel struct {
	o       Options
	threads *threads      // nil: no bindings are kept
	gap     time.Duration // between the parts of one delivery
	self    self
	bound   bound // what threads held when it was last read
	told    told
}

// New gives the channel. It reads and sends nothing.
func New(o Options) *Channel {
	if o.APIURL == "" {
		o.APIURL = DefaultAPIURL
	}
	if !strings.HasSuffix(o.APIURL, "/") {
		o.APIURL += "/"
	}
	if o.Verbosity == "" {
		o.Verbosity = channels.Normal
	}
	if o.Client == nil {
		o.Client = wire.NewClient()
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	c := &Channel{o: o, gap: gap}
	if o.Root != nil {
		c.threads = &threads{o.Root.Document(state.Binding(o.Name)), o.Channel}
	}
	return c
}

// Name implements channels.Channel.
func (c *Channel) Name() string { return c.o.Name }

// Credential implements channels.Credentialed.
func (c *Channel) Credential() string {
	token, _ := c.o.Token.Value()
	return strings.Join([]string{token, c.o.APIURL, c.o.Channel}, "\x00")
}

// Post implements channels.Channel.
//
// A text that needs several messages goes out at Slack's pace, all of it in
// one thread. When ctx leaves no time for the next part, Post ends with a
// refusal of ReasonRate and the code "more_parts"; the receipt lists the parts
// that are there. The same goes for a rate limit between two parts that is
// too long to be waited out.
func (c *Channel) Post(ctx context.Context, d channels.Delivery) (channels.Receipt, error) {
	refs := slices.Clone(d.Parts)
	stop := func(err error) (channels.Receipt, error) {
		return channels.Receipt{Ref: first(refs), Parts: refs}, err
	}
	token, err := c.o.Token.Value()
	if err != nil {
		return stop(err)
	}
	ending, state := hintOf(d.Event), stateOpen
	if d.Ended != "" {
		ending, state = endingOf(d.Ended), stateClosed
	}
	texts := c.render(d, time.Now(), ending)
	thread, err := c.openThread(ctx, d)
	if err != nil {
		return stop(err)
	}
	defer thread.close(ctx)
	for n := len(refs); n < len(texts); n++ {
		p := partOf(d.Event, texts, n, state)
		if err := c.postPart(ctx, token, thread, p, n > len(d.Parts)); err != nil {
			return stop(err)
		}
		refs = append(refs, thread.last)
		if n == len(texts)-1 || d.OnPart == nil {
			continue
		}
		if err := d.OnPart(thread.last); err != nil {
			return stop(&channels.Uncertain{Code: "part_not_recorded", Err: err})
		}
	}
	if len(refs) == 1 {
		return channels.Receipt{Ref: refs[0]}, nil
	}
	return stop(nil)
}

func first(refs []string) string {
	if len(refs) == 0 {
		return ""
	}
	return refs[0]
}

// part is one message of a delivery.
type part struct {
	text   string
	meta   map[string]any
	blocks []slackapi.Block // none in most
}

// partOf gives part n of the event's texts, from 0. The first part of a
// question carries its code and its state; the last one the buttons, while it
// is open.
func partOf(e channels.Event, texts []string, n int, questionState string) part {
	p := part{text: texts[n], meta: map[string]any{"id": e.ID, "part": n + 1, "parts": len(texts)}}
	asked, ok := channels.AskedOf(e)
	if !ok {
		return p
	}
	if n == 0 {
		p.meta["code"], p.meta["state"] = asked.Code, questionState
	}
	if n == len(texts)-1 && questionState == stateOpen {
		p.blocks = withButtons(texts[n], e.ID, asked)
	}
	return p
}

// options are what every way of putting p into the room has in common.
func (p part) options() []slackapi.MsgOption {
	options := []slackapi.MsgOption{
		slackapi.MsgOptionText(p.text, false), // escaped by render
		slackapi.MsgOptionDisableLinkUnfurl(),
		slackapi.MsgOptionDisableMediaUnfurl(),
		slackapi.MsgOptionLinkNames(false),
		slackapi.MsgOptionParse(false),
	}
	if p.meta != nil {
		meta := slackapi.SlackMetadata{EventType: EventType, EventPayload: p.meta}
		options = append(options, slackapi.MsgOptionMetadata(meta))
	}
	if len(p.blocks) > 0 {
		options = append(options, slackapi.MsgOptionBlocks(p.blocks...))
	}
	return options
}

// postPart posts p into the thread. A part that follows another one keeps
// Slack's pace, and waits once when it is told to.
func (c *Channel) postPart(ctx context.Context, token string, thread *thread, p part, follows bool) error {
	if follows && !pause(ctx, c.gap) {
		return &channels.Refusal{Reason: channels.ReasonRate, Code: "more_parts", RetryAfter: c.gap}
	}
	a, err := c.send(ctx, token, c.o.Channel, thread.root, p)
	var refusal *channels.Refusal
	if follows && errors.As(err, &refusal) && refusal.Reason == channels.ReasonRate &&
		pause(ctx, max(refusal.RetryAfter, c.gap)) {
		a, err = c.send(ctx, token, c.o.Channel, thread.root, p)
	}
	if err != nil {
		thread.failed(ctx, err)
		return err
	}
	thread.accepted(ctx, a)
	return nil
}

// pause waits for d, unless ctx would then leave too little time to post.
func pause(ctx context.Context, d time.Duration) bool {
	if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) < d+partTime {
		return false
	}
	return sleep(ctx, d)
}

var tsPattern = lazy.Regexp(`^[0-9]{1,20}\.[0-9]{1,10}$`)

// send posts one message, as a reply when root is set.
func (c *Channel) send(ctx context.Context, token, room, root string, p part) (answer, error) {
	options := p.options()
	if root != "" {
		options = append(options, slackapi.MsgOptionTS(root))
	}
	api, call := c.api(token)
	_, _, err := api.PostMessageContext(ctx, room, options...)
	a, err := call.verdict(err)
	if err == nil && !tsPattern().MatchString(a.TS) {
		err = &channels.Uncertain{Code: "no_ts"}
	}
	return a, err
}

// api gives slack-go's client for one call.
func (c *Channel) api(token string) (*slackapi.Client, *call) {
	one := &call{client: c.o.Client}
	return slackapi.New(token, slackapi.OptionHTTPClient(one), slackapi.OptionAPIURL(c.o.APIURL)), one
}

// ReadBack implements channels.Reader. The bot needs the scope channels:history
// (groups:history in a private channel) for it, which posting does not; the
// *channels.Refusal says so when it has not.
func (c *Channel) ReadBack(ctx context.Context, r channels.Receipt) error {
	token, err := c.o.Token.Value()
	if err != nil {
		return err
	}
	api, one := c.api(token)
	_, err = api.GetConversationHistoryContext(ctx, &slackapi.GetConversationHistoryParameters{
		ChannelID: c.o.Channel, Latest: r.Ref, Oldest: r.Ref, Inclusive: true, Limit: 1,
	})
	if found, err := one.found(err, r.Ref); found || err != nil {
		return err
	}
	// The history has no replies. Asked for a reply, this method gives it alone.
	api, one = c.api(token)
	_, _, _, err = api.GetConversationRepliesContext(ctx, &slackapi.GetConversationRepliesParameters{
		ChannelID: c.o.Channel, Timestamp: r.Ref, Latest: r.Ref, Oldest: r.Ref, Inclusive: true, Limit: 1,
	})
	found, err := one.found(err, r.Ref)
	if err == nil && !found {
		err = fmt.Errorf("message %s is not in the room", r.Ref)
	}
	return err
}

func (c *call) found(err error, ts string) (bool, error) {
	a, err := c.verdict(err)
	for _, m := range a.Messages {
		if m.TS == ts {
			return true, nil
		}
	}
	return false, err
}
