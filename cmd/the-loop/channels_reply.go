package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/urfave/cli/v2"

	"the-loop/bus"
	"the-loop/channels"
	"the-loop/channels/slack"
	"the-loop/internal/config"
	"the-loop/internal/term"
)

const (
	// replyEvery is how often the thread of a test message is read. A poller that
	// runs beside has its own 40 calls a minute.
	replyEvery = 3 * time.Second
	// replyReadWithin is how long one reading may take.
	replyReadWithin = 10 * time.Second
)

// replyWait reads --reply: how long a reply is waited for, 0 for not at all.
func replyWait(c *cli.Context, routes []bus.Route) (time.Duration, error) {
	if !c.IsSet("reply") {
		return 0, nil
	}
	wait, bad := positive("reply", c.String("reply"))
	if bad != nil {
		return 0, bad
	}
	if len(routes) != 1 {
		return 0, usage("--reply wants one channel").withHint("the-loop channels test NAME --reply 60s")
	}
	if _, ok := routes[0].Channel.(*slack.Channel); !ok {
		return 0, usage("--reply: %s is no Slack channel", routes[0].Channel.Name())
	}
	return wait, nil
}

// replyView is who replied to a test message.
type replyView struct {
	ID   string `json:"id"`
	Name string `json:"name"` // as people has it, "" when they are not listed
	// Socket is "connected" where replies come down a socket.
	Socket string `json:"socket,omitempty"`
}

// testReply waits for a person's reply to the message: the way back works then.
// It is read as the poller reads.
func testReply(
	ctx context.Context, w world, d *deployment, r bus.Route, ref string, wait time.Duration,
) (*replyView, error) {
	conf := d.config.Channels[slices.IndexFunc(d.config.Channels, func(ch config.Channel) bool {
		return ch.Name == r.Channel.Name()
	})]
	room := conf.Room
	printf(w.stderr, "reply to it in its thread within %s\n", term.Span(wait))
	source := slack.NewSource(r.Channel.(*slack.Channel))
	place := channels.ReadPlace{Key: "slack:" + room + ":" + ref, WorkItems: []string{"local:test#1"}}
	m, last, err := awaitReply(ctx, wait, func(ctx context.Context) ([]channels.Message, error) {
		ctx, cancel := context.WithTimeoutCause(ctx, replyReadWithin,
			fmt.Errorf("no answer within %s", term.Span(replyReadWithin)))
		defer cancel()
		came, _, err := source.Read(ctx, place, nil, func(context.Context, string) error { return nil })
		return came, err
	})
	switch {
	case errors.Is(err, errNobody):
		if last != nil {
			printf(w.stderr, "note: the replies cannot be read: %s\n", term.Clean(last.Error()))
		}
		return nil, &failure{code: exitNobody, err: fmt.Errorf("nobody replied within %s", term.Span(wait))}
	case err != nil && last != nil:
		return nil, failed(fmt.Errorf("the replies cannot be read: %s", last.Error())).
			withHint("docs/slack.md lists the scopes")
	case err != nil:
		return nil, failed(err)
	}
	v := d.replier(m)
	if conf.SocketMode() {
		if err := d.connects(ctx, conf, r.Channel.(*slack.Channel)); err != nil {
			err = fmt.Errorf("the reply was read, but the socket that replies and presses come by is not connected: %w", err)
			return v, failed(err).withHint("docs/slack.md says what an app token needs")
		}
		v.Socket = "connected"
	}
	return v, nil
}

// connects opens the socket of the channel's app, and closes it again. What comes
// meanwhile is taken in.
func (d *deployment) connects(ctx context.Context, conf config.Channel, room *slack.Channel) error {
	ctx, cancel := context.WithTimeoutCause(ctx, replyReadWithin,
		fmt.Errorf("no answer within %s", term.Span(replyReadWithin)))
	defer cancel()
	s := slack.NewSocket(slack.SocketOptions{AppToken: conf.AppToken, APIURL: conf.APIURL, Rooms: []*slack.Channel{room}})
	before := s.State()
	p := d.pipeline()
	defer p.Close()
	connected := make(chan struct{}, 1)
	l := &loop{run: func(ctx context.Context) {
		s.Run(ctx, func(ctx context.Context, a channels.Arrival) error { return p.Take(ctx, a.Messages...) }, func() {
			select {
			case connected <- struct{}{}:
			default:
			}
		})
	}}
	l.Start(ctx)
	defer l.Stop()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-connected:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
			if now := s.State(); !now.Connected && now.LastError != before.LastError {
				return errors.New(now.LastError)
			}
		}
	}
}

// awaitReply reads until a person's message came, or fails with errNobody when
// wait is over; what came until then counts. It reads every replyEvery, less
// often when it is told to wait, and ends when we are not let in. last is why
// the last reading failed.
func awaitReply(
	ctx context.Context, wait time.Duration, read func(context.Context) ([]channels.Message, error),
) (m channels.Message, last, err error) {
	until := time.Now().Add(wait)
	var told time.Time
	for over := false; ; {
		if !time.Now().Before(told) {
			var came []channels.Message
			came, last = read(ctx)
			for _, m := range came {
				if m.From.Person {
					return m, nil, nil
				}
			}
			var refused *channels.Refusal
			if errors.As(last, &refused) {
				if refused.Reason == channels.ReasonAuth || refused.Reason == channels.ReasonConfig {
					return m, last, last
				}
				told = time.Now().Add(refused.RetryAfter)
			}
		}
		if over {
			return m, last, errNobody
		}
		rest := time.Until(until)
		over = rest <= replyEvery
		select {
		case <-ctx.Done():
			return m, nil, context.Cause(ctx)
		case <-time.After(min(rest, replyEvery)):
		}
	}
}

func (d *deployment) replier(m channels.Message) *replyView {
	v := &replyView{ID: m.From.ID}
	for _, p := range d.config.People {
		if p.Slack == v.ID {
			v.Name = firstOf(p.Name, p.Slack)
			break
		}
	}
	return v
}

// printReply says who replied, and the line of `people` that lets them answer.
func printReply(w world, v replyView, works bool) {
	switch {
	case !works:
		printf(w.stdout, "  reply from %s\n", term.Clean(v.ID))
	case v.Socket != "":
		printf(w.stdout, "  reply from %s, and the socket is connected: the way back works\n", term.Clean(v.ID))
	default:
		printf(w.stdout, "  reply from %s: the way back works\n", term.Clean(v.ID))
	}
	if v.Name != "" {
		printf(w.stdout, "  listed in people as %s\n", term.Clean(v.Name))
		return
	}
	printf(w.stdout, "  not in people yet; to let them answer, add: - {name: \"…\", slack: %s}\n", term.Clean(v.ID))
}
