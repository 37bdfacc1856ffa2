package questions_test

import (
	"errors"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"the-loop/internal/questions"
	"the-loop/state"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv("TEST_ANSWER_IN"); dir != "" {
		os.Exit(answerIn(dir, os.Getenv("TEST_QUESTION"), os.Getenv("TEST_WHO")))
	}
	goleak.VerifyTestMain(m)
}

// ask asks one question in a root of its own.
func ask(t *testing.T, q questions.Question) (*state.Root, questions.Question) {
	t.Helper()
	root, err := state.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return root, askIn(t, root, q)
}

func askIn(t *testing.T, root *state.Root, q questions.Question) questions.Question {
	t.Helper()
	if q.ID == "" {
		q.ID = state.NewID()
	}
	if q.AskedAt.IsZero() {
		q.AskedAt = time.Now().UTC()
	}
	if q.Text == "" {
		q.Text = "A or B?"
	}
	q.WorkItem = "local:x#1"
	asked, err := questions.Ask(t.Context(), root, q)
	if err != nil {
		t.Fatal(err)
	}
	return asked
}

func TestAQuestionIsOpenUntilTheFirstOneClosesIt(t *testing.T) {
	root, q := ask(t, questions.Question{})
	if !questions.Wanted(root, q.ID) {
		t.Error("an open question is not wanted")
	}
	var wg sync.WaitGroup
	closed := make(chan error, 20)
	for range 20 {
		wg.Go(func() {
			_, err := questions.Close(t.Context(), root, q.ID, questions.Withdrawn)
			closed <- err
		})
	}
	wg.Wait()
	close(closed)
	first := 0
	for err := range closed {
		var late *questions.ClosedError
		switch {
		case err == nil:
			first++
		case !errors.As(err, &late) || late.State != questions.Withdrawn:
			t.Errorf("closing it again: %v", err)
		}
	}
	now, err := questions.Get(root, q.ID)
	if first != 1 || err != nil || now.State != questions.Withdrawn || now.ClosedAt.IsZero() || now.Text != "A or B?" {
		t.Errorf("closed %d times: %+v, %v", first, now, err)
	}
	if questions.Wanted(root, q.ID) {
		t.Error("a closed question is wanted")
	}
	if again := askIn(t, root, questions.Question{ID: q.ID}); again.State != questions.Withdrawn {
		t.Errorf("asking it again has opened it: %+v", again)
	}
	_, err = questions.Reply(t.Context(), root, q.ID, questions.Answer{Text: "yes", Key: "a"})
	var late *questions.ClosedError
	if !errors.As(err, &late) || late.Question.Text != "A or B?" {
		t.Errorf("answering what is withdrawn: %v", err)
	}
}

func TestWhatIsNoQuestionIsWantedAndNothingIsMadeOfIt(t *testing.T) {
	root, q := ask(t, questions.Question{})
	before, _ := os.ReadDir(root.Path("questions"))
	for _, none := range []string{"01KB3Z0000000000000000000A", "../../etc/passwd", "", "a/b", ".x"} {
		_, get := questions.Get(root, none)
		_, closing := questions.Close(t.Context(), root, none, questions.Withdrawn)
		_, reply := questions.Reply(t.Context(), root, none, questions.Answer{Text: "yes"})
		_, wait := questions.Await(t.Context(), root, none)
		for what, err := range map[string]error{"get": get, "close": closing, "reply": reply, "await": wait} {
			if !errors.Is(err, questions.ErrNone) {
				t.Errorf("%s %q: %v", what, none, err)
			}
		}
		if !questions.Wanted(root, none) {
			t.Errorf("%q is not wanted", none)
		}
	}
	if _, err := questions.Ask(t.Context(), root, questions.Question{ID: "../up"}); err == nil {
		t.Error("an id that leads out of the folder was taken")
	}
	after, err := os.ReadDir(root.Path("questions"))
	if err != nil || len(after) != len(before) {
		t.Errorf("files: %v, %v", after, err)
	}
	for _, f := range after {
		if !state.IsDeclared("questions/" + f.Name()) {
			t.Errorf("%s is not declared", f.Name())
		}
	}
	all, unreadable, err := questions.List(root)
	if err != nil || len(all) != 1 || all[0].ID != q.ID || len(unreadable) > 0 {
		t.Errorf("%+v, %v, %v", all, unreadable, err)
	}
}

