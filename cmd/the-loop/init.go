package main

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

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
			switchFlag("slack", "begin with Slack, and print the app to make"),
		},
		Action: func(c *cli.Context) error { return initialize(c, w) },
	}
}

func initialize(c *cli.Context, w world) error {
	content, err := initialConfig(c)
	if err != nil {
		return err
	}
	path, err := initPath(c, w)
	if err != nil {
		return err
	}
	if err := writeNew(path, content); errors.Is(err, fs.ErrExist) {
		return failed(errors.New(path + " is already there, and is left as it is"))
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
	if !c.Bool("slack") {
		printf(w.stdout, "next: edit it, then the-loop check, then the-loop channels test\n")
		return nil
	}
	printf(w.stdout, "\nThe Slack app to make:\n\n")
	if err := writeManifest(w.stdout, ""); err != nil {
		return failed(err)
	}
	printf(w.stdout, "\n%s", manifestSteps(""))
	if !c.Args().Present() {
		printf(w.stdout, "   Put it in the place of C0123456 in the config.\n")
	}
	printf(w.stdout, "\n%s", manifestNext(""))
	return nil
}

// initialConfig gives what the flags ask for.
func initialConfig(c *cli.Context) ([]byte, error) {
	address, room := c.String("webhook"), ""
	if c.Bool("slack") {
		if c.IsSet("webhook") {
			return nil, usage("--slack and --webhook: choose one to begin with; the other can be added to the config")
		}
		if c.NArg() > 1 {
			return nil, usage("--slack wants one room, and got %d", c.NArg())
		}
		if room = c.Args().First(); c.Args().Present() {
			if err := config.CheckRoom(room); err != nil {
				return nil, usage("--slack %w", err)
			}
		}
		return config.SlackTemplate(room), nil
	}
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
