package reader

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"the-loop/channels"
	"the-loop/state"
)

// Two readers of one root keep one budget together.
func TestTwoReadersKeepOneBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var keys []string
		for i := range 30 {
			keys = append(keys, fmt.Sprint("p", i))
		}
		one, other := newSurface("slack", keys...), newSurface("slack", keys...)
		a := newSite(t, one)
		b := newSiteOn(a.root, other)
		b.Reader.opts.Role = a.root.Role("run/other.lock")
		a.ask(keys...)
		b.ask(keys...)
		a.Start(t.Context())
		b.Start(t.Context())
		time.Sleep(10 * time.Minute)
		a.Stop()
		b.Stop()
		calls := append(one.calls, other.calls...)
		slices.SortFunc(calls, time.Time.Compare)
		for i := 40; i < len(calls); i++ {
			if calls[i].Sub(calls[i-40]) < time.Minute {
				t.Fatalf("41 calls in %s", calls[i].Sub(calls[i-40]))
			}
		}
		if len(calls) < 390 || len(one.calls) < 100 || len(other.calls) < 100 {
			t.Errorf("%d and %d calls in ten minutes", len(one.calls), len(other.calls))
		}
	})
}

func TestASourceThatHangsHoldsUpNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stuck, well := newSurface("github", "g1", "g2"), newSurface("slack", "a")
		stuck.read = hang
		s := newSite(t, stuck, well)
		s.ask("a", "g1", "g2")
		began := time.Now()
		s.Start(t.Context())
		time.Sleep(time.Minute)
		if n := len(well.when("a", began)); n < 10 {
			t.Errorf("the other was read %d times", n)
		}
		if got := stuck.when("g2", began); len(got) == 0 || got[0] < ReadWithin || got[0] > ReadWithin+5*time.Second {
			t.Errorf("the next place of the one that hangs: after %v", got)
		}
		want := "no answer from github within 30s"
		if st := s.State(); st[0].LastError != want || !st[0].LastReadAt.IsZero() || st[0].Places != 2 ||
			st[1].LastError != "" || time.Since(st[1].LastReadAt) > 10*time.Second {
			t.Errorf("%+v", st)
		}
		stopping := time.Now()
		s.Stop()
		if took := time.Since(stopping); took != 0 {
			t.Errorf("stopped after %s", took)
		}
		if got := s.trouble(); !slices.Equal(got, []string{"github: " + want}) {
			t.Errorf("told: %v", got)
		}
	})
}

func TestManyPagesMayTakeLonger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var err error
		src := &paged{pages: 100, done: func(e error) { err = e }}
		s := newSite(t, src)
		began := time.Now()
		if e := s.CatchUp(t.Context()); e != nil || err != nil {
			t.Errorf("%v, %v", e, err)
		}
		if took := time.Since(began); took < 2*time.Minute || len(s.taken()) != 100 {
			t.Errorf("%d after %s", len(s.taken()), took)
		}
	})
}

func TestWaitingForTheBudgetIsNoHanging(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := newSurface("slack", "a")
		s := newSite(t, src)
		slots := s.root.Slots(state.Pace("slack.list"))
		if _, _, err := slots.Take(t.Context(), 50*time.Second, time.Now()); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		if err := s.CatchUp(t.Context()); err != nil || time.Since(began) != 50*time.Second {
			t.Errorf("%v after %s", err, time.Since(began))
		}
		// One so far ahead was taken by a clock that was set back since.
		if _, _, err := slots.Take(t.Context(), 4*time.Minute, time.Now().Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
		if err := s.CatchUp(t.Context()); err != nil || time.Since(began) > 6*time.Minute {
			t.Errorf("%v after %s", err, time.Since(began))
		}
	})
}

type paged struct {
	pages int
	done  func(error)
}

func (*paged) Name() string                 { return "github" }
func (*paged) Places([]Watched) []ReadPlace { return []ReadPlace{{Key: "p"}} }
func (p *paged) Read(ctx context.Context, _ ReadPlace, _ json.RawMessage, before func(context.Context, string) error) (
	ms []channels.Message, next json.RawMessage, err error,
) {
	for i := range p.pages {
		if err = before(ctx, "list"); err == nil {
			err = ctx.Err()
		}
		if err != nil {
			break
		}
		ms = append(ms, channels.Message{Key: fmt.Sprint(i)})
	}
	p.done(err)
	return ms, json.RawMessage(`1`), err
}

// L-06: a reply whose storing failed is not written down as seen.
func TestL06_WhatWasNotTakenComesAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := newSurface("slack", "a")
		s := newSite(t, src)
		if err := s.CatchUp(t.Context()); err != nil {
			t.Fatal(err)
		}
		before := s.file(t)
		src.say("a", "m1", "m2")
		s.failWith(errors.New("disk full"))
		if err := s.CatchUp(t.Context()); err == nil || !strings.Contains(err.Error(), "disk full") {
			t.Errorf("%v", err)
		}
		if got := s.file(t); got != before || before == "" {
			t.Errorf("the cursor moved: %s, before %s", got, before)
		}
		s.failWith(nil)
		for range 2 {
			if err := s.CatchUp(t.Context()); err != nil {
				t.Error(err)
			}
		}
		if got := s.taken(); !slices.Equal(got, []string{"m1", "m2", "m1", "m2"}) {
			t.Errorf("given: %v", got)
		}
		if got := s.trouble(); len(got) != 2 || got[1] != "slack: <nil>" {
			t.Errorf("told: %v", got)
		}
	})
}

