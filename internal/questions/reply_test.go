package questions_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"the-loop/internal/questions"
	"the-loop/state"
)

// answerIn answers as a process of its own does, and says by its exit code
// whether that counted.
func answerIn(dir, id, who string) int {
	root, err := state.Open(dir)
	if err != nil {
		return 3
	}
	fmt.Println("ready")
	_, _ = io.Copy(io.Discard, os.Stdin) // until all of them may go
	return answering(root, id, who, func(err error) { fmt.Fprintln(os.Stderr, err) })
}

// answering gives 0 for an answer that counts, 1 for one that is late.
func answering(root *state.Root, id, who string, complain func(error)) int {
	a := questions.Answer{Text: who, By: questions.Person{Name: who}, Via: "slack", At: time.Now(), Key: who}
	ctx, cancel := contextFor()
	defer cancel()
	_, err := questions.Reply(ctx, root, id, a)
	var late *questions.ClosedError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &late) && late.Question.Answer != nil && late.Question.Answer.Text != who:
		return 1
	}
	complain(err)
	return 2
}

func TestTheFirstAnswerWinsAcrossProcessesAndRoots(t *testing.T) {
	for _, c := range []struct{ goroutines, processes int }{{32, 4}, {32, 0}, {0, 4}} {
		t.Run(fmt.Sprintf("%d goroutines and %d processes", c.goroutines, c.processes), func(t *testing.T) {
			root, q := ask(t, questions.Question{})
			race(t, root, q, c.goroutines, c.processes)
		})
	}
}

// race has all of them answer at once, and sees that one has won.
func race(t *testing.T, root *state.Root, q questions.Question, goroutines, processes int) {
	codes := make(chan int, goroutines+processes)
	start := make(chan struct{})
	var ready, wg sync.WaitGroup
	for n := range processes {
		ready.Add(1)
		wg.Go(func() { codes <- another(t, root, q.ID, fmt.Sprintf("p%d", n), ready.Done, start) })
	}
	for n := range goroutines {
		one, err := state.Open(root.Dir()) // a root of its own, as a process has it
		if err != nil {
			t.Fatal(err)
		}
		wg.Go(func() {
			<-start
			codes <- answering(one, q.ID, fmt.Sprintf("g%d", n), func(err error) { t.Error(err) })
		})
	}
	ready.Wait()
	close(start)
	wg.Wait()
	close(codes)
	won := 0
	for code := range codes {
		switch code {
		case 0:
			won++
		case 1:
		default:
			t.Errorf("one of them ended with %d", code)
		}
	}
	now, err := questions.Get(root, q.ID)
	if won != 1 || err != nil || now.State != questions.Answered || now.Answer.Text != now.Answer.Key {
		t.Fatalf("%d have won: %+v, %v", won, now.Answer, err)
	}
	// The winner's message comes in by another way once more, and again.
	before, _ := os.ReadFile(root.Path(state.Question(q.ID)))
	for range 3 {
		if code := answering(root, q.ID, now.Answer.Text, func(err error) { t.Error(err) }); code != 0 {
			t.Errorf("the same key again: %d", code)
		}
	}
	if after, _ := os.ReadFile(root.Path(state.Question(q.ID))); string(after) != string(before) {
		t.Errorf("%s\nbecame\n%s", before, after)
	}
}

// another answers in a process of its own once start is closed, and gives its
// exit code. It calls ready when the process stands there, or never will.
func another(t *testing.T, root *state.Root, id, who string, ready func(), start <-chan struct{}) int {
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), "TEST_ANSWER_IN="+root.Dir(), "TEST_QUESTION="+id, "TEST_WHO="+who)
	var says strings.Builder
	cmd.Stderr = &says
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Error(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Error(err)
	}
	if err := cmd.Start(); err != nil {
		t.Error(err)
		ready()
		return -1
	}
	if line, err := bufio.NewReader(stdout).ReadString('\n'); line != "ready\n" {
		t.Errorf("%s says %q: %v", who, line, err)
	}
	ready()
	<-start
	_ = stdin.Close()
	_ = cmd.Wait() // its exit code is what tells
	if says.Len() > 0 {
		t.Errorf("%s: %s", who, says.String())
	}
	return cmd.ProcessState.ExitCode()
}

func TestAnAnswerIsOneOfTheQuestions(t *testing.T) {
	for _, c := range []struct {
		free   bool
		answer questions.Answer
		want   string // "": it is none
	}{
		{false, questions.Answer{Choice: 2}, "no"},
		{false, questions.Answer{Text: "planted", Choice: 1}, "yes"},
		{false, questions.Answer{Text: "later"}, ""},
		{true, questions.Answer{Text: "later"}, "later"},
		{true, questions.Answer{}, ""},
		{true, questions.Answer{Choice: 3}, ""},
		{true, questions.Answer{Choice: -1, Text: "x"}, ""},
	} {
		root, q := ask(t, questions.Question{Choices: []string{"yes", "no"}, FreeText: c.free})
		q, err := questions.Reply(t.Context(), root, q.ID, c.answer)
		if c.want == "" {
			if now, _ := questions.Get(root, q.ID); !errors.Is(err, questions.ErrNoAnswer) || now.State != questions.StateOpen {
				t.Errorf("%+v: %v, and it is %s", c.answer, err, now.State)
			}
			continue
		}
		if err != nil || q.Answer == nil || q.Answer.Text != c.want || q.Answer.At.IsZero() {
			t.Errorf("%+v: %+v, %v", c.answer, q.Answer, err)
		}
	}
}

