package inbound_test

import (
	"context"
	"errors"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"the-loop/channels"
	"the-loop/internal/inbound"
	"the-loop/internal/questions"
	"the-loop/state"
)

// Whoever closes a question may die at any step: whenever it is closed, people
// are shown that once the next process settles, though nobody closes it again.
func TestWhatIsClosedIsShownWhoeverDiesMeanwhile(t *testing.T) {
	for how, closing := range map[string]func(ctx context.Context, s *site, q questions.Question) error{
		"press": func(ctx context.Context, s *site, q questions.Question) error { return s.Take(ctx, s.press(q, 0)) },
		"terminal": func(ctx context.Context, s *site, q questions.Question) error {
			_, err := s.Answer(ctx, q.ID, questions.Answer{
				Text: "yes", Choice: 1, Via: questions.ViaTerminal, Mirror: questions.MirrorPending,
			})
			return err
		},
		"withdrawn": func(ctx context.Context, s *site, q questions.Question) error {
			_, err := s.Withdraw(ctx, q.ID)
			return err
		},
		"expired": func(ctx context.Context, s *site, _ questions.Question) error {
			_, err := s.Expire(ctx, time.Now(), nil)
			return err
		},
	} {
		t.Run(how, func(t *testing.T) {
			closed := 0
			for n := 0; ; n++ {
				bare := newSite(t)
				q := bare.askUntil("Ship it?", time.Now().Add(-time.Second), "yes", "no")
				if how == "press" || how == "terminal" {
					q = bare.ask("Really?", "yes", "no")
				}
				step := 0
				s := siteOn(t, bare.root.WithSteps(func(state.Op, string) error {
					if step++; step > n {
						return errors.New("dead")
					}
					return nil
				}))
				err := closing(t.Context(), s, q)
				if step <= n {
					if err != nil {
						t.Fatal(err)
					}
					break
				}
				next := siteOn(t, bare.root)
				next.settle()
				now, err := questions.Get(bare.root, q.ID)
				if err != nil {
					t.Fatal(err)
				}
				wantShown, wantCopies := 0, 0
				if now.State != questions.StateOpen {
					wantShown = 1
					closed++
				}
				if now.Answer != nil {
					wantCopies = 1
				}
				if got := next.shown.all("settle"); len(got) != wantShown {
					t.Errorf("dead after %d steps, %s: shown %q", n, now.State, got)
				}
				if got := next.shown.all("mirror"); len(got) != wantCopies {
					t.Errorf("dead after %d steps, %s: copied %q", n, now.State, got)
				}
				if owed, _ := next.Owed(); owed != 0 {
					t.Errorf("dead after %d steps, %s: %d owed", n, now.State, owed)
				}
			}
			if closed == 0 {
				t.Error("nobody died after the question was closed")
			}
		})
	}
}

// One that answers what is closed already owes nothing.
func TestWhatIsClosedIsNotClosedAgain(t *testing.T) {
	s := newSite(t)
	q := s.ask("Ship it?", "yes", "no")
	s.take(s.press(q, 1))
	s.settle()
	shown := len(s.shown.lines)
	_, err := s.Answer(t.Context(), q.ID, questions.Answer{Text: "yes", Choice: 1, Via: questions.ViaTerminal})
	_, err2 := s.Withdraw(t.Context(), q.ID)
	var late *questions.ClosedError
	if !errors.As(err, &late) || !errors.As(err2, &late) || late.Question.Answer.Text != "no" {
		t.Errorf("%v, %v", err, err2)
	}
	if s.settle(); len(s.shown.lines) != shown || s.answer(q) != "no" {
		t.Errorf("%q, answer %q", s.shown.lines, s.answer(q))
	}
}

