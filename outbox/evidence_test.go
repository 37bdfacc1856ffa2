package outbox

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"the-loop/channels"
	"the-loop/state"
)

// doubtful stores an event whose sends to the channels were left unanswered.
func doubtful(t *testing.T, s *Store, id string, names ...string) {
	t.Helper()
	var list []Attempted
	for _, name := range names {
		list = append(list, required(name, uncertain()))
	}
	remember(t, s, id, time.Now().Add(-time.Hour), list...)
}

func doubtOf(t *testing.T, s *Store, channel string) Doubt {
	t.Helper()
	doubts := Doubts(entriesOf(t, s), channel)
	if len(doubts) != 1 {
		t.Fatalf("%d doubts, want 1", len(doubts))
	}
	return doubts[0]
}

func leftOf(t *testing.T, s *Store, id string) Left {
	t.Helper()
	l, ok, err := s.Left(id)
	if err != nil || !ok {
		t.Fatalf("nothing is told of %s: %v", id, err)
	}
	return l
}

func never(string) bool { return false }

// TestP2_EvidenceCountsForItsOwnAttemptOnly: what was looked up while another
// attempt began says nothing about that one.
func TestP2_EvidenceCountsForItsOwnAttemptOnly(t *testing.T) {
	t.Parallel()
	verbs := map[string]func(s *Store, d Doubt) (Resolved, error){
		"saw":  func(s *Store, d Doubt) (Resolved, error) { return s.Saw(t.Context(), d, channels.Receipt{Ref: "r"}) },
		"part": func(s *Store, d Doubt) (Resolved, error) { return s.SawPart(t.Context(), d, []string{"p1"}) },
		"lost": func(s *Store, d Doubt) (Resolved, error) { return s.Lost(t.Context(), d, true) },
		"unjudgeable": func(s *Store, d Doubt) (Resolved, error) {
			return Resolved{}, s.Unjudgeable(t.Context(), d, "missing_scope", "channels:history")
		},
	}
	changes := map[string]func(t *testing.T, s *Store){
		"another attempt": func(t *testing.T, s *Store) {
			change(t, s, "a", func(d *Delivery) { d.At = d.At.Add(time.Millisecond) })
		},
		"another state": func(t *testing.T, s *Store) {
			change(t, s, "a", func(d *Delivery) { d.State = channels.StateDead })
		},
		"being sent again": func(t *testing.T, s *Store) {
			change(t, s, "a", func(d *Delivery) { d.State = channels.StateSending })
		},
		"dropped": func(t *testing.T, s *Store) {
			if _, err := s.Drop(t.Context(), "a"); err != nil {
				t.Fatal(err)
			}
		},
	}
	for verb, do := range verbs {
		for name, meanwhile := range changes {
			t.Run(verb+" "+name, func(t *testing.T) {
				t.Parallel()
				s, root := store(t, Options{})
				doubtful(t, s, "a", "slack")
				d := doubtOf(t, s, "slack")
				meanwhile(t, s)
				before := string(bytesOf(t, root, state.Outbox))
				r, err := do(s, d)
				if err != nil || r.Applied {
					t.Errorf("applied %v, %v", r.Applied, err)
				}
				if after := string(bytesOf(t, root, state.Outbox)); after != before {
					t.Errorf("the file changed:\n%s\n%s", before, after)
				}
			})
		}
	}
}

