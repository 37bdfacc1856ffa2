package inbound_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"the-loop/channels"
	"the-loop/internal/inbound"
	"the-loop/internal/questions"
	"the-loop/state"
)

func TestAnAnswerIsTakenOnceAndShown(t *testing.T) {
	for name, make := range map[string]func(s *site, q questions.Question) channels.Message{
		"reply":   func(s *site, _ questions.Question) channels.Message { return s.reply("Yes") },
		"number":  func(s *site, _ questions.Question) channels.Message { return s.reply("1") },
		"coded":   func(s *site, q questions.Question) channels.Message { return s.reply(q.Code + " yes") },
		"comment": func(s *site, _ questions.Question) channels.Message { return s.comment("yes") },
		"press":   func(s *site, q questions.Question) channels.Message { return s.press(q, 0) },
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t)
			q := s.ask("Ship it?", "yes", "no")
			m := make(s, q)
			for range 6 {
				s.take(m)
				s.settle()
			}
			if got := s.answer(q); got != "yes" {
				t.Fatalf("answer %q", got)
			}
			if got := s.shown.all("mirror"); len(got) != 1 || !strings.HasPrefix(got[0], "mirror "+q.ID+".answer-") {
				t.Errorf("mirrored %q", got)
			}
			if got := s.shown.all("settle"); !slices.Equal(got, []string{"settle Ship it? | Octo answered: yes"}) {
				t.Errorf("settled %q", got)
			}
			if got := s.shown.all("tell"); len(got) > 0 {
				t.Errorf("told %q", got)
			}
			if n := len(s.shown.all("taken")); n != 1 && m.Press == nil || n != 0 && m.Press != nil {
				t.Errorf("marked as taken %d times", n)
			}
			if n, _ := s.Owed(); n > 0 || len(s.inbox()) > 0 {
				t.Errorf("%d owed, inbox %q", n, s.inbox())
			}
			got, _ := questions.Get(s.root, q.ID)
			if got.Answer.By.Name != "Octo" || got.Answer.Mirror != questions.MirrorDone {
				t.Errorf("answer %+v", got.Answer)
			}
		})
	}
}

func TestP12_OutsidersChangeNothing(t *testing.T) {
	s := newSite(t)
	q := s.ask("Ship it?", "yes", "no")
	before := s.files()
	from := func(m channels.Message, a channels.Author) channels.Message { m.From = a; return m }
	stranger := channels.Author{ID: "U9", Person: true}
	outsiders := []channels.Message{
		from(s.reply("yes"), stranger),
		from(s.press(q, 0), stranger),
		from(s.reply(q.Code+" yes"), channels.Author{ID: "U1OCTO"}),                               // a bot under that id
		from(s.comment("yes"), channels.Author{ID: "9", Login: "octokitten", Person: true}),       // another login
		from(s.comment("yes"), channels.Author{ID: "9", Login: "octocat"}),                        // an app
		from(s.comment("yes"), channels.Author{Login: "octocat", Person: true}),                   // without a number
		from(s.reply("yes"), channels.Author{ID: "", Person: true}),                               // nobody
		from(s.reply("yes"), channels.Author{ID: "u1octo", Person: true}),                         // ids have a case
		from(s.comment("yes"), channels.Author{ID: "\x1b[2J", Login: "\x1b]0;x\a", Person: true}), // hostile names
	}
	for range 3 {
		s.take(outsiders...)
		s.settle()
	}
	if got := s.answer(q); got != "" {
		t.Errorf("answered %q", got)
	}
	allowed := []string{"owed.json.lock"} // an empty lock
	after := slices.DeleteFunc(s.files(), func(f string) bool {
		known := func(a string) bool { return strings.Contains(f, a) }
		return slices.Contains(before, f) || slices.ContainsFunc(allowed, known)
	})
	if len(after) > 0 || len(s.shown.lines) > 0 {
		t.Errorf("written %q, shown %q", after, s.shown.lines)
	}
	strangers := s.Counts().Strangers
	if strangers["slack:U9"] != 6 || strangers["github:octokitten (9)"] != 3 {
		t.Errorf("strangers %v", strangers)
	}
	for name := range strangers {
		if strings.ContainsRune(name, 0x1b) {
			t.Errorf("a hostile name: %q", name)
		}
	}
}

