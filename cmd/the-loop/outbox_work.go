package main

import (
	"bufio"
	"errors"
	"fmt"
	"strings"

	"github.com/urfave/cli/v2"

	"the-loop/channels"
	"the-loop/internal/eventlog"
	"the-loop/internal/term"
	"the-loop/outbox"
	"the-loop/state"
)

func outboxRetry(c *cli.Context, w world, d *deployment) error {
	asJSON, err := wantsJSON(c)
	if err != nil {
		return err
	}
	if c.Bool("all") == c.Args().Present() {
		return usage("retry wants ids, or --all")
	}
	if err := d.recoverDead(c.Context, "outbox retry"); err != nil {
		return failed(err)
	}
	entries, err := d.findAll(c.Args().Slice())
	if err != nil {
		return err
	}
	var ids []string
	for _, e := range entries {
		ids = append(ids, e.ID)
	}
	done, err := d.store.Retry(c.Context, ids...)
	if err != nil {
		return failed(err)
	}
	var names []string
	left := 0
	for _, r := range done {
		names = append(names, r.Due...)
		if len(r.Due) == 0 {
			left++
		}
	}
	if len(names) > 0 {
		if err := d.store.Release(c.Context, names...); err != nil {
			return failed(err)
		}
	}
	if asJSON {
		if err := printJSON(w.stdout, append([]outbox.Retried{}, done...)); err != nil {
			return failed(err)
		}
	} else {
		printRetried(w, done)
	}
	if len(ids) > 0 && left > 0 {
		return &failure{code: exitDidNotHappen}
	}
	return nil
}

func printRetried(w world, done []outbox.Retried) {
	due := 0
	for _, r := range done {
		if len(r.Due) > 0 {
			due++
		}
		for name, why := range r.Left {
			printf(w.stderr, "note: %s is left as it is for %s: %s\n", r.ID, term.Clean(name), why)
		}
	}
	printf(w.stdout, "%d of %s due now\n", due, counted(len(done), "entry", "entries"))
}

func counted(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

func outboxDrop(c *cli.Context, w world, d *deployment) error {
	if !c.Args().Present() {
		return usage("drop wants at least one id").withHint("the-loop outbox list")
	}
	if err := d.recoverDead(c.Context, "outbox drop"); err != nil {
		return failed(err)
	}
	entries, err := d.findAll(c.Args().Slice())
	if err != nil {
		return err
	}
	answers := bufio.NewReader(w.stdin)
	for _, e := range entries {
		ev, err := e.Event()
		if err != nil {
			return failed(err)
		}
		if err := printEvent(w.stdout, ev); err != nil { // it would be gone for good
			return failed(err)
		}
		if !c.Bool("yes") {
			printf(w.stderr, "drop %s for good? [y/N] ", e.ID)
			if line, _ := answers.ReadString('\n'); strings.ToLower(strings.TrimSpace(line)) != "y" {
				printf(w.stderr, "left as it is\n")
				return &failure{code: exitDidNotHappen}
			}
		}
		if _, err := d.store.Drop(c.Context, e.ID); errors.Is(err, outbox.ErrInHand) {
			who, _ := d.root.Role(state.DrainRole).Holder()
			return failed(err).withHint("%s drains this root; try again in a moment", firstOf(who, "a drainer"))
		} else if err != nil {
			return failed(err)
		}
		printf(w.stderr, "dropped %s\n", e.ID)
	}
	return nil
}

func outboxSendAgain(c *cli.Context, w world, d *deployment) error {
	asJSON, err := wantsJSON(c)
	if err != nil {
		return err
	}
	if c.NArg() != 1 {
		return usage("send-again wants one id").withHint("the-loop outbox list")
	}
	if err := d.recoverDead(c.Context, "outbox send-again"); err != nil {
		return failed(err)
	}
	id := c.Args().First()
	sub := eventlog.Subject{}
	if e, err := d.find(id); err == nil {
		id = e.ID
		ev, _ := e.Event() // it was decoded once already
		sub = eventlog.Subject{EventType: ev.Type, WorkItem: ev.WorkItem}
	}
	sub.EntryID = id
	newID, err := d.store.SendAgain(c.Context, id, c.Bool("i-know-it-may-double"), func(channel string) bool {
		return d.lane(channel).Witness
	})
	switch {
	case errors.Is(err, outbox.ErrMayDouble):
		return failed(err).
			withHint("look whether it arrived; if not, the-loop outbox send-again --i-know-it-may-double %s", id)
	case errors.Is(err, outbox.ErrInHand):
		return failed(err).withHint("%s drains this root; try again in a moment", d.drainer())
	case errors.Is(err, outbox.ErrNoEntry):
		return noEntry(id)
	case errors.Is(err, outbox.ErrNothingLost):
		if e, err := d.find(id); err == nil && d.isLookedUp(e) {
			return failed(outbox.ErrNothingLost).
				withHint("it is being looked up, which tells what became of it: the-loop outbox show %s", id)
		}
		return failed(err)
	case err != nil:
		return failed(err)
	}
	_ = d.log.SentAgain(c.Context, sub, newID)
	if asJSON {
		err = printJSON(w.stdout, map[string]string{"id": id, "resentAs": newID})
	} else {
		_, err = fmt.Fprintf(w.stdout, "%s is sent again as %s by the next drain\n", id, newID)
	}
	if err != nil {
		return failed(err)
	}
	return nil
}

// isLookedUp reports whether look-ups may still tell what became of a delivery
// that the entry owes.
func (d *deployment) isLookedUp(e *outbox.Entry) bool {
	for _, name := range e.Owed() {
		row := e.Deliveries[name]
		if row.State == channels.StateUncertain && row.Judgeable(d.lane(name)) {
			return true
		}
	}
	return false
}

// drainer names who drains this root right now.
func (d *deployment) drainer() string {
	who, _ := d.root.Role(state.DrainRole).Holder()
	return firstOf(who, "a drainer")
}

func outboxRecheck(c *cli.Context, w world, d *deployment) error {
	asJSON, err := wantsJSON(c)
	if err != nil {
		return err
	}
	if !c.Bool("all") || c.Args().Present() {
		return usage("recheck wants --all: a root is adopted as a whole")
	}
	release, held, err := d.root.Role(state.DrainRole).Take("outbox recheck")
	if err != nil {
		return failed(err)
	}
	if !held {
		return failed(errors.New("somebody drains this root right now")).withHint("stop %s first", d.drainer())
	}
	defer release()
	n, err := d.store.Recheck(c.Context)
	if err != nil {
		return failed(err)
	}
	if err := d.root.Adopt(c.Context); err != nil {
		return failed(err)
	}
	if asJSON {
		err = printJSON(w.stdout, map[string]int{"doubted": n})
	} else {
		_, err = fmt.Fprintf(w.stdout, "this root is this machine's now; %s to be looked up, repeated by id or left to you\n",
			counted(n, "delivery is", "deliveries are"))
	}
	if err != nil {
		return failed(err)
	}
	return nil
}