// change alters the slack delivery of an entry by hand.
func change(t *testing.T, s *Store, id string, f func(d *Delivery)) {
	t.Helper()
	err := s.update(t.Context(), func(file *file) (bool, error) {
		e, ok := file.entry(id)
		if !ok {
			return false, ErrNoEntry
		}
		f(e.Deliveries["slack"])
		return true, file.put(e)
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestD01_SeenIsDeliveredAndTheEntryLeavesWithItsStory(t *testing.T) {
	t.Parallel()
	s, _ := store(t, Options{})
	doubtful(t, s, "a", "slack")
	d := doubtOf(t, s, "slack")
	for range 2 { // the second time tells nothing new, and writes nothing
		if err := s.Unjudgeable(t.Context(), d, "missing_scope", "channels:history"); err != nil {
			t.Fatal(err)
		}
	}
	row := entryOf(t, s, "a").Deliveries["slack"]
	if row.Unjudgeable != "missing_scope" || row.Detail != "channels:history" || row.State != channels.StateUncertain ||
		row.Judgeable(Lane{Witness: true}) {
		t.Errorf("row %+v", row)
	}
	r, err := s.Saw(t.Context(), d, channels.Receipt{Ref: "17.1"})
	if err != nil || !r.Applied || !r.Gone || r.Waited < time.Hour {
		t.Errorf("%+v, %v", r, err)
	}
	wantIDs(t, s)
	l := leftOf(t, s, "a")
	got := l.Deliveries["slack"]
	if l.How != LeftDelivered || l.EventType != "work_item.done" || got.Reason != channels.ReasonFound ||
		got.Ref != "17.1" || got.Looks != 2 || got.Unjudgeable != "" || got.FirstSentAt.IsZero() {
		t.Errorf("left %+v, %+v", l, got)
	}
}

func TestD01_SeenBesideARequiredOneKeepsTheEntryAndItsLastAttempt(t *testing.T) {
	t.Parallel()
	s, _ := store(t, Options{})
	at := time.Now().Add(-time.Hour)
	o := uncertain()
	o.At = at
	remember(t, s, "a", at, required("slack", o), required("hook", down()))
	change(t, s, "a", func(*Delivery) {})
	before := entryOf(t, s, "a").LastAttemptAt
	if r, err := s.Saw(t.Context(), doubtOf(t, s, "slack"), channels.Receipt{Ref: "1"}); err != nil || r.Gone {
		t.Fatalf("%+v, %v", r, err)
	}
	e := entryOf(t, s, "a")
	if !slices.Equal(e.Owed(), []string{"hook"}) || !slices.Equal(e.Channels, []string{"hook"}) ||
		!e.LastAttemptAt.Equal(before) {
		t.Errorf("owed %v, last attempt %v, was %v: a look is no attempt", e.Owed(), e.LastAttemptAt, before)
	}
}

func TestP2_SawPartGoesOnAfterTheParts(t *testing.T) {
	t.Parallel()
	s, _ := store(t, Options{})
	doubtful(t, s, "a", "slack")
	if r, err := s.SawPart(t.Context(), doubtOf(t, s, "slack"), []string{"p1", "p2"}); err != nil || !r.Applied || r.Gone {
		t.Fatalf("%+v, %v", r, err)
	}
	d := start(t, s, claimOne(t, s, "slack"))
	if !slices.Equal(d.Parts, []string{"p1", "p2"}) || d.Attempt != 2 || d.Event.ID != "a" {
		t.Errorf("asked for %+v", d)
	}
}

// TestP2_LostAndAgainIsOneDurableChange: the new entry and the end of the old
// one stand or fall together, and settled.jsonl knew before.
func TestP2_LostAndAgainIsOneDurableChange(t *testing.T) {
	t.Parallel()
	s, root := store(t, Options{})
	doubtful(t, s, "a", "slack")
	d := doubtOf(t, s, "slack")
	var ops []string
	watched := Open(root.WithSteps(func(op state.Op, path string) error {
		if op == state.OpAppend || op == state.OpSync || op == state.OpReplace {
			ops = append(ops, string(op)+" "+path[strings.LastIndex(path, "/")+1:])
		}
		return nil
	}), Options{})
	r, err := watched.Lost(t.Context(), d, true)
	if err != nil || !r.Applied || !r.Gone || r.ResentAs == "" || r.ResentAs == "a" {
		t.Fatalf("%+v, %v", r, err)
	}
	replaces := slices.Index(ops, "replace undelivered.json")
	told := slices.Index(ops, "sync settled.jsonl")
	if told < 0 || replaces < told || count(ops, "replace undelivered.json") != 1 {
		t.Errorf("steps %v", ops)
	}
	wantIDs(t, s, r.ResentAs)
	again := entryOf(t, s, r.ResentAs)
	ev, err := again.Event()
	row := again.Deliveries["slack"]
	if err != nil || ev.Text != "text of a" || again.SentAgainFrom != "a" || row.State != channels.StatePending ||
		row.Attempts != 0 || !row.FirstSentAt.IsZero() || !row.Required {
		t.Errorf("%+v, %+v, %v", again, row, err)
	}
	if l := leftOf(t, s, "a"); l.How != LeftResent || l.ResentAs != r.ResentAs ||
		l.Deliveries["slack"].Reason != channels.ReasonLost || l.Deliveries["slack"].ResentAs != r.ResentAs {
		t.Errorf("left %+v", l)
	}
	if twice, err := s.Lost(t.Context(), d, true); err != nil || twice.Applied {
		t.Errorf("a second proof of the same loss: %+v, %v", twice, err)
	}
}

// TestP2_ASecondAttemptMakesNoThirdByItself: sent again means once.
func TestP2_ASecondAttemptMakesNoThirdByItself(t *testing.T) {
	t.Parallel()
	s, _ := store(t, Options{})
	doubtful(t, s, "a", "slack")
	r, err := s.Lost(t.Context(), doubtOf(t, s, "slack"), true)
	if err != nil {
		t.Fatal(err)
	}
	c := claimOne(t, s, "slack")
	start(t, s, c)
	settle(t, s, c, uncertain())
	last, err := s.Lost(t.Context(), doubtOf(t, s, "slack"), true)
	if err != nil || !last.Applied || last.ResentAs != "" || last.Gone {
		t.Errorf("%+v, %v", last, err)
	}
	wantIDs(t, s, r.ResentAs)
	if state := entryOf(t, s, r.ResentAs).State(); state != channels.StateLost {
		t.Errorf("it is %s", state)
	}
	if newID, err := s.SendAgain(t.Context(), r.ResentAs, false, never); err != nil || newID == r.ResentAs {
		t.Errorf("a person may: %s, %v", newID, err)
	}
}

func TestSendAgainOnceAndRemembered(t *testing.T) {
	t.Parallel()
	s, _ := store(t, Options{})
	doubtful(t, s, "a", "slack")
	if _, err := s.Lost(t.Context(), doubtOf(t, s, "slack"), false); err != nil {
		t.Fatal(err)
	}
	newID, err := s.SendAgain(t.Context(), "a", false, never)
	if err != nil {
		t.Fatal(err)
	}
	wantIDs(t, s, newID)
	for range 2 { // from settled.jsonl: the old row left
		_, err = s.SendAgain(t.Context(), "a", true, never)
		var already *SentAgainError
		if !errors.As(err, &already) || already.As != newID || err.Error() != "a was already sent again as "+newID {
			t.Errorf("the second time: %v", err)
		}
	}
	wantIDs(t, s, newID)
}

func TestSendAgainKeepsTheRestOfTheEntry(t *testing.T) {
	t.Parallel()
	s, _ := store(t, Options{})
	doubtful(t, s, "a", "hook", "slack")
	if _, err := s.Lost(t.Context(), doubtOf(t, s, "slack"), false); err != nil {
		t.Fatal(err)
	}
	newID, err := s.SendAgain(t.Context(), "a", false, never)
	if err != nil {
		t.Fatalf("what is lost goes without the risk that the uncertain one is: %v", err)
	}
	old, again := entryOf(t, s, "a"), entryOf(t, s, newID)
	if !slices.Equal(old.Owed(), []string{"hook"}) || old.ResentAs != newID || old.Deliveries["slack"].ResentAs != newID ||
		!slices.Equal(again.Channels, []string{"slack"}) || len(again.Deliveries) != 1 {
		t.Errorf("old %+v owes %v, new %+v", old, old.Owed(), again)
	}
	var already *SentAgainError
	if _, err := s.SendAgain(t.Context(), "a", false, never); !errors.Is(err, ErrMayDouble) {
		t.Errorf("its other delivery is a row of its own: %v", err)
	}
	second, err := s.SendAgain(t.Context(), "a", true, never)
	if err != nil || second == newID {
		t.Fatalf("%s, %v", second, err)
	}
	if _, err := s.SendAgain(t.Context(), "a", true, never); !errors.As(err, &already) || already.As != second {
		t.Errorf("nothing of it is left: %v", err)
	}
	if l := leftOf(t, s, "a"); l.How != LeftResent || l.Deliveries["slack"].ResentAs != newID ||
		l.Deliveries["hook"].ResentAs != second {
		t.Errorf("left %+v", l)
	}
}

func TestSendAgainRefuses(t *testing.T) {
	t.Parallel()
	witness := func(string) bool { return true }
	tests := map[string]struct {
		outcome   channels.Outcome
		inHand    bool
		unjudged  bool
		mayDouble bool
		judged    func(string) bool
		want      error
	}{
		"pending":               {outcome: held(), mayDouble: true, judged: never, want: ErrNothingLost},
		"refused":               {outcome: down(), mayDouble: true, judged: never, want: ErrNothingLost},
		"in hand":               {outcome: down(), inHand: true, mayDouble: true, judged: never, want: ErrInHand},
		"may double":            {outcome: uncertain(), judged: never, want: ErrMayDouble},
		"judgeable":             {outcome: uncertain(), mayDouble: true, judged: witness, want: ErrNothingLost},
		"unjudgeable, unasked":  {outcome: uncertain(), unjudged: true, judged: witness, want: ErrMayDouble},
		"unjudgeable, at risk":  {outcome: uncertain(), unjudged: true, mayDouble: true, judged: witness},
		"no witness, with risk": {outcome: uncertain(), mayDouble: true, judged: never},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, root := store(t, Options{})
			remember(t, s, "a", time.Now(), asked("slack", tt.outcome))
			if tt.inHand {
				claimOne(t, s, "slack")
			}
			if tt.unjudged {
				if err := s.Unjudgeable(t.Context(), doubtOf(t, s, "slack"), "too_old", ""); err != nil {
					t.Fatal(err)
				}
			}
			before := string(bytesOf(t, root, state.Outbox))
			newID, err := s.SendAgain(t.Context(), "a", tt.mayDouble, tt.judged)
			if !errors.Is(err, tt.want) || (err == nil) != (tt.want == nil) {
				t.Fatalf("%q, %v, want %v", newID, err, tt.want)
			}
			if err != nil && string(bytesOf(t, root, state.Outbox)) != before {
				t.Error("the file changed")
			}
		})
	}
	s, _ := store(t, Options{})
	if _, err := s.SendAgain(t.Context(), "nobody", true, never); !errors.Is(err, ErrNoEntry) {
		t.Errorf("an unknown id: %v", err)
	}
}

// TestP1_SendAgainFailsWholeAtEachStep: whichever step fails, the old row or
// the new entry stands, never both to be sent and never neither.
func TestP1_SendAgainFailsWholeAtEachStep(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	for n := 1; ; n++ {
		s, root := store(t, Options{})
		doubtful(t, s, "a", "slack")
		if _, err := s.Lost(t.Context(), doubtOf(t, s, "slack"), false); err != nil {
			t.Fatal(err)
		}
		steps, last := 0, ""
		failing := Open(root.WithSteps(func(op state.Op, path string) error {
			if steps++; steps == n {
				last = string(op) + " " + path
				return broken
			}
			return nil
		}), Options{})
		_, err := failing.SendAgain(t.Context(), "a", false, never)
		if steps < n {
			if n < 8 {
				t.Fatalf("only %d steps", steps)
			}
			return
		}
		entries := entriesOf(t, s)
		if len(entries) != 1 {
			t.Fatalf("step %d, %s: entries %v", n, last, ids(entries))
		}
		if err == nil || entries[0].ID == "a" { // it can be asked for again
			if entries[0].ID != "a" {
				continue
			}
			if newID, err := s.SendAgain(t.Context(), "a", false, never); err != nil || len(entriesOf(t, s)) != 1 {
				t.Fatalf("step %d, %s: then %s, %v", n, last, newID, err)
			} else if l := leftOf(t, s, "a"); l.ResentAs != newID {
				t.Errorf("step %d, %s: told of %s, is %s", n, last, l.ResentAs, newID)
			}
		} else if l := leftOf(t, s, "a"); l.ResentAs != entries[0].ID {
			t.Errorf("step %d, %s: told of %s, is %s", n, last, l.ResentAs, entries[0].ID)
		}
	}
}

func TestP9_SettledTellsWhatBecameOfARowWithoutItsText(t *testing.T) {
	t.Parallel()
	s, root := store(t, Options{Cap: 2})
	remember(t, s, "delivered", time.Now().Add(-4*time.Hour), asked("slack", down()))
	c := claimOne(t, s, "slack")
	start(t, s, c)
	settle(t, s, c, accepted("ref"))
	remember(t, s, "dropped", time.Now().Add(-3*time.Hour), asked("slack", down()))
	if _, err := s.Drop(t.Context(), "dropped"); err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"evicted", "b", "c"} {
		remember(t, s, id, time.Now().Add(-2*time.Hour), asked("slack", down()))
	}
	for id, how := range map[string]string{"delivered": LeftDelivered, "dropped": LeftDropped, "evicted": LeftEvicted} {
		gone := id
		if id == "evicted" { // of three of one age the first by id goes
			gone = "b"
		}
		if l := leftOf(t, s, gone); l.How != how || l.At.IsZero() || l.LeftAt.Before(l.At) {
			t.Errorf("%s: %+v", gone, l)
		}
	}
	if text := string(bytesOf(t, root, state.Settled)); strings.Contains(text, "text of") {
		t.Errorf("settled.jsonl holds a text: %s", text)
	}
	if _, err := s.SendAgain(t.Context(), "dropped", false, never); !errors.Is(err, ErrNoEntry) ||
		!strings.Contains(err.Error(), LeftDropped) {
		t.Errorf("send again of what was dropped: %v", err)
	}
	if _, ok, err := s.Left("nobody"); ok || err != nil {
		t.Errorf("an unknown id: %v, %v", ok, err)
	}
}