func TestAnAnswerAfterItsTimeIsLate(t *testing.T) {
	expires := time.Now().Add(-time.Minute).UTC()
	for _, c := range []struct {
		answer questions.Answer
		want   questions.State
	}{
		{questions.Answer{Text: "in time", At: expires.Add(-time.Second)}, questions.Answered},
		{questions.Answer{Text: "late", At: expires.Add(time.Second)}, questions.Expired},
		{questions.Answer{Text: "late"}, questions.Expired},
		{questions.Answer{Text: "default", Via: questions.ViaTimeout}, questions.Answered},
	} {
		root, q := ask(t, questions.Question{ExpiresAt: expires})
		got, err := questions.Reply(t.Context(), root, q.ID, c.answer)
		var late *questions.ClosedError
		if isLate := errors.As(err, &late); isLate != (c.want == questions.Expired) || !isLate && err != nil {
			t.Errorf("%+v: %v", c.answer, err)
		}
		now, _ := questions.Get(root, q.ID)
		stands := c.want
		if late != nil { // it closes nothing: what was written in time may not be read yet
			if stands = questions.StateOpen; late.Question.State != questions.Expired {
				t.Errorf("%+v: told that it is %s", c.answer, late.Question.State)
			}
		}
		if got.State != stands || now.State != stands || (now.Answer != nil) != (c.want == questions.Answered) {
			t.Errorf("%+v: it is %s, and %s in its file", c.answer, got.State, now.State)
		}
	}
}

// expire closes what is past its time.
func expire(t *testing.T, root *state.Root, now time.Time) (expired []questions.Question, err error) {
	open, err := questions.Open(root)
	if err != nil {
		return nil, err
	}
	for _, q := range open {
		if !q.PastAt(now) {
			continue
		}
		if q, err = questions.Close(t.Context(), root, q.ID, questions.Expired); err != nil {
			return expired, err
		}
		expired = append(expired, q)
	}
	return expired, nil
}

func TestOnlyWhatIsPastItsTimeExpires(t *testing.T) {
	now := time.Now().UTC().Truncate(time.Second)
	root, past := ask(t, questions.Question{Text: "past", ExpiresAt: now.Add(-time.Second)})
	askIn(t, root, questions.Question{Text: "later", ExpiresAt: now.Add(time.Hour)})
	askIn(t, root, questions.Question{Text: "never"})
	answered := askIn(t, root, questions.Question{Text: "answered", ExpiresAt: now.Add(-time.Second)})
	if _, err := questions.Close(t.Context(), root, answered.ID, questions.Withdrawn); err != nil {
		t.Fatal(err)
	}
	if _, ok := questions.Same(root, "local:x#1", "past", nil); ok {
		t.Error("a question whose time is over is asked again as the same")
	}
	for _, want := range []int{1, 0} {
		expired, err := expire(t, root, now)
		if err != nil || len(expired) != want || want == 1 && (expired[0].ID != past.ID || expired[0].ClosedAt.IsZero()) {
			t.Errorf("%+v, %v", expired, err)
		}
	}
	if open, err := questions.Open(root); err != nil || len(open) != 2 {
		t.Errorf("%v, %v", open, err)
	}
}

func TestTheSameIsAskedOnce(t *testing.T) {
	root, q := ask(t, questions.Question{Choices: []string{"yes", "no"}})
	for _, c := range []struct {
		item, text string
		choices    []string
		same       bool
	}{
		{"local:x#1", "A or B?", []string{"yes", "no"}, true},
		{"local:x#2", "A or B?", []string{"yes", "no"}, false},
		{"local:x#1", "A or C?", []string{"yes", "no"}, false},
		{"local:x#1", "A or B?", []string{"no", "yes"}, false},
		{"local:x#1", "A or B?", nil, false},
	} {
		if got, ok := questions.Same(root, c.item, c.text, c.choices); ok != c.same || ok && got.ID != q.ID {
			t.Errorf("%+v: %v %s", c, ok, got.ID)
		}
	}
	if _, err := questions.Close(t.Context(), root, q.ID, questions.Withdrawn); err != nil {
		t.Fatal(err)
	}
	ids := make(chan string, 16)
	added := make(chan bool, 16)
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			one, err := state.Open(root.Dir())
			if err != nil {
				t.Error(err)
				return
			}
			got, there, err := questions.AskOnce(t.Context(), one, questions.Question{
				ID: state.NewID(), WorkItem: "local:x#1", Text: "A or B?", Choices: []string{"yes", "no"}, AskedAt: time.Now(),
			})
			if err != nil {
				t.Error(err)
			}
			ids <- got.ID
			added <- !there
		})
	}
	wg.Wait()
	close(ids)
	close(added)
	if open, err := questions.Open(root); err != nil || len(open) != 1 {
		t.Errorf("open after that: %v, %v", open, err)
	}
	first, n := <-ids, 0
	for id := range ids {
		if id != first || id == q.ID {
			t.Errorf("asked as %s and as %s", first, id)
		}
	}
	for one := range added {
		if one {
			n++
		}
	}
	if n != 1 {
		t.Errorf("%d say that they have asked it", n)
	}
}