// A surface that hangs holds up neither the copies nor another surface.
func TestAHungSurfaceHoldsUpNoOther(t *testing.T) {
	s := newSite(t)
	hangs, copied, let := make(chan bool), make(chan bool), make(chan bool)
	first := true
	s.shown.fail = func(what string) error {
		if what == "mirror" {
			copied <- true
		}
		return nil
	}
	slow := &shown{fail: func(string) error {
		if first {
			first = false
			hangs <- true
			<-let
		}
		return nil
	}}
	s.settler.Responder = func(string) inbound.Responder { return slow }
	s.ask("A?")
	s.take(s.reply("one"))
	done := make(chan error, 1)
	go func() { _, err := s.settler.Settle(t.Context()); done <- err }()
	<-copied
	<-hangs
	s.ask("B?")
	s.take(s.reply("two"))
	<-copied // while the surface hangs
	close(let)
	if err := <-done; err != nil || len(slow.all("settle")) != 2 || len(slow.all("taken")) != 2 {
		t.Errorf("%v, %q", err, slow.lines)
	}
}

// Where another machine's question is open, a reply may be to that.
func TestAReplyToAnothersQuestionIsNotCalledLate(t *testing.T) {
	s := newSite(t)
	q := s.ask("Ours?")
	s.take(s.comment("done"))
	s.settle()
	m := s.comment("their question")
	m.From = channels.Author{ID: "999", Login: "loop-bot", Person: true, Us: true}
	m.Mark = &channels.Mark{ID: "01OTHER", Code: "7K2", Ours: true}
	s.take(m, s.comment("yes, ship theirs"))
	s.settle()
	if got := s.shown.all("tell"); len(got) > 0 || s.answer(q) != "done" {
		t.Errorf("told %q, answer %q", got, s.answer(q))
	}
	if got := s.inbox(); len(got) != 1 {
		t.Errorf("inbox %q", got)
	}
	s.take(s.comment(q.Code + " really done")) // this one is not
	s.settle()
	if got := s.shown.all("tell"); len(got) != 1 {
		t.Errorf("told %q", got)
	}
}

// Who answers with the code where the question does not stand is not told what
// stands in it: others read there.
func TestP12_TheChoicesOfAQuestionAreToldWhereItStands(t *testing.T) {
	s := newSite(t)
	q := s.ask("Which customer first?", "Acme (lawsuit)", "Initech")
	p := inbound.New(inbound.Options{
		Root: s.root, People: people(),
		Shown: func(_ questions.Question, m channels.Message) bool { return m.Surface == "slack" },
	})
	t.Cleanup(p.Close)
	if err := p.Take(t.Context(), s.comment(q.Code+" dunno"), s.reply(q.Code+" dunno")); err != nil {
		t.Fatal(err)
	}
	s.settle()
	got := s.shown.all("tell")
	if len(got) != 2 || strings.Contains(got[0], "Acme") == strings.Contains(got[1], "Acme") {
		t.Errorf("told %q", got)
	}
	if s.take(s.comment(q.Code + " Initech")); s.answer(q) != "Initech" {
		t.Errorf("answer %q", s.answer(q))
	}
}

// What GitHub orders by time alone is put in order by GitHub's clock, as soon as
// the question's own comment was read.
func TestAClockThatIsAheadLosesNoInlineAnswer(t *testing.T) {
	inline := func(s *site, after time.Duration, q questions.Question) channels.Message {
		m := s.comment("yes")
		m.Place.ID, m.Key = "inline:5", "github:o/r:inline:5:2026-09-22T10:00:00Z"
		m.At = q.AskedAt.Add(after - 30*time.Second) // GitHub's clock is 30s behind ours
		return m
	}
	for after, want := range map[time.Duration]string{20 * time.Second: "yes", -5 * time.Second: ""} {
		s := newSite(t)
		q := s.ask("Ship it?")
		own := s.comment("Ship it?")
		own.From = channels.Author{ID: "999", Login: "loop-bot", Person: true, Us: true}
		own.Mark = &channels.Mark{ID: q.ID, Code: q.Code, Ours: true}
		own.At = q.AskedAt.Add(-30 * time.Second)
		s.take(own, inline(s, after, q))
		if got := s.answer(q); got != want {
			t.Errorf("%s after the question: answer %q, want %q", after, got, want)
		}
	}
}

