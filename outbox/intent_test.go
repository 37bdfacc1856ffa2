package outbox

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"the-loop/channels"
	"the-loop/state"
)

func begin(t *testing.T, s *Store, id string, recorded bool, planned ...Planned) *Intent {
	t.Helper()
	ev := channels.Event{ID: id, Type: "work_item.done", Text: "text of " + id}
	in, err := s.Begin(t.Context(), ev, time.Now(), planned, recorded)
	if err != nil {
		t.Fatal(err)
	}
	return in
}

// dies ends a store as the death of its process would: the locks are gone, and
// nothing more is written.
func dies(s *Store) {
	s.journal.mu.Lock()
	defer s.journal.mu.Unlock()
	s.journal.now.file.Leave()
	s.journal.now = nil
}

func journals(t *testing.T, root *state.Root) []string {
	t.Helper()
	list, err := filepath.Glob(filepath.Join(root.Path(state.Sending()), "*"))
	if err != nil {
		t.Fatal(err)
	}
	return list
}

func must(t *testing.T, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

// row sums a delivery up.
func row(e *Entry, channel string) string {
	d := e.Deliveries[channel]
	if d == nil {
		return "none"
	}
	return strings.TrimSpace(string(d.State) + " " + string(d.Reason) + " " + d.Code + " " + strings.Join(d.Parts, ","))
}

func TestP1_WhatADeadPublisherLeftIsFolded(t *testing.T) {
	t.Parallel()
	paused := held()
	paused.Code = "paused"
	a, b := Planned{Channel: "a"}, Planned{Channel: "b"}
	requiredA := Planned{Channel: "a", Required: true}
	tests := map[string]struct {
		recorded bool
		planned  []Planned
		do       func(in *Intent) error
		want     map[string]string // by channel; nil: no entry
	}{
		"in flight": {planned: []Planned{a}, want: map[string]string{"a": "uncertain unknown process_died"}},
		"recorded, in flight": {
			recorded: true, planned: []Planned{a}, do: func(in *Intent) error { return in.Recorded(true, "https://r") },
			want: map[string]string{"a": "uncertain unknown process_died"},
		},
		"the record failed, in flight": {
			recorded: true, planned: []Planned{a}, do: func(in *Intent) error { return in.Recorded(false, "") },
			want: map[string]string{"a": "uncertain unknown process_died"},
		},
		"the record pending: never asked": {
			recorded: true, planned: []Planned{a}, want: map[string]string{"a": "pending  process_died"},
		},
		"accepted by one": {
			planned: []Planned{a, b}, do: func(in *Intent) error { return in.Outcome(asked("a", accepted("1"))) },
			want: nil,
		},
		"the required one missing": {
			planned: []Planned{requiredA, b}, do: func(in *Intent) error { return in.Outcome(asked("b", accepted("1"))) },
			want: map[string]string{"a": "uncertain unknown process_died", "b": "accepted"},
		},
		"refused by one": {
			planned: []Planned{a, b}, do: func(in *Intent) error { return in.Outcome(asked("b", down())) },
			want: map[string]string{
				"a": "uncertain unknown process_died", "b": "refused down connection_refused",
			},
		},
		"held": {
			planned: []Planned{{Channel: "a", Held: &paused}}, want: map[string]string{"a": "pending held paused"},
		},
		"parts": {
			planned: []Planned{a}, do: func(in *Intent) error { return errors.Join(in.Part("a", "p1"), in.Part("a", "p2")) },
			want: map[string]string{"a": "uncertain unknown process_died p1,p2"},
		},
		"settled": {planned: []Planned{a}, do: func(in *Intent) error { return in.settled() }, want: nil},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, root := store(t, Options{})
			dead := Open(root, Options{})
			in := begin(t, dead, "x", tt.recorded, tt.planned...)
			if tt.do != nil {
				must(t, tt.do(in))
			}
			dies(dead)
			before := journals(t, root)
			check := func(when string) {
				t.Helper()
				entries := entriesOf(t, s)
				if tt.want == nil {
					if len(entries) > 0 {
						t.Errorf("%s: entries %v of what owes nothing", when, ids(entries))
					}
					return
				}
				if len(entries) != 1 || entries[0].ID != "x" {
					t.Fatalf("%s: entries %v", when, ids(entries))
				}
				for channel, want := range tt.want {
					if got := row(entries[0], channel); got != want {
						t.Errorf("%s: %s is %q, want %q", when, channel, got, want)
					}
				}
				if ev, err := entries[0].Event(); err != nil || ev.Text != "text of x" {
					t.Errorf("%s: event %+v, %v", when, ev, err)
				}
			}
			check("read")
			if _, err := os.Stat(root.Path(state.Outbox)); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("reading made an outbox: %v", err)
			}
			if !slices.Equal(journals(t, root), before) {
				t.Error("reading changed the journals")
			}
			sweep(t, s, Lane{Channel: "a"}, Lane{Channel: "b"})
			check("recovered")
			if left := journals(t, root); len(left) > 0 {
				t.Errorf("journals left: %v", left)
			}
			sweep(t, s, Lane{Channel: "a"}, Lane{Channel: "b"})
			check("once more")
		})
	}
}

