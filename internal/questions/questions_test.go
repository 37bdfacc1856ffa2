package questions_test

import (
	"errors"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"the-loop/internal/questions"
	"the-loop/state"
)

func ask(t *testing.T) (*state.Root, string) {
	t.Helper()
	root, err := state.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	q := questions.Question{ID: state.NewID(), WorkItem: "local:x#1", Text: "A or B?", AskedAt: time.Now().UTC()}
	if err := questions.Ask(t.Context(), root, q); err != nil {
		t.Fatal(err)
	}
	return root, q.ID
}

func TestAQuestionIsOpenUntilTheFirstOneClosesIt(t *testing.T) {
	root, id := ask(t)
	if !questions.Wanted(root, id) {
		t.Error("an open question is not wanted")
	}
	var wg sync.WaitGroup
	closed := make(chan error, 20)
	for range 20 {
		wg.Go(func() {
			_, err := questions.Close(t.Context(), root, id, questions.Withdrawn)
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
	q, err := questions.Get(root, id)
	if first != 1 || err != nil || q.State != questions.Withdrawn || q.ClosedAt.IsZero() || q.Text != "A or B?" {
		t.Errorf("closed %d times: %+v, %v", first, q, err)
	}
	if questions.Wanted(root, id) {
		t.Error("a closed question is wanted")
	}
	if err := questions.Ask(t.Context(), root, questions.Question{ID: id}); err != nil {
		t.Fatal(err)
	}
	if q, _ := questions.Get(root, id); q.State != questions.Withdrawn {
		t.Errorf("asking it again has opened it: %+v", q)
	}
}

func TestWhatIsNoQuestionIsWantedAndNothingIsMadeOfIt(t *testing.T) {
	root, id := ask(t)
	for _, none := range []string{"01KB3Z0000000000000000000A", "../../etc/passwd", "", "a/b"} {
		if _, err := questions.Get(root, none); !errors.Is(err, questions.ErrNone) {
			t.Errorf("%q: %v", none, err)
		}
		if _, err := questions.Close(t.Context(), root, none, questions.Withdrawn); !errors.Is(err, questions.ErrNone) {
			t.Errorf("close %q: %v", none, err)
		}
		if !questions.Wanted(root, none) {
			t.Errorf("%q is not wanted", none)
		}
	}
	list, err := os.ReadDir(root.Path("questions"))
	if err != nil || len(list) != 2 {
		t.Errorf("files: %v, %v", list, err)
	}
	all, unreadable, err := questions.List(root)
	if err != nil || len(all) != 1 || all[0].ID != id || len(unreadable) > 0 {
		t.Errorf("%+v, %v, %v", all, unreadable, err)
	}
}

func TestDamagedNewerAndUnknown(t *testing.T) {
	root, id := ask(t)
	path := root.Path(state.Question(id))
	for text, want := range map[string]error{
		`{"version": 2, "state": "open"}`: questions.ErrNewer,
		`{"version": 1, `:                 nil,
		"null":                            nil,
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := questions.Close(t.Context(), root, id, questions.Withdrawn)
		if err == nil || want != nil && !errors.Is(err, want) {
			t.Errorf("%s: %v", text, err)
		}
		if b, _ := os.ReadFile(path); string(b) != text {
			t.Errorf("%s became %s", text, b)
		}
		if _, unreadable, _ := questions.List(root); len(unreadable) != 1 {
			t.Errorf("%s: unreadable %v", text, unreadable)
		}
	}
	text := `{"version":1,"id":"x","state":"open","later":{"a":1}}`
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := questions.Close(t.Context(), root, id, questions.Withdrawn); err != nil {
		t.Fatal(err)
	}
	if b, _ := os.ReadFile(path); !strings.Contains(string(b), `"later":{"a":1}`) {
		t.Errorf("an unknown key was lost: %s", b)
	}
}
