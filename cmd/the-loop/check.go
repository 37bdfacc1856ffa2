package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/urfave/cli/v2"

	"the-loop/internal/config"
	"the-loop/state"
)

func checkCommand(w world) *cli.Command {
	return &cli.Command{
		Name:        "check",
		Usage:       "check the config, what it names, and the state root",
		Description: example("the-loop check", "the-loop check --config staging.yaml --format json"),
		Flags:       []cli.Flag{formatFlag()},
		Action:      func(c *cli.Context) error { return check(c, w) },
	}
}

func check(c *cli.Context, w world) error {
	asJSON, err := wantsJSON(c)
	if err != nil {
		return err
	}
	if err := noArguments(c); err != nil {
		return err
	}
	path, err := findConfig(c, w)
	if err != nil {
		return err
	}
	found, err := findings(w, path)
	if err != nil {
		return err
	}
	bad := 0
	for _, f := range found {
		if !f.Warning {
			bad++
		}
	}
	switch {
	case asJSON:
		if found == nil {
			found = []config.Finding{}
		}
		err = printJSON(w.stdout, map[string]any{"ok": bad == 0, "config": path, "findings": found})
	default:
		printFindings(w.stderr, firstOf(path, "no config"), found)
		if bad == 0 {
			printf(w.stdout, "ok: %s\n", firstOf(path, "no config file; the local ledger and a file are used"))
		}
	}
	if err != nil {
		return failed(err)
	}
	if bad > 0 {
		return &failure{code: exitUsage}
	}
	return nil
}

// findings collects all that can be found; what is wrong with the file itself
// hides the rest.
func findings(w world, path string) ([]config.Finding, error) {
	var cfg *config.Config
	var found []config.Finding
	var err error
	if path == "" {
		cfg, err = config.Default(w.getenv)
	} else {
		cfg, found, err = config.Load(path, w.getenv)
	}
	var bad *config.Error
	if errors.As(err, &bad) {
		return bad.Findings, nil
	}
	if err != nil {
		return nil, err
	}
	return append(found, config.Check(cfg, w.getenv, localPaths())...), nil
}

// localPaths lists what must not be tracked by git.
func localPaths() []string {
	var out []string
	for _, d := range state.Declared() {
		if d.Class == state.Local {
			out = append(out, d.Pattern)
		}
	}
	return out
}

// gitignore is what init writes beside the config.
func gitignore() string {
	var b strings.Builder
	b.WriteString("# Local to this machine; see docs/state.md. The ledger may be tracked.\n")
	for _, p := range localPaths() {
		fmt.Fprintf(&b, "/%s\n", p)
	}
	b.WriteString("# secrets\n*.secret\n*.token\n")
	return b.String()
}
