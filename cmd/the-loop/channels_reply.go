package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/urfave/cli/v2"

	"the-loop/bus"
	"the-loop/channels"
	"the-loop/channels/slack"
	"the-loop/internal/term"
)

// replyEvery is how often the thread of a test message is read.
const replyEvery = 2 * time.Second

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

// testReply waits for a person's reply to the message and says who it was: the
// way back works then. It is read as the poller reads.
func testReply(ctx context.Context, w world, d *deployment, r bus.Route, ref string, wait time.Duration) error {
	room := ""
	for _, ch := range d.config.Channels {
		if ch.Name == r.Channel.Name() {
			room = ch.Room
		}
	}
	printf(w.stderr, "reply to it in its thread within %s\n", term.Span(wait))
	source := slack.NewSource(r.Channel.(*slack.Channel))
	place := channels.ReadPlace{Key: "slack:" + room + ":" + ref, WorkItems: []string{"local:test#1"}}
	ctx, cancel := context.WithTimeoutCause(ctx, wait, errNobody)
	defer cancel()
	tick := time.NewTicker(min(replyEvery, max(wait/10, time.Millisecond)))
	defer tick.Stop()
	for {
		came, _, err := source.Read(ctx, place, nil, func(context.Context, string) error { return nil })
		for _, m := range came {
			if m.From.Person {
				printReply(w, d, m)
				return nil
			}
		}
		var refused *channels.Refusal
		if errors.As(err, &refused) && (refused.Reason == channels.ReasonAuth || refused.Reason == channels.ReasonConfig) {
			return failed(fmt.Errorf("the replies cannot be read: %s %s", refused.Code, refused.Detail)).
				withHint("docs/slack.md lists the scopes")
		}
		select {
		case <-ctx.Done():
			if errors.Is(context.Cause(ctx), errNobody) {
				return &failure{code: exitNobody, err: fmt.Errorf("nobody replied within %s", term.Span(wait))}
			}
			return failed(context.Cause(ctx))
		case <-tick.C:
		}
	}
}

// printReply says who replied, and the line of `people` that lets them answer.
func printReply(w world, d *deployment, m channels.Message) {
	printf(w.stdout, "  reply from %s: the way back works\n", term.Clean(m.From.ID))
	for _, p := range d.config.People {
		if p.Slack == m.From.ID {
			printf(w.stdout, "  listed in people as %s\n", term.Clean(firstOf(p.Name, p.Slack)))
			return
		}
	}
	printf(w.stdout, "  not in people yet; to let them answer, add: - {name: \"…\", slack: %s}\n", term.Clean(m.From.ID))
}