// What came before an error is taken, and read once.
func TestAnErrorKeepsWhatCameBeforeIt(t *testing.T) {
	src := &partly{}
	s := newSite(t, src)
	if err := s.CatchUp(t.Context()); err == nil || !strings.Contains(err.Error(), "page 2") {
		t.Error(err)
	}
	if got := s.file(t); !slices.Equal(s.taken(), []string{"m1"}) || !strings.Contains(got, `"cursor":{"page":1}`) {
		t.Errorf("taken %v, %s", s.taken(), got)
	}
}

type partly struct{}

func (*partly) Name() string                 { return "github" }
func (*partly) Places([]Watched) []ReadPlace { return []ReadPlace{{Key: "p"}} }
func (*partly) Read(context.Context, ReadPlace, json.RawMessage, func(context.Context, string) error) (
	[]channels.Message, json.RawMessage, error,
) {
	return []channels.Message{{Key: "m1"}}, json.RawMessage(`{"page": 1}`), errors.New("page 2 is not there")
}

func TestToldToWaitWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := newSurface("slack", "a", "b")
		limited := true
		src.read = func(context.Context, string) error {
			if limited {
				return &channels.Refusal{Reason: channels.ReasonRate, Code: "ratelimited", RetryAfter: 5 * time.Minute}
			}
			return nil
		}
		s := newSite(t, src)
		s.ask("a", "b")
		began := time.Now()
		s.Start(t.Context())
		defer s.Stop()
		time.Sleep(time.Minute)
		if st := s.State()[0]; st.WaitingUntil.Sub(began) != 5*time.Minute || st.LastError == "" {
			t.Errorf("%+v", st)
		}
		if err := s.CatchUp(t.Context()); err == nil || !strings.Contains(err.Error(), "told to wait until") {
			t.Errorf("catching up: %v", err)
		}
		s.Wake()
		limited = false
		time.Sleep(3 * time.Minute)
		if n := len(src.order()); n != 1 {
			t.Errorf("%d reads while told to wait", n)
		}
		time.Sleep(time.Minute + look)
		if n := len(src.order()); n < 3 {
			t.Errorf("%d reads after it", n)
		}
		if st := s.State()[0]; !st.WaitingUntil.IsZero() || st.LastError != "" {
			t.Errorf("%+v", st)
		}
	})
}

func TestAGuessedWaitRises(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := newSurface("github", "a")
		src.read = func(context.Context, string) error {
			return &channels.Refusal{Reason: channels.ReasonRate, RetryAfter: time.Minute, Guessed: true}
		}
		s := newSite(t, src)
		began := time.Now()
		s.Start(t.Context())
		time.Sleep(10 * time.Hour)
		s.Stop()
		got := src.when("a", began)
		if want := []time.Duration{0, 1, 3, 7, 15, 31, 63, 123}; len(got) < 14 || len(got) > 15 ||
			!slices.EqualFunc(got[:8], want, func(a, b time.Duration) bool {
				return a >= b*time.Minute && a < b*time.Minute+time.Minute
			}) {
			t.Errorf("%v", got)
		}
	})
}

func TestAFailureBacksOffAloneAndIsSaidOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := newSurface("slack", "bad", "good")
		var mu sync.Mutex
		failure := errors.New("port 4711 is closed")
		fail := func(err error) {
			mu.Lock()
			defer mu.Unlock()
			failure = err
		}
		port := 4711
		src.read = func(_ context.Context, key string) error {
			mu.Lock()
			defer mu.Unlock()
			if port++; key == "bad" && failure != nil {
				return fmt.Errorf("%w on port %d", failure, port)
			}
			return nil
		}
		s := newSite(t, src)
		s.ask("bad", "good")
		began := time.Now()
		s.Start(t.Context())
		defer s.Stop()
		time.Sleep(30 * time.Minute)
		if bad, good := len(src.when("bad", began)), len(src.when("good", began)); bad < 55 || bad > 65 || good < 300 {
			t.Errorf("%d and %d reads", bad, good)
		}
		if got := s.trouble(); len(got) != 1 {
			t.Errorf("told: %v", got)
		}
		time.Sleep(time.Hour) // it has been more than an hour
		if got := s.trouble(); len(got) != 2 {
			t.Errorf("told: %v", got)
		}
		fail(errors.New("another"))
		time.Sleep(30 * time.Minute)
		fail(nil)
		time.Sleep(time.Hour + time.Minute)
		if got := s.trouble(); len(got) != 4 || !strings.Contains(got[2], "another") || got[3] != "slack: <nil>" {
			t.Errorf("told: %q", got)
		}
		s.Stop()
		if log := s.log.String(); strings.Count(log, "reading failed") != 3 || strings.Count(log, "recovered") != 1 {
			t.Errorf("logged:\n%s", log)
		}
	})
}

func TestAPanicIsAFailureWithoutItsWords(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := newSurface("slack", "bad", "good")
		src.read = func(_ context.Context, key string) error {
			if key == "bad" {
				panic("secret words")
			}
			return nil
		}
		src.say("good", "m1")
		s := newSite(t, src)
		err := s.CatchUp(t.Context())
		if err == nil || strings.Contains(err.Error(), "secret") || !strings.Contains(err.Error(), "trouble_test.go") {
			t.Error(err)
		}
		if got := s.taken(); !slices.Equal(got, []string{"m1"}) {
			t.Error(got)
		}
	})
}
