package proof

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"the-loop/channels"
	"the-loop/outbox"
	"the-loop/state"
)

// The kill sweep of recovery. A first process dies while it publishes; a second
// one, a drain that finds what the first one left, dies before its n-th
// operation; then two healthy drains follow.
//
// What may come of two kills: on an idempotent receiver one effect and nothing
// left. On a plain one each event is asked once at most, and a kill leaves the
// question about one send at most: the first kill the one of its event, the
// second the one that the drain was making. So there are two uncertain rows at
// most, one per kill, and one row per event, for an entry has one per channel.

// firstDeath is where the publish died.
type firstDeath struct {
	name    string
	refuses bool                   // the receiver, while the publish was asking
	before  func(ops []string) int // the index of the operation that it died before
	asked   bool                   // it had asked, and its word about it was not yet written down
}

func firstDeaths() []firstDeath {
	return []firstDeath{
		// The intent is durable, the receiver has the event, and nobody knows.
		{"in flight, arrived", false, outcomeLine, true},
		// The same, and the receiver has said no.
		{"in flight, refused", true, outcomeLine, true},
		// The entry stands in the outbox, and the journal does not know it yet:
		// folding it must not make a second entry, nor one that comes back.
		{"entry in the outbox and in the journal", true, settledLine, false},
	}
}

// appends gives the indexes of the appends to the visible journal.
func appends(ops []string) (at []int) {
	visible := false
	for i, op := range ops {
		inJournal := strings.Contains(op, state.Sending()+"/")
		if visible && inJournal && strings.HasPrefix(op, "append ") {
			at = append(at, i)
		}
		visible = visible || inJournal && strings.HasPrefix(op, "replace ")
	}
	return at
}

func outcomeLine(ops []string) int { return appends(ops)[0] }

func settledLine(ops []string) int { return appends(ops)[len(appends(ops))-1] }

func TestP1P2_KillSweepOfRecovery(t *testing.T) {
	var points atomic.Int64
	t.Run("all", func(t *testing.T) { // which ends when all of them have
		for _, class := range []string{"idempotent", "plain"} {
			for _, death := range firstDeaths() {
				t.Run(class+", "+death.name, func(t *testing.T) {
					t.Parallel()
					n, kill := 0, killAt(t, class, death)
					for through := false; !through; points.Add(1) {
						n++
						through = killRecovery(t, class, death, kill, n)
					}
					t.Logf("%d points", n-1)
				})
			}
		}
	})
	if points.Load() < 300 {
		t.Errorf("only %d points: the sweep does not reach what it should", points.Load())
	}
}

// killAt finds the operation of a publish that the death comes before.
func killAt(t *testing.T, class string, death firstDeath) int {
	t.Helper()
	a := newReceiver(t, death.refuses)
	ops, through := runChild(t, "publish/"+class, 1<<20, t.TempDir(), a.URL, "-")
	if !through || len(appends(ops)) < 2 {
		t.Fatalf("a publish that nobody kills: through %v, %q", through, ops)
	}
	return death.before(ops) + 1
}

// killRecovery reports whether the drain got through.
func killRecovery(t *testing.T, class string, death firstDeath, kill, n int) (through bool) {
	t.Helper()
	root, _ := state.Open(t.TempDir())
	a := newReceiver(t, death.refuses)
	defer a.Close()
	if ops, through := runChild(t, "publish/"+class, kill, root.Dir(), a.URL, "-"); through || len(ops) != kill-1 {
		t.Fatalf("%s: through %v after %d operations", death.name, through, len(ops))
	}
	const other = "01KB3Z0000000000000000000B" // waits in the outbox for the same drain
	e, err := outbox.NewEntry(channels.Event{ID: other, Type: "job.failed", Text: "y"}, time.Now(), []outbox.Attempted{
		{Channel: "a", Outcome: channels.Outcome{State: channels.StatePending, At: time.Now()}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := outbox.Open(root, outbox.Options{}).Remember(t.Context(), e, nil); err != nil {
		t.Fatal(err)
	}
	a.heal()
	if err := outbox.Open(root, outbox.Options{}).Release(t.Context()); err != nil {
		t.Fatal(err)
	}

	ops, through := runChild(t, "drain/"+class, n, root.Dir(), a.URL, "-")
	at := fmt.Sprintf("%s, %s, the drain killed before operation %d (after %s)", class, death.name, n, lastOf(ops))
	entries, bad, damaged, err := outbox.Open(root, outbox.Options{}).Entries()
	if err != nil || bad > 0 || damaged {
		t.Errorf("%s: bad %d, damaged %v, %v", at, bad, damaged, err)
	}
	for _, id := range []string{crashID, other} {
		if a.counts()[id] == 0 && !hasEntry(entries, id) {
			t.Errorf("%s: %s is nowhere", at, id)
		}
	}
	store := drainTwice(t, root, crashRoutes(class, a.URL, "-"))
	checkRecovered(t, at, root, store, class, death, a, crashID, other)
	return through
}

func hasEntry(entries []*outbox.Entry, id string) bool {
	for _, e := range entries {
		if e.ID == id {
			return true
		}
	}
	return false
}

func checkRecovered(
	t *testing.T, at string, root *state.Root, store *outbox.Store, class string, death firstDeath,
	a *receiver, ids ...string,
) {
	t.Helper()
	left, bad, damaged, err := store.Entries()
	if err != nil || bad > 0 || damaged {
		t.Errorf("%s: bad %d, damaged %v, %v", at, bad, damaged, err)
	}
	if journals, err := root.DeadJournals(state.Sending()); err != nil || len(journals) > 0 {
		t.Errorf("%s: %d journals of the dead are left, %v", at, len(journals), err)
	}
	rows := 0
	for _, e := range left {
		if st := e.Deliveries["a"].State; st != channels.StateUncertain {
			t.Errorf("%s: %s is left, and %s", at, e.ID, st)
		}
		rows++
	}
	for _, id := range ids {
		got, waits := a.counts()[id], hasEntry(left, id)
		switch {
		case class == "idempotent" && (got == 0 || waits):
			t.Errorf("%s: %s: %d requests, waits %v", at, id, got, waits)
		case class == "plain" && (got > 1 || got == 0 && !waits):
			t.Errorf("%s: %s: %d requests, waits %v", at, id, got, waits)
		}
	}
	most := 1
	if death.asked {
		most = 2
		if class == "plain" && !hasEntry(left, crashID) {
			t.Errorf("%s: nobody knows whether it arrived, and no row says so", at)
		}
	}
	if rows > most || class == "idempotent" && rows > 0 {
		t.Errorf("%s: %d rows need a person, at most %d", at, rows, most)
	}
}
