package proof

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"the-loop/channels"
	"the-loop/outbox"
	"the-loop/state"
)

// The kill sweep of the one deliberate second attempt.

// nobodyLooks: no look-up can tell of any channel.
func nobodyLooks(string) bool { return false }

// sentAgain is a row that a person sends again.
type sentAgain struct {
	name, scenario string
	state          channels.State
	put            func(t *testing.T, root *state.Root)
}

func sentAgains() []sentAgain {
	return []sentAgain{
		{"uncertain", "again-uncertain", channels.StateUncertain, putUncertain},
		{"lost", "again-lost", channels.StateLost, func(t *testing.T, root *state.Root) {
			putUncertain(t, root)
			store := outbox.Open(root, outbox.Options{})
			entries, _, _, err := store.Entries()
			if err != nil {
				t.Error(err)
			}
			for _, d := range outbox.Doubts(entries, "a") {
				if r, err := store.Lost(t.Context(), d, false); err != nil || !r.Applied {
					t.Errorf("lost: %+v, %v", r, err)
				}
			}
		}},
		{"uncertain in a dead one's journal", "again-uncertain", channels.StateUncertain, putOrphan},
		{"uncertain there and in the outbox", "again-uncertain", channels.StateUncertain, func(
			t *testing.T, root *state.Root,
		) {
			putOrphan(t, root)
			putUncertain(t, root)
		}},
	}
}

// takenAt is when the event of a row that is sent again was taken.
func takenAt() time.Time { return time.Unix(1_700_000_000, 0) }

func crashEvent() channels.Event { return channels.Event{ID: crashID, Type: "job.failed", Text: "x"} }

func putUncertain(t *testing.T, root *state.Root) {
	now := time.Now()
	unknown := channels.Outcome{
		State: channels.StateUncertain, Reason: channels.ReasonUnknown, Code: "timeout", At: now,
	}
	e, err := outbox.NewEntry(crashEvent(), takenAt(), []outbox.Attempted{{Channel: "a", At: now, Outcome: unknown}})
	if err == nil {
		err = outbox.Open(root, outbox.Options{}).Remember(t.Context(), e, nil)
	}
	if err != nil {
		t.Error(err)
	}
}

// putOrphan leaves the journal of a publish that died while it was asking.
func putOrphan(t *testing.T, root *state.Root) {
	store := outbox.Open(root, outbox.Options{})
	_, err := store.Begin(t.Context(), crashEvent(), takenAt(), []outbox.Planned{{Channel: "a"}}, false)
	if err := errors.Join(err, store.Close()); err != nil { // with an open intent: it leaves the journal
		t.Error(err)
	}
}

func TestP2_KillSweepOfSendAgain(t *testing.T) {
	points := 0
	for _, class := range []string{"plain", "idempotent"} {
		for _, row := range sentAgains() {
			t.Run(class+", "+row.name, func(t *testing.T) {
				reached := sweepKills(t, atATime, func(n int) (int, bool) { return killSendAgain(t, class, row, n) })
				t.Logf("%d points", reached)
				points += reached
			})
		}
	}
	if points < 100/stride {
		t.Errorf("only %d points: the sweep does not reach what it should", points)
	}
}

// killSendAgain kills one send-again before its n-th operation. Then either the
// old row stands as it was, and it can be sent again, or the new one stands, and
// it cannot.
func killSendAgain(t *testing.T, class string, row sentAgain, n int) (made int, through bool) {
	t.Helper()
	root, remove := scratch(t)
	defer remove()
	a := newReceiver(t, false)
	defer a.Close()
	row.put(t, root)
	ops, through, err := tryChild(row.scenario+"/"+class, n, root.Dir(), a.URL, "-")
	at := fmt.Sprintf("killed before operation %d (after %s)", n, lastOf(ops))
	if err != nil {
		t.Errorf("%s: %v", at, err)
	}
	store := outbox.Open(root, outbox.Options{})
	entries, bad, damaged, err := store.Entries()
	if err != nil || bad > 0 || damaged || len(entries) != 1 {
		t.Errorf("%s: %d entries, bad %d, damaged %v, %v", at, len(entries), bad, damaged, err)
		return len(ops), through
	}
	newID, e := entries[0].ID, entries[0]
	if newID == crashID {
		d := e.Deliveries["a"]
		if through || d == nil || d.State != row.state || e.ResentAs != "" || d.ResentAs != "" {
			t.Errorf("%s: through %v, and the old row is %+v", at, through, d)
		}
		if newID, err = again(t, store, row); err != nil {
			t.Errorf("%s: the second send-again: %v", at, err)
		}
	} else if e.SentAgainFrom != crashID || e.State() != channels.StatePending {
		t.Errorf("%s: the new row is %+v", at, e)
	}
	refused := func(when string) {
		var twice *outbox.SentAgainError
		if _, err := again(t, store, row); !errors.As(err, &twice) || twice.As != newID {
			t.Errorf("%s: one more send-again %s: %v, want a word of %s", at, when, err, newID)
		}
	}
	refused("before the drain")
	left, bad, damaged, err := drainTwice(t, root, crashRoutes(class, a.URL, "-")).Entries()
	if err != nil || bad > 0 || damaged || len(left) > 0 {
		t.Errorf("%s: %d left, bad %d, damaged %v, %v", at, len(left), bad, damaged, err)
	}
	if got := a.counts(); got[newID] != 1 || len(got) != 1 {
		t.Errorf("%s: arrived: %v, want %s once", at, got, newID)
	}
	refused("after the drain")
	return len(ops), through
}

func again(t *testing.T, store *outbox.Store, row sentAgain) (newID string, err error) {
	return store.SendAgain(t.Context(), crashID, row.scenario == "again-uncertain", nobodyLooks)
}
