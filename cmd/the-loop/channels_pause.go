package main

import (
	"fmt"
	"time"

	"github.com/urfave/cli/v2"

	"the-loop/internal/config"
	"the-loop/internal/term"
)

func pauseCommand(w world) *cli.Command {
	return &cli.Command{
		Name: "pause", Usage: "ask nothing of a channel for a while", ArgsUsage: "NAME",
		Description: example("the-loop channels pause slack --until 07:00", "the-loop channels pause slack --until 8h"),
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "until", Usage: "end it at this `TIME`: 07:00, or 8h from now"},
			formatFlag(),
		},
		Action: withDeployment(w, channelsPause),
	}
}

func resumeCommand(w world) *cli.Command {
	return &cli.Command{
		Name: "resume", Usage: "end a channel's pause", ArgsUsage: "NAME",
		Description: example("the-loop channels resume slack"),
		Flags:       []cli.Flag{formatFlag()},
		Action:      withDeployment(w, channelsResume),
	}
}

// oneChannel gives the name of the one channel that was named.
func (d *deployment) oneChannel(c *cli.Context) (string, error) {
	if c.NArg() != 1 {
		return "", usage("%s wants one channel's name", c.Command.Name).withHint("the-loop channels list")
	}
	routes, err := d.named(c.Args().Slice())
	if err != nil {
		return "", err
	}
	return routes[0].Channel.Name(), nil
}

func channelsPause(c *cli.Context, w world, d *deployment) error {
	asJSON, err := wantsJSON(c)
	if err != nil {
		return err
	}
	name, err := d.oneChannel(c)
	if err != nil {
		return err
	}
	var until time.Time
	if c.IsSet("until") {
		if until, err = pauseEnd(c.String("until"), time.Now()); err != nil {
			return err
		}
	}
	if err := d.store.Pause(c.Context, name, until); err != nil {
		return failed(err)
	}
	_ = d.log.Paused(c.Context, name)
	if asJSON {
		return printJSON(w.stdout, pauseView{name, true, zeroAsNil(until)})
	}
	end := "; the-loop channels resume " + name + " ends it"
	if !until.IsZero() {
		end = " until " + until.Local().Format("2006-01-02 15:04")
	}
	printf(w.stdout, "%s is paused%s\n", term.Clean(name), term.Clean(end))
	return nil
}

// pauseEnd reads when a pause ends: a duration from now, or the next time that
// the clock shows 07:00.
func pauseEnd(s string, now time.Time) (time.Time, error) {
	if d, err := config.ParseDuration(s); err == nil && d > 0 {
		return now.Add(d), nil
	}
	clock, err := time.Parse("15:04", s)
	if err != nil {
		return time.Time{}, usage("--until %q: want a time of day like 07:00, or a duration like 8h", s)
	}
	end := time.Date(now.Year(), now.Month(), now.Day(), clock.Hour(), clock.Minute(), 0, 0, now.Location())
	if !end.After(now) {
		end = end.AddDate(0, 0, 1)
	}
	return end, nil
}

// pauseView is what pause and resume print as JSON. Until is null for a pause
// without an end.
type pauseView struct {
	Channel string     `json:"channel"`
	Paused  bool       `json:"paused"`
	Until   *time.Time `json:"until"`
}

func zeroAsNil(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

func channelsResume(c *cli.Context, w world, d *deployment) error {
	asJSON, err := wantsJSON(c)
	if err != nil {
		return err
	}
	name, err := d.oneChannel(c)
	if err != nil {
		return err
	}
	was, err := d.store.Resume(c.Context, name)
	if err != nil {
		return failed(err)
	}
	if !was {
		return failed(fmt.Errorf("%s was not paused", name))
	}
	_ = d.log.Resumed(c.Context, name)
	if asJSON {
		return printJSON(w.stdout, pauseView{name, false, nil})
	}
	printf(w.stdout, "%s is asked again\n", term.Clean(name))
	return nil
}
