package questions_test

import (
	"fmt"
	"regexp"
	"strings"
	"sync"
	"testing"

	"the-loop/internal/questions"
	"the-loop/state"
)

func TestAReplyIsAChoiceByItsTextThenByItsNumber(t *testing.T) {
	plain := []string{"Ship it", "Not yet"}
	numbers := []string{"2", "1"}
	for _, c := range []struct {
		choices []string
		free    bool
		text    string
		want    string
		choice  int // -1: no answer
	}{
		{plain, false, "Ship it", "Ship it", 1},
		{plain, false, "  ship   IT\n", "Ship it", 1},
		{plain, false, "not yet.", "Not yet", 2},
		{plain, false, "Not yet!", "Not yet", 2},
		{plain, false, "not yet?", "", -1},
		{plain, false, "not yet, wait", "", -1},
		{plain, false, "1", "Ship it", 1},
		{plain, false, "2.", "Not yet", 2},
		{plain, false, "2)", "Not yet", 2},
		{plain, false, "0", "", -1},
		{plain, false, "3", "", -1},
		{plain, false, "-1", "", -1},
		{plain, false, "+1", "", -1},
		{plain, false, "2?", "", -1},
		{plain, true, "+1", "+1", 0},
		{plain, false, "12", "", -1},
		{plain, false, "1 2", "", -1},
		{plain, false, "", "", -1},
		{plain, false, " \n", "", -1},
		{plain, true, "tomorrow\r\nat noon ", "tomorrow\nat noon", 0},
		{plain, true, "ship it", "Ship it", 1},
		{plain, true, "2", "Not yet", 2},
		{plain, true, "3", "3", 0},
		{plain, false, "**Ship it**", "Ship it", 1},
		{plain, false, "_not yet_.", "Not yet", 2},
		{plain, false, "`2`", "Not yet", 2},
		{plain, false, "**2.**", "Not yet", 2},
		{plain, false, "> Ship it?\r\n> 1. Ship it\r\n\r\nnot yet", "Not yet", 2},
		{plain, false, "> Not yet", "", -1},
		{plain, true, "> Not yet", "> Not yet", 0},
		{plain, true, "> Ship it?\n\nafter lunch\n> or so", "after lunch\n> or so", 0},
		{numbers, false, "1", "1", 2},
		{numbers, false, "2", "2", 1},
		{[]string{"v1", "v1!"}, false, "v1!", "v1!", 2},
		{nil, false, "v1.2.3", "v1.2.3", 0},
		{nil, false, "2", "2", 0},
		{nil, false, " ", "", -1},
	} {
		q := questions.Question{Choices: c.choices, FreeText: c.free}
		answer, choice, ok := q.Match(c.text)
		if ok != (c.choice >= 0) || ok && (answer != c.want || choice != c.choice) {
			t.Errorf("%q of %q: %q, %d, %v", c.text, c.choices, answer, choice, ok)
		}
	}
}

func TestACodeInFrontIsTaken(t *testing.T) {
	q := questions.Question{Code: "7K2"}
	for text, want := range map[string]string{
		"7K2 yes": "yes", "7k2: yes": "yes", "7K2 — yes": "yes", "7K2 - yes": "yes", "7K2-yes": "yes", "7K2, yes": "yes",
		" 7K2\nyes ": "yes", "7K2": "", "7k2:": "", "7K2 -1": "-1", "7K2. yes": "yes", "7K2) 2": "2", "7K2 7K2": "7K2",
		"7K2 // not now": "// not now", "> Ship it? 8AB\n\n7K2 yes": "yes",
	} {
		if rest, coded := q.TakeCode(text); !coded || rest != want {
			t.Errorf("%q: %q, %v", text, rest, coded)
		}
	}
	for _, text := range []string{
		"yes", "7K2X yes", "7K22", "17K2 yes", "7K2x yes", "7K2.5 percent", "7K2.5", "7K", "", "yes 7K2", "7K2é",
	} {
		if rest, coded := q.TakeCode(text); coded || rest != text {
			t.Errorf("%q: %q, %v", text, rest, coded)
		}
	}
	if _, coded := (questions.Question{}).TakeCode("yes"); coded {
		t.Error("a question without a code has one")
	}
	for text, talk := range map[string]bool{
		"// hm": true, "  //hm": true, "> Ship it?\n\n// hm": true, "yes // no": false, "/ /": false,
	} {
		if questions.IsTalk(text) != talk {
			t.Errorf("%q", text)
		}
	}
}

var codeForm = regexp.MustCompile(`^[ACDEFGHJKLMNPQRTUVWXY2346789]{3,4}$`)