// A question whose time is over, and that is open only until all was read, makes
// no reply ambiguous that was written later; alone, it is what that is too late for.
func TestAQuestionThatIsPastIsNotOpenForWhatIsWrittenLater(t *testing.T) {
	for _, first := range []string{"", "with its code"} {
		s := newSite(t)
		old := s.askUntil("Old?", time.Now().Add(-30*time.Second), "yes", "no")
		q := s.ask("New?", "yes", "no")
		if first != "" {
			s.take(s.reply(old.Code+" yes"), s.reply("yes"))
		} else {
			s.take(s.reply("yes"))
		}
		if got := s.answer(q); got != "yes" || s.answer(old) != "" {
			t.Errorf("%s: answer %q; told %q", first, got, s.shown.all("tell"))
		}
	}
	s := newSite(t)
	s.askUntil("Old?", time.Now().Add(-30*time.Second), "yes", "no")
	s.take(s.reply("yes"))
	s.settle()
	if got := s.shown.all("tell"); len(got) != 1 || !strings.Contains(got[0], "too late") {
		t.Errorf("told %q", got)
	}
	s = newSite(t)
	old := s.askUntil("Old?", time.Now().Add(-30*time.Second), "yes", "no")
	s.ask("New?", "yes", "no")
	m := s.reply("yes")
	m.At = old.ExpiresAt.Add(-time.Second) // in time for both
	s.take(m)
	if s.answer(old) != "" {
		t.Error("an ambiguous reply was taken")
	}
}

// Where nobody was asked, nobody is told how a question ended.
func TestP12_NothingIsSaidOfAQuestionWhereItNeverStood(t *testing.T) {
	s := newSite(t)
	p := inbound.New(inbound.Options{
		Root: s.root, People: people(), Surfaces: []string{"slack"},
		Shown: func(_ questions.Question, m channels.Message) bool { return m.Surface == "slack" },
	})
	t.Cleanup(p.Close)
	s.Pipeline, s.settler.Pipeline = p, p
	s.ask("Secret plan?", "yes", "no")
	s.take(s.reply("yes"))
	s.take(s.comment("nice work, thanks"))
	s.settle()
	if got := s.shown.all("tell"); len(got) > 0 || len(s.inbox()) != 1 {
		t.Errorf("told %q, inbox %q", got, s.inbox())
	}
}

// What another machine wrote by a listed person's account is no person's word:
// neither a copy of an answer nor a note, to which ours would be the next.
func TestAnotherMachinesOwnWordsAnswerNothing(t *testing.T) {
	for _, text := range []string{"**Octo answered:** · 9MH\n\n> yes", "that is not one of the choices: 1. a, 2. b"} {
		s := newSite(t)
		q := s.ask("Which tag?")
		m := s.comment(text)
		m.Mark = &channels.Mark{ID: "01KB3Z0000000000000000000B", Ours: true}
		s.take(m)
		s.settle()
		if s.answer(q) != "" || len(s.shown.lines) > 0 || len(s.inbox()) > 0 {
			t.Errorf("answer %q, shown %q", s.answer(q), s.shown.lines)
		}
		m = s.comment("yes, and see above")
		m.Mark = &channels.Mark{ID: "01KB3Z0000000000000000000B"} // a person added to it
		if s.take(m); s.answer(q) == "" {
			t.Error("a person's own words were dropped")
		}
	}
}

// An inline comment answers as any other, and is in the inbox with its place.
func TestAnInlineCommentAnswers(t *testing.T) {
	s := newSite(t)
	q := s.ask("Ship it?", "yes", "no")
	talk, m := s.comment("// among us"), s.comment("no idea")
	talk.Where, m.Where = "a.go:3", "a.go:12"
	answer := s.comment(q.Code + " yes")
	answer.Where = "a.go:12"
	s.take(talk, m, answer)
	free := s.ask("Which name?")
	name := s.comment("rename this")
	name.Where = "a.go:7"
	if s.take(name); s.answer(free) != "a.go:7: rename this" {
		t.Errorf("answer %q", s.answer(free))
	}
	if got := s.inbox(); s.answer(q) != "yes" || len(got) != 1 || got[0] != "Octo: a.go:12: no idea" {
		t.Errorf("answer %q, inbox %q", s.answer(q), got)
	}
}

