package questions_test

import (
	"bytes"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"the-loop/internal/questions"
	"the-loop/state"
)

// TestA03_NobodyAnsweredIsNoAnswer: a question that ends without an answer has
// none, wherever it is looked at, and none comes into it any more: neither a
// choice nor "no" can be read out of it.
func TestA03_NobodyAnsweredIsNoAnswer(t *testing.T) {
	expires := time.Now().Add(-time.Minute)
	for how, end := range map[questions.State]func(root *state.Root, id string) error{
		questions.Withdrawn: func(root *state.Root, id string) error {
			_, err := questions.Close(t.Context(), root, id, questions.Withdrawn)
			return err
		},
		questions.Expired: func(root *state.Root, id string) error {
			expired, err := expire(t, root, time.Now())
			if len(expired) != 1 || expired[0].ID != id || expired[0].Answer != nil {
				t.Errorf("expired: %+v", expired)
			}
			return err
		},
	} {
		root, q := ask(t, questions.Question{Choices: []string{"yes", "no"}, ExpiresAt: expires})
		if err := end(root, q.ID); err != nil {
			t.Fatal(err)
		}
		before, _ := os.ReadFile(root.Path(state.Question(q.ID)))
		if bytes.Contains(before, []byte(`"answer"`)) {
			t.Errorf("%s: %s", how, before)
		}
		// Not the one of a person, be it from before the end, nor the default.
		for _, a := range []questions.Answer{
			{Choice: 2, Via: questions.ViaSlack, At: expires.Add(-time.Second), Key: "a"},
			{Choice: 2, Via: questions.ViaTerminal, Key: "b"},
			{Choice: 2, Via: questions.ViaTimeout, Key: "c"},
		} {
			_, err := questions.Reply(t.Context(), root, q.ID, a)
			var late *questions.ClosedError
			if !errors.As(err, &late) || late.State != how || late.Question.Answer != nil {
				t.Errorf("%s, then %s: %v", how, a.Via, err)
			}
		}
		_, err := questions.Update(t.Context(), root, q.ID, func(q *questions.Question) {
			q.Answer = &questions.Answer{Text: "no", Choice: 2}
		})
		if err != nil {
			t.Error(err)
		}
		got, err := questions.Await(t.Context(), root, q.ID)
		if err != nil || got.State != how || got.Answer != nil || got.ClosedAt.IsZero() {
			t.Errorf("%s: %+v, %v", how, got, err)
		}
		if after, _ := os.ReadFile(root.Path(state.Question(q.ID))); !bytes.Equal(before, after) {
			t.Errorf("%s\nbecame\n%s", before, after)
		}
	}
}

// TestA03_AWaitThatEndsChangesNothing: who waited is told the cause, and the
// question stays open for the next one who waits.
func TestA03_AWaitThatEndsChangesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		root, q := ask(t, questions.Question{})
		before, _ := os.ReadFile(root.Path(state.Question(q.ID)))
		ctx, cancel := contextFor()
		defer cancel()
		got := await(t, ctx, root, q.ID, func() {})
		if got.err == nil || got.q.State != questions.StateOpen || got.q.Answer != nil {
			t.Errorf("%+v", got)
		}
		if after, _ := os.ReadFile(root.Path(state.Question(q.ID))); !bytes.Equal(before, after) {
			t.Errorf("%s\nbecame\n%s", before, after)
		}
	})
}

func TestTimesAreWrittenInUTC(t *testing.T) {
	away := time.FixedZone("away", 5*3600+1800)
	at := time.Date(2026, 9, 22, 15, 30, 0, 0, away)
	root, q := ask(t, questions.Question{AskedAt: at, ExpiresAt: at.Add(24 * time.Hour)})
	got, err := questions.Reply(t.Context(), root, q.ID, questions.Answer{Text: "yes", At: at.Add(time.Hour)})
	if err != nil || got.Answer.At.Location() != time.UTC {
		t.Errorf("%+v, %v", got.Answer, err)
	}
	b, _ := os.ReadFile(root.Path(state.Question(q.ID)))
	for _, want := range []string{
		`"askedAt":"2026-09-22T10:00:00Z"`, `"expiresAt":"2026-09-23T10:00:00Z"`, `"at":"2026-09-22T11:00:00Z"`,
	} {
		if !strings.Contains(string(b), want) {
			t.Errorf("%s is not in %s", want, b)
		}
	}
	if strings.Contains(string(b), "+05:30") {
		t.Errorf("%s", b)
	}
}

