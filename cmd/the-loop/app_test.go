package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/urfave/cli/v2"

	"the-loop/internal/term"
	"the-loop/state"
)

// runIn runs the program in this process, with an environment of its own.
func runIn(t *testing.T, ctx context.Context, env map[string]string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	w := world{stdin: strings.NewReader(""), stdout: &out, stderr: &errs, getenv: func(k string) string { return env[k] }}
	code = run(ctx, append([]string{"the-loop"}, args...), w)
	return code, out.String(), errs.String()
}

// eachCommand walks the command tree, groups included.
func eachCommand(app *cli.App, visit func(path []string, c *cli.Command)) {
	var walk func(path []string, commands []*cli.Command)
	walk = func(path []string, commands []*cli.Command) {
		for _, c := range commands {
			here := append(slices.Clone(path), c.Name)
			visit(here, c)
			walk(here, c.Subcommands)
		}
	}
	walk(nil, app.Commands)
}

func TestEveryCommandHasHelpWithAnExampleThatFitsTheTerminal(t *testing.T) {
	exampleLine := regexp.MustCompile(`(?m)^      (?:.*\| |.*&& )?the-loop (.*)$`)
	seen := 0
	eachCommand(newApp(world{}), func(path []string, c *cli.Command) {
		seen++
		name := strings.Join(path, " ")
		code, out, errs := runIn(t, t.Context(), nil, append(path, "--help")...)
		if code != 0 || errs != "" {
			t.Errorf("%s --help: exit code %d, stderr %q", name, code, errs)
		}
		for line := range strings.Lines(out) {
			if w := term.Width(strings.TrimSuffix(line, "\n")); w > 80 {
				t.Errorf("%s --help: %d columns: %s", name, w, line)
			}
		}
		if !strings.Contains(out, "Example:") || !strings.Contains(c.Description, "the-loop "+path[0]) {
			t.Errorf("%s --help has no example of it:\n%s", name, out)
		}
		for _, flag := range []string{"--config", "--log-level"} {
			if !strings.Contains(out, flag) {
				t.Errorf("%s has no %s", name, flag)
			}
		}
		for _, m := range exampleLine.FindAllStringSubmatch(out, -1) {
			checkExample(t, m[1])
		}
	})
	if seen < 19 {
		t.Errorf("only %d commands were seen", seen)
	}
}

// checkExample looks whether the flags of a typed line are the command's.
func checkExample(t *testing.T, typed string) {
	t.Helper()
	known := map[string]bool{"help": true}
	longest := ""
	eachCommand(newApp(world{}), func(path []string, c *cli.Command) {
		name := strings.Join(path, " ")
		if strings.HasPrefix(typed+" ", name+" ") && len(name) > len(longest) {
			longest, known = name, map[string]bool{"help": true}
			for _, f := range c.Flags {
				for _, n := range f.Names() {
					known[n] = true
				}
			}
		}
	})
	if longest == "" {
		t.Errorf("example %q is no command", typed)
	}
	for _, m := range regexp.MustCompile(`(?:^| )--([a-z-]+)`).FindAllStringSubmatch(typed, -1) {
		if !known[m[1]] {
			t.Errorf("example %q: %s has no flag --%s", typed, longest, m[1])
		}
	}
}

func TestCommandsThatPrintAResultHaveAFormat(t *testing.T) {
	without := []string{
		"init", "outbox", "outbox drop", "channels", "questions", "poller", "webhook", "demo",
		"inbox", "inbox listen", "channels manifest",
	}
	eachCommand(newApp(world{}), func(path []string, c *cli.Command) {
		name := strings.Join(path, " ")
		has := slices.ContainsFunc(c.Flags, func(f cli.Flag) bool { return slices.Contains(f.Names(), "format") })
		if has == slices.Contains(without, name) {
			t.Errorf("%s: --format is there: %v", name, has)
		}
	})
}

