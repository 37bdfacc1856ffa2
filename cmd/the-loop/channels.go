package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"the-loop/bus"
	"the-loop/channels"
	"the-loop/internal/config"
	"the-loop/internal/term"
	"the-loop/state"
)

func channelsCommand(w world) *cli.Command {
	return &cli.Command{
		Name:        "channels",
		Usage:       "show the channels and try them",
		Description: example("the-loop channels list", "the-loop channels test slack"),
		Subcommands: []*cli.Command{
			{
				Name: "list", Usage: "the channels as configured, and the event types there are",
				Description: example("the-loop channels list"),
				Flags:       []cli.Flag{formatFlag()},
				Action:      withDeployment(w, channelsList),
			},
			{
				Name: "test", Usage: "send a marked message and say what came of it", ArgsUsage: "[NAME…]",
				Description: example("the-loop channels test", "the-loop channels test slack --format json"),
				Flags:       []cli.Flag{formatFlag()},
				Action:      withDeployment(w, channelsTest),
			},
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
			v.Standing = fmt.Sprintf("%s (%s)", st.Verdict, st.Code)
		}
		out = append(out, v)
	}
	return out
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
	t := term.Table{Columns: []term.Column{
		{Title: "channel"}, {Title: "type"}, {Title: "subscribes to", Flex: true}, {Title: "target", Flex: true},
		{Title: "secret", Flex: true}, {Title: "standing", Flex: true},
	}}
	for _, v := range views {
		t.Row(v.Name, v.Type, joinPatterns(v.Subscribe), v.Target, secretsText(v.Secrets), firstOf(v.Standing, "ok"))
	}
	_ = t.Write(w.stdout)
	printf(w.stdout, "\n")
	types := term.Table{Columns: []term.Column{
		{Title: "event type"}, {Title: "recorded"}, {Title: "meaning", Flex: true},
	}}
	for _, t := range channels.Types() {
		recorded := "no"
		if t.Recorded {
			recorded = "yes"
		}
		types.Row(t.Name, recorded, t.Meaning)
	}
	_ = types.Write(w.stdout)
	return nil
}

func joinPatterns(patterns []channels.Pattern) string {
	var out []string
	for _, p := range patterns {
		out = append(out, string(p))
	}
	return strings.Join(out, " ")
}

func secretsText(secrets []secretView) string {
	var out []string
	for _, s := range secrets {
		if s.Present {
			out = append(out, s.Source)
		} else {
			out = append(out, s.Source+" MISSING")
		}
	}
	return firstOf(strings.Join(out, ", "), "-")
}

// testView is what `channels test` says of one channel.
type testView struct {
	bus.Post
	// ReadBack: yes, no (with why), or "cannot" where the kind has no way to.
	ReadBack string `json:"readBack"`
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
	id := state.NewID()
	ev := channels.Event{
		ID: id, Type: "channel.test", Source: "cli",
		Text: "This is a test message of the-loop, " + id + ". Nobody needs to do anything.",
	}
	views := []testView{}
	bad := 0
	for _, r := range routes {
		v := testOne(c.Context, d, r, ev)
		if v.State != channels.StateAccepted {
			bad++
		}
		views = append(views, v)
		if !asJSON {
			printTest(w, v)
		}
	}
	if asJSON {
		if err := printJSON(w.stdout, views); err != nil {
			return failed(err)
		}
	}
	if bad > 0 {
		return &failure{code: exitDidNotHappen}
	}
	return nil
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
	text := fmt.Sprintf("%s: %s", v.Channel, v.State)
	if v.Error != "" {
		text += ", " + v.Error
	}
	printf(w.stdout, "%s\n", term.Clean(text))
	if v.State != channels.StateAccepted {
		printf(w.stdout, "  %s\n", v.Reason.Words())
	}
	switch v.ReadBack {
	case "yes":
		printf(w.stdout, "  read back: it is there\n")
	case "cannot":
	default:
		printf(w.stdout, "  read back: %s\n", term.Clean(v.ReadBack))
	}
}