func TestCodesAreShortAndTellOpenQuestionsApart(t *testing.T) {
	root, err := state.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	const n = 150 // of 12,348 codes: by chance about one pair has the same
	var wg sync.WaitGroup
	var mu sync.Mutex
	seen, long := map[string]string{}, 0
	for worker := range 4 {
		wg.Go(func() {
			for i := range n / 4 {
				q, err := questions.Ask(t.Context(), root, questions.Question{ID: fmt.Sprintf("q-%d-%d", worker, i)})
				if err != nil {
					t.Error(err)
				}
				mu.Lock()
				if other := seen[q.Code]; other != "" {
					t.Errorf("%s and %s have the code %s", other, q.ID, q.Code)
				}
				seen[q.Code] = q.ID
				if !codeForm.MatchString(q.Code) || !strings.ContainsAny(q.Code, "2346789") ||
					strings.Trim(q.Code, "2346789") == "" {
					t.Errorf("%s has the code %q", q.ID, q.Code)
				}
				if len(q.Code) == 4 {
					long++
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	if long > 5 {
		t.Errorf("%d codes of four", long)
	}
}

func TestACodeThatIsTakenIsLengthened(t *testing.T) {
	root, first := ask(t, questions.Question{ID: "q-1"})
	// Whoever has the code of q-1 is found by trying.
	same := ""
	for i := 2; same == "" && i < 200_000; i++ {
		id := fmt.Sprintf("q-%d", i)
		if questions.CodeOf(root, id) == first.Code {
			same = id
		}
	}
	beside := askIn(t, root, questions.Question{ID: same, Text: "another"})
	alone := questions.CodeOf(root, first.ID)
	if alone != first.Code || len(beside.Code) != 4 || strings.HasPrefix(beside.Code, first.Code) {
		t.Errorf("beside %s: %s", first.Code, beside.Code)
	}
	if _, err := questions.Close(t.Context(), root, first.ID, questions.Withdrawn); err != nil {
		t.Fatal(err)
	}
	if again := askIn(t, root, questions.Question{ID: same, Text: "another"}); again.Code != beside.Code {
		t.Errorf("its code was %s and is %s", beside.Code, again.Code)
	}
}

// Machines that ask under one id, given by hand, have codes of their own.
func TestAnotherRootGivesAnotherCode(t *testing.T) {
	one, a := ask(t, questions.Question{ID: "approve"})
	_, b := ask(t, questions.Question{ID: "approve"})
	if a.Code == b.Code || a.Code != questions.CodeOf(one, "approve") {
		t.Errorf("codes %s and %s", a.Code, b.Code)
	}
}

// TestCodesAreTheSameInEveryVersion: messages that stand in threads bear them.
func TestCodesAreTheSameInEveryVersion(t *testing.T) {
	for seed, want := range map[string]string{"q-1": "F4W", "q-2": "76Y", "01KB3Z0000000000000000000A": "8A6"} {
		if got := questions.CodeOfSeed(seed); got != want {
			t.Errorf("%s has the code %s, not %s", seed, got, want)
		}
	}
}

func FuzzMatchAndTakeCode(f *testing.F) {
	for _, s := range []string{"7K2 yes", "2)", "//", "ſhip it", "7\u212a2: no", "\xff7K2", "…", "+1", "2", "7K2.5"} {
		f.Add(s, "no")
	}
	f.Add("2", "1")
	f.Add("İ", "i̇")
	f.Fuzz(func(t *testing.T, s, other string) {
		q := questions.Question{Code: "7K2", Choices: []string{"yes", "no"}}
		rest, coded := q.TakeCode(s)
		trimmed := strings.TrimSpace(s)
		if !strings.HasSuffix(trimmed, rest) || !coded && rest != trimmed ||
			coded && (len(trimmed) < 3 || strings.ToUpper(trimmed[:3]) != q.Code) {
			t.Errorf("%q: %q, %v", s, rest, coded)
		}
		if _, coded := q.TakeCode("7k2 " + s); !coded {
			t.Errorf("7k2 before %q is not taken", s)
		}
		if answer, choice, ok := q.Match(rest); ok && (choice < 1 || q.Choices[choice-1] != answer) {
			t.Errorf("%q is %q", rest, answer)
		}
		free := questions.Question{FreeText: true, Choices: q.Choices}
		if answer, _, ok := free.Match(s); ok != (trimmed != "") || ok && strings.TrimSpace(answer) != answer {
			t.Errorf("%q as free text: %q, %v", s, answer, ok)
		}
		// Whatever the choices are, each is its own answer.
		q.Choices = []string{s, other}
		if trimmed == "" || strings.TrimSpace(other) == "" || questions.Alike(s, other) {
			return
		}
		for i, c := range q.Choices {
			if answer, choice, ok := q.Match(c); !ok || answer != c || choice != i+1 {
				t.Errorf("%q of %q: %q, %d, %v", c, q.Choices, answer, choice, ok)
			}
		}
	})
}
