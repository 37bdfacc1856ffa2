package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"the-loop/bus"
	"the-loop/channels"
	"the-loop/internal/config"
	"the-loop/internal/term"
	"the-loop/outbox"
	"the-loop/state"
)

const testCodes = `

Exit codes:

   0    each channel took it; with --reply, somebody replied
   1    a channel did not take it, or its replies cannot be read
   2    the flags or the config are wrong; nothing was sent
   124  nobody replied within --reply`

func channelsCommand(w world) *cli.Command {
	return &cli.Command{
		Name:        "channels",
		Usage:       "show the channels and try them",
		Description: example("the-loop channels list", "the-loop channels test slack"),
		Subcommands: []*cli.Command{
			{
				Name: "list", Usage: "the channels as configured, and the event types",
				Description: example("the-loop channels list"),
				Flags:       []cli.Flag{formatFlag()},
				Action:      withDeployment(w, channelsList),
			},
			{
				Name: "test", Usage: "send a marked message and say what came of it", ArgsUsage: "[NAME…]",
				Description: example("the-loop channels test", "the-loop channels test slack --reply 60s") + testCodes,
				Flags: []cli.Flag{
					&cli.StringFlag{Name: "reply", Usage: "then wait as long as `D` for somebody's reply"},
					&cli.StringFlag{Name: "work-item", Usage: "about `REF`, for channels of tickets"},
					formatFlag(),
				},
				Action: withDeployment(w, channelsTest),
			},
			manifestCommand(w), pauseCommand(w), resumeCommand(w),
		},
	}
}

// channelView is a channel as `channels list --format json` shows it. Of a
// secret it shows where it is kept and whether it is there.
type channelView struct {
	Name      string             `json:"name"`
	Type      string             `json:"type"`
	Subscribe []channels.Pattern `json:"subscribe"`
	Required  bool               `json:"required"`
	Target    string             `json:"target"` // a path, a host, a room
	Secrets   []secretView       `json:"secrets"`
	// Standing is why it is not simply asked, "" when nothing speaks against it.
	Standing string `json:"standing"`
}

type secretView struct {
	Source  string `json:"source"`
	Present bool   `json:"present"`
}

func (d *deployment) channelViews() []channelView {
	out := []channelView{}
	for i, ch := range d.config.Channels {
		v := channelView{
			Name: ch.Name, Type: ch.Type, Subscribe: ch.Subscribe, Required: ch.Required, Target: target(ch),
			Secrets: []secretView{},
		}
		for _, s := range []channels.Secret{ch.URLFrom, ch.Secret, ch.BotToken, ch.AppToken} {
			if !s.IsZero() {
				_, err := s.Value()
				v.Secrets = append(v.Secrets, secretView{s.Source(), err == nil})
			}
		}
		if st := d.store.Standing(d.routes[i].Asker()); st != nil {
			v.Standing = standingText(st)
		}
		out = append(out, v)
	}
	return out
}

func standingText(st *outbox.Standing) string {
	switch {
	case st.Verdict == outbox.Paused && st.Ends():
		return "paused until " + st.Until.Local().Format("2006-01-02 15:04")
	case st.Verdict == outbox.Paused:
		return "paused"
	}
	return fmt.Sprintf("%s (%s)", st.Verdict, st.Code)
}

func target(ch config.Channel) string {
	switch {
	case ch.Path != "":
		return ch.Path
	case ch.Room != "":
		return ch.Room
	}
	return ch.URL.String()
}

func channelsList(c *cli.Context, w world, d *deployment) error {
	asJSON, err := wantsJSON(c)
	if err != nil {
		return err
	}
	if err := noArguments(c); err != nil {
		return err
	}
	views := d.channelViews()
	if asJSON {
		type typeView struct {
			Name     string `json:"name"`
			Recorded bool   `json:"recorded"`
			Meaning  string `json:"meaning"`
		}
		types := []typeView{}
		for _, t := range channels.Types() {
			types = append(types, typeView(t))
		}
		return printJSON(w.stdout, map[string]any{"channels": views, "types": types})
	}
	for _, v := range views {
		printChannel(w, d, v)
	}
	if len(views) == 0 {
		printf(w.stdout, "no channel is configured\n")
	}
	printf(w.stdout, "\nevent types (* is recorded in the ledger before it is sent)\n")
	for _, t := range channels.Types() {
		mark := " "
		if t.Recorded {
			mark = "*"
		}
		printf(w.stdout, "%s %-22s  %s\n", mark, t.Name, t.Meaning)
	}
	return nil
}

