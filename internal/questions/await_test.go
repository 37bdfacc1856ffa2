package questions_test

import (
	"context"
	"errors"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"the-loop/internal/questions"
	"the-loop/state"
)

func contextFor() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), 30*time.Second)
}

// waited is what an Await gave, and after how long.
type waited struct {
	q    questions.Question
	err  error
	took time.Duration
}

// await waits in a bubble while do runs.
func await(t *testing.T, ctx context.Context, root *state.Root, id string, do func()) (got waited) {
	began := time.Now()
	done := make(chan struct{})
	go func() {
		defer close(done)
		got.q, got.err = questions.Await(ctx, root, id)
		got.took = time.Since(began)
	}()
	do()
	<-done
	return got
}

func TestAwaitGivesTheAnswerWithinAMoment(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		root, q := ask(t, questions.Question{})
		got := await(t, t.Context(), root, q.ID, func() {
			time.Sleep(time.Hour)
			if _, err := questions.Reply(t.Context(), root, q.ID, questions.Answer{Text: "yes", Via: "slack"}); err != nil {
				t.Error(err)
			}
		})
		if got.err != nil || got.q.Answer == nil || got.q.Answer.Text != "yes" || got.took > time.Hour+200*time.Millisecond {
			t.Errorf("%+v", got)
		}
		// As often as wanted.
		if again, err := questions.Await(t.Context(), root, q.ID); err != nil || again.Answer.Text != "yes" {
			t.Errorf("%+v, %v", again, err)
		}
	})
}

func TestAwaitEndsWithItsContextAndWithTheQuestion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cause := errors.New("enough")
		root, q := ask(t, questions.Question{})
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Minute, cause)
		defer cancel()
		got := await(t, ctx, root, q.ID, func() {})
		if got.err != cause || got.q.State != questions.StateOpen || got.took != time.Minute {
			t.Errorf("%+v", got)
		}
		got = await(t, t.Context(), root, q.ID, func() {
			if _, err := questions.Close(t.Context(), root, q.ID, questions.Withdrawn); err != nil {
				t.Error(err)
			}
		})
		if got.err != nil || got.q.State != questions.Withdrawn {
			t.Errorf("%+v", got)
		}
		gone := askIn(t, root, questions.Question{Text: "another"})
		got = await(t, t.Context(), root, gone.ID, func() { _ = os.Remove(root.Path(state.Question(gone.ID))) })
		if !errors.Is(got.err, questions.ErrNone) {
			t.Errorf("its file is gone: %+v", got)
		}
	})
}

func TestAwaitWaitsForTheCopyAndNotForEver(t *testing.T) {
	for mirrored, want := range map[bool]time.Duration{true: 3 * time.Second, false: 10 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			root, q := ask(t, questions.Question{})
			got := await(t, t.Context(), root, q.ID, func() {
				a := questions.Answer{Text: "yes", Mirror: questions.MirrorPending}
				if _, err := questions.Reply(t.Context(), root, q.ID, a); err != nil {
					t.Error(err)
				}
				if !mirrored {
					return
				}
				time.Sleep(want)
				_, err := questions.Update(t.Context(), root, q.ID, func(q *questions.Question) {
					q.Answer.Mirror, q.Answer.Link = questions.MirrorDone, "https://x.example/2"
				})
				if err != nil {
					t.Error(err)
				}
			})
			if got.err != nil || got.took < want || got.took > want+200*time.Millisecond ||
				mirrored != (got.q.Answer.Link != "") {
				t.Errorf("mirrored %v: %+v", mirrored, got)
			}
		})
	}
}

func TestAwaitReadsOnlyWhatHasChanged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		root, q := ask(t, questions.Question{})
		reads := 0
		counted := root.WithSteps(func(op state.Op, _ string) error {
			if op == state.OpRead {
				reads++
			}
			return nil
		})
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		await(t, ctx, counted, q.ID, func() {
			time.Sleep(time.Minute)
			if _, err := questions.Update(t.Context(), root, q.ID, func(q *questions.Question) { q.Sent = true }); err != nil {
				t.Error(err)
			}
		})
		if reads != 2 {
			t.Errorf("read %d times in an hour with one change", reads)
		}
	})
}

func TestAWaitThatEndsBeforeTheCopyIsMadeGivesTheAnswerAllTheSame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cause := errors.New("enough")
		root, q := ask(t, questions.Question{})
		a := questions.Answer{Text: "yes", Mirror: questions.MirrorPending}
		if _, err := questions.Reply(t.Context(), root, q.ID, a); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, cause)
		defer cancel()
		got := await(t, ctx, root, q.ID, func() {})
		if got.err != cause || got.q.Answer == nil || got.q.Answer.Text != "yes" || got.took != time.Second {
			t.Errorf("%+v", got)
		}
		// Whoever comes long after that does not wait for it again.
		time.Sleep(time.Minute)
		if got := await(t, t.Context(), root, q.ID, func() {}); got.err != nil || got.took != 0 {
			t.Errorf("%+v", got)
		}
	})
}

func TestAwaitSeesWhatIsWrittenIntoTheFile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		root, q := ask(t, questions.Question{})
		got := await(t, t.Context(), root, q.ID, func() {
			time.Sleep(time.Second)
			if err := os.WriteFile(root.Path(state.Question(q.ID)), []byte("{"), 0o600); err != nil {
				t.Error(err)
			}
		})
		if got.err == nil || got.took > 2*time.Second {
			t.Errorf("its file was damaged: %+v", got)
		}
	})
}

// TestAwaitDoesNotTrustTheClockOfWhoClosedIt: one that runs ahead by an hour
// does not make the asker wait for it.
func TestAwaitDoesNotTrustTheClockOfWhoClosedIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		root, q := ask(t, questions.Question{})
		text := `{"version":1,"state":"answered","closedAt":"` + time.Now().Add(time.Hour).UTC().Format(time.RFC3339) +
			`","answer":{"text":"yes","via":"slack","at":"2026-09-22T10:00:00Z","mirror":"pending"}}`
		if err := os.WriteFile(root.Path(state.Question(q.ID)), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		got := await(t, t.Context(), root, q.ID, func() {})
		if got.err != nil || got.q.Answer.Text != "yes" || got.took > 11*time.Second {
			t.Errorf("%+v", got)
		}
	})
}