func TestP12_EmptyPeopleDenyEveryone(t *testing.T) {
	s := newSite(t)
	s.Pipeline = inbound.New(inbound.Options{Root: s.root})
	q := s.ask("Ship it?")
	s.take(s.reply("yes"), s.comment("yes"), s.press(q, 0))
	if got := s.answer(q); got != "" || s.Counts().Dropped["stranger"] != 3 {
		t.Errorf("answer %q, %v", got, s.Counts())
	}
}

// A login that is given up and registered anew belongs to somebody else.
func TestP12_NumericIDsArePinned(t *testing.T) {
	s := newSite(t)
	s.take(s.comment("hello"))
	q := s.ask("Ship it?", "yes", "no")
	thief := s.comment("yes")
	thief.From.ID = "666"
	s.take(thief)
	if got := s.answer(q); got != "" {
		t.Fatalf("the new owner of the login answered %q", got)
	}
	renamed := s.comment("no")
	renamed.From.Login = "octo-renamed"
	s.take(renamed)
	if got := s.answer(q); got != "no" {
		t.Errorf("the renamed account's answer: %q", got)
	}
	if pins, err := inbound.Pinned(s.root); err != nil || pins["octocat"] != "583231" {
		t.Errorf("pins %v, %v", pins, err)
	}
}

func TestD11_OwnMessagesAreDroppedAndQuotesAreNot(t *testing.T) {
	s := newSite(t)
	q := s.ask("Ship it?")
	own := s.comment("Question: Ship it?")
	own.From.Us, own.Mark = true, &channels.Mark{ID: q.ID, Code: q.Code, Ours: true}
	note := s.comment("too late")
	note.From.Us, note.Mark = true, &channels.Mark{ID: state.NewID(), Ours: true}
	edited := s.comment("Question: Ship it? (edited by somebody)")
	edited.From.Us, edited.Edited, edited.Mark = true, true, &channels.Mark{ID: q.ID, Code: q.Code}
	s.take(own, note, edited)
	if got := s.answer(q); got != "" || s.Counts().Dropped["own"] != 3 {
		t.Errorf("answer %q, %v", got, s.Counts().Dropped)
	}
	quote := s.comment("> Question: Ship it?\n\nyes")
	quote.From.Us = true // Octo's own token
	s.take(quote)
	if got := s.answer(q); !strings.HasSuffix(got, "yes") {
		t.Errorf("the quoting answer: %q", got)
	}
}

func TestACommentOlderThanTheQuestionIsNeverItsAnswer(t *testing.T) {
	s := newSite(t)
	old := s.reply("yes")
	old.At = time.Now().Add(-time.Hour)
	q := s.ask("Ship it?", "yes", "no")
	s.take(old)
	// By the provider's own order, whatever the clocks say.
	older := s.reply("yes")
	if _, err := questions.Update(t.Context(), s.root, q.ID, func(q *questions.Question) {
		q.Refs["slack"] = []string{"1900000000.500000"}
	}); err != nil {
		t.Fatal(err)
	}
	s.take(older)
	if got := s.answer(q); got != "" {
		t.Errorf("answered %q", got)
	}
	if len(s.inbox()) != 2 {
		t.Errorf("inbox %q", s.inbox())
	}
}

func TestEditsNeverAnswer(t *testing.T) {
	s := newSite(t)
	q := s.ask("Ship it?", "yes", "no")
	first := s.comment("maybe")
	s.take(first)
	edit := first
	edit.Key, edit.Text, edit.Edited = strings.Replace(first.Key, "10:00:00", "10:05:00", 1), "yes", true
	unseen := s.comment("yes")
	unseen.Edited = true
	s.take(edit, unseen)
	s.settle()
	if got := s.answer(q); got != "" {
		t.Errorf("answered %q", got)
	}
	if got := s.shown.all("tell"); len(got) != 2 || !strings.Contains(got[1], "edited") {
		t.Errorf("told %q", got) // of the choices, and of the edited one that was not seen before
	}
}

func TestMoreThanOneOpenQuestionWantsTheCode(t *testing.T) {
	s := newSite(t)
	a, b := s.ask("Ship it?", "yes", "no"), s.ask("Tag it?", "yes", "no")
	s.take(s.reply("yes"), s.reply("no"), s.comment("yes"))
	s.settle()
	if s.answer(a) != "" || s.answer(b) != "" {
		t.Error("a reply without a code was taken")
	}
	if got := s.shown.all("tell"); len(got) != 2 { // once for each of Octo's accounts
		t.Errorf("told %q", got)
	}
	if got := s.shown.all("tell")[0]; !strings.Contains(got, a.Code) || !strings.Contains(got, b.Code) {
		t.Errorf("told %q", got)
	}
	s.take(s.reply(strings.ToLower(b.Code) + ": no"))
	s.take(s.reply("yes")) // one is left
	if s.answer(a) != "yes" || s.answer(b) != "no" {
		t.Errorf("answers %q and %q", s.answer(a), s.answer(b))
	}
}

