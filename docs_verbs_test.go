package docs_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"the-loop/channels"
	"the-loop/outbox"
	"the-loop/state"
)

// bench is an outbox with one entry, owed to one channel.
type bench struct {
	t     *testing.T
	root  *state.Root
	store *outbox.Store
	ev    channels.Event
	plain bool // the channel has no look-up
}

// newBench begins with a delivery that a publish left with the given outcome.
func newBench(t *testing.T, o channels.Outcome) *bench {
	t.Helper()
	root, err := state.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{t: t, root: root, store: outbox.Open(root, outbox.Options{}), ev: channels.Event{
		ID: state.NewID(), Type: "job.failed", Text: "the disk is full",
	}}
	at := time.Now().Add(-time.Minute)
	o.At = at
	e, err := outbox.NewEntry(b.ev, at, []outbox.Attempted{{Channel: "room", At: at, Outcome: o}})
	b.check(err)
	b.check(b.store.Remember(t.Context(), e, nil))
	return b
}

func (b *bench) check(err error) {
	b.t.Helper()
	if err != nil {
		b.t.Fatal(err)
	}
}

// delivery is the entry's only one, nil when the entry is gone.
func (b *bench) delivery() *outbox.Delivery {
	b.t.Helper()
	entries, _, _, err := b.store.Entries()
	b.check(err)
	i := slices.IndexFunc(entries, func(e *outbox.Entry) bool { return e.ID == b.ev.ID })
	if i < 0 {
		return nil
	}
	return entries[i].Deliveries["room"]
}

func (b *bench) doubt() outbox.Doubt {
	b.t.Helper()
	entries, _, _, err := b.store.Entries()
	b.check(err)
	doubts := outbox.Doubts(entries, "room")
	if len(doubts) != 1 {
		b.t.Fatalf("%d doubts", len(doubts))
	}
	return doubts[0]
}

func (b *bench) claim() outbox.Claimed {
	b.t.Helper()
	claims, err := b.store.Claim(b.t.Context(), "room", 1, "")
	b.check(err)
	if len(claims) != 1 {
		b.t.Fatalf("%d claims", len(claims))
	}
	return claims[0]
}

var (
	held = channels.Outcome{State: channels.StatePending, Reason: channels.ReasonHeld}
	down = channels.Outcome{State: channels.StateRefused, Reason: channels.ReasonDown, Code: "refused"}
	cut  = channels.Outcome{State: channels.StateUncertain, Reason: channels.ReasonUnknown, Code: "eof"}
)

// benches brings an outbox into every state of the table.
var benches = map[string]func(t *testing.T) *bench{
	"pending": func(t *testing.T) *bench { return newBench(t, held) },
	"claimed": func(t *testing.T) *bench {
		b := newBench(t, held)
		b.claim()
		return b
	},
	"sending": func(t *testing.T) *bench {
		b := newBench(t, held)
		_, ok, err := b.store.Start(t.Context(), b.claim())
		b.check(err)
		if !ok {
			t.Fatal("not started")
		}
		return b
	},
	"refused":   func(t *testing.T) *bench { return newBench(t, down) },
	"uncertain": func(t *testing.T) *bench { return newBench(t, cut) },
	"unjudgeable": func(t *testing.T) *bench {
		b := newBench(t, cut)
		b.check(b.store.Unjudgeable(t.Context(), b.doubt(), "missing_scope", "channels:history"))
		return b
	},
	"unjudgeable, on a plain webhook": func(t *testing.T) *bench {
		b := newBench(t, cut)
		b.plain = true
		return b
	},
	"lost": func(t *testing.T) *bench {
		b := newBench(t, cut)
		_, err := b.store.Lost(t.Context(), b.doubt(), false)
		b.check(err)
		return b
	},
	"dead": func(t *testing.T) *bench {
		b := newBench(t, down)
		old := outbox.Open(b.root, outbox.Options{TTL: outbox.TTL{"*": time.Second}})
		b.check(old.Sweep(t.Context(), []outbox.Lane{{Channel: "room"}}))
		return b
	},
	"dead (no such channel)": func(t *testing.T) *bench {
		b := newBench(t, down)
		b.check(b.store.Sweep(t.Context(), nil))
		return b
	},
}