func TestP1_TheRecordsLinkRidesOnWhatIsFolded(t *testing.T) {
	t.Parallel()
	s, root := store(t, Options{})
	dead := Open(root, Options{})
	must(t, begin(t, dead, "x", true, Planned{Channel: "a"}).Recorded(true, "https://example.com/1"))
	dies(dead)
	sweep(t, s, Lane{Channel: "a"})
	if ev, err := entryOf(t, s, "x").Event(); err != nil || ev.URL != "https://example.com/1" {
		t.Errorf("url %q, %v", ev.URL, err)
	}
}

// TestP2_WhatIsInTheOutboxIsNotFoldedTwice: neither while it is there, nor when
// it has been delivered since.
func TestP2_WhatIsInTheOutboxIsNotFoldedTwice(t *testing.T) {
	t.Parallel()
	for _, meanwhile := range []string{"still there", "delivered", "dropped", "evicted"} {
		t.Run(meanwhile, func(t *testing.T) {
			t.Parallel()
			s, root := store(t, Options{Cap: 1})
			live := Open(root, Options{})
			at := time.Now()
			ev := channels.Event{ID: "x", Type: "work_item.done", Text: "text of x"}
			_, err := live.Begin(t.Context(), ev, at, []Planned{{Channel: "a"}}, false)
			must(t, err) // and its settling could not be written down
			remember(t, s, "x", at, asked("a", down()))
			switch meanwhile {
			case "delivered":
				c := claimOne(t, s, "a")
				start(t, s, c)
				settle(t, s, c, accepted("1"))
			case "dropped":
				_, err := s.Drop(t.Context(), "x")
				must(t, err)
			case "evicted":
				remember(t, s, "y", time.Now(), asked("a", down()))
			}
			before := ids(entriesOf(t, s))
			dies(live)
			wantIDs(t, s, before...)
			sweep(t, s, Lane{Channel: "a"})
			wantIDs(t, s, before...)
			if left := journals(t, root); len(left) > 0 {
				t.Errorf("journals left: %v", left)
			}
		})
	}
}

func TestP1_ALivePublishersJournalIsLeftAlone(t *testing.T) {
	t.Parallel()
	s, root := store(t, Options{})
	live := Open(root, Options{})
	in := begin(t, live, "x", false, Planned{Channel: "a"})
	sweep(t, s, Lane{Channel: "a"})
	wantIDs(t, s)
	if len(journals(t, root)) != 1 {
		t.Fatalf("journals %v", journals(t, root))
	}
	e, err := NewEntry(channels.Event{ID: "x", Type: "work_item.done"}, time.Now(), []Attempted{asked("a", down())})
	must(t, err, live.Remember(t.Context(), e, in), live.Close())
	wantIDs(t, s, "x")
	if left := journals(t, root); len(left) > 0 {
		t.Errorf("a clean end leaves %v", left)
	}
}

func TestP1_WhatRememberCannotStoreIsRecovered(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	for _, failing := range []state.Op{state.OpWrite, state.OpReplace, state.OpSync} {
		s, root := store(t, Options{})
		armed := false
		live := Open(root.WithSteps(func(op state.Op, path string) error {
			if armed && op == failing {
				return broken
			}
			return nil
		}), Options{})
		in := begin(t, live, "x", false, Planned{Channel: "a"})
		e, err := NewEntry(channels.Event{ID: "x", Type: "work_item.done"}, time.Now(), []Attempted{asked("a", down())})
		must(t, err, in.Outcome(asked("a", down())))
		armed = true
		if err := live.Remember(t.Context(), e, in); !errors.Is(err, broken) {
			t.Fatalf("%s: %v", failing, err)
		}
		must(t, live.Close())
		if len(journals(t, root)) != 1 {
			t.Fatalf("%s: journals %v", failing, journals(t, root))
		}
		sweep(t, s, Lane{Channel: "a"})
		if e := entryOf(t, s, "x"); row(e, "a") != "refused down connection_refused" {
			t.Errorf("%s: %s", failing, row(e, "a"))
		}
		must(t, live.Close()) // twice does nothing
	}
}

