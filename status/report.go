// Package status says how a root is: which services run, and what is behind.
// It takes no lock that anybody waits for, writes nothing, and always answers;
// what it cannot read it names.
package status

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	"the-loop/channels"
	"the-loop/outbox"
	"the-loop/state"
)

// Source is what a report is made from.
type Source struct {
	Root   *state.Root
	Config string // path of the config file, "" when there is none
	Store  *outbox.Store
	// Services are those that there are, with whether the config enables them.
	Services []Service
	// Interval is the time between two drain cycles.
	Interval time.Duration
	// Askers are the channels as configured here and now.
	Askers []outbox.Asker
	// Lane tells what is known of a channel, its zero value of one that is not
	// configured. nil: none is.
	Lane func(channel string) outbox.Lane
	// Missing names the variables and files that the config wants and that are
	// not there.
	Missing []string
	// ConfigError is why the config cannot be used, in one line. What hangs on it
	// is not known then.
	ConfigError string
}

// Service is a daemon of this root.
type Service struct {
	Name    string `json:"name"`
	Enabled bool   `json:"enabled"`
	Running bool   `json:"running"`
	// Process is how the running one signs: "poller, process 4711".
	Process string `json:"process,omitempty"`
	// Heartbeat is what it last wrote, nil when it never did.
	Heartbeat *Heartbeat `json:"heartbeat,omitempty"`
}

// Heartbeat is what a daemon says of itself in run/<service>.json.
type Heartbeat struct {
	Version     string    `json:"version"`
	PID         int       `json:"pid"`
	StartedAt   time.Time `json:"startedAt"`
	LastCycleAt time.Time `json:"lastCycleAt,omitzero"`
	// LastError is why the last cycle failed, "" when it did not.
	LastError  string `json:"lastError,omitempty"`
	ConfigHash string `json:"configHash"`
	// Listen is the address that it listens on, with the port that it got.
	Listen string `json:"listen,omitempty"`
	// Missing names the variables that the daemon lacks, never their values.
	Missing []string `json:"missing"`
	// Inbound is what came in to it, nil where nothing does.
	Inbound *Inbound `json:"inbound,omitempty"`
}

// Report is the answer of `status --format json`.
type Report struct {
	// OK: the config can be used, every enabled service is running, and the root
	// can be written. A backlog never moves it.
	OK     bool   `json:"ok"`
	Root   string `json:"root"`
	Config string `json:"config"`
	// ConfigError is why the config cannot be used, "" when it can.
	ConfigError     string    `json:"configError"`
	Disk            Disk      `json:"disk"`
	Services        []Service `json:"services"`
	ChannelDelivery Delivery  `json:"channelDelivery"`
	// SetAside names damaged files that were set aside under the root.
	SetAside []string `json:"setAside"`
	Missing  []string `json:"missing"`
	// Evicted counts what the cap evicted in the last 30 days.
	Evicted int `json:"evicted"`
	// Unreadable names what could not be read, and why.
	Unreadable []string `json:"unreadable"`
}

// Delivery is the backlog in numbers.
type Delivery struct {
	Pending       int        `json:"pending"` // entries in the outbox
	Oldest        *time.Time `json:"oldest"`
	WaitedSeconds int64      `json:"waitedSeconds"`
	LastError     string     `json:"lastError"`
	// Channels are those that something is owed to.
	Channels []string `json:"channels"`
	// NeedsPerson counts the entries that will not move by themselves.
	NeedsPerson int `json:"needsPerson"`
	// NextTryAt is when the next of the others will be tried.
	NextTryAt *time.Time `json:"nextTryAt"`
	// Draining: a daemon is there that drains, and its cycles end well.
	Draining bool `json:"draining"`
	// Waiting names the channels that keep all the others waiting, with why:
	// "slack (invalid_auth)".
	Waiting []string `json:"waiting"`
	// PausedUntil is when the first pause ends, where pauses are all that keeps
	// the others waiting. A pause without an end ends in the year 9999.
	PausedUntil *time.Time `json:"pausedUntil"`
	// LookedUp: all the others wait for a look-up to tell what became of them.
	LookedUp bool `json:"lookedUp"`
	// BadEntries counts entries in the file that cannot be read; the next
	// change sets them aside.
	BadEntries int `json:"badEntries"`
	// Damaged: the file as a whole cannot be read; the next change sets it aside.
	Damaged bool `json:"damaged"`

	interval time.Duration
	unknown  bool   // what becomes of it, for the config cannot be used
	trouble  string // why the services that run do not drain, "" when none runs
}