// verbs say in the words of the table what each did.
var verbs = map[string]func(ctx context.Context, b *bench) (string, error){
	"retry": func(ctx context.Context, b *bench) (string, error) {
		done, err := b.store.Retry(ctx, b.ev.ID)
		switch {
		case err != nil || len(done) != 1:
			return "", fmt.Errorf("%v, error %w", done, err)
		case slices.Equal(done[0].Due, []string{"room"}):
			return "due now", nil
		case done[0].Left["room"] != "":
			return "left", nil
		}
		return fmt.Sprint(done), nil
	},
	"send-again":               func(ctx context.Context, b *bench) (string, error) { return b.sendAgain(ctx, false) },
	"send-again with the flag": func(ctx context.Context, b *bench) (string, error) { return b.sendAgain(ctx, true) },
	"drop": func(ctx context.Context, b *bench) (string, error) {
		_, err := b.store.Drop(ctx, b.ev.ID)
		switch {
		case errors.Is(err, outbox.ErrInHand):
			return "no: in hand", nil
		case err == nil && b.delivery() == nil:
			return "gone", nil
		}
		return "", err
	},
	"recheck": func(ctx context.Context, b *bench) (string, error) {
		before := *b.delivery()
		n, err := b.store.Recheck(ctx)
		now := b.delivery()
		switch {
		case err != nil || now == nil:
			return "", fmt.Errorf("the delivery is %v, error %w", now, err)
		case n == 0 && now.State == before.State && now.Reason == before.Reason && now.At.Equal(before.At):
			return "left", nil
		case n == 1 && now.State == channels.StateUncertain && now.Reason == channels.ReasonMoved && now.Claim == "":
			return "uncertain", nil
		}
		return fmt.Sprintf("%d: %+v", n, now), nil
	},
}

func (b *bench) sendAgain(ctx context.Context, mayDouble bool) (string, error) {
	id, err := b.store.SendAgain(ctx, b.ev.ID, mayDouble, func(string) bool { return !b.plain })
	var again *outbox.SentAgainError
	switch {
	case errors.Is(err, outbox.ErrInHand):
		return "no: in hand", nil
	case errors.Is(err, outbox.ErrMayDouble):
		return "no: may double", nil
	case errors.Is(err, outbox.ErrNothingLost):
		return "no: not lost", nil
	case err != nil:
		return "", err
	}
	if _, err := b.store.SendAgain(ctx, b.ev.ID, true, func(string) bool { return false }); !errors.As(err, &again) ||
		again.As != id || id == b.ev.ID {
		return fmt.Sprintf("%s, and then %v", id, err), nil
	}
	return "a new entry", nil
}

// TestVerbsDoWhatTheTableSays drives the outbox into every state and applies
// every verb. What is refused or left must not have changed anything.
func TestVerbsDoWhatTheTableSays(t *testing.T) {
	head, rows := "", table(t, "docs/delivery.md", "state")
	for line := range strings.Lines(read(t, "docs/delivery.md")) {
		if strings.HasPrefix(line, "| state |") {
			head = line
		}
	}
	columns := strings.Split(strings.Trim(strings.TrimSpace(head), "|"), "|")[1:]
	docs := map[string]string{}
	for _, row := range rows {
		for i, verb := range columns[:min(len(columns), len(row)-1)] {
			docs[row[0]+": "+strings.TrimSpace(verb)] = row[i+1]
		}
	}
	now := map[string]string{}
	for state, set := range benches {
		for verb, do := range verbs {
			b := set(t)
			before := *b.delivery()
			got, err := do(t.Context(), b)
			if err != nil {
				t.Errorf("%s on %s: %v", verb, state, err)
			}
			after := b.delivery()
			if refused := strings.HasPrefix(got, "no: ") || got == "left"; refused && (after == nil ||
				after.State != before.State || after.Claim != before.Claim || !after.At.Equal(before.At)) {
				t.Errorf("%s on %s changed it: %+v", verb, state, after)
			}
			row, _, _ := strings.Cut(state, ",")
			cell := row + ": " + verb
			if was, twice := now[cell]; twice && was != got {
				t.Errorf("%s: %q, and %q on %s", cell, was, got, state)
			}
			now[cell] = got
		}
	}
	diff(t, "docs/delivery.md", docs, now)
}