// Another machine's question in the same ticket counts, and its code is its own.
func TestQuestionsOfOtherMachinesCount(t *testing.T) {
	s := newSite(t)
	q := s.ask("Ship it?", "yes", "no")
	foreign := s.comment("Question")
	foreign.From = channels.Author{ID: "1", Login: "robot", Us: true}
	foreign.Mark = &channels.Mark{ID: state.NewID(), Code: "X4Y", Ours: true}
	planted := foreign
	planted.Key, planted.From = planted.Key+"p", channels.Author{ID: "666", Login: "stranger", Person: true}
	planted.Mark = &channels.Mark{ID: state.NewID(), Code: "Z9Z", Ours: true}
	s.take(foreign, planted)
	s.take(s.reply("yes"), s.reply("X4Y no"))
	s.settle()
	if got := s.answer(q); got != "" {
		t.Fatalf("answered %q", got)
	}
	if got := s.shown.all("tell"); len(got) != 1 || !strings.Contains(got[0], "X4Y") || strings.Contains(got[0], "Z9Z") {
		t.Errorf("told %q", got)
	}
	again := newSiteOn(t, s.root) // the count outlives the process
	again.n = 100
	again.take(again.reply("yes"))
	if got := again.answer(q); got != "" {
		t.Fatalf("answered %q", got)
	}
	foreign.Key, foreign.Mark = foreign.Key+"2", &channels.Mark{ID: foreign.Mark.ID, Code: "X4Y", Closed: true, Ours: true}
	again.take(foreign, again.reply("yes"))
	if got := again.answer(q); got != "yes" {
		t.Errorf("answer %q after the other one was closed", got)
	}
}

func newSiteOn(t *testing.T, root *state.Root) *site { return siteOn(t, root) }

func TestA01_LateAndSecondAnswersAreToldAndKept(t *testing.T) {
	s := newSite(t)
	q := s.ask("Ship it?", "yes", "no")
	s.take(s.reply("yes"))
	second := s.reply("no")
	second.From.ID = "U2HUB"
	s.take(second, s.press(q, 1), s.reply("no"), s.reply("thanks, all"))
	s.settle()
	if got := s.answer(q); got != "yes" {
		t.Errorf("answer %q", got)
	}
	got := s.shown.all("tell")
	if len(got) != 2 || !strings.HasPrefix(got[0], "tell U2HUB: too late: Octo answered: yes") {
		t.Errorf("told %q", got) // Hub, and Octo once, though he tried twice
	}
	if got := s.inbox(); !slices.Equal(got, []string{"Hub: no", "Octo: no", "Octo: thanks, all"}) {
		t.Errorf("inbox %q", got)
	}
	w := s.ask("Tag it?", "yes", "no")
	if _, err := questions.Close(t.Context(), s.root, w.ID, questions.Withdrawn); err != nil {
		t.Fatal(err)
	}
	s.take(s.reply(w.Code + " yes"))
	s.settle()
	if got := s.shown.all("tell"); len(got) != 3 || !strings.Contains(got[2], "withdrawn") {
		t.Errorf("told %q", got)
	}
}

func TestWhatIsNoChoiceIsToldAndTalkIsNot(t *testing.T) {
	s := newSite(t)
	q := s.ask("Ship it?", "yes", "no")
	s.take(s.reply("// who is on call?"), s.reply("perhaps"))
	s.settle()
	if got := s.shown.all("tell"); len(got) != 1 || !strings.Contains(got[0], "1. yes, 2. no") {
		t.Errorf("told %q", got)
	}
	if got := s.inbox(); !slices.Equal(got, []string{"Octo: perhaps"}) || s.answer(q) != "" {
		t.Errorf("inbox %q", got)
	}
}

func TestAPressForAQuestionOfAnotherRootIsAnsweredToThePresser(t *testing.T) {
	s := newSite(t)
	m := s.press(questions.Question{ID: state.NewID()}, 0)
	s.take(m, m)
	s.settle()
	if got := s.shown.all("tell"); len(got) != 1 || !strings.HasPrefix(got[0], "tell U1OCTO alone: ") {
		t.Errorf("told %q", got)
	}
}