func TestAnAnswerKeepsWhenItWasGivenNotWhenItWasRead(t *testing.T) {
	root, q := ask(t, questions.Question{})
	at := time.Now().Add(-3 * time.Hour).UTC().Truncate(time.Second)
	if _, err := questions.Reply(t.Context(), root, q.ID, questions.Answer{Text: "yes", At: at}); err != nil {
		t.Fatal(err)
	}
	now, err := questions.Get(root, q.ID)
	if err != nil || !now.Answer.At.Equal(at) || time.Since(now.ClosedAt) > time.Hour {
		t.Errorf("%+v, %+v, %v", now, now.Answer, err)
	}
}

func TestTheOldestOpenQuestionIsFirst(t *testing.T) {
	root, err := state.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	at := time.Date(2026, 9, 22, 10, 0, 0, 0, time.UTC)
	for id, after := range map[string]time.Duration{"z": 0, "b": time.Second, "a": time.Second, "m": time.Minute} {
		askIn(t, root, questions.Question{ID: id, Text: id, AskedAt: at.Add(after)})
	}
	if _, err := questions.Close(t.Context(), root, "m", questions.Withdrawn); err != nil {
		t.Fatal(err)
	}
	idsOf := func(all []questions.Question) (ids []string) {
		for _, q := range all {
			ids = append(ids, q.ID)
		}
		return ids
	}
	open, err := questions.Open(root)
	if err != nil || !slices.Equal(idsOf(open), []string{"z", "a", "b"}) {
		t.Errorf("open: %v, %v", idsOf(open), err)
	}
	all, _, err := questions.List(root)
	if err != nil || !slices.Equal(idsOf(all), []string{"z", "a", "b", "m"}) {
		t.Errorf("all: %v, %v", idsOf(all), err)
	}
}

// TestP10_WhatIsNotKnownToBeClosedIsNotTakenToBe: such a file is named as
// damaged, and its event is still wanted.
func TestP10_WhatIsNotKnownToBeClosedIsNotTakenToBe(t *testing.T) {
	root, q := ask(t, questions.Question{})
	for _, text := range []string{"{}", `{"version":1,"state":"answered"}`, `{"version":1,"state":"paused"}`, "[]", ""} {
		if err := os.WriteFile(root.Path(state.Question(q.ID)), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, unreadable, _ := questions.List(root)
		if !slices.Equal(unreadable, []string{q.ID + ".json"}) || !questions.Wanted(root, q.ID) {
			t.Errorf("%q: unreadable %v, wanted %v", text, unreadable, questions.Wanted(root, q.ID))
		}
		if got, err := questions.Await(t.Context(), root, q.ID); err == nil || !strings.Contains(err.Error(), "is damaged") {
			t.Errorf("%q: waiting for it: %+v, %v", text, got, err)
		}
		if _, err := questions.Reply(t.Context(), root, q.ID, questions.Answer{Text: "yes"}); err == nil {
			t.Errorf("%q was answered", text)
		}
		if b, _ := os.ReadFile(root.Path(state.Question(q.ID))); string(b) != text {
			t.Errorf("%q became %q", text, b)
		}
	}
}

// TestUpdateCannotChangeWhatWasAskedInPlace: what f is given is a copy down to
// the last element.
func TestUpdateCannotChangeWhatWasAskedInPlace(t *testing.T) {
	root, q := ask(t, questions.Question{Choices: []string{"yes", "no"}})
	now, err := questions.Update(t.Context(), root, q.ID, func(q *questions.Question) {
		q.Choices[1], q.Link = "planted", "https://x.example/1"
		q.Code, q.WorkItem, q.FreeText, q.ID = "AA2", "other", true, "other"
		q.ExpiresAt, q.AskedAt, q.ClosedAt = time.Now(), time.Now(), time.Now()
	})
	if err != nil {
		t.Fatal(err)
	}
	stored, err := questions.Get(root, q.ID)
	for _, got := range []questions.Question{now, stored} {
		if err != nil || !slices.Equal(got.Choices, q.Choices) || got.Link == "" || got.Code != q.Code ||
			got.WorkItem != q.WorkItem || got.FreeText || got.ID != q.ID || !got.ExpiresAt.IsZero() ||
			!got.AskedAt.Equal(q.AskedAt) || !got.ClosedAt.IsZero() {
			t.Errorf("%+v, %v", got, err)
		}
	}
}
