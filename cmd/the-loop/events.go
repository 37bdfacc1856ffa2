package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"the-loop/channels"
	"the-loop/internal/config"
	"the-loop/internal/eventlog"
	"the-loop/internal/term"
)

func eventsCommand(w world) *cli.Command {
	return &cli.Command{
		Name:  "events",
		Usage: "print the event log: what was delivered, refused and kept",
		Description: example(
			"the-loop events --since 12h --type channel.*",
			"the-loop events --follow --format json",
		),
		Flags: []cli.Flag{
			switchFlag("follow", "go on printing what is added, until interrupted", "f"),
			&cli.StringFlag{Name: "since", Usage: "only of the last `DURATION`, such as 12h or 7d"},
			&cli.StringFlag{Name: "type", Usage: "only of this `TYPE`: channel.undelivered, job.*, …"},
			formatFlag(),
		},
		Action: withDeployment(w, events),
	}
}

func events(c *cli.Context, w world, d *deployment) error {
	asJSON, err := wantsJSON(c)
	if err != nil {
		return err
	}
	if err := noArguments(c); err != nil {
		return err
	}
	keep, err := eventFilter(c)
	if err != nil {
		return err
	}
	p := &eventPrinter{w: w, asJSON: asJSON, keep: keep}
	if c.Bool("follow") {
		err = eventlog.Follow(c.Context, d.root, p.print)
	} else {
		err = eventlog.Read(d.root, p.print)
	}
	if err != nil {
		return failed(err)
	}
	return nil
}

// eventFilter makes a filter out of --since and --type. A type is looked for
// among the log's own events and among the types of what was published.
func eventFilter(c *cli.Context) (func(eventlog.Line) bool, error) {
	var from time.Time
	if s := c.String("since"); s != "" {
		d, err := config.ParseDuration(s)
		if err != nil || d < 0 {
			return nil, usage("--since %q: want a duration such as 12h or 7d", s)
		}
		from = time.Now().Add(-d)
	}
	pattern := channels.Pattern("*")
	if s := c.String("type"); s != "" {
		var err error
		if pattern, _, err = channels.ParsePattern(s); err != nil {
			return nil, usage("--type %q: want an event type, a prefix such as channel.*, or *", s)
		}
	}
	return func(l eventlog.Line) bool {
		return !l.At.Before(from) && (pattern.Match(l.Event) || pattern.Match(l.EventType))
	}, nil
}

type eventPrinter struct {
	w      world
	asJSON bool
	keep   func(eventlog.Line) bool
}

func (p *eventPrinter) print(l eventlog.Line) bool {
	if !p.keep(l) {
		return true
	}
	if p.asJSON {
		b, err := json.Marshal(l)
		if err != nil {
			return true
		}
		_, err = fmt.Fprintf(p.w.stdout, "%s\n", b)
		return err == nil
	}
	var more []string
	add := func(key, value string) {
		if value != "" {
			more = append(more, key+"="+value)
		}
	}
	add("type", l.EventType)
	add("about", l.WorkItem)
	add("channel", l.Channel)
	add("channels", strings.Join(l.Channels, ","))
	if l.ChannelsPosted != nil {
		add("channels_posted", fmt.Sprint(*l.ChannelsPosted))
	}
	add("reason", l.Reason)
	add("code", l.Code)
	add("error", l.Error)
	if l.Attempts > 0 {
		add("attempts", fmt.Sprint(l.Attempts))
	}
	if l.WaitedSeconds > 0 {
		add("waited", term.Span(time.Duration(l.WaitedSeconds)*time.Second))
	}
	add("sent_again_as", l.ResentAs)
	add("service", l.Service)
	add("file", l.File)
	_, err := fmt.Fprintf(p.w.stdout, "%s\n", term.Clean(strings.TrimRight(fmt.Sprintf("%s  %-7s  %-24s  %-26s  %s",
		l.At.Local().Format(time.DateTime), l.Level, l.Event, l.EntryID, strings.Join(more, " ")), " ")))
	return err == nil
}
