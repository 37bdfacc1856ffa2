package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/urfave/cli/v2"

	"the-loop/channels"
	"the-loop/drain"
	"the-loop/internal/term"
	"the-loop/outbox"
)

// turnTimeout is how long `outbox drain` waits for its turn.
const turnTimeout = 30 * time.Second

// drained is what `outbox drain` did.
type drained struct {
	Accepted  int `json:"accepted"`
	Refused   int `json:"refused"`
	Uncertain int `json:"uncertain"`
	// Left counts the entries that still wait.
	Left int `json:"left"`
}

func outboxDrain(c *cli.Context, w world, d *deployment) error {
	asJSON, err := wantsJSON(c)
	if err != nil {
		return err
	}
	if err := noArguments(c); err != nil {
		return err
	}
	var mu sync.Mutex
	opts := d.drain("outbox drain")
	opts.Outcome = func(cl outbox.Claimed, o channels.Outcome) {
		mu.Lock()
		defer mu.Unlock()
		text := fmt.Sprintf("%s  %s: %s", cl.Event.ID, cl.Channel, o.State)
		if e := o.Error(); e != "" {
			text += ", " + e
		}
		if !asJSON {
			printf(w.stdout, "%s\n", term.Clean(text))
		} else if term.IsTerminal(w.stderr) {
			printf(w.stderr, "%s\n", term.Clean(text))
		}
	}
	total, err := drainAll(c.Context, w, d, drain.New(opts))
	if err != nil {
		return err
	}
	if asJSON {
		err = printJSON(w.stdout, total)
	} else {
		printDrained(w, d, total)
	}
	if err != nil {
		return failed(err)
	}
	return nil
}

// drainAll runs cycles until one finds nothing more to send.
func drainAll(ctx context.Context, w world, d *deployment, dr *drain.Drainer) (total drained, err error) {
	if err := d.store.Release(ctx); err != nil {
		return total, failed(err)
	}
	giveUp := time.Now().Add(turnTimeout)
	told := ""
	for ctx.Err() == nil {
		r, err := dr.Cycle(ctx)
		if err != nil {
			return total, failed(err)
		}
		if r.Drainer != "" {
			if told != r.Drainer {
				told = r.Drainer
				printf(w.stderr, "waiting: %s drains this root\n", term.Clean(told))
			}
			if time.Now().After(giveUp) {
				return total, failed(fmt.Errorf("%s still drains this root after %s", told, term.Span(turnTimeout)))
			}
			wait(ctx, 100*time.Millisecond)
			continue
		}
		total.Accepted += r.Accepted
		total.Refused += r.Refused
		total.Uncertain += r.Uncertain
		if r.Sent() == 0 {
			break
		}
		giveUp = time.Now().Add(turnTimeout)
	}
	entries, _, _, err := d.store.Entries()
	if err != nil {
		return total, failed(err)
	}
	total.Left = len(entries)
	return total, nil
}

func wait(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

func printDrained(w world, d *deployment, total drained) {
	printf(w.stdout, "%d delivered, %d refused, %d uncertain\n", total.Accepted, total.Refused, total.Uncertain)
	if total.Left > 0 {
		if line := d.report().ChannelDelivery.Line(time.Now()); line != "" {
			printf(w.stdout, "%s\n", line)
		}
	}
}
