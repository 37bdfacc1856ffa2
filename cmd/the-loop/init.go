package main

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/urfave/cli/v2"

	"the-loop/internal/config"
	"the-loop/internal/term"
)

func initCommand(w world) *cli.Command {
	return &cli.Command{
		Name:      "init",
		Usage:     "write a commented config and make the root; never overwrites",
		ArgsUsage: "[ROOM]",
		Description: example(
			"the-loop init",
			"the-loop init --here --webhook https://ops.example/hook",
			"the-loop init --slack C0123456",
		),
		Flags: []cli.Flag{
			switchFlag("here", "in .the-loop of this folder, not in the user's place"),
			&cli.StringFlag{Name: "webhook", Usage: "begin with a webhook channel that posts to `URL`"},
			newRoomFlag("slack", "begin with Slack in ROOM, and print the app to make"),
		},
		Action: func(c *cli.Context) error { return initialize(c, w) },
	}
}

func initialize(c *cli.Context, w world) error {
	slack, rooms := slackRooms(c)
	content, err := initialConfig(c, slack, rooms)
	if err != nil {
		return err
	}
	path, err := initPath(c, w)
	if err != nil {
		return err
	}
	if err := writeNew(path, content); errors.Is(err, fs.ErrExist) {
		f := failed(errors.New(path + " is already there, and is left as it is"))
		if slack {
			return f.withHint("the-loop channels manifest slack prints the app, and what to add to the config")
		}
		return f
	} else if err != nil {
		return failed(err)
	}
	ignore := filepath.Join(filepath.Dir(path), ".gitignore")
	if err := writeNew(ignore, []byte(gitignore())); err != nil && !errors.Is(err, fs.ErrExist) {
		return failed(err)
	}
	cfg, _, err := config.Load(path, w.getenv)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(cfg.Root, 0o700); err != nil {
		return failed(err)
	}
	printf(w.stdout, "wrote %s\n", term.Clean(path))
	if !slack {
		printf(w.stdout, "next: edit it, then the-loop check, then the-loop channels test\n")
		return nil
	}
	printf(w.stdout, "\nThe Slack app to make:\n\n")
	if err := writeManifest(w.stdout, ""); err != nil {
		return failed(err)
	}
	printf(w.stdout, "\n%s", manifestSteps(""))
	if len(rooms) == 0 {
		printf(w.stdout, "   Put it in the place of C0123456 in the config.\n")
	}
	printf(w.stdout, "\n%s", manifestNext(""))
	return nil
}

// initialConfig gives what the flags ask for.
func initialConfig(c *cli.Context, slack bool, rooms []string) ([]byte, error) {
	if slack {
		switch {
		case c.IsSet("webhook"):
			return nil, usage("--slack and --webhook: choose one to begin with; the other can be added to the config")
		case len(rooms) > 1:
			return nil, usage("--slack wants one room, and got %d", len(rooms))
		case len(rooms) == 0:
			return config.SlackTemplate(""), nil
		}
		if err := config.CheckRoom(rooms[0]); err != nil {
			return nil, usage("--slack %w", err)
		}
		return config.SlackTemplate(rooms[0]), nil
	}
	address := c.String("webhook")
	if err := noArguments(c); err != nil {
		return nil, err
	}
	if c.IsSet("webhook") {
		if err := config.CheckURL(address); err != nil {
			return nil, usage("--webhook %w", err)
		}
	}
	return config.Template(address), nil
}

func initPath(c *cli.Context, w world) (string, error) {
	if explicit := common(c, "config"); explicit != "" {
		return filepath.Abs(explicit)
	}
	if !c.Bool("here") {
		return config.UserPath(w.getenv)
	}
	wd, err := os.Getwd()
	return filepath.Join(wd, ".the-loop", "config.yaml"), err
}

// writeNew writes a file that is not there yet, for us alone.
func writeNew(path string, content []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	if _, err := f.Write(content); err != nil {
		_ = f.Close()
		return err
	}
	return f.Close()
}

// roomFlag is a switch that may have a room: --slack, --slack=ROOM. The room may
// be an argument too, and then it is no part of the flag.
type roomFlag struct{ *cli.GenericFlag }

func newRoomFlag(name, use string) cli.Flag {
	return roomFlag{&cli.GenericFlag{Name: name, Usage: use, Value: &roomValue{}}}
}

func (f roomFlag) TakesValue() bool { return false }

func (f roomFlag) String() string { return switchFlag(f.Name, f.Usage).String() }

type roomValue struct{ given []string }

func (v *roomValue) IsBoolFlag() bool { return true } // as the flag package asks it

func (v *roomValue) String() string { return "" }

func (v *roomValue) Set(s string) error {
	if s != "true" { // which it says where there is no value
		v.given = append(v.given, s)
	}
	return nil
}

// slackRooms reports whether --slack is there, and gives the rooms that stand on
// the line.
func slackRooms(c *cli.Context) (slack bool, rooms []string) {
	v, ok := c.Generic("slack").(*roomValue)
	if !ok || !c.IsSet("slack") {
		return false, nil
	}
	return true, slices.Concat(v.given, c.Args().Slice())
}