// A surface that hangs does not keep another one from its second try.
func TestAHungSurfaceHoldsUpNoSecondTry(t *testing.T) {
	s := newSite(t)
	p := inbound.New(inbound.Options{Root: s.root, People: people(), Surfaces: []string{"slack", inbound.Ledger}})
	t.Cleanup(p.Close)
	s.Pipeline, s.settler.Pipeline = p, p
	hangs, let, again := make(chan bool), make(chan bool), make(chan bool)
	tries := 0
	busy := &shown{fail: func(string) error {
		if tries++; tries == 1 {
			return &channels.Refusal{Reason: channels.ReasonRate, Code: "ratelimited", RetryAfter: 100 * time.Millisecond}
		}
		close(again)
		return nil
	}}
	hung := &shown{fail: func(string) error { close(hangs); <-let; return nil }}
	s.settler.Responder = func(name string) inbound.Responder {
		if name == "slack" {
			return hung
		}
		return busy
	}
	q := s.ask("One?")
	if _, err := s.Withdraw(t.Context(), q.ID); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { _, err := s.settler.Settle(t.Context()); done <- err }()
	<-hangs
	<-again
	close(let)
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// A note that could not be crossed off is not said: on a full disk it would be
// said again and again.
func TestWhatCannotBeCrossedOffIsNotSaid(t *testing.T) {
	for _, full := range []int{1, 2} { // from the first, or from the second write on
		bare := newSite(t)
		bare.ask("Ship it?", "yes", "no")
		bare.take(bare.reply("perhaps"))
		writes := 0
		s := siteOn(t, bare.root.WithSteps(func(op state.Op, path string) error {
			if op == state.OpCreate && strings.Contains(path, "owed") {
				if writes++; writes >= full {
					return errors.New("no space left on device")
				}
			}
			return nil
		}))
		for range 3 {
			if _, err := s.settler.Settle(t.Context()); err == nil {
				t.Error("no error")
			}
			makeDue(t, bare.root)
		}
		want := full - 1
		if got := s.shown.all("tell"); len(got) != want {
			t.Errorf("full from write %d on: said %q, want %d", full, got, want)
		}
	}
}

// makeDue makes all that is owed due now.
func makeDue(t *testing.T, root *state.Root) {
	t.Helper()
	path := root.Path(state.Owed)
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	b = regexp.MustCompile(`"nextAt":"[^"]*"`).ReplaceAll(b, []byte(`"nextAt":"2026-01-01T00:00:00Z"`))
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
}

// A late word closes nothing: somebody may have answered in time, elsewhere.
func TestALateWordDoesNotLoseOneThatWasInTime(t *testing.T) {
	s := newSite(t)
	q := s.askUntil("Ship it?", time.Now().Add(-30*time.Second), "yes", "no")
	late, early := s.reply("no"), s.comment("yes")
	early.At = q.ExpiresAt.Add(-10 * time.Second)
	s.take(late, s.press(q, 1))
	s.take(early)
	s.settle()
	if got := s.answer(q); got != "yes" {
		t.Errorf("answer %q, told %q", got, s.shown.all("tell"))
	}
	if got := s.shown.all("tell"); len(got) != 1 || !strings.Contains(got[0], "too late") {
		t.Errorf("told %q", got)
	}
}

// What is late is told so, and not invited to try again.
func TestALateWordThatIsNoChoiceIsTooLate(t *testing.T) {
	s := newSite(t)
	s.askUntil("Old?", time.Now().Add(-40*time.Second), "yes", "no")
	s.askUntil("Older?", time.Now().Add(-30*time.Second), "yes", "no")
	s.take(s.reply("perhaps"))
	s.settle()
	if got := s.shown.all("tell"); len(got) != 1 || !strings.Contains(got[0], "too late") {
		t.Errorf("told %q", got)
	}
}
