package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"the-loop/channels/github"
	"the-loop/channels/slack"
	"the-loop/internal/config"
	"the-loop/internal/daemon"
	"the-loop/internal/inbound"
	"the-loop/internal/questions"
	"the-loop/internal/reader"
	"the-loop/internal/receiver"
	"the-loop/state"
	"the-loop/status"
)

const (
	// catchUpEvery is how often is read what should have come in by itself: a
	// connection that is there and gives nothing looks like a quiet room.
	catchUpEvery = 15 * time.Minute
	// watchedFor is how long a work item is watched after it was asked about.
	watchedFor = 30 * 24 * time.Hour
)

// replies is everything by which replies come in, and what becomes of them, for
// one config.
type replies struct {
	d        *deployment
	told     bool // by a receiver of this process; else all is asked for
	pipeline *inbound.Pipeline
	settler  *inbound.Settler
	asked    askedAbout
	reader   *reader.Reader
	sockets  []*live
	receiver *receiver.Receiver // nil: none

	yields atomic.Bool // a poller reads and listens in our place
	// lasting, when set, is for how long what is owed when work has to end may
	// still be paid: until it ends, and no longer than payFor.
	lasting context.Context
}

// newReplies builds it. Nothing is read and nothing runs.
func newReplies(d *deployment, who string, told bool) *replies {
	r := &replies{d: d, told: told, pipeline: d.pipeline()}
	r.settler = d.settler(r.pipeline)
	r.reader = reader.New(reader.Options{
		Root: d.root, Role: d.root.Role(state.ReaderRole), Who: fmt.Sprintf("%s, process %d", who, os.Getpid()),
		Sources: r.sources(), Beside: r.beside(), Watched: r.watched,
		Take: r.pipeline.Take, Interval: d.config.Polling.Interval, Log: d.logger,
	})
	return r
}

// sources are what is read: what a door or a socket tells of is only caught up
// with.
func (r *replies) sources() (sources []reader.Source) {
	d, hook := r.d, r.d.config.Webhook
	var polled, listened []*slack.Channel
	for _, ch := range d.config.Channels {
		c, ok := d.channel(ch.Name).(*slack.Channel)
		switch {
		case !ok:
		case ch.SocketMode():
			listened = append(listened, c)
			r.addSocket(ch, c)
		case r.told && !hook.SlackSigningSecret.IsZero():
			listened = append(listened, c)
		default:
			polled = append(polled, c)
		}
	}
	if len(polled) > 0 {
		sources = append(sources, slack.NewSource(polled...))
	}
	if len(listened) > 0 {
		sources = append(sources, caughtUp{slack.NewSource(listened...)})
	}
	if d.github != nil {
		s := reader.Source(github.NewSource(github.SourceOptions{
			Client: d.github, Repos: d.config.GitHub.Repos, Watched: r.watches,
		}))
		if r.told && !hook.GitHubSecret.IsZero() {
			s = caughtUp{s}
		}
		sources = append(sources, s)
	}
	return sources
}

// beside are the sockets: whoever reads also listens.
func (r *replies) beside() (do []func(ctx context.Context)) {
	for _, s := range r.sockets {
		do = append(do, s.listen)
	}
	return do
}

// caughtUp is a source whose messages come in by themselves.
type caughtUp struct{ reader.Source }

func (caughtUp) Every() time.Duration { return catchUpEvery }

// addSocket adds a room to the socket of its app, or a new one.
func (r *replies) addSocket(ch config.Channel, c *slack.Channel) {
	for _, s := range r.sockets {
		if s.token == ch.AppToken && s.url == ch.APIURL {
			s.rooms = append(s.rooms, c)
			return
		}
	}
	r.sockets = append(r.sockets, &live{
		r: r, name: ch.Name, url: ch.APIURL, token: ch.AppToken, rooms: []*slack.Channel{c},
	})
}

// pipeline is where everything that comes in goes.
func (d *deployment) pipeline() *inbound.Pipeline {
	o := inbound.Options{
		Root: d.root, Log: d.log, Logger: d.logger, Mirrors: d.config.Ledger != "none", Shown: d.shown,
	}
	for _, p := range d.config.People {
		o.People = append(o.People, inbound.Person{Name: p.Name, GitHub: p.GitHub, Slack: p.Slack})
	}
	for _, r := range d.routes {
		if _, ok := r.Channel.(inbound.Responder); ok {
			o.Surfaces = append(o.Surfaces, r.Channel.Name())
		}
	}
	if d.config.Ledger == "github" {
		o.Surfaces = append(o.Surfaces, inbound.Ledger)
	}
	return inbound.New(o)
}

// askedAbout is the last answer of watched, which counts for a moment: many
// messages may ask at once.
type askedAbout struct {
	mu   sync.Mutex
	at   time.Time
	list []reader.Watched
}

const askedAboutFor = 250 * time.Millisecond

// watched gives the work items that somebody was asked about lately.
func (r *replies) watched() []reader.Watched {
	r.asked.mu.Lock()
	defer r.asked.mu.Unlock()
	if time.Since(r.asked.at) > askedAboutFor {
		r.asked.list, r.asked.at = r.listWatched(), time.Now()
	}
	return r.asked.list
}

