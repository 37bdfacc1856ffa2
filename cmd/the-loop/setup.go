package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"time"

	"github.com/lmittmann/tint"
	"github.com/urfave/cli/v2"

	"the-loop/bus"
	"the-loop/channels"
	"the-loop/channels/file"
	"the-loop/channels/github"
	"the-loop/channels/slack"
	"the-loop/channels/webhook"
	"the-loop/drain"
	"the-loop/internal/config"
	"the-loop/internal/eventlog"
	"the-loop/internal/ledger"
	"the-loop/internal/questions"
	"the-loop/internal/term"
	"the-loop/outbox"
	"the-loop/state"
	"the-loop/status"
)

// deployment is a config with everything that is built from it.
type deployment struct {
	config *config.Config
	root   *state.Root
	logger *slog.Logger // never nil
	log    *eventlog.Log
	store  *outbox.Store
	routes []bus.Route
	github *github.Client // nil when nothing uses GitHub
}

// open finds and reads the config and builds everything from it. It touches
// nothing under the root.
func open(c *cli.Context, w world) (*deployment, error) {
	path, err := findConfig(c, w)
	if err != nil {
		return nil, err
	}
	return build(c, w, path, false)
}

func findConfig(c *cli.Context, w world) (string, error) {
	wd, err := os.Getwd()
	if err != nil {
		return "", failed(err)
	}
	return config.Find(common(c, "config"), w.getenv, wd)
}

// build reads the config at path, "" for none. A daemon logs at the config's
// level; a command logs nothing unless it is told to, for it prints its result.
func build(c *cli.Context, w world, path string, daemon bool) (*deployment, error) {
	d := &deployment{}
	var warnings []config.Finding
	var err error
	if path == "" {
		d.config, err = config.Default(w.getenv)
	} else {
		d.config, warnings, err = config.Load(path, w.getenv)
	}
	if errors.Is(err, config.ErrNoHome) {
		return nil, homeless(err)
	}
	if err != nil {
		return nil, err
	}
	printFindings(w.stderr, path, warnings)
	level := firstOf(common(c, "log-level"), w.getenv("THE_LOOP_LOG_LEVEL"))
	if level == "" && daemon {
		level = d.config.Log.Level
	}
	if d.logger, err = newLogger(w, level); err != nil {
		return nil, err
	}
	if d.root, err = state.Open(d.config.Root); err != nil {
		return nil, failed(err)
	}
	d.log = eventlog.New(d.root, d.logger)
	d.store = outbox.Open(d.root, outbox.Options{
		Cap:     d.config.Outbox.Cap,
		Backoff: outbox.Backoff{Base: d.config.Drain.Base, Max: d.config.Drain.Max},
		Probe:   d.config.Drain.Interval,
		TTL:     outbox.TTL(d.config.Outbox.TTL),
		Wanted:  func(ev channels.Event) bool { return questions.Wanted(d.root, ev.ID) },
		Log:     d.log,
	})
	if d.config.UsesGitHub() {
		g := d.config.GitHub
		d.github = github.New(github.Options{
			Token: g.Token, TokenFromGH: g.TokenFromGH, BaseURL: g.BaseURL, Log: d.logger,
		})
	}
	for _, ch := range d.config.Channels {
		route, err := d.newRoute(ch)
		if err != nil {
			return nil, err
		}
		d.routes = append(d.routes, route)
	}
	return d, nil
}

// homeless says what to do where the environment names no place for the state.
func homeless(err error) *failure {
	return usage("%w", err).withHint("set HOME or THE_LOOP_STATE, or give --config FILE")
}

// newRoute is the one list of channel kinds.
func (d *deployment) newRoute(ch config.Channel) (bus.Route, error) {
	r := bus.Route{
		Subscribe: ch.Subscribe, Required: ch.Required, Timeout: ch.Timeout, Rate: ch.Rate,
		SendAgain: ch.SendAgain == "auto",
	}
	switch ch.Type {
	case "file":
		r.Channel = file.New(ch.Name, ch.Path, d.root)
	case "webhook":
		r.Channel = webhook.New(webhook.Options{
			Name: ch.Name, URL: string(ch.URL), URLFrom: ch.URLFrom, Secret: ch.Secret, Idempotent: ch.Idempotent,
		})
	case "slack":
		r.Channel = slack.New(slack.Options{
			Name: ch.Name, Channel: ch.Room, Token: ch.BotToken, APIURL: ch.APIURL,
			Verbosity: channels.Verbosity(ch.Verbosity), Mention: ch.Mention, Root: d.root, Log: d.logger,
		})
	case "github":
		r.Channel = github.NewChannel(github.ChannelOptions{
			Name: ch.Name, Client: d.github, Verbosity: channels.Verbosity(ch.Verbosity),
			Except: d.recordedOnTicket,
		})
	default:
		return r, usage("channel %s: no such type %q", ch.Name, ch.Type)
	}
	return r, nil
}

