package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"syscall"

	"github.com/urfave/cli/v2"
)

// run is the whole program: it runs one command and gives its exit code.
func run(ctx context.Context, args []string, w world) int {
	out := &output{w: w.stdout}
	w.stdout = out
	app := newApp(w)
	err := app.RunContext(ctx, arrange(app, args))
	code := report(ctx, w.stderr, err)
	if lost := out.failure(); lost != nil && code == 0 {
		if !errors.Is(lost, syscall.EPIPE) { // whoever read it has seen enough
			printf(w.stderr, "the-loop: error: stdout: %v\n", lost)
		}
		code = exitDidNotHappen
	}
	return code
}

func newApp(w world) *cli.App {
	commands := []*cli.Command{
		initCommand(w), publishCommand(w), askCommand(w), questionsCommand(w), inboxCommand(w), statusCommand(w),
		outboxCommand(w), channelsCommand(w), eventsCommand(w), checkCommand(w), pollerCommand(w), webhookCommand(w),
		demoCommand(w), versionCommand(w),
	}
	for _, c := range commands {
		prepare("the-loop", c)
	}
	return &cli.App{
		Name:      "the-loop",
		Usage:     "carries messages between work and people, and never loses one",
		UsageText: "the-loop COMMAND [flags]",
		Description: "The first time: the-loop demo, then the-loop init.\n\n" + example(
			`the-loop ask --work-item local:release#3 --question "Ship it?"`,
			"the-loop status",
			"the-loop help outbox drain",
		),
		Commands:        commands,
		Flags:           commonFlags(),
		HideVersion:     true,
		HideHelpCommand: true,
		Reader:          w.stdin,
		Writer:          w.stdout,
		ErrWriter:       w.stderr,
		Action:          unknownCommand,
		OnUsageError:    usageError,
		ExitErrHandler:  func(*cli.Context, error) {}, // report does it
		// A comma in --detail belongs to its value.
		DisableSliceFlagSeparator: true,
	}
}

// prepare gives every command what all commands have.
func prepare(path string, c *cli.Command) {
	path += " " + c.Name
	c.HideHelpCommand = true
	c.OnUsageError = usageError
	c.Flags = append(c.Flags, commonFlags()...)
	c.UsageText = strings.TrimSpace(path+" "+c.ArgsUsage) + " [flags]"
	if len(c.Subcommands) > 0 && c.Action == nil {
		c.UsageText = path + " COMMAND [flags]"
		c.Action = unknownCommand
	}
	for _, sub := range c.Subcommands {
		prepare(path, sub)
	}
}

func commonFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "config", Usage: "read `FILE` and look for no other config"},
		&cli.StringFlag{Name: "log-level", Usage: "log to stderr from `LEVEL` on: debug, info, warn, error"},
	}
}

func formatFlag() cli.Flag {
	return &cli.StringFlag{Name: "format", Value: "text", Usage: "as `FORMAT`, text or json"}
}

// wantsJSON reads --format.
func wantsJSON(c *cli.Context) (bool, error) {
	switch f := c.String("format"); f {
	case "text", "":
		return false, nil
	case "json":
		return true, nil
	default:
		return false, usage("--format %q: want text or json", f)
	}
}

// common reads a flag of commonFlags wherever on the line it stands.
func common(c *cli.Context, name string) string {
	for _, ctx := range c.Lineage() {
		if ctx.IsSet(name) {
			return ctx.String(name)
		}
	}
	return ""
}

// example is a command's description: what is typed, and nothing else.
func example(lines ...string) string {
	return "Example:\n\n   " + strings.Join(lines, "\n   ")
}

func unknownCommand(c *cli.Context) error {
	path := strings.TrimSpace(strings.TrimPrefix(c.Command.HelpName, "the-loop"))
	if !c.Args().Present() {
		if path == "" {
			return cli.ShowAppHelp(c)
		}
		return cli.ShowSubcommandHelp(c)
	}
	known := c.App.Commands
	if path != "" {
		known = c.Command.Subcommands
	}
	name := c.Args().First()
	err := usage("unknown command %q", strings.TrimSpace(path+" "+name))
	if s := nearest(name, commandNames(known)); s != "" {
		return err.withHint("did you mean the-loop %s?", strings.TrimSpace(path+" "+s))
	}
	return err.withHint("the-loop %s", strings.TrimSpace(path+" --help"))
}

func commandNames(commands []*cli.Command) []string {
	var names []string
	for _, c := range commands {
		names = append(names, c.Name)
	}
	return names
}

func usageError(c *cli.Context, err error, _ bool) error {
	text := err.Error()
	if name, ok := strings.CutPrefix(text, "flag provided but not defined: "); ok {
		name = strings.TrimLeft(name, "-")
		f := usage("unknown flag %s", dashed(name))
		var names []string
		for _, flag := range c.Command.Flags {
			names = append(names, flag.Names()[0])
		}
		if s := nearest(name, names); s != "" {
			return f.withHint("did you mean %s?", dashed(s))
		}
		return f.withHint("%s --help", c.Command.HelpName)
	}
	if name, ok := strings.CutPrefix(text, "flag needs an argument: "); ok {
		return usage("flag %s wants a value", dashed(strings.TrimLeft(name, "-")))
	}
	return usage("%s", text)
}

func dashed(flag string) string {
	if len(flag) == 1 {
		return "-" + flag
	}
	return "--" + flag
}

// printf prints to people. Failing to ends no command early; run tells of it
// where it was stdout.
func printf(w io.Writer, format string, args ...any) { _, _ = fmt.Fprintf(w, format, args...) }
