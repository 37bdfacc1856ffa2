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

func outboxShow(c *cli.Context, w world, d *deployment) error {
	asJSON, err := wantsJSON(c)
	if err != nil {
		return err
	}
	if c.NArg() != 1 {
		return usage("show wants one id").withHint("the-loop outbox list")
	}
	id := c.Args().First()
	if left, ok := d.left(id); ok {
		return showLeft(w, d, left, asJSON)
	}
	e, err := d.find(id)
	if err != nil {
		return err
	}
	v := d.view(e)
	ev, err := e.Event()
	if err != nil {
		return failed(err)
	}
	v.Event, v.Story = &ev, d.story(e.ID)
	if asJSON {
		return printJSON(w.stdout, v)
	}
	printEntry(w, d, v)
	return nil
}

// waits reports whether an entry with exactly that id is in the outbox.
func (d *deployment) waits(id string) bool {
	_, ok, _ := d.store.Entry(id) // with an error, as far as could be read
	return ok
}

// story gives what the event log says of an entry, oldest first.
func (d *deployment) story(id string) []eventlog.Line {
	lines := []eventlog.Line{}
	_ = eventlog.Read(d.root, func(l eventlog.Line) bool { // a story without its log is short, and no error
		if l.EntryID == id {
			lines = append(lines, l)
		}
		return true
	})
	return lines
}

// showLeft tells what became of an entry that is not in the outbox any more.
func showLeft(w world, d *deployment, left outbox.Left, asJSON bool) error {
	story := d.story(left.ID)
	if asJSON {
		return printJSON(w.stdout, struct {
			outbox.Left
			Story []eventlog.Line `json:"story"`
		}{left, story})
	}
	row := rows(w)
	row("id", left.ID)
	how := fmt.Sprintf("%s, %s", left.How, term.Ago(time.Now(), left.LeftAt))
	if left.ResentAs != "" {
		how += ", as " + left.ResentAs
	}
	row("left", how)
	row("since", fmt.Sprintf("%s (%s)", left.At.Format(time.RFC3339), term.Ago(time.Now(), left.At)))
	row("type", left.EventType)
	row("about", left.WorkItem)
	printDeliveries(w, left.Deliveries)
	printStory(w, story)
	return nil
}

// rows prints a name and a value a line, and nothing for an empty value.
func rows(w world) func(name, value string) {
	return func(name, value string) {
		if value != "" {
			printf(w.stdout, "%-10s %s\n", name, term.Clean(value))
		}
	}
}

func printEntry(w world, d *deployment, v entryView) {
	row := rows(w)
	row("id", v.ID)
	row("since", fmt.Sprintf("%s (%s)", v.At.Format(time.RFC3339), term.Ago(time.Now(), v.At)))
	row("type", v.EventType)
	row("about", v.WorkItem)
	row("link", v.Event.URL)
	row("source", v.Event.Source)
	for _, line := range channels.DetailLines(v.Event.Detail) {
		row("detail", line)
	}
	name := "text"
	for line := range strings.Lines(v.Event.Text) {
		printf(w.stdout, "%s\n", strings.TrimRight(fmt.Sprintf("%-10s %s", name, term.Clean(strings.TrimSpace(line))), " "))
		name = ""
	}
	printDeliveries(w, v.Deliveries)
	printStory(w, v.Story)
	row("next try", nextTryText(v))
	if v.NeedsPerson {
		for _, name := range v.Channels {
			help := whatHelps(v.ID, name, v.Deliveries[name], d.lane(name))
			title := "what helps"
			for line := range strings.Lines(help) {
				row(title, strings.TrimSpace(line))
				title = ""
			}
		}
	}
}

func printDeliveries(w world, deliveries map[string]*outbox.Delivery) {
	row := rows(w)
	names := make([]string, 0, len(deliveries))
	for name := range deliveries {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		del := deliveries[name]
		line := fmt.Sprintf("%s: %s", name, del.State)
		if del.Code != "" {
			line += " (" + del.Code + ")"
		}
		if del.Detail != "" && del.Unjudgeable == "" {
			line += " " + del.Detail
		}
		line += ", " + counted(del.Attempts, "attempt", "attempts")
		if !del.At.IsZero() {
			line += ", " + term.Ago(time.Now(), del.At)
		}
		row("channel", line)
		if del.Reason != "" {
			row("", del.Reason.Words())
		}
		if del.Unjudgeable != "" {
			row("", noLookUp(del))
		}
		if del.ResentAs != "" {
			row("", "sent again as "+del.ResentAs)
		}
	}
}

// noLookUp says why nothing can tell what became of a delivery: the detail
// names what is needed.
func noLookUp(d *outbox.Delivery) string {
	text := "no look-up can tell: " + d.Unjudgeable
	if d.Detail != "" {
		text += " (" + d.Detail + ")"
	}
	return text
}

// printStory prints the event log's lines about one entry.
func printStory(w world, story []eventlog.Line) {
	name := "story"
	for _, l := range story {
		text := l.At.Local().Format(time.DateTime) + "  " + l.Event
		for _, more := range []string{l.Channel, l.Code, l.Error} {
			if more != "" {
				text += "  " + more
			}
		}
		if l.ResentAs != "" {
			text += "  sent again as " + l.ResentAs
		}
		printf(w.stdout, "%-10s %s\n", name, term.Clean(text))
		name = ""
	}
}

// whatHelps says what a person can do about a delivery that does not move by
// itself.
func whatHelps(id, name string, d *outbox.Delivery, l outbox.Lane) string {
	switch {
	case d.State == channels.StateDead:
		return fmt.Sprintf("%s: the-loop outbox retry %s, or drop %s", name, id, id)
	case d.State == channels.StateLost:
		return fmt.Sprintf("%s: the-loop outbox send-again %s", name, id)
	case l.Witness:
		return fmt.Sprintf("%s: mend what keeps it from being looked up, or look yourself and drop %s, or\n"+
			"the-loop outbox send-again --i-know-it-may-double %s", name, id, id)
	}
	return fmt.Sprintf("%s: look whether it arrived; if so the-loop outbox drop %s, if not\n"+
		"the-loop outbox send-again --i-know-it-may-double %s", name, id, id)
}