// printChannel prints one value a line, for all of them may be long.
func printChannel(w world, d *deployment, v channelView) {
	row := func(name, value string) {
		if value != "" {
			printf(w.stdout, "  %-14s %s\n", name, term.Clean(value))
		}
	}
	printf(w.stdout, "%s (%s)\n", term.Clean(v.Name), v.Type)
	row("subscribes to", joinPatterns(v.Subscribe))
	if v.Required {
		row("required", "yes: it is owed its own acceptance")
	}
	row("target", d.relative(v.Target))
	for _, s := range v.Secrets {
		if s.Present {
			row("secret", s.Source)
		} else {
			row("secret", s.Source+": missing")
		}
	}
	row("standing", firstOf(v.Standing, "ok"))
}

// relative shortens a path below the root.
func (d *deployment) relative(path string) string {
	if rel, err := filepath.Rel(d.root.Dir(), path); err == nil && filepath.IsAbs(path) && filepath.IsLocal(rel) {
		return rel
	}
	return path
}

func joinPatterns(patterns []channels.Pattern) string {
	var out []string
	for _, p := range patterns {
		out = append(out, string(p))
	}
	return strings.Join(out, " ")
}

// testView is what `channels test` says of one channel.
type testView struct {
	bus.Post
	// ReadBack: yes, no (with why), or "cannot" where the kind has no way to.
	ReadBack string `json:"readBack"`
	// Reply is who replied. It is not there when nobody did, or none was wanted.
	Reply *replyView `json:"reply,omitempty"`
}

func channelsTest(c *cli.Context, w world, d *deployment) error {
	asJSON, err := wantsJSON(c)
	if err != nil {
		return err
	}
	routes, err := d.named(c.Args().Slice())
	if err != nil {
		return err
	}
	wait, err := replyWait(c, routes)
	if err != nil {
		return err
	}
	id := state.NewID()
	ev := channels.Event{
		ID: id, Type: "channel.test", Source: "cli", WorkItem: c.String("work-item"),
		Text: "This is a test message of the-loop, " + id + ". Nobody needs to do anything.",
	}
	if wait > 0 {
		ev.Text = "This is a test message of the-loop, " + id + ". Please reply to it in its thread."
	}
	views := []testView{}
	bad := 0
	var unreplied error
	for _, r := range routes {
		v := testOne(c.Context, d, r, ev)
		if v.State != channels.StateAccepted {
			bad++
		}
		if !asJSON {
			printTest(w, v)
		}
		if wait > 0 && v.State == channels.StateAccepted {
			if v.Reply, unreplied = testReply(c.Context, w, d, r, v.Ref, wait); !asJSON && v.Reply != nil {
				printReply(w, *v.Reply, unreplied == nil)
			}
		}
		views = append(views, v)
	}
	if asJSON {
		if err := printJSON(w.stdout, views); err != nil {
			return failed(err)
		}
	}
	if bad > 0 {
		return &failure{code: exitDidNotHappen}
	}
	return unreplied
}

func (d *deployment) named(names []string) ([]bus.Route, error) {
	if len(names) == 0 {
		if len(d.routes) == 0 {
			return nil, failed(errors.New("no channel is configured"))
		}
		return d.routes, nil
	}
	var all []string
	for _, r := range d.routes {
		all = append(all, r.Channel.Name())
	}
	var out []bus.Route
	for _, name := range names {
		i := slices.Index(all, name)
		if i < 0 {
			return nil, usage("there is no channel %q", name).withHint("there are: %s", strings.Join(all, ", "))
		}
		out = append(out, d.routes[i])
	}
	return out, nil
}

// testOne sends the marked message to one channel. The standing of the channel
// takes notice: an acceptance releases what waits for it.
func testOne(ctx context.Context, d *deployment, r bus.Route, ev channels.Event) testView {
	res := d.bus().PostTo(ctx, ev, r)
	v := testView{Post: res.Posts[0], ReadBack: "cannot"}
	if v.State == channels.StateAccepted {
		_ = d.store.Release(ctx, r.Channel.Name())
		if reader, ok := r.Channel.(channels.Reader); ok {
			v.ReadBack = "yes"
			if err := reader.ReadBack(ctx, channels.Receipt{Ref: v.Ref, Link: v.Link}); err != nil {
				v.ReadBack = "no: " + err.Error()
			}
		}
	}
	return v
}

func printTest(w world, v testView) {
	printPost(w.stdout, "", v.Post)
	switch v.ReadBack {
	case "yes":
		printf(w.stdout, "  read back: it is there\n")
	case "cannot":
	default:
		printf(w.stdout, "  read back: %s\n", term.Clean(v.ReadBack))
	}
}