// Make reads the root and reports.
func Make(src Source) Report {
	r := Report{
		Root: src.Root.Dir(), Config: src.Config, ConfigError: src.ConfigError, Disk: diskOf(src.Root.Dir()),
		Services: []Service{}, SetAside: []string{},
		Missing: append([]string{}, src.Missing...), Unreadable: []string{},
	}
	r.OK = r.ConfigError == "" && r.Disk.Trouble == ""
	if src.Lane == nil {
		src.Lane = func(string) outbox.Lane { return outbox.Lane{} }
	}
	unreadable := func(what string, err error) {
		if err != nil {
			r.Unreadable = append(r.Unreadable, fmt.Sprintf("%s: %v", what, cause(err)))
		}
	}
	for _, s := range src.Services {
		var err error
		s.Process, err = src.Root.Role(state.RunRole(s.Name)).Holder()
		unreadable(state.RunRole(s.Name), err)
		s.Running = s.Process != ""
		s.Heartbeat, err = ReadHeartbeat(src.Root, s.Name)
		unreadable(state.Heartbeat(s.Name), err)
		r.OK = r.OK && (s.Running || !s.Enabled)
		r.ChannelDelivery.drainedBy(s, src.Interval)
		r.Services = append(r.Services, s)
	}
	aside, err := outbox.SetAside(src.Root)
	unreadable("set-aside files", err)
	r.SetAside = append(r.SetAside, aside...)
	entries, bad, damaged, err := src.Store.Entries()
	unreadable(state.Outbox, err)
	for _, j := range src.Store.UnreadableJournals() {
		unreadable(j.Name, j.Err)
	}
	unreadable(state.Health, CheckHealth(src.Root))
	r.ChannelDelivery.fill(src, entries)
	r.ChannelDelivery.BadEntries, r.ChannelDelivery.Damaged = bad, damaged
	gone, err := src.Store.Evicted()
	unreadable(state.Evicted, err)
	for _, g := range gone {
		if time.Since(g.EvictedAt) < recently {
			r.Evicted++
		}
	}
	return r
}

// recently is how long status speaks of what the cap evicted.
const recently = 30 * 24 * time.Hour

// silence is the least time after which a service that reports no cycle is
// taken to hang: it writes its heartbeat once a minute when nothing changes.
const silence = 3 * time.Minute

// drainedBy takes into account what one service says of its cycles.
func (d *Delivery) drainedBy(s Service, interval time.Duration) {
	if !s.Running {
		return
	}
	trouble := ""
	// The heartbeat of the process before says nothing of the one that runs.
	if h := s.Heartbeat; h != nil && strings.HasSuffix(s.Process, fmt.Sprintf("process %d", h.PID)) {
		at := h.LastCycleAt
		if at.IsZero() {
			at = h.StartedAt
		}
		switch quiet := time.Since(at); {
		case quiet >= max(3*interval, silence):
			trouble = notAnswering(s.Name, quiet)
		case h.LastError != "":
			trouble = cyclesFail(s.Name)
		}
	}
	d.Draining = d.Draining || trouble == ""
	if d.trouble == "" {
		d.trouble = trouble
	}
}

// cause leaves the path out of an error that will stand behind it anyway.
func cause(err error) error {
	var p *fs.PathError
	if errors.As(err, &p) {
		return p.Err
	}
	return err
}

// CheckHealth says why the standing of channels is not known. The outbox takes
// it for good then, so that a damaged file stops nobody.
func CheckHealth(root *state.Root) error {
	b, err := root.Document(state.Health).Read()
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if b = bytes.TrimSpace(state.TrimBOM(b)); len(b) == 0 {
		return nil
	}
	var h struct {
		Version int `json:"version"`
	}
	if json.Unmarshal(b, &h) != nil {
		return errors.New("damaged; the next change sets it aside")
	}
	if h.Version > 1 {
		return errors.New("written by a newer version")
	}
	return nil
}

// ReadHeartbeat gives what a service said of itself last, nil when it never did.
func ReadHeartbeat(root *state.Root, service string) (*Heartbeat, error) {
	b, err := root.Document(state.Heartbeat(service)).Read()
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var h Heartbeat
	if err := json.Unmarshal(b, &h); err != nil {
		return nil, errors.New("damaged")
	}
	return &h, nil
}