// TestK01_ADamagedLineIsKeptAndMakesNothingSure: after it nobody knows whether
// bytes could leave, so that nothing is sent again by it.
func TestK01_ADamagedLineIsKeptAndMakesNothingSure(t *testing.T) {
	t.Parallel()
	s, root := store(t, Options{})
	dead := Open(root, Options{})
	begin(t, dead, "x", true, Planned{Channel: "a"})
	must(t, dead.journal.now.file.Append([]byte(`{"id":"x","recor`)))
	begin(t, dead, "y", true, Planned{Channel: "a"})
	dies(dead)
	if entries, bad, _, err := s.Entries(); err != nil || bad != 1 || len(entries) != 2 {
		t.Errorf("%v, %d bad, %v", ids(entries), bad, err)
	}
	sweep(t, s, Lane{Channel: "a"})
	if got := row(entryOf(t, s, "x"), "a"); got != "uncertain unknown process_died" {
		t.Errorf("x is %q", got)
	}
	if got := row(entryOf(t, s, "y"), "a"); got != "pending  process_died" {
		t.Errorf("y, which began later, is %q", got)
	}
	kept := ""
	for _, text := range setAside(t, root) {
		kept += text
	}
	if !strings.Contains(kept, `recor`) {
		t.Errorf("kept is %q", kept)
	}
}

// TestP1_RecoveryFailsWholeAtEachStep: the event stands in the journal or in
// the outbox after any failed step, once, and the next recovery ends it.
func TestP1_RecoveryFailsWholeAtEachStep(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	for n := 1; ; n++ {
		s, root := store(t, Options{})
		dead := Open(root, Options{})
		begin(t, dead, "x", false, Planned{Channel: "a"})
		dies(dead)
		steps := 0
		failing := Open(root.WithSteps(func(state.Op, string) error {
			if steps++; steps == n {
				return broken
			}
			return nil
		}), Options{})
		err := failing.Sweep(t.Context(), []Lane{{Channel: "a"}})
		wantIDs(t, s, "x")
		sweep(t, s, Lane{Channel: "a"})
		wantIDs(t, s, "x")
		if left := journals(t, root); len(left) > 0 {
			t.Errorf("step %d: journals left %v", n, left)
		}
		if steps < n {
			must(t, err)
			if n < 10 {
				t.Fatalf("only %d steps", n)
			}
			return
		}
	}
}

func TestP3_AnIntentThatCannotBeWrittenIsAnError(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	for _, failing := range []state.Op{state.OpMkdir, state.OpCreate, state.OpAppend, state.OpSync, state.OpReplace} {
		root := newRoot(t)
		armed := true
		s := Open(root.WithSteps(func(op state.Op, _ string) error {
			if armed && op == failing {
				return broken
			}
			return nil
		}), Options{})
		ev := channels.Event{ID: "x", Type: "work_item.done"}
		in, err := s.Begin(t.Context(), ev, time.Now(), []Planned{{Channel: "a"}}, false)
		if in != nil || !errors.Is(err, broken) {
			t.Errorf("%s: %v, %v", failing, in, err)
		}
		if left := journals(t, root); len(left) > 0 {
			t.Errorf("%s: left %v", failing, left)
		}
		armed = false
		if in, err = s.Begin(t.Context(), ev, time.Now(), []Planned{{Channel: "a"}}, false); in == nil || err != nil {
			t.Errorf("%s, then mended: %v", failing, err)
		}
		must(t, in.settled(), s.Close())
	}
}

func TestAnIdleJournalIsTurnedOver(t *testing.T) {
	t.Parallel()
	s, root := store(t, Options{})
	ev := channels.Event{ID: "x", Type: "work_item.done", Text: strings.Repeat("x", turnOver)}
	in, err := s.Begin(t.Context(), ev, time.Now(), []Planned{{Channel: "a"}}, false)
	must(t, err)
	first := journals(t, root)
	second := begin(t, s, "y", false, Planned{Channel: "a"})
	if !slices.Equal(journals(t, root), first) {
		t.Error("a journal with an open intent was left")
	}
	must(t, in.settled(), second.settled())
	in.end(true)
	second.end(true)
	third := begin(t, s, "z", false, Planned{Channel: "a"})
	if now := journals(t, root); len(now) != 1 || slices.Equal(now, first) {
		t.Errorf("journals %v, were %v", now, first)
	}
	must(t, third.settled(), s.Close())
}

func TestANilIntentIsNoIntent(t *testing.T) {
	t.Parallel()
	var in *Intent
	must(t, in.Recorded(true, ""), in.Outcome(Attempted{}), in.Part("a", "p"), in.settled())
	must(t, Open(newRoot(t), Options{}).Close())
}

func TestP9_TheJournalIsGoneOnceItsTextIsNotNeeded(t *testing.T) {
	t.Parallel()
	s, root := store(t, Options{})
	in := begin(t, s, "x", false, Planned{Channel: "a"})
	b, err := os.ReadFile(journals(t, root)[0])
	if err != nil || !bytes.Contains(b, []byte("text of x")) {
		t.Errorf("%s, %v", b, err)
	}
	e, err := NewEntry(channels.Event{ID: "x", Type: "work_item.done"}, time.Now(), []Attempted{asked("a", accepted("1"))})
	must(t, err, s.Remember(context.Background(), e, in), s.Close())
	if left := journals(t, root); len(left) > 0 {
		t.Errorf("left %v", left)
	}
}