func (r *replies) listWatched() []reader.Watched {
	all, err := r.pipeline.Questions()
	if err != nil && all == nil {
		r.d.logger.Warn("the questions cannot be listed", "error", err)
	}
	at := map[string]int{}
	var out []reader.Watched
	for _, q := range all {
		open := q.State == questions.StateOpen
		if !open && time.Since(q.AskedAt) > watchedFor {
			continue
		}
		i, there := at[q.WorkItem]
		if !there {
			i = len(out)
			at[q.WorkItem] = i
			out = append(out, reader.Watched{WorkItem: q.WorkItem, Since: q.AskedAt})
		}
		out[i].Open = out[i].Open || open
	}
	return out
}

// watches says in which spelling a work item is watched.
func (r *replies) watches(workItem string) (as string, ok bool) {
	for _, w := range r.watched() {
		if strings.EqualFold(w.WorkItem, workItem) {
			return w.WorkItem, true
		}
	}
	return "", false
}

// doors gives the paths that the config has a secret for.
func (r *replies) doors() map[string]receiver.Door {
	doors := map[string]receiver.Door{}
	hook := r.d.config.Webhook
	if !hook.GitHubSecret.IsZero() {
		o := github.DoorOptions{Secret: hook.GitHubSecret, Repos: r.d.config.GitHub.Repos, Watched: r.watches}
		if r.d.github != nil {
			o.Self = r.d.github.Self
		}
		doors["/github"] = github.NewDoor(o)
	}
	if !hook.SlackSigningSecret.IsZero() {
		o := slack.DoorOptions{Secret: hook.SlackSigningSecret, Rooms: r.d.rooms()}
		doors["/slack/events"] = slack.NewEventsDoor(o)
		doors["/slack/interactions"] = slack.NewInteractionsDoor(o)
	}
	return doors
}

func (d *deployment) rooms() (rooms []*slack.Channel) {
	for _, r := range d.routes {
		if c, ok := r.Channel.(*slack.Channel); ok {
			rooms = append(rooms, c)
		}
	}
	return rooms
}

// receive makes the receiver, which is not running. It fails when a door has no
// secret: what is not signed would be let in.
func (r *replies) receive() (http.Handler, error) {
	r.receiver = receiver.New(receiver.Options{Doors: r.doors(), Take: r.pipeline.Take, Logger: r.d.logger})
	return r.receiver, r.receiver.Ready()
}

// state says how it is, for the heartbeat.
func (r *replies) state() status.Inbound {
	c := r.pipeline.Counts()
	in := status.Inbound{Taken: c.Taken, Dropped: c.Dropped, Strangers: c.Strangers}
	in.Owed, _ = r.pipeline.Owed()
	for _, s := range r.reader.State() {
		if !r.yields.Load() { // how it was when we read last is no news
			in.Sources = append(in.Sources, status.SourceState(s))
		}
	}
	for _, s := range r.sockets {
		if state, ok := s.state(); ok {
			in.Sockets = append(in.Sockets, status.SocketState{
				Channel: s.name, Connected: state.Connected, Since: state.Since, Listeners: state.Listeners,
				LastError: state.LastError,
			})
		}
	}
	if r.receiver != nil {
		c := r.receiver.Counts()
		in.Forged, in.Unheard = c.Forged, c.Dropped
	}
	return in
}

// runs are what reads and settles, in the order in which they start: the last to
// start is the first to stop. A process that is told reads and listens only
// while no poller does.
func (r *replies) runs() []daemon.Runner {
	runs := []daemon.Runner{&loop{run: r.work}}
	if !r.told {
		return append(runs, r.reader)
	}
	runs = append(runs, &loop{run: func(ctx context.Context) {
		r.d.whilePolled(ctx, func(polled bool) {
			r.yields.Store(polled)
			if polled {
				r.reader.Stop()
			} else {
				r.reader.Start(ctx)
			}
		})
		r.reader.Stop()
	}})
	return append(runs, r.receiver)
}

// pay pays what is owed, as far as that takes no more than a moment; a daemon
// does the rest.
func (d *deployment) pay(ctx context.Context) {
	ctx, cancel := context.WithTimeoutCause(ctx, payFor, errors.New(payFor.String()+" have passed"))
	defer cancel()
	_, _ = d.settler(d.pipeline()).Settle(ctx)
}

// settler pays what the pipeline owes.
func (d *deployment) settler(p *inbound.Pipeline) *inbound.Settler {
	return &inbound.Settler{Pipeline: p, Responder: d.responder, Mirror: d.copyAnswer, Ending: d.ending}
}

// buttons reports whether a press can come back from every Slack room.
func (d *deployment) buttons() bool {
	any := false
	for _, ch := range d.config.Channels {
		if ch.Type != "slack" {
			continue
		}
		if ok, _ := d.config.Pressable(ch); !ok {
			return false
		}
		any = true
	}
	return any
}
