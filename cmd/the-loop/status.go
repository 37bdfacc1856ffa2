package main

import (
	"fmt"
	"time"

	"github.com/urfave/cli/v2"

	"the-loop/internal/term"
	"the-loop/status"
)

func statusCommand(w world) *cli.Command {
	return &cli.Command{
		Name:        "status",
		Usage:       "say which services run and what is behind",
		Description: example("the-loop status", "the-loop status --format json | jq .channelDelivery"),
		Flags:       []cli.Flag{formatFlag()},
		Action: func(c *cli.Context) error {
			asJSON, err := wantsJSON(c)
			if err != nil {
				return err
			}
			if err := noArguments(c); err != nil {
				return err
			}
			d, err := open(c, w)
			if err != nil {
				return err
			}
			r := d.report()
			if asJSON {
				if err := printJSON(w.stdout, r); err != nil {
					return failed(err)
				}
			} else {
				printStatus(w, r)
			}
			if !r.OK {
				return &failure{code: exitDidNotHappen}
			}
			return nil
		},
	}
}

func printStatus(w world, r status.Report) {
	now := time.Now()
	row := func(name, format string, args ...any) {
		printf(w.stdout, "%-11s %s\n", name, fmt.Sprintf(format, args...))
	}
	row("root", "%s", term.Clean(r.Root))
	if r.Config == "" {
		row("config", "none; everything goes to a file under the root (the-loop init writes one)")
	} else {
		row("config", "%s", term.Clean(r.Config))
	}
	for _, s := range r.Services {
		row(s.Name, "%s", serviceState(now, s))
	}
	d := r.ChannelDelivery
	if line := d.Line(now); line != "" {
		row("channels", "%s", line)
	}
	switch {
	case d.NeedsPerson == 1:
		row("", "1 of them needs a person: the-loop outbox list")
	case d.NeedsPerson > 1:
		row("", "%d of them need a person: the-loop outbox list", d.NeedsPerson)
	}
	if d.Damaged {
		row("damaged", "channels/undelivered.json cannot be read; the next publish or drain sets it aside")
	}
	if d.BadEntries > 0 {
		row("damaged", "%s of channels/undelivered.json cannot be read; the next drain sets that aside",
			counted(d.BadEntries, "entry", "entries"))
	}
	for _, name := range r.SetAside {
		row("set aside", "%s was damaged; look at it, then remove it", term.Clean(name))
	}
	if r.Evicted > 0 {
		row("evicted", "%s in the last 30 days: the-loop outbox list --evicted", counted(r.Evicted, "event", "events"))
	}
	for _, name := range r.Missing {
		row("missing", "%s", term.Clean(name))
	}
	for _, s := range r.Services {
		if s.Running && s.Heartbeat != nil {
			for _, name := range s.Heartbeat.Missing {
				row("missing", "%s, in the %s's environment", term.Clean(name), s.Name)
			}
		}
	}
	for _, s := range r.Services {
		if s.Running && s.Heartbeat != nil {
			for _, line := range s.Heartbeat.Inbound.Troubles(now) {
				row("replies", "%s", term.Clean(line))
			}
		}
	}
	for _, what := range r.Unreadable {
		row("unreadable", "%s", term.Clean(what))
	}
}

func serviceState(now time.Time, s status.Service) string {
	switch {
	case s.Running && s.Heartbeat != nil && s.Heartbeat.LastError != "":
		return fmt.Sprintf("running (%s), and its last cycle failed: %s",
			term.Clean(s.Process), term.Clean(s.Heartbeat.LastError))
	case s.Running && s.Heartbeat != nil && !s.Heartbeat.LastCycleAt.IsZero():
		return fmt.Sprintf("running (%s), last cycle %s", term.Clean(s.Process), term.Ago(now, s.Heartbeat.LastCycleAt))
	case s.Running:
		return fmt.Sprintf("running (%s)", term.Clean(s.Process))
	case s.Enabled:
		return "not running: the-loop " + s.Name
	}
	return "not enabled"
}
