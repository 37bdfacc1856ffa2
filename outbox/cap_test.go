package outbox

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"the-loop/channels"
	"the-loop/internal/eventlog"
	"the-loop/state"
)

var t0 = time.Date(2026, 9, 22, 10, 0, 0, 0, time.UTC)

func evictedIDs(t *testing.T, s *Store) []string {
	t.Helper()
	gone, err := s.Evicted()
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, g := range gone {
		out = append(out, g.ID)
	}
	return out
}

func TestCapEvictsTheCheapest(t *testing.T) {
	t.Parallel()
	s, root := store(t, Options{Cap: 5})
	entry := func(typ, at, delivery string) string {
		return fmt.Sprintf(`{"at": "2026-09-22T10:00:%sZ", "channels": ["x"], "event": {"eventType": %q, "text": "secret"},
			"deliveries": {"x": %s}}`, at, typ, delivery)
	}
	const five = `{"pending": {"sending": %s, "question": %s, "dead": %s, "news": %s, "lost": %s}}`
	place(t, root, state.Outbox, fmt.Sprintf(five,
		entry("a.b", "00", `{"state": "sending"}`),
		entry("session.awaiting_input", "01", `{"state": "pending"}`),
		entry("session.awaiting_input", "04", `{"state": "dead", "reason": "unacceptable"}`),
		entry("work_item.done", "03", `{"state": "refused"}`),
		entry("a.b", "05", `{"state": "expired"}`)))
	for i := range 5 {
		remember(t, s, fmt.Sprint("new", i), time.Now().Add(time.Duration(i)*time.Second), asked("x", down()))
	}
	// First what is dead or lost, then what is no question, oldest first.
	want := []string{"dead", "lost", "news", "new0", "new1"}
	if got := evictedIDs(t, s); !slices.Equal(got, want) {
		t.Errorf("evicted %v, want %v", got, want)
	}
	wantIDs(t, s, "sending", "question", "new2", "new3", "new4")
	gone, err := s.Evicted()
	if err != nil {
		t.Fatal(err)
	}
	e, err := gone[0].Decode()
	if err != nil {
		t.Fatal(err)
	}
	if ev, err := e.Event(); err != nil || ev.Text != "secret" || e.ID != "dead" {
		t.Errorf("%+v, %v: its text is kept", ev, err)
	}
	if got := string(bytesOf(t, root, state.EventLog)); strings.Contains(got, "secret") {
		t.Errorf("the event log holds text: %s", got)
	}
	if n := count(logged(t, root), "channel.undelivered_dropped"); n != 5 {
		t.Errorf("%d warnings", n)
	}
}

func TestCapNeverEvictsWhatIsInHand(t *testing.T) {
	s, _ := store(t, Options{Cap: 2})
	remember(t, s, "A", t0, asked("x", held()))
	remember(t, s, "B", t0, asked("x", held()))
	claims, err := s.Claim(t.Context(), "x", 2, "")
	if err != nil || len(claims) != 2 {
		t.Fatal(claims, err)
	}
	start(t, s, claims[0])
	remember(t, s, "C", t0, asked("x", down()))
	wantIDs(t, s, "A", "B", "C") // better one too many than one lost
	remember(t, s, "D", t0, asked("x", down()))
	wantIDs(t, s, "A", "B", "D")
}

func TestCapDoesNotEvictForAnEntryThatIsThere(t *testing.T) {
	s, _ := store(t, Options{Cap: 1})
	remember(t, s, "A", t0, asked("x", down()))
	remember(t, s, "A", t0, asked("x", down()))
	if got := evictedIDs(t, s); len(got) > 0 {
		t.Errorf("evicted %v", got)
	}
}

func TestCapLoweredEvictsDownToIt(t *testing.T) {
	s, root := store(t, Options{})
	for i := range 6 {
		remember(t, s, fmt.Sprint(i), t0.Add(time.Duration(i)*time.Second), asked("x", down()))
	}
	remember(t, Open(root, Options{Cap: 3}), "new", time.Now(), asked("x", down()))
	wantIDs(t, s, "4", "5", "new")
}

func TestCapAnEntryThatIsNotYetAddressedIsNotDead(t *testing.T) {
	s, root := store(t, Options{Cap: 2})
	place(t, root, state.Outbox, `{"pending": {
		"Q": {"at": "2026-09-22T10:00:00Z", "event": {"eventType": "session.awaiting_input"}},
		"N": {"at": "2026-09-22T11:00:00Z", "event": {"eventType": "a.b"}, "channels": ["x"]}}}`)
	remember(t, s, "new", time.Now(), asked("x", down()))
	wantIDs(t, s, "Q", "new")
}

// The warning and the evicted entry are durable before the outbox is written;
// where either cannot be, nothing is evicted and nothing stored.
func TestCapTheEvictedEntryIsDurableFirst(t *testing.T) {
	t.Parallel()
	prepare := func(t *testing.T) *state.Root {
		root := newRoot(t)
		remember(t, Open(root, Options{Cap: 1}), "old", t0, asked("x", down()))
		return root
	}
	with := func(root *state.Root, step func(string) error) *Store {
		watched := root.WithSteps(func(op state.Op, path string) error {
			return step(string(op) + " " + filepath.Base(path))
		})
		return Open(watched, Options{Cap: 1, Log: eventlog.New(watched, nil)})
	}
	e, err := NewEntry(channels.Event{ID: "new", Type: "a.b"}, t0, []Attempted{asked("x", down())})
	if err != nil {
		t.Fatal(err)
	}
	var ops []string
	root := prepare(t)
	err = with(root, func(op string) error { ops = append(ops, op); return nil }).Remember(t.Context(), e, nil)
	if err != nil {
		t.Fatal(err)
	}
	order := []string{"sync events.jsonl", "sync evicted.jsonl", "write undelivered.json", "replace undelivered.json"}
	last := -1
	for _, op := range order {
		at := slices.Index(ops, op)
		if at <= last {
			t.Errorf("%s comes too early, or not at all:\n%s", op, strings.Join(ops, "\n"))
		}
		last = at
	}
	broken := errors.New("broken disk")
	for n, op := range ops {
		if strings.Contains(op, "settled.jsonl") {
			continue // the story of what left; nothing is lost without it
		}
		root, left := prepare(t), n
		err := with(root, func(string) error {
			if left--; left == -1 {
				return broken
			}
			return nil
		}).Remember(t.Context(), e, nil)
		if !errors.Is(err, broken) {
			t.Errorf("%s failed: %v", op, err)
		}
		s := Open(root, Options{Cap: 1})
		gone, stands := evictedIDs(t, s), ids(entriesOf(t, s))
		if !slices.Equal(stands, []string{"old"}) && !slices.Contains(gone, "old") {
			t.Errorf("%s failed: old is neither there nor evicted: %v, %v", op, stands, gone)
		}
		if n < slices.Index(ops, "replace undelivered.json") && !slices.Equal(stands, []string{"old"}) {
			t.Errorf("%s failed before the outbox was written: it holds %v", op, stands)
		}
	}
}
