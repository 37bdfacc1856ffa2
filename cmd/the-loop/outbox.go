package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"the-loop/channels"
	"the-loop/internal/eventlog"
	"the-loop/internal/term"
	"the-loop/outbox"
)

func outboxCommand(w world) *cli.Command {
	return &cli.Command{
		Name:        "outbox",
		Usage:       "look at what waits, and work on it",
		Description: example("the-loop outbox list", "the-loop outbox retry --all && the-loop outbox drain"),
		Subcommands: []*cli.Command{
			{
				Name:        "list",
				Usage:       "what waits, what needs a person, and why",
				Description: example("the-loop outbox list", "the-loop outbox list --evicted --format json"),
				Flags: []cli.Flag{
					switchFlag("all", "show what the cap evicted too"),
					switchFlag("evicted", "show what the cap evicted, and nothing else"),
					formatFlag(),
				},
				Action: withDeployment(w, outboxList),
			},
			{
				Name: "show", Usage: "everything about one entry, its text included", ArgsUsage: "ID",
				Description: example("the-loop outbox show 01KB3Z0000000000000000000A"),
				Flags:       []cli.Flag{formatFlag()},
				Action:      withDeployment(w, outboxShow),
			},
			{
				Name: "retry", Usage: "make entries due now", ArgsUsage: "ID… | --all",
				Description: example("the-loop outbox retry --all"),
				Flags:       []cli.Flag{switchFlag("all", "all entries"), formatFlag()},
				Action:      withDeployment(w, outboxRetry),
			},
			{
				Name: "drop", Usage: "remove entries for good; prints each event first", ArgsUsage: "ID…",
				Description: example("the-loop outbox drop 01KB3Z0000000000000000000A"),
				Flags:       []cli.Flag{switchFlag("yes", "do not ask", "y")},
				Action:      withDeployment(w, outboxDrop),
			},
			{
				Name: "send-again", Usage: "send once more what provably never arrived", ArgsUsage: "ID",
				Description: example("the-loop outbox send-again 01KB3Z0000000000000000000A"),
				Flags: []cli.Flag{
					switchFlag("i-know-it-may-double", "also what may have arrived"), formatFlag(),
				},
				Action: withDeployment(w, outboxSendAgain),
			},
			{
				Name: "recheck", Usage: "adopt a copied root: doubt all that waits", ArgsUsage: "--all",
				Description: example("the-loop outbox recheck --all"),
				Flags:       []cli.Flag{switchFlag("all", "all entries"), formatFlag()},
				Action:      withDeployment(w, outboxRecheck),
			},
			{
				Name: "drain", Usage: "deliver now what is due, in the foreground",
				Description: example("the-loop outbox retry --all && the-loop outbox drain"),
				Flags:       []cli.Flag{formatFlag()},
				Action:      withDeployment(w, outboxDrain),
			},
		},
	}
}

// withDeployment opens the deployment before a command that needs one.
func withDeployment(w world, f func(c *cli.Context, w world, d *deployment) error) cli.ActionFunc {
	return func(c *cli.Context) error {
		d, err := open(c, w)
		if err != nil {
			return err
		}
		return f(c, w, d)
	}
}

// entryView is an entry as `outbox list --format json` shows it: without its
// text.
type entryView struct {
	ID            string                      `json:"id"`
	At            time.Time                   `json:"at"`
	State         channels.State              `json:"state"`
	NeedsPerson   bool                        `json:"needsPerson"`
	Attempts      int                         `json:"attempts"`
	NextAttemptAt *time.Time                  `json:"nextAttemptAt"`
	LastError     string                      `json:"lastError"`
	Channels      []string                    `json:"channels"`
	Deliveries    map[string]*outbox.Delivery `json:"deliveries"`
	EventType     string                      `json:"eventType"`
	WorkItem      string                      `json:"workItem"`
	EvictedAt     *time.Time                  `json:"evictedAt,omitempty"`
	Event         *channels.Event             `json:"event,omitempty"` // show only
	Story         []eventlog.Line             `json:"story,omitempty"` // show only

	lookedUp bool // look-ups will tell what became of some of it
}

func (d *deployment) view(e *outbox.Entry) entryView {
	ev, _ := e.Event() // it was decoded once already
	v := entryView{
		ID: e.ID, At: e.At, State: e.State(), NeedsPerson: e.NeedsPerson(time.Now(), d.lane),
		Attempts: e.Attempts, LastError: e.LastError, Channels: append([]string{}, e.Channels...),
		Deliveries: e.Deliveries, EventType: ev.Type, WorkItem: ev.WorkItem,
	}
	if !v.NeedsPerson {
		if at, ok := d.nextAttempt(e); ok {
			v.NextAttemptAt = &at
		}
		v.lookedUp = d.isLookedUp(e)
	}
	return v
}

// nextAttempt is when the first of the entry's deliveries may go out, as far
// as the message and the channel's standing are concerned.
func (d *deployment) nextAttempt(e *outbox.Entry) (next time.Time, ok bool) {
	for _, r := range d.routes {
		at, due := e.DueAt(r.Channel.Name(), d.store.Backoff())
		if !due {
			continue
		}
		if st := d.store.Standing(r.Asker()); st != nil && st.Until.After(at) {
			at = st.Until
		}
		if !ok || at.Before(next) {
			next, ok = at, true
		}
	}
	return next, ok
}

