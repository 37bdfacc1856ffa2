package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/urfave/cli/v2"

	"the-loop/internal/config"
	"the-loop/internal/term"
	"the-loop/outbox"
	"the-loop/state"
	"the-loop/status"
)

const statusCodes = `

Exit codes:

   0    whatever is behind, what should run does, and the root can be written
   1    an enabled service does not run, or nothing can be written
   2    the config is wrong; what can be said without it is said`

func statusCommand(w world) *cli.Command {
	return &cli.Command{
		Name:        "status",
		Usage:       "say which services run and what is behind",
		Description: example("the-loop status", "the-loop status --format json | jq .channelDelivery") + statusCodes,
		Flags:       []cli.Flag{formatFlag()},
		Action: func(c *cli.Context) error {
			asJSON, err := wantsJSON(c)
			if err != nil {
				return err
			}
			if err := noArguments(c); err != nil {
				return err
			}
			r, bad := statusReport(c, w)
			if bad != nil && r == nil {
				return bad
			}
			if asJSON {
				if err := printJSON(w.stdout, r); err != nil {
					return failed(err)
				}
			} else {
				printStatus(w, *r)
			}
			if bad == nil && !r.OK {
				return &failure{code: exitDidNotHappen}
			}
			return bad
		},
	}
}

// statusReport gives the report. With a config that cannot be used it gives both
// the error and, if the root is known all the same, what can be said of that.
func statusReport(c *cli.Context, w world) (*status.Report, error) {
	d, err := open(c, w)
	if err == nil {
		r := d.report()
		return &r, nil
	}
	var bad *config.Error
	if !errors.As(err, &bad) || bad.Root == "" {
		return nil, err
	}
	root, openErr := state.Open(bad.Root)
	if openErr != nil {
		return nil, err
	}
	r := status.Make(status.Source{
		Root: root, Config: bad.Path, ConfigError: bad.Summary(), Store: outbox.Open(root, outbox.Options{}),
		Services: []status.Service{{Name: "poller"}, {Name: "webhook"}},
	})
	return &r, err
}

func printStatus(w world, r status.Report) {
	now := time.Now()
	row := func(name, format string, args ...any) {
		printf(w.stdout, "%-11s %s\n", name, fmt.Sprintf(format, args...))
	}
	row("root", "%s", term.Clean(r.Root))
	switch {
	case r.ConfigError != "":
		row("config", "%s cannot be used: %s", term.Clean(r.Config), term.Clean(r.ConfigError))
		row("", "what hangs on it is not known before it is mended: the-loop check")
	case r.Config == "":
		row("config", "none; everything goes to a file under the root (the-loop init writes one)")
	default:
		row("config", "%s", term.Clean(r.Config))
	}
	if line := r.Disk.Line(); line != "" {
		row("disk", "%s", term.Clean(line))
	}
	for _, s := range r.Services {
		row(s.Name, "%s", serviceState(now, s, r.ConfigError == ""))
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

// serviceState is one service. Whether it should run only a config can say.
func serviceState(now time.Time, s status.Service, known bool) string {
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
	case !known:
		return "not running"
	}
	return "not enabled"
}