func newLogger(w world, level string) (*slog.Logger, error) {
	if level == "" {
		return slog.New(slog.DiscardHandler), nil
	}
	var l slog.Level
	if err := l.UnmarshalText([]byte(level)); err != nil {
		return nil, usage("log level %q: want debug, info, warn or error", level)
	}
	if !term.IsTerminal(w.stderr) {
		return slog.New(slog.NewJSONHandler(w.stderr, &slog.HandlerOptions{Level: l})), nil
	}
	return slog.New(tint.NewTextHandler(w.stderr, &tint.Options{
		Level: l, TimeFormat: time.TimeOnly, NoColor: !term.ColorOK(w.stderr, w.getenv),
	})), nil
}

// bus gives the bus that publishes for this deployment.
func (d *deployment) bus() *bus.Bus {
	b := &bus.Bus{Routes: d.routes, Store: d.store, Standing: d.store, Log: d.log, MaxText: d.config.Limits.Text}
	if l := d.ledger(); l != nil {
		b.Ledger = l
	}
	return b
}

// ledger gives the channel of record, nil for none.
func (d *deployment) ledger() bus.Ledger {
	local := ledger.NewLocal(d.root)
	switch d.config.Ledger {
	case "local":
		return local
	case "github":
		return tickets{github.NewLedger(d.github), local}
	}
	return nil
}

// tickets is the ledger github: what is about a ticket is recorded there, and
// all else in the local ledger.
type tickets struct{ there, here bus.Ledger }

func (t tickets) Record(ctx context.Context, ev channels.Event) (string, error) {
	if item, err := channels.ParseWorkItem(ev.WorkItem); err == nil && item.Kind == "github" {
		return t.there.Record(ctx, ev)
	}
	return t.here.Record(ctx, ev)
}

// recordedOnTicket reports whether the ledger puts the event on its ticket, so
// that a channel must not do so a second time.
func (d *deployment) recordedOnTicket(ev channels.Event) bool {
	t, _ := channels.LookupType(ev.Type)
	return d.config.Ledger == "github" && t.Recorded
}

// publish takes one event, and closes the journal that this process wrote it
// down in first.
func (d *deployment) publish(ctx context.Context, ev channels.Event) bus.Result {
	res := d.bus().Publish(ctx, ev)
	if err := d.store.Close(); err != nil {
		res.Notes = append(res.Notes, fmt.Sprintf("the journal of this process is left for the next drain: %v", err))
	}
	return res
}

// drain gives how this deployment drains, signed by who.
func (d *deployment) drain(who string) drain.Options {
	return drain.Options{
		Store: d.store, Root: d.root, Role: d.root.Role(state.DrainRole),
		Who:      fmt.Sprintf("%s, process %d", who, os.Getpid()),
		Routes:   func() []bus.Route { return d.routes },
		Interval: d.config.Drain.Interval, Budget: d.config.Drain.Budget,
		EvidenceAfter: d.config.Drain.EvidenceAfter, Ended: d.ended, Log: d.log,
	}
}

// lanes gives the channels as the outbox knows them.
func (d *deployment) lanes() []outbox.Lane {
	lanes := make([]outbox.Lane, len(d.routes))
	for i, r := range d.routes {
		lanes[i] = r.Lane()
	}
	return lanes
}

// lane gives what is known of a channel, nothing of one that is not configured.
func (d *deployment) lane(channel string) outbox.Lane {
	for _, r := range d.routes {
		if r.Channel.Name() == channel {
			return r.Lane()
		}
	}
	return outbox.Lane{}
}

// missing names the variables and files with secrets that are not there.
func (d *deployment) missing() []string {
	out := []string{}
	for _, ref := range d.config.Secrets() {
		if _, err := ref.Secret.Value(); err != nil {
			o := channels.OutcomeOf(channels.Receipt{}, err)
			if !slices.Contains(out, o.Detail) {
				out = append(out, o.Detail)
			}
		}
	}
	return out
}

// report makes the status report.
func (d *deployment) report() status.Report {
	askers := make([]outbox.Asker, len(d.routes))
	for i, r := range d.routes {
		askers[i] = r.Asker()
	}
	return status.Make(status.Source{
		Root: d.root, Config: d.config.Path, Store: d.store,
		Services: []status.Service{
			{Name: "poller", Enabled: d.config.Polling.Enabled},
			{Name: "webhook", Enabled: d.config.Webhook.Enabled},
		},
		Interval: d.config.Drain.Interval, Askers: askers, Lane: d.lane, Missing: d.missing(),
	})
}

// configHash changes with the file's bytes.
func (d *deployment) configHash() string {
	b, err := os.ReadFile(d.config.Path)
	if err != nil {
		return ""
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:8])
}

// recoverDead runs the outbox's recovery when nobody drains, so that a person
// sees, and works on, what is really so.
func (d *deployment) recoverDead(ctx context.Context, who string) error {
	if entries, bad, damaged, err := d.store.Entries(); err != nil || len(entries) == 0 && bad == 0 && !damaged {
		return err
	}
	release, held, err := d.root.Role(state.DrainRole).Take(who)
	if err != nil || !held {
		return err
	}
	defer release()
	return d.store.Sweep(ctx, d.lanes())
}

func printJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}

func firstOf(values ...string) string {
	for _, v := range values {
		if v != "" {
			return v
		}
	}
	return ""
}
