package main

import (
	"slices"
	"strings"

	"github.com/urfave/cli/v2"
	"github.com/xrash/smetrics"
)

// arrange puts the command first, then the flags, then the arguments, so that
// they may be typed in any order: the flag package stops at the first argument.
// What follows "--" stays an argument. "help COMMAND" is "COMMAND --help".
func arrange(app *cli.App, args []string) []string {
	if len(args) < 2 {
		return args
	}
	valued := flagsWithValue(app)
	commands := app.Commands
	var path, flags, rest []string
	for i := 1; i < len(args); i++ {
		a := args[i]
		at := slices.IndexFunc(commands, func(c *cli.Command) bool { return c.HasName(a) })
		switch {
		case a == "--":
			rest = append(rest, args[i+1:]...)
			i = len(args)
		case len(a) > 1 && a[0] == '-':
			flags = append(flags, a)
			if valued[strings.TrimLeft(a, "-")] && i+1 < len(args) {
				i++
				flags = append(flags, args[i])
			}
		case a == "help" && len(commands) > 0 && len(rest) == 0:
			flags = append(flags, "--help")
		case at >= 0 && len(rest) == 0:
			path, commands = append(path, a), commands[at].Subcommands
		default:
			rest = append(rest, a)
		}
	}
	if len(commands) > 0 && len(rest) > 0 {
		flags = nil // the command itself is wrong, and that is what is to be said
	}
	out := slices.Concat(args[:1], path, flags)
	if len(rest) > 0 {
		out = append(append(out, "--"), rest...)
	}
	return out
}

// flagsWithValue gives the names of all flags that are followed by a value. A
// name means the same wherever it is a flag.
func flagsWithValue(app *cli.App) map[string]bool {
	out := map[string]bool{}
	var add func(flags []cli.Flag, commands []*cli.Command)
	add = func(flags []cli.Flag, commands []*cli.Command) {
		for _, f := range flags {
			if d, ok := f.(cli.DocGenerationFlag); ok && d.TakesValue() {
				for _, name := range f.Names() {
					out[name] = true
				}
			}
		}
		for _, c := range commands {
			add(c.Flags, c.Subcommands)
		}
	}
	add(app.Flags, app.Commands)
	return out
}

// nearest finds what was probably meant: at most a third of it is wrong.
func nearest(typed string, known []string) string {
	best, at := "", len(typed)/3+2
	for _, k := range known {
		d := smetrics.WagnerFischer(typed, k, 1, 1, 1)
		if d < at || strings.HasPrefix(k, typed) && typed != "" {
			best, at = k, min(d, at)
		}
	}
	return best
}

// listFlag is a flag that may be repeated, shown in the help like any other.
type listFlag struct{ *cli.StringSliceFlag }

func (f listFlag) String() string {
	return (&cli.StringFlag{Name: f.Name, Usage: f.Usage}).String()
}

// switchFlag is off until it is given.
func switchFlag(name, use string, aliases ...string) cli.Flag {
	return &cli.BoolFlag{Name: name, Aliases: aliases, Usage: use, DisableDefaultText: true}
}