// What could not be stored is not down as seen: it comes again, and counts once.
func TestL06_WhatCouldNotBeStoredIsTakenNextTime(t *testing.T) {
	bare := newSite(t)
	broken := ""
	root := bare.root.WithSteps(func(op state.Op, path string) error {
		if broken != "" && op != state.OpRead && strings.Contains(path, broken) {
			return syscall.ENOSPC
		}
		return nil
	})
	for _, where := range []string{"questions/", "inbound/", "inbox/"} {
		s := siteOn(t, root)
		s.n = 100 * len(where)
		q := s.ask("Ship it? " + where)
		m, talk := s.reply("yes"), s.reply("and now?")
		broken = where
		if err := s.Take(t.Context(), m, talk); !errors.Is(err, syscall.ENOSPC) {
			t.Fatalf("%s: error %v", where, err)
		}
		broken = ""
		s.take(m, talk)
		s.take(m, talk)
		s.settle()
		if got := s.answer(q); got != "yes" {
			t.Errorf("%s: answer %q", where, got)
		}
		if n := len(s.shown.all("taken")); n != 1 {
			t.Errorf("%s: marked as taken %d times", where, n)
		}
	}
	if got := bare.inbox(); len(got) != 3 {
		t.Errorf("inbox %q", got)
	}
}

// Two processes take in the same at the same time.
func TestFirstAnswerWinsAndEachMessageCountsOnce(t *testing.T) {
	a := newSite(t)
	b := siteOn(t, a.root)
	q := a.ask("Ship it?", "yes", "no")
	yes, no := a.reply("yes"), a.reply("no")
	no.From.ID = "U2HUB"
	var wg sync.WaitGroup
	for range 8 {
		for _, s := range []*site{a, b} {
			for _, m := range []channels.Message{yes, no} {
				wg.Go(func() {
					if err := s.Take(t.Context(), m); err != nil {
						t.Error(err)
					}
				})
			}
		}
	}
	wg.Wait()
	a.settle()
	b.settle()
	if n := len(a.shown.all("taken")) + len(b.shown.all("taken")); n != 1 {
		t.Errorf("%d replies taken for %q", n, a.answer(q))
	}
	if n := len(a.shown.all("tell")) + len(b.shown.all("tell")); n != 1 || len(a.inbox()) != 1 {
		t.Errorf("%d told, inbox %q", n, a.inbox())
	}
}

// A long message is cut once, and says how much is missing; a long answer is
// whole.
func TestALongMessageIsCutInTheInboxAlone(t *testing.T) {
	s := newSite(t)
	long := strings.Repeat("x", 5000)
	s.take(s.reply(long))
	if got := s.inbox(); len(got) != 1 || !strings.HasSuffix(got[0], "\n… cut here: 1000 more characters") {
		t.Errorf("inbox ends with %q", got[0][len(got[0])-60:])
	}
	q := s.ask("Why?")
	s.take(s.reply(long + "\x1b[2J"))
	if got := s.answer(q); got != long+"[2J" {
		t.Errorf("answer of %d characters", len(got))
	}
}

// One damaged question costs the others nothing but that a reply must name the
// one it answers.
func TestP10_ADamagedQuestionMakesRepliesSayWhichTheyAnswer(t *testing.T) {
	s := newSite(t)
	q := s.ask("Ship it?", "yes", "no")
	if err := os.WriteFile(s.root.Path(state.Question("damaged")), []byte(`{"version":`), 0o600); err != nil {
		t.Fatal(err)
	}
	s.take(s.reply("yes"))
	s.settle()
	if got := s.answer(q); got != "" || len(s.shown.all("tell")) != 1 {
		t.Errorf("answer %q, told %q", got, s.shown.all("tell"))
	}
	s.take(s.reply(q.Code + " yes"))
	if got := s.answer(q); got != "yes" {
		t.Errorf("answer %q", got)
	}
}

func TestP10_DamagedElsewhereIsSetAside(t *testing.T) {
	s := newSite(t)
	q := s.ask("Ship it?")
	if err := os.MkdirAll(s.root.Path("inbound"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(s.root.Path(state.Elsewhere), []byte(`{"items": 7}`), 0o600); err != nil {
		t.Fatal(err)
	}
	s.take(s.reply("yes"))
	if got := s.answer(q); got != "yes" {
		t.Errorf("answer %q", got)
	}
	aside, err := filepath.Glob(s.root.Path(state.Elsewhere) + ".corrupt-*")
	if err != nil || len(aside) != 1 {
		t.Errorf("set aside: %v, %v", aside, err)
	}
}