func TestSendAgainOfASplitMessageGoesOnAfterItsParts(t *testing.T) {
	t.Parallel()
	s, _ := store(t, Options{})
	o := uncertain()
	o.Receipt.Parts = []string{"p1"}
	remember(t, s, "a", time.Now(), asked("slack", o), asked("hook", down()))
	d := doubtOf(t, s, "slack")
	d.Parts = []string{"p1", "p2"}
	r, err := s.Lost(t.Context(), d, true)
	if err != nil || !r.Gone {
		t.Fatalf("%+v, %v: the beginning arrived, so hook is owed nothing", r, err)
	}
	if l := leftOf(t, s, "a"); l.How != LeftResent || !slices.Equal(l.Deliveries["slack"].Parts, d.Parts) {
		t.Errorf("the old one %s, with %v", l.How, l.Deliveries["slack"].Parts)
	}
	if got := start(t, s, claimOne(t, s, "slack")); !slices.Equal(got.Parts, []string{"p1", "p2"}) {
		t.Errorf("goes on after %v", got.Parts)
	}
}

func TestAClosedQuestionIsNotSentAgain(t *testing.T) {
	open := true
	s, _ := store(t, Options{Wanted: func(ev channels.Event) bool {
		return open || ev.ID != "q"
	}})
	for _, id := range []string{"q", "other"} {
		remember(t, s, id, t0, asked("slack", uncertain()))
	}
	open = false
	never := func(string) bool { return false }
	if _, err := s.SendAgain(t.Context(), "q", true, never); !errors.Is(err, ErrNotWanted) {
		t.Errorf("by a person: %v", err)
	}
	for _, d := range Doubts(entriesOf(t, s), "slack") {
		r, err := s.Lost(t.Context(), d, true)
		if err != nil || !r.Applied || (r.ResentAs != "") != (d.Event.ID == "other") {
			t.Errorf("%s lost: %+v, %v", d.Event.ID, r, err)
		}
	}
	again := ""
	for _, e := range entriesOf(t, s) {
		if e.SentAgainFrom == "other" {
			again = e.ID
		}
	}
	open = true
	if _, err := s.SendAgain(t.Context(), "q", true, never); err != nil || again == "" {
		t.Errorf("wanted again: %v, sent again as %q", err, again)
	}
}
