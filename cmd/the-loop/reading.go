package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync"
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
	// housework is how often expired questions and old debts are looked for.
	housework = 15 * time.Second
)

// replies is everything by which replies come in, and what becomes of them, for
// one config.
type replies struct {
	d        *deployment
	who      string
	pipeline *inbound.Pipeline
	settler  *inbound.Settler
	asked    askedAbout
	reader   *reader.Reader
	sockets  []*live
	receiver *receiver.Receiver // nil: none
}

// newReplies builds it. Nothing is read and nothing runs.
func newReplies(d *deployment, who string) *replies {
	r := &replies{d: d, who: who, pipeline: d.pipeline()}
	r.settler = &inbound.Settler{Pipeline: r.pipeline, Responder: d.responder, Mirror: d.copyAnswer, Ending: d.ending}
	var polled, listened []*slack.Channel
	for _, ch := range d.config.Channels {
		c, ok := d.channel(ch.Name).(*slack.Channel)
		switch {
		case !ok:
		case ch.SocketMode():
			listened = append(listened, c)
			r.addSocket(ch, c)
		default:
			polled = append(polled, c)
		}
	}
	var sources []reader.Source
	if len(polled) > 0 {
		sources = append(sources, slack.NewSource(polled...))
	}
	if len(listened) > 0 {
		sources = append(sources, caughtUp{slack.NewSource(listened...)})
	}
	if d.github != nil {
		sources = append(sources, github.NewSource(github.SourceOptions{
			Client: d.github, Repos: d.config.GitHub.Repos, Watched: r.watches,
		}))
	}
	r.reader = reader.New(reader.Options{
		Root: d.root, Role: d.root.Role(state.ReaderRole), Who: signed(who), Sources: sources, Watched: r.watched,
		Take: r.pipeline.Take, Interval: d.config.Polling.Interval, Log: d.logger,
	})
	return r
}

// signed is how a process signs the roles that it takes.
func signed(who string) string { return fmt.Sprintf("%s, process %d", who, os.Getpid()) }

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
	all, _, err := questions.List(r.d.root)
	if err != nil {
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

// receive makes the receiver. It fails when a door has no secret: what is not
// signed would be let in.
func (r *replies) receive() (http.Handler, error) {
	r.receiver = receiver.New(receiver.Options{Doors: r.doors(), Take: r.pipeline.Take, Logger: r.d.logger})
	if err := r.receiver.Ready(); err != nil {
		r.receiver.Close()
		return nil, err
	}
	return r.receiver, nil
}

// settle pays what is owed, and closes what has expired.
func (r *replies) settle(ctx context.Context) {
	expired, err := questions.Expire(ctx, r.d.root, time.Now())
	for _, q := range expired {
		_ = r.d.log.Expired(ctx, subjectOf(q))
	}
	err = errors.Join(err, r.pipeline.Closed(ctx, expired...))
	_, failed := r.settler.Settle(ctx)
	if err := errors.Join(err, failed); err != nil && ctx.Err() == nil {
		r.d.logger.WarnContext(ctx, "what became of replies is not shown yet", "error", err)
	}
}

// state says how it is, for the heartbeat.
func (r *replies) state() status.Inbound {
	c := r.pipeline.Counts()
	in := status.Inbound{Taken: c.Taken, Dropped: c.Dropped, Strangers: c.Strangers}
	in.Owed, _ = r.pipeline.Owed()
	for _, s := range r.reader.State() {
		in.Sources = append(in.Sources, status.SourceState(s))
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

// runs are what reads and settles, in the order in which they start. With polls
// everything is read all the time; else it is only caught up with.
func (r *replies) runs(polls bool) []daemon.Runner {
	runs := []daemon.Runner{&loop{run: r.work}}
	if polls {
		runs = append(runs, r.reader)
	} else {
		runs = append(runs, &loop{run: r.catchUp})
	}
	for _, s := range r.sockets {
		runs = append(runs, &loop{run: s.run})
	}
	if r.receiver != nil { // the last to start is the first to stop
		runs = append(runs, &loop{run: func(ctx context.Context) { <-ctx.Done(); r.receiver.Close() }})
	}
	return runs
}

// work settles whenever something is owed, and does the housework.
func (r *replies) work(ctx context.Context) {
	defer r.pipeline.Close()
	for _, c := range r.d.rooms() {
		// Who our bot is makes its markers worth something. Without it they are
		// not counted, and everything that a bot wrote is dropped all the same.
		_ = c.Introduce(ctx)
	}
	tick := time.NewTicker(housework)
	defer tick.Stop()
	for {
		r.settle(ctx)
		select {
		case <-ctx.Done():
			return
		case <-r.pipeline.Owes():
		case <-tick.C:
		}
	}
}

// catchUp reads what a receiver may have missed: at its start, when the machine
// slept, and every quarter of an hour.
func (r *replies) catchUp(ctx context.Context) {
	tick := time.NewTicker(time.Minute)
	defer tick.Stop()
	var last, looked time.Time
	for {
		now := time.Now()
		// The monotonic clock stands still while the machine sleeps.
		slept := now.Round(0).Sub(looked.Round(0))-now.Sub(looked) > time.Minute
		if looked = now; slept || last.IsZero() || now.Sub(last) >= catchUpEvery {
			r.catchUpOnce(ctx)
			last = time.Now()
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

func (r *replies) catchUpOnce(ctx context.Context) {
	err := r.reader.CatchUp(ctx)
	if err != nil && !errors.Is(err, reader.ErrElsewhere) && ctx.Err() == nil {
		r.d.logger.WarnContext(ctx, "not all could be read that may have been missed", "error", err)
	}
}

// closed shows people how a question ended that was closed in another way than
// by a reply, as far as that takes no more than a moment; a daemon does the rest.
func (d *deployment) closed(ctx context.Context, q questions.Question) {
	r := newReplies(d, "questions")
	defer r.pipeline.Close()
	ctx, cancel := context.WithTimeoutCause(ctx, 5*time.Second, errors.New("5s have passed"))
	defer cancel()
	if err := r.pipeline.Closed(ctx, q); err != nil {
		d.logger.WarnContext(ctx, "what is owed could not be written down", "error", err)
		return
	}
	_, _ = r.settler.Settle(ctx)
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