func (d *Delivery) fill(src Source, entries []*outbox.Entry) {
	now := time.Now()
	d.Pending, d.interval, d.Channels, d.Waiting = len(entries), src.Interval, []string{}, []string{}
	if len(entries) == 0 {
		return
	}
	at := now // of an entry that does not know its time
	if i := slices.IndexFunc(entries, func(e *outbox.Entry) bool { return !e.At.IsZero() }); i >= 0 {
		at = entries[i].At
	}
	d.Oldest = &at
	d.unknown = src.ConfigError != ""
	d.WaitedSeconds = max(0, int64(now.Sub(at).Seconds()))
	standings := map[string]*outbox.Standing{}
	for _, a := range src.Askers {
		if st := src.Store.Standing(a); st != nil {
			standings[a.Channel] = st
		}
	}
	blockedBy := map[string]bool{}
	d.LookedUp = true
	var next, last time.Time
	for _, e := range entries {
		if !e.LastAttemptAt.Before(last) {
			last, d.LastError = e.LastAttemptAt, e.LastError
		}
		for _, name := range e.Owed() {
			if !slices.Contains(d.Channels, name) {
				d.Channels = append(d.Channels, name)
			}
		}
		if d.unknown {
			continue
		}
		if e.NeedsPerson(now, src.Lane) {
			d.NeedsPerson++
			continue
		}
		try, channel := nextTry(e, src, standings, now)
		if len(blockedBy) == 0 || try.Before(next) {
			next = try
		}
		blockedBy[channel] = true
		d.LookedUp = d.LookedUp && isLookedUp(e.Deliveries[channel], src.Lane(channel), now)
	}
	d.LookedUp = d.LookedUp && len(blockedBy) > 0
	slices.Sort(d.Channels)
	if len(blockedBy) > 0 {
		if next.IsZero() { // an entry that does not know its time is due
			next = now
		}
		d.NextTryAt = &next
	}
	d.Waiting = d.waiting(blockedBy, standings)
	d.PausedUntil = pausedUntil(blockedBy, standings)
}

// isLookedUp reports whether a look-up is all that the delivery waits for.
func isLookedUp(d *outbox.Delivery, l outbox.Lane, now time.Time) bool {
	return d != nil && d.State == channels.StateUncertain && !d.Repeatable(now, l)
}

// pausedUntil is when the first pause ends, if pauses and nothing else keep
// waiting what moves by itself.
func pausedUntil(blockedBy map[string]bool, standings map[string]*outbox.Standing) (until *time.Time) {
	for name := range blockedBy {
		st := standings[name]
		if st == nil || st.Verdict != outbox.Paused {
			return nil
		}
		if until == nil || st.Until.Before(*until) {
			until = &st.Until
		}
	}
	return until
}

// nextTry is when the entry's next delivery may go out, and by which channel.
func nextTry(
	e *outbox.Entry, src Source, standings map[string]*outbox.Standing, now time.Time,
) (at time.Time, channel string) {
	for _, name := range e.Owed() {
		d := e.Deliveries[name]
		due, ok := e.DueAt(name, src.Store.Backoff())
		if !ok {
			l := src.Lane(name)
			again := d.State == channels.StateUncertain && (d.Repeatable(now, l) || d.Judgeable(l))
			if !again && d.State != channels.StateSending {
				continue
			}
			due = d.At // at the next cycle, or in the air right now
		}
		if st := standings[name]; st != nil && st.Until.After(due) && d.State != channels.StateSending {
			due = st.Until
		}
		if channel == "" || due.Before(at) {
			at, channel = due, name
		}
	}
	return at, channel
}

// waiting names the channels if it is the standing of parked channels, and
// nothing else, that keeps what moves by itself waiting.
func (d *Delivery) waiting(blockedBy map[string]bool, standings map[string]*outbox.Standing) []string {
	out := []string{}
	for name := range blockedBy {
		st := standings[name]
		if st == nil || st.Reason != channels.ReasonAuth && st.Reason != channels.ReasonConfig {
			return []string{}
		}
		out = append(out, fmt.Sprintf("%s (%s)", name, st.Code))
	}
	slices.Sort(out)
	return out
}
