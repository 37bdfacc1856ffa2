package inbound_test

import (
	"errors"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"the-loop/channels"
	"the-loop/internal/inbound"
	"the-loop/internal/questions"
	"the-loop/state"
)

var errDown = &channels.Refusal{Reason: channels.ReasonDown, Code: "refused"}

// What cannot be shown now is shown later, and nobody waits for the ledger's
// copy longer than one attempt.
func TestWhatCannotBeShownIsShownLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t)
		q := s.ask("Ship it?", "yes", "no")
		down := true
		s.shown.fail = func(string) error {
			if down {
				return errDown
			}
			return nil
		}
		s.take(s.reply("yes"))
		s.settle()
		if n, _ := s.Owed(); n != 3 {
			t.Fatalf("%d owed", n)
		}
		if got, _ := questions.Get(s.root, q.ID); got.Answer.Mirror != questions.MirrorFailed {
			t.Errorf("mirror %q", got.Answer.Mirror)
		}
		s.settle() // not due yet
		down = false
		s.settle()
		if got := s.shown.lines; len(got) > 0 {
			t.Errorf("shown before its time: %q", got)
		}
		time.Sleep(time.Minute)
		s.settle()
		if got := s.shown.lines; len(got) != 3 || len(s.shown.all("mirror")) != 1 {
			t.Errorf("shown %q", got)
		}
		if got, _ := questions.Get(s.root, q.ID); got.Answer.Mirror != questions.MirrorDone {
			t.Errorf("mirror %q", got.Answer.Mirror)
		}
	})
}

func TestANoteWithoutAnAnswerIsNotRepeatedAndTheRestIs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t)
		s.ask("Ship it?", "yes", "no")
		asked := map[string]int{}
		s.shown.fail = func(what string) error {
			asked[what]++
			return &channels.Uncertain{Code: "timeout"}
		}
		s.take(s.reply("perhaps"), s.reply("yes"))
		for range 10 {
			s.settle()
			time.Sleep(2 * time.Hour)
		}
		if asked["tell"] != 1 || asked["taken"] != 10 || asked["settle"] != 10 || asked["mirror"] != 10 {
			t.Errorf("asked %v", asked)
		}
		time.Sleep(8 * 24 * time.Hour)
		s.settle()
		if n, _ := s.Owed(); n != 0 {
			t.Errorf("%d owed after more than a week", n)
		}
	})
}

func TestToldToWaitIsWaited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t)
		s.ask("Ship it?", "yes", "no")
		asked := 0
		s.shown.fail = func(string) error {
			asked++
			return &channels.Refusal{Reason: channels.ReasonRate, Code: "ratelimited", RetryAfter: 10 * time.Minute}
		}
		s.take(s.reply("perhaps"))
		for range 9 {
			s.settle()
			time.Sleep(time.Minute)
		}
		if asked != 1 {
			t.Errorf("asked %d times in nine minutes", asked)
		}
	})
}

func TestOneProcessSettlesAtATime(t *testing.T) {
	a := newSite(t)
	b := siteOn(t, a.root)
	a.ask("Ship it?")
	a.take(a.reply("yes"))
	inside, held := make(chan bool), make(chan bool)
	a.shown.fail = func(what string) error {
		if what == "mirror" {
			inside <- true
			<-held
		}
		return nil
	}
	done := make(chan error, 1)
	go func() { _, err := a.settler.Settle(t.Context()); done <- err }()
	<-inside
	if got, err := b.settler.Settle(t.Context()); got || err != nil {
		t.Errorf("a second one settles: %v, %v", got, err)
	}
	close(held)
	if err := <-done; err != nil || len(b.shown.lines) > 0 || len(a.shown.lines) != 3 {
		t.Errorf("%v: %q, %q", err, a.shown.lines, b.shown.lines)
	}
}

func TestP10_DamagedDebtsAreSetAsideAndNewerOnesLeftAlone(t *testing.T) {
	s := newSite(t)
	q := s.ask("Ship it?", "yes", "no")
	path := s.root.Path(state.Owed)
	s.take(s.reply("perhaps"))
	if err := os.WriteFile(path, []byte(`{"version": 1, "owed": [`), 0o600); err != nil {
		t.Fatal(err)
	}
	s.take(s.reply("yes"))
	if got := s.answer(q); got != "yes" {
		t.Errorf("answer %q", got)
	}
	aside, err := os.ReadDir(s.root.Path("inbound"))
	found := false
	for _, f := range aside {
		found = found || strings.Contains(f.Name(), ".corrupt-")
	}
	if err != nil || !found {
		t.Errorf("nothing was set aside: %v, %v", aside, err)
	}
	newer := `{"version": 2, "owed": []}`
	if err := os.WriteFile(path, []byte(newer), 0o600); err != nil {
		t.Fatal(err)
	}
	next := s.ask("Tag it?", "yes", "no")
	m := s.reply("no way")
	if err := s.Take(t.Context(), m); err == nil || !strings.Contains(err.Error(), "upgrade") {
		t.Errorf("error %v", err)
	}
	if b, _ := os.ReadFile(path); string(b) != newer {
		t.Errorf("the newer file is %s", b)
	}
	_ = next
}