func outboxList(c *cli.Context, w world, d *deployment) error {
	asJSON, err := wantsJSON(c)
	if err != nil {
		return err
	}
	if err := noArguments(c); err != nil {
		return err
	}
	views := []entryView{}
	bad, damaged := 0, false
	var unread error // with it there is still what could be read
	if !c.Bool("evicted") {
		var entries []*outbox.Entry
		entries, bad, damaged, unread = d.store.Entries()
		for _, e := range entries {
			views = append(views, d.view(e))
		}
	}
	if c.Bool("evicted") || c.Bool("all") {
		gone, err := d.store.Evicted()
		if err != nil {
			return failed(err)
		}
		for _, g := range gone {
			if e, err := g.Decode(); err == nil {
				v := d.view(e)
				v.EvictedAt, v.NextAttemptAt, v.NeedsPerson = &g.EvictedAt, nil, false
				views = append(views, v)
			}
		}
	}
	if asJSON {
		if err := printJSON(w.stdout, views); err != nil || unread == nil {
			return err
		}
		return failed(unread)
	}
	printEntries(w, views)
	if len(views) == 0 && bad == 0 && !damaged && unread == nil {
		printf(w.stdout, "nothing waits\n")
	}
	if damaged {
		printf(w.stderr, "note: channels/undelivered.json is damaged; the next publish or drain sets it aside\n")
	}
	if bad > 0 {
		printf(w.stderr, "note: %s cannot be read; the next drain sets that aside\n", counted(bad, "entry", "entries"))
	}
	if unread != nil {
		return failed(unread)
	}
	return nil
}

func printEntries(w world, views []entryView) {
	group := func(title string, want func(entryView) bool) {
		t := term.Table{Columns: []term.Column{
			{Title: "id"}, {Title: "since"}, {Title: "next try"}, {Title: "type", Flex: true},
		}}
		var why [][]string
		for _, v := range views {
			if want(v) {
				t.Row(v.ID, term.Ago(time.Now(), v.At), nextTryText(v), v.EventType)
				why = append(why, whyLines(v))
			}
		}
		if len(why) == 0 {
			return
		}
		var table strings.Builder
		_ = t.Write(&table)
		head, rows, _ := strings.Cut(table.String(), "\n")
		printf(w.stdout, "%s\n%s\n", title, head)
		for row := range strings.Lines(rows) {
			printf(w.stdout, "%s", row)
			for _, line := range why[0] {
				printf(w.stdout, "    %s\n", term.Clean(line))
			}
			why = why[1:]
		}
	}
	group("waiting", func(v entryView) bool { return !v.NeedsPerson && v.EvictedAt == nil })
	group("needs a person (outbox show ID tells what helps)", func(v entryView) bool { return v.NeedsPerson })
	group("evicted by the cap", func(v entryView) bool { return v.EvictedAt != nil })
}

func nextTryText(v entryView) string {
	switch {
	case v.State == channels.StateSending:
		return "now"
	case v.NextAttemptAt == nil && v.lookedUp:
		return "looked up"
	case v.NextAttemptAt == nil:
		return "-"
	case !v.NextAttemptAt.After(time.Now()):
		return "next cycle"
	}
	return "in " + term.Span((time.Until(*v.NextAttemptAt) + time.Second - 1).Truncate(time.Second))
}

// whyLines gives the last error of every channel that is still owed the event.
func whyLines(v entryView) []string {
	var out []string
	for _, name := range v.Channels {
		d := v.Deliveries[name]
		if d == nil { // of a file that holds no deliveries yet
			out = append(out, firstOf(v.LastError, name+": not tried yet"))
			break
		}
		line := name + ": " + string(d.State)
		if d.State == channels.StatePending && d.Reason == channels.ReasonHeld {
			line = name + ": not asked yet"
		}
		if d.Code != "" {
			line += ", " + d.Code
		}
		switch {
		case d.Unjudgeable != "":
			line += "; " + noLookUp(d)
		case d.Detail != "":
			line += " (" + d.Detail + ")"
		}
		out = append(out, line)
	}
	return out
}

// find gives the entry with that id, or with the only id that begins so.
func (d *deployment) find(id string) (*outbox.Entry, error) {
	entries, _, _, unread := d.store.Entries() // with an error, what could be read
	var found []*outbox.Entry
	for _, e := range entries {
		if e.ID == id {
			return e, nil
		}
		if strings.HasPrefix(strings.ToUpper(e.ID), strings.ToUpper(id)) {
			found = append(found, e)
		}
	}
	switch len(found) {
	case 1:
		return found[0], nil
	case 0:
		if left, ok := d.left(id); ok {
			return nil, failed(fmt.Errorf("%s is not in the outbox any more: %s", left.ID, left.How)).
				withHint("the-loop outbox show %s", left.ID)
		}
		if unread != nil {
			return nil, failed(unread)
		}
		return nil, noEntry(id)
	}
	return nil, usage("%s is the beginning of %d ids: type more of it", id, len(found))
}

func noEntry(id string) *failure {
	return usage("%w: %s", outbox.ErrNoEntry, id).withHint("the-loop outbox list")
}

// left gives what became of an entry that is not in the outbox any more. An id
// is found in upper case too.
func (d *deployment) left(id string) (outbox.Left, bool) {
	for _, id := range []string{id, strings.ToUpper(id)} {
		if left, ok, err := d.store.Left(id); err == nil && ok && !d.waits(left.ID) {
			return left, true
		}
	}
	return outbox.Left{}, false
}

// findAll is find for several; one that is not there stops all of it.
func (d *deployment) findAll(ids []string) ([]*outbox.Entry, error) {
	var out []*outbox.Entry
	for _, id := range ids {
		e, err := d.find(id)
		if err != nil {
			return nil, err
		}
		if !slices.ContainsFunc(out, func(other *outbox.Entry) bool { return other.ID == e.ID }) {
			out = append(out, e)
		}
	}
	return out, nil
}
