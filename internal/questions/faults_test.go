package questions_test

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"the-loop/internal/questions"
	"the-loop/state"
)

var errBroken = errors.New("this step is broken")

// operation is one that writes, and how to see in a file that it is done.
type operation struct {
	prior questions.Question // asked before; no ID: nothing is
	do    func(t *testing.T, root *state.Root) error
	done  func(q questions.Question) bool
}

const swept = "swept"

func operations() map[string]operation {
	open := questions.Question{ID: swept, Choices: []string{"yes", "no"}}
	over := open
	over.ExpiresAt = time.Now().Add(-time.Hour)
	asked := questions.Question{ID: swept, WorkItem: "local:x#1", Text: "A or B?", AskedAt: time.Now()}
	isOpen := func(q questions.Question) bool {
		return q.State == questions.StateOpen && q.Code != "" && q.Text == "A or B?"
	}
	isExpired := func(q questions.Question) bool { return q.State == questions.Expired && q.Answer == nil }
	return map[string]operation{
		"ask": {do: func(t *testing.T, root *state.Root) error {
			got, err := questions.Ask(t.Context(), root, asked)
			if got.Code == "" {
				t.Error("asking has failed, and the question has no code")
			}
			return err
		}, done: isOpen},
		"ask once": {do: func(t *testing.T, root *state.Root) error {
			got, _, err := questions.AskOnce(t.Context(), root, asked)
			if got.Code == "" {
				t.Error("asking has failed, and the question has no code")
			}
			return err
		}, done: isOpen},
		"reply": {prior: open, do: func(t *testing.T, root *state.Root) error {
			return reply(t, root, questions.Answer{Choice: 2, Via: questions.ViaSlack, Key: "k"})
		}, done: func(q questions.Question) bool {
			return q.State == questions.Answered && q.Answer.Text == "no" && q.Answer.Key == "k"
		}},
		"close": {prior: open, do: func(t *testing.T, root *state.Root) error {
			_, err := questions.Close(t.Context(), root, swept, questions.Withdrawn)
			if late := (*questions.ClosedError)(nil); errors.As(err, &late) && late.State == questions.Withdrawn {
				return nil
			}
			return err
		}, done: func(q questions.Question) bool { return q.State == questions.Withdrawn && !q.ClosedAt.IsZero() }},
		"expire": {prior: over, do: func(t *testing.T, root *state.Root) error {
			_, err := expire(t, root, time.Now())
			return err
		}, done: isExpired},
		"update": {prior: open, do: func(t *testing.T, root *state.Root) error {
			_, err := questions.Update(t.Context(), root, swept, func(q *questions.Question) {
				q.Sent, q.Link, q.Refs["slack"] = true, "https://x.example/1", []string{"1.2"}
			})
			return err
		}, done: func(q questions.Question) bool { return q.Sent && q.Link != "" && len(q.Refs["slack"]) == 1 }},
	}
}

func reply(t *testing.T, root *state.Root, a questions.Answer) error {
	_, err := questions.Reply(t.Context(), root, swept, a)
	return err
}

// TestP1_AFailingStepLeavesTheOldFileOrTheNewOne fails every step of every
// operation in turn, and does the same again as whoever comes next does. What
// stands in the file at any step is what a power cut there would leave.
func TestP1_AFailingStepLeavesTheOldFileOrTheNewOne(t *testing.T) {
	for name, op := range operations() {
		t.Run(name, func(t *testing.T) {
			for n := 1; ; n++ {
				root, before := priorTo(t, op)
				steps, failed := 0, ""
				err := op.do(t, root.WithSteps(func(o state.Op, path string) error {
					wholeOrNone(t, root, op, before, fmt.Sprintf("at step %d, %s", steps, o))
					if steps++; steps == n {
						failed = string(o)
						return errBroken
					}
					return nil
				}))
				if failed == "" {
					if err != nil || n < 6 {
						t.Fatalf("after %d steps that were failed: %v", n-1, err)
					}
					return
				}
				isNew := wholeOrNone(t, root, op, before, "after "+failed)
				// What could not be read while one asks costs a short code, no question.
				if err == nil && !isNew || err != nil && !errors.Is(err, errBroken) {
					t.Errorf("step %d, %s: %v, and in the file it is done: %v", n, failed, err, isNew)
				}
				noLeftovers(t, root)
				if err := op.do(t, root); err != nil || !wholeOrNone(t, root, op, before, "repeated") {
					t.Errorf("step %d, %s: once more: %v", n, failed, err)
				}
			}
		})
	}
}

func priorTo(t *testing.T, op operation) (root *state.Root, before string) {
	root, err := state.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if op.prior.ID != "" {
		askIn(t, root, op.prior)
	}
	return root, fileOf(t, root)
}

func fileOf(t *testing.T, root *state.Root) string {
	t.Helper()
	b, err := os.ReadFile(root.Path(state.Question(swept)))
	if err != nil && !os.IsNotExist(err) {
		t.Error(err)
	}
	return string(b)
}

// wholeOrNone sees that nothing is done by halves, and whether it is done.
func wholeOrNone(t *testing.T, root *state.Root, op operation, before, when string) (done bool) {
	t.Helper()
	now := fileOf(t, root)
	if now == before {
		return false
	}
	q, err := questions.Get(root, swept)
	if err != nil || !op.done(q) {
		t.Errorf("%s: neither the old nor the new: %s, %v", when, now, err)
	}
	return true
}

func noLeftovers(t *testing.T, root *state.Root) {
	t.Helper()
	files, err := os.ReadDir(root.Path("questions"))
	if err != nil && !os.IsNotExist(err) {
		t.Error(err)
	}
	for _, f := range files {
		if name := f.Name(); !slices.Contains([]string{swept + ".json", swept + ".json.lock", ".json.lock"}, name) {
			t.Errorf("%s was left", name)
		}
	}
}

// TestP1_AfterAFailedReplyTheFileSaysWhoCounts: an error tells the first one
// nothing for sure, but the next one is told what stands in the file.
func TestP1_AfterAFailedReplyTheFileSaysWhoCounts(t *testing.T) {
	stood := map[bool]int{}
	for n := 1; ; n++ {
		root, before := priorTo(t, operations()["reply"])
		steps := 0
		err := reply(t, root.WithSteps(func(state.Op, string) error {
			if steps++; steps == n {
				return errBroken
			}
			return nil
		}), questions.Answer{Choice: 1, Key: "first"})
		if steps < n {
			break
		}
		first := fileOf(t, root) != before
		stood[first]++
		second := reply(t, root, questions.Answer{Choice: 2, Key: "second"})
		var late *questions.ClosedError
		if first != errors.As(second, &late) || first && late.Question.Answer.Text != "yes" || !first && second != nil {
			t.Errorf("step %d: %v; the first stands: %v, the second: %v", n, err, first, second)
		}
		if again := reply(t, root, questions.Answer{Choice: 1, Key: "first"}); (again == nil) != first {
			t.Errorf("step %d: the first again: %v", n, again)
		}
	}
	if stood[true] != 1 || stood[false] < 5 { // the folder's fsync is what fails after the rename
		t.Errorf("the first answer stood and did not: %v", stood)
	}
}
