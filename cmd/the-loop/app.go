package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"
)

// run is the whole program: it runs one command and gives its exit code.
func run(ctx context.Context, args []string, w world) int {
	app := newApp(w)
	err := app.RunContext(ctx, flagsFirst(app, args))
	return report(ctx, w.stderr, err)
}

func newApp(w world) *cli.App {
	commands := []*cli.Command{
		initCommand(w), publishCommand(w), askCommand(w), statusCommand(w), outboxCommand(w),
		channelsCommand(w), eventsCommand(w), checkCommand(w), pollerCommand(w), webhookCommand(w),
		demoCommand(w), versionCommand(w),
	}
	for _, c := range commands {
		prepare(c)
	}
	return &cli.App{
		Name:            "the-loop",
		Usage:           "carries messages between work and people, and never loses one",
		UsageText:       "the-loop COMMAND [flags]\n\nThe first time: the-loop demo, then the-loop init.",
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
func prepare(c *cli.Command) {
	c.HideHelpCommand = true
	c.OnUsageError = usageError
	if len(c.Subcommands) > 0 {
		c.Action = unknownCommand
		for _, sub := range c.Subcommands {
			prepare(sub)
		}
		return
	}
	c.Flags = append(c.Flags, commonFlags()...)
}

func commonFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "config", Usage: "read `FILE` and look for no other config"},
		&cli.StringFlag{Name: "log-level", Usage: "log `LEVEL` and above to stderr: debug, info, warn, error"},
	}
}

func formatFlag() cli.Flag {
	return &cli.StringFlag{Name: "format", Value: "text", Usage: "print `text` for people or json for programs"}
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
		f := usage("unknown flag --%s", name)
		var names []string
		for _, flag := range c.Command.Flags {
			names = append(names, flag.Names()[0])
		}
		if s := nearest(name, names); s != "" {
			return f.withHint("did you mean --%s?", s)
		}
		return f.withHint("%s --help", c.Command.HelpName)
	}
	if name, ok := strings.CutPrefix(text, "flag needs an argument: "); ok {
		return usage("flag --%s wants a value", strings.TrimLeft(name, "-"))
	}
	return usage("%s", text)
}

// nearest finds what was probably meant: at most a third of it is wrong.
func nearest(typed string, known []string) string {
	best, at := "", len(typed)/3+2
	for _, k := range known {
		if d := distance(typed, k); d < at || strings.HasPrefix(k, typed) && typed != "" {
			best, at = k, min(d, at)
		}
	}
	return best
}

// distance is the number of insertions, deletions and replacements between two
// strings.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			diagonal, row[j+1] = row[j+1], min(row[j+1]+1, row[j]+1, diagonal+cost)
		}
	}
	return row[len(b)]
}

// flagsFirst moves flags before the arguments, so that they may be typed in any
// order: the flag package stops at the first argument. What follows "--" stays.
func flagsFirst(app *cli.App, args []string) []string {
	if len(args) < 2 {
		return args
	}
	path, rest, flags := commandPath(app, args[1:])
	var front, back []string
	for i := 0; i < len(rest); i++ {
		a := rest[i]
		switch {
		case a == "--":
			back = append(back, rest[i+1:]...)
			i = len(rest)
		case len(a) > 1 && a[0] == '-':
			front = append(front, a)
			if !strings.Contains(a, "=") && takesValue(flags, strings.TrimLeft(a, "-")) && i+1 < len(rest) {
				i++
				front = append(front, rest[i])
			}
		default:
			back = append(back, a)
		}
	}
	out := slices.Concat(args[:1], path, front)
	if len(back) > 0 {
		out = append(append(out, "--"), back...)
	}
	return out
}

// commandPath splits the arguments into the command with the flags before it,
// and the rest; flags are those of the command.
func commandPath(app *cli.App, args []string) (path, rest []string, flags []cli.Flag) {
	commands, flags := app.Commands, app.Flags
	for i := 0; i < len(args); i++ {
		a := args[i]
		if len(a) > 1 && a[0] == '-' && len(commands) > 0 && a != "--" {
			path = append(path, a)
			if !strings.Contains(a, "=") && takesValue(flags, strings.TrimLeft(a, "-")) && i+1 < len(args) {
				i++
				path = append(path, args[i])
			}
			continue
		}
		j := slices.IndexFunc(commands, func(c *cli.Command) bool { return c.HasName(a) })
		if j < 0 {
			return path, args[i:], flags
		}
		path = append(path, a)
		flags, commands = commands[j].Flags, commands[j].Subcommands
	}
	return path, nil, flags
}

func takesValue(flags []cli.Flag, name string) bool {
	for _, f := range flags {
		if slices.Contains(f.Names(), name) {
			d, ok := f.(cli.DocGenerationFlag)
			return ok && d.TakesValue()
		}
	}
	return false
}

// printf prints to people. Failing to is not worth failing for.
func printf(w io.Writer, format string, args ...any) { _, _ = fmt.Fprintf(w, format, args...) }
