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
		Name:  "init",
		Usage: "write a commented config and make the root; never overwrites",
		Description: example(
			"the-loop init",
			"the-loop init --here --webhook https://ops.example/hook",
		),
		Flags: []cli.Flag{
			switchFlag("here", "in .the-loop of this folder, not in the user's place"),
			&cli.StringFlag{Name: "webhook", Usage: "begin with a webhook channel that posts to `URL`"},
		},
		Action: func(c *cli.Context) error { return initialize(c, w) },
	}
}

func initialize(c *cli.Context, w world) error {
	if err := noArguments(c); err != nil {
		return err
	}
	url := c.String("webhook")
	if c.IsSet("webhook") {
		if err := config.CheckURL(url); err != nil {
			return usage("--webhook %w", err)
		}
	}
	path, err := initPath(c, w)
	if err != nil {
		return err
	}
	if err := writeNew(path, config.Template(url)); errors.Is(err, fs.ErrExist) {
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
	printf(w.stdout, "next: edit it, then the-loop check, then the-loop channels test\n")
	return nil
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