func TestFlagsMayStandAnywhereOnTheLine(t *testing.T) {
	tests := map[string]struct{ typed, want string }{
		"as the flag package wants it": {"status --format json", "status --format json"},
		"before the command":           {"--format json status", "status --format json"},
		"between":                      {"outbox --config x list", "outbox list --config x"},
		"after the arguments":          {"outbox drop A B --yes", "outbox drop --yes -- A B"},
		"with an equals sign":          {"outbox show A --format=json", "outbox show --format=json -- A"},
		"a value that is a command":    {"--config status outbox list", "outbox list --config status"},
		"a value with a dash":          {"publish --text -5 --type a", "publish --text -5 --type a"},
		"two dashes end the flags":     {"outbox show -- --all", "outbox show -- --all"},
		"help":                         {"help outbox drain", "outbox drain --help"},
		"help alone":                   {"help", "--help"},
		"help below a group":           {"outbox help", "outbox --help"},
		"help is an argument":          {"outbox show help", "outbox show -- help"},
		"a wrong command comes first":  {"outbox lst --all", "outbox -- lst"},
		"nothing":                      {"", ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got := arrange(newApp(world{}), append([]string{"the-loop"}, strings.Fields(tt.typed)...))
			if diff := cmp.Diff(strings.TrimSpace("the-loop "+tt.want), strings.Join(got, " ")); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestNearestSuggestsOnlyWhatIsNear(t *testing.T) {
	known := []string{"publish", "poller", "outbox", "status"}
	for typed, want := range map[string]string{
		"pubish": "publish", "outbx": "outbox", "stat": "status", "xyzzy": "", "": "", "publishing": "publish",
	} {
		if got := nearest(typed, known); got != want {
			t.Errorf("nearest(%q) = %q, want %q", typed, got, want)
		}
	}
}

func TestAnInterruptedCommandExitsWithTheSignalsNumber(t *testing.T) {
	for sig, want := range map[syscall.Signal]int{syscall.SIGINT: 130, syscall.SIGTERM: 143} {
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(signalled{sig})
		if code, _, _ := runIn(t, ctx, nil, "version"); code != want {
			t.Errorf("%v: exit code %d, want %d", sig, code, want)
		}
	}
}

func TestDrainThatNeverGetsItsTurnSaysWhoHasItAndFails(t *testing.T) {
	config := roomConfig(t)
	dir := filepath.Join(filepath.Dir(config), "root")
	pend(t, dir)
	synctest.Test(t, func(t *testing.T) {
		root, err := state.Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		release, held, err := root.Role(state.DrainRole).Take("poller, process 4711")
		if err != nil || !held {
			t.Fatalf("the role is not ours: %v", err)
		}
		defer release()
		began := time.Now()
		code, out, errs := runIn(t, t.Context(), nil, "--config", config, "outbox", "drain")
		want := "waiting: poller, process 4711 drains this root\n" +
			"the-loop: error: poller, process 4711 still drains this root after 30s\n"
		if code != 1 || out != "" || errs != want {
			t.Errorf("exit code %d, stdout %q, stderr %q", code, out, errs)
		}
		if took := time.Since(began); took < 30*time.Second || took > 31*time.Second {
			t.Errorf("it waited %v", took)
		}
	})
}

func TestAPublishThatIsInterruptedKeepsItsEvent(t *testing.T) {
	dir := t.TempDir()
	config := filepath.Join(dir, "c.yaml")
	text := "version: 1\nstate: {root: .}\n" +
		"channels:\n  hook: {type: webhook, url: \"http://127.0.0.1:1/\", subscribe: [\"*\"]}\n"
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(signalled{syscall.SIGTERM})
	code, out, errs := runIn(t, ctx, nil, "--config", config, "publish", "--type", "job.failed", "--text", "x")
	if code != 143 || !strings.Contains(out, "queued") {
		t.Errorf("exit code %d, stdout %q, stderr %q", code, out, errs)
	}
	b, err := os.ReadFile(filepath.Join(dir, "channels", "undelivered.json"))
	if err != nil || !bytes.Contains(b, []byte(`"job.failed"`)) {
		t.Errorf("the outbox holds %s, %v", b, err)
	}
}