func TestP10_DamagedIsNamedAndNewerIsLeftAlone(t *testing.T) {
	root, q := ask(t, questions.Question{})
	other := askIn(t, root, questions.Question{Text: "another"})
	path := root.Path(state.Question(q.ID))
	for text, want := range map[string]error{
		`{"version": 2, "state": "open"}`: questions.ErrNewer,
		`{"version": 2, "text": ["a"]}`:   questions.ErrNewer,
		`{"version": 1, `:                 nil,
		"null":                            nil,
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, closing := questions.Close(t.Context(), root, q.ID, questions.Withdrawn)
		_, reply := questions.Reply(t.Context(), root, q.ID, questions.Answer{Text: "yes"})
		_, asking := questions.Ask(t.Context(), root, questions.Question{ID: q.ID, Text: "A or B?"})
		_, update := questions.Update(t.Context(), root, q.ID, func(q *questions.Question) { q.Sent = true })
		for what, err := range map[string]error{"close": closing, "reply": reply, "ask": asking, "update": update} {
			if err == nil || want != nil && !errors.Is(err, want) {
				t.Errorf("%s %s: %v", what, text, err)
			}
		}
		if b, _ := os.ReadFile(path); string(b) != text {
			t.Errorf("%s became %s", text, b)
		}
		if _, unreadable, _ := questions.List(root); !slices.Equal(unreadable, []string{q.ID + ".json"}) {
			t.Errorf("%s: unreadable %v", text, unreadable)
		}
		open, err := questions.Open(root)
		if len(open) != 1 || open[0].ID != other.ID || err == nil || !strings.Contains(err.Error(), q.ID) {
			t.Errorf("%s: it costs the others: %v, %v", text, open, err)
		}
	}
}

func TestUnknownKeysAreKeptAtEveryLevel(t *testing.T) {
	root, q := ask(t, questions.Question{})
	path := root.Path(state.Question(q.ID))
	text := `{"version":1,"id":"x","state":"answered","later":{"a":1},"answer":{"text":"yes","via":"slack",` +
		`"at":"2026-09-22T10:00:00Z","newer":[2],"by":{"name":"Octo","newest":3}}}`
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := questions.Update(t.Context(), root, q.ID, func(q *questions.Question) { q.Answer.Mirror = "done" })
	if err != nil || got.Answer.Mirror != "done" || got.Answer.By.Name != "Octo" {
		t.Fatalf("%+v, %v", got.Answer, err)
	}
	b, _ := os.ReadFile(path)
	for _, kept := range []string{`"later":{"a":1}`, `"newer":[2]`, `"newest":3`, `"mirror":"done"`} {
		if !strings.Contains(string(b), kept) {
			t.Errorf("%s was lost: %s", kept, b)
		}
	}
}

func TestUpdateChangesNothingThatIsFinal(t *testing.T) {
	root, q := ask(t, questions.Question{Choices: []string{"yes", "no"}})
	set := func(change func(q *questions.Question)) questions.Question {
		t.Helper()
		now, err := questions.Update(t.Context(), root, q.ID, change)
		if err != nil {
			t.Fatal(err)
		}
		return now
	}
	set(func(q *questions.Question) {
		q.Sent, q.Link, q.State, q.Text = true, "https://x.example/1", questions.Answered, "other"
		q.Refs["slack"] = []string{"1.2"}
		q.Answer = &questions.Answer{Text: "planted"}
	})
	now, err := questions.Get(root, q.ID)
	if err != nil || now.State != questions.StateOpen || now.Answer != nil || now.Text != "A or B?" ||
		!now.Sent || now.Link != "https://x.example/1" || !slices.Equal(now.Refs["slack"], []string{"1.2"}) {
		t.Errorf("%+v, %v", now, err)
	}
	a := questions.Answer{Choice: 2, Via: "slack", Key: "k"}
	if _, err := questions.Reply(t.Context(), root, q.ID, a); err != nil {
		t.Fatal(err)
	}
	before, _ := os.Stat(root.Path(state.Question(q.ID)))
	set(func(q *questions.Question) {
		q.Answer.Text, q.Answer.Key, q.State = "yes", "other", questions.StateOpen
	})
	set(func(q *questions.Question) { q.Answer = nil })
	if after, _ := os.Stat(root.Path(state.Question(q.ID))); !after.ModTime().Equal(before.ModTime()) {
		t.Error("a change of nothing was written")
	}
	set(func(q *questions.Question) { q.Refs["slack"][0] = "3.4" })
	now, _ = questions.Get(root, q.ID)
	if now.State != questions.Answered || now.Answer.Text != "no" || now.Answer.Key != "k" ||
		now.Refs["slack"][0] != "3.4" {
		t.Errorf("%+v, %+v", now, now.Answer)
	}
}
