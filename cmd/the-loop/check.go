package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/urfave/cli/v2"

	"the-loop/internal/config"
	"the-loop/outbox"
	"the-loop/state"
	"the-loop/status"
)

const checkCodes = `

Exit codes:

   0    nothing is wrong, but for warnings
   2    something is, in the config or in what it names`

func checkCommand(w world) *cli.Command {
	return &cli.Command{
		Name:        "check",
		Usage:       "check the config, what it names, and the state root",
		Description: example("the-loop check", "the-loop check --config staging.yaml --format json") + checkCodes,
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
	if errors.Is(err, config.ErrNoHome) {
		return nil, homeless(err)
	}
	if err != nil {
		return nil, err
	}
	found = append(found, config.Check(cfg, w.getenv, localPaths())...)
	found = append(found, replyFindings(cfg)...)
	return append(found, stateFindings(cfg)...), nil
}

// replyFindings says why nobody can answer, or not by a button.
func replyFindings(cfg *config.Config) (found []config.Finding) {
	warn := func(field, message, hint string) {
		found = append(found, config.Finding{Field: field, Message: message, Hint: hint, Warning: true})
	}
	answerable := cfg.UsesGitHub()
	for _, ch := range cfg.Channels {
		if ch.Type != "slack" {
			continue
		}
		answerable = true
		if ok, why := cfg.Pressable(ch); !ok {
			warn("channels."+ch.Name, "choices are a numbered list there and no buttons: "+why, "")
		}
	}
	if answerable && len(cfg.People) == 0 {
		warn("people", "nobody is listed, so that no reply is taken as an answer",
			"people: [{name: Octo, github: octocat, slack: U012ABCDEF}]")
	}
	return found
}

// stateFindings says what of the outbox and of the standing of channels cannot
// be read.
func stateFindings(cfg *config.Config) (found []config.Finding) {
	root, err := state.Open(cfg.Root)
	if err != nil {
		return nil // the config's own check has said it
	}
	add := func(what, message, hint string) {
		found = append(found, config.Finding{Field: "state.root", Message: what + " " + message, Hint: hint})
	}
	_, bad, damaged, err := outbox.Open(root, outbox.Options{}).Entries()
	switch {
	case err != nil:
		add(state.Outbox, "cannot be read: "+err.Error(), "")
	case damaged:
		add(state.Outbox, "is damaged", "look at it; the next publish or drain sets it aside")
	case bad > 0:
		add(state.Outbox, "has "+counted(bad, "entry", "entries")+" that cannot be read",
			"the next drain sets that aside")
	}
	if err := status.CheckHealth(root); err != nil {
		add(state.Health, "cannot be read: "+err.Error(), "")
	}
	return found
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