// What came in is known after a restart, and after the log was turned over once.
func TestSeenOutlivesTheProcessAndATurnOver(t *testing.T) {
	s := newSite(t)
	m := s.reply("hello")
	s.take(m)
	if err := os.Rename(s.root.Path(state.Seen), s.root.Path(state.Seen)+".1"); err != nil {
		t.Fatal(err)
	}
	s.take(s.reply("another"), m)
	fresh := siteOn(t, s.root)
	fresh.take(m)
	if got := s.inbox(); len(got) != 2 {
		t.Errorf("inbox %q", got)
	}
}

func TestClosedAtTheTerminalIsShownToo(t *testing.T) {
	s := newSite(t)
	q := s.ask("Ship it?", "yes", "no")
	_, err := s.Answer(t.Context(), q.ID, questions.Answer{
		Text: "no", Choice: 2, Via: questions.ViaTerminal, Mirror: questions.MirrorPending,
		By: questions.Person{Name: "root"},
	})
	if err != nil {
		t.Fatal(err)
	}
	s.settle()
	if got := s.shown.all("settle"); len(got) != 1 || !strings.HasSuffix(got[0], "| root answered at the terminal: no") {
		t.Errorf("settled %q", got)
	}
	if got := s.shown.all("mirror"); len(got) != 1 {
		t.Errorf("mirrored %q", got)
	}
}

// The steps of taking something in, each of them broken once: nothing is lost
// and nothing counts twice when it is taken again.
func TestL06_EveryStepOfTakingMayFail(t *testing.T) {
	for n := 0; ; n++ {
		bare := newSite(t)
		q := bare.ask("Ship it?", "yes", "no")
		step, broken := 0, ""
		root := bare.root.WithSteps(func(op state.Op, path string) error {
			if step++; step == n+1 {
				broken = string(op) + " " + path
				return errors.New("broken")
			}
			return nil
		})
		s := siteOn(t, root)
		ms := []channels.Message{s.reply("perhaps"), s.comment("hello"), s.reply("yes")}
		err := s.Take(t.Context(), ms...)
		if broken == "" {
			break
		}
		fresh := siteOn(t, bare.root) // the next process
		fresh.take(ms...)
		fresh.settle()
		if got := bare.answer(q); got != "yes" {
			t.Errorf("%s (%v): answer %q", broken, err, got)
		}
		if got := bare.inbox(); len(got) != 2 {
			t.Errorf("%s (%v): inbox %q", broken, err, got)
		}
		if got := fresh.shown.all("taken"); len(got) != 1 {
			t.Errorf("%s (%v): taken %q", broken, err, got)
		}
	}
}

var _ inbound.Responder = (*shown)(nil)

// Damage to the pins lets nobody in: a login's new owner might be meant.
func TestP12_DamagedPinsDenyEverybodyOnGitHub(t *testing.T) {
	s := newSite(t)
	q := s.ask("Ship it?", "yes", "no")
	if err := os.MkdirAll(s.root.Path("inbound"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(s.root.Path(state.Pins), []byte(`{"logins": [`), 0o600); err != nil {
		t.Fatal(err)
	}
	m := s.comment("yes")
	if err := s.Take(t.Context(), m); err == nil || !strings.Contains(err.Error(), "nobody is let in") {
		t.Errorf("error %v", err)
	}
	if got := s.answer(q); got != "" {
		t.Errorf("answer %q", got)
	}
	s.take(s.reply("no")) // Slack's people are known by their ids
	if got := s.answer(q); got != "no" {
		t.Errorf("answer %q", got)
	}
}

// A process that lives through a turn-over reads on in the new file.
func TestSeenFollowsATurnOverByAnotherProcess(t *testing.T) {
	a := newSite(t)
	a.take(a.reply("first"))
	a.take(a.reply("opens the file that is there now"))
	if err := os.Rename(a.root.Path(state.Seen), a.root.Path(state.Seen)+".1"); err != nil {
		t.Fatal(err)
	}
	b := siteOn(t, a.root)
	b.n = 50
	m := b.reply("second")
	b.take(m)
	a.take(m)
	if got := a.Counts().Dropped["repeated"]; got != 1 {
		t.Errorf("%d repeats seen, inbox %q", got, a.inbox())
	}
}

// A ticket may have other readers than the room in which the question was answered.
func TestANoteOnATicketDoesNotTellWhatWasAnsweredElsewhere(t *testing.T) {
	s := newSite(t)
	s.ask("Which tag?")
	s.take(s.reply("v1.2.3-secret"), s.comment("v2"))
	s.settle()
	if got := s.shown.all("tell"); len(got) != 1 || strings.Contains(got[0], "secret") {
		t.Errorf("told %q", got)
	}
}
