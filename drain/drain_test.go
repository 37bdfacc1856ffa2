package drain_test

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"the-loop/bus"
	"the-loop/channels"
	"the-loop/drain"
	"the-loop/outbox"
	"the-loop/state"
)

func TestSeed_BackoffIsHonouredThenExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newFake("room", no(channels.ReasonOther, "odd"))
		s := newSite(t, route(c))
		s.seed(t, 1)
		d := s.drainer()
		began := time.Now()
		for time.Since(began) < 40*time.Minute {
			s.cycle(t, d)
			time.Sleep(5 * time.Second)
		}
		times := c.times()
		if len(times) != 6 { // at 0, and 1, 3, 7, 15, 31 minutes later
			t.Fatalf("asked %d times: %v", len(times), times)
		}
		for i := 1; i < len(times); i++ {
			want := time.Minute << (i - 1)
			if got := times[i].Sub(times[i-1]); got < want*9/10 || got > want*11/10+5*time.Second {
				t.Errorf("wait %d was %s, want %s ±10%%", i, got, want)
			}
		}
		if row := s.delivery(t, "e1", "room"); row.Attempts != 6 || row.Failures != 6 {
			t.Errorf("delivery %+v", row)
		}
		if n := s.lines(t, ""); sum(n) > 0 {
			t.Errorf("logged %v", n)
		}
	})
}

func TestSeed_BudgetBoundsACycleUntilTheChannelAccepts(t *testing.T) {
	c := newFake("room", no(channels.ReasonOther, "odd"))
	s := newSite(t, route(c))
	s.seed(t, 25)
	if r := s.cycle(t, s.drainer()); r.Refused != 20 || c.calls() != 20 {
		t.Errorf("report %+v, asked %d times", r, c.calls())
	}
	c.becomes(yes)
	if r := s.cycle(t, s.drainer()); r.Accepted != 5 {
		t.Errorf("report %+v", r)
	}
	if _, err := s.store.Retry(t.Context()); err != nil {
		t.Fatal(err)
	}
	opts := s.options()
	opts.Budget = 3
	if r := s.cycle(t, drain.New(opts)); r.Accepted != 20 {
		t.Errorf("a healthy channel is held to the budget: %+v", r)
	}
	s.wantEmpty(t)
}

func TestOldestGoesFirst(t *testing.T) {
	c := newFake("room", yes)
	s := newSite(t, route(c))
	now := time.Now()
	s.seedAt(t, "a-young", now.Add(-time.Hour))
	s.seedAt(t, "z-old", now.Add(-3*time.Hour))
	s.seedAt(t, "m2", now.Add(-2*time.Hour))
	s.seedAt(t, "m1", now.Add(-2*time.Hour))
	s.cycle(t, s.drainer())
	if got, want := c.accepted(), []string{"z-old", "m1", "m2", "a-young"}; !slices.Equal(got, want) {
		t.Errorf("order %v, want %v", got, want)
	}
	for i, d := range c.got {
		if d.Attempt != 1 || time.Since(d.At) < time.Hour-time.Minute {
			t.Errorf("delivery %d: attempt %d, at %s", i, d.Attempt, d.At)
		}
	}
}

func TestSeed_OnePanickingEntryDoesNotStopTheRest(t *testing.T) {
	c := newFake("room", nil)
	c.becomes(func(_ context.Context, d channels.Delivery) (channels.Receipt, error) {
		if d.Event.ID == "e2" {
			panic("PRIVATE")
		}
		return channels.Receipt{}, nil
	})
	s := newSite(t, route(c))
	s.seed(t, 4)
	s.cycle(t, s.drainer())
	if got := c.accepted(); !slices.Equal(got, []string{"e1", "e3", "e4"}) {
		t.Errorf("accepted %v", got)
	}
	if row := s.delivery(t, "e2", "room"); row.State != channels.StateUncertain || row.Code != "panic" {
		t.Errorf("delivery %+v", row)
	}
}

// unstable panics wherever a channel can.
type unstable struct{ *fake }

func (unstable) Credential() string { panic("PRIVATE") }

func TestSeed_OneBrokenLaneDoesNotStopTheOthers(t *testing.T) {
	bad, good := newFake("bad", yes), newFake("good", yes)
	s := newSite(t, required(unstable{bad}), required(good))
	s.seed(t, 2)
	for range 2 {
		_, err := s.drainer().Cycle(t.Context())
		if err == nil || !strings.HasPrefix(err.Error(), "lane bad: panic: string < drain_test.go:") ||
			strings.Contains(err.Error(), "PRIVATE") || strings.Contains(err.Error(), "\n") {
			t.Errorf("error %q", err)
		}
	}
	if bad.calls() != 0 || len(good.accepted()) != 2 {
		t.Errorf("bad was asked %d times, good took %v", bad.calls(), good.accepted())
	}
}

func TestPanicOfTheRuntimeIsNamed(t *testing.T) {
	s := newSite(t, route(newFake("room", yes)))
	s.seed(t, 1)
	opts := s.options()
	opts.Outcome = func(c outbox.Claimed, _ channels.Outcome) { _ = c.Event.ID[len(c.Event.Text)] }
	_, err := drain.New(opts).Cycle(t.Context())
	if err == nil || !strings.Contains(err.Error(), "panic: runtime error: index out of range [10] with length 2 < ") {
		t.Errorf("error %v", err)
	}
	s.wantEmpty(t) // it was settled before
}

func TestP8_TheDrainOnlyPosts(t *testing.T) {
	c := newFake("room", yes)
	s := newSite(t, route(c))
	s.seed(t, 3)
	if err := os.MkdirAll(s.root.Path("ledger"), 0o700); err != nil {
		t.Fatal(err)
	}
	touched := ""
	watched := siteOn(s.root.WithSteps(func(op state.Op, path string) error {
		if strings.Contains(path, "ledger") || strings.Contains(path, "questions") {
			touched = fmt.Sprint(op, " ", path)
		}
		return nil
	}), s.routes...)
	watched.cycle(t, watched.drainer())
	if list, err := os.ReadDir(s.root.Path("ledger")); err != nil || len(list) > 0 || touched != "" {
		t.Errorf("ledger holds %v (%v); %s", list, err, touched)
	}
	watched.wantEmpty(t)
	if n := watched.lines(t, ""); n["bus.published"] > 0 || n["channel.delivered_late"] != 3 {
		t.Errorf("logged %v", n)
	}
}

func TestSeed_SilentWhenThereIsNothing(t *testing.T) {
	for name, prepare := range map[string]func(*testing.T, *site){
		"no root": func(*testing.T, *site) {},
		"emptied": func(t *testing.T, s *site) {
			s.seed(t, 1)
			s.cycle(t, s.drainer())
			s.wantEmpty(t)
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := newSite(t, route(newFake("room", yes)))
			prepare(t, s)
			before := snapshot(t, s.root.Dir())
			watched := siteOn(s.root.WithSteps(func(op state.Op, path string) error {
				if op != state.OpRead {
					t.Errorf("%s: %s %s", name, op, filepath.Base(path))
				}
				return nil
			}), s.routes...)
			d := watched.drainer()
			d.Start(t.Context())
			time.Sleep(time.Hour)
			d.Stop()
			if after := snapshot(t, s.root.Dir()); after != before {
				t.Errorf("%s: before\n%s\nafter\n%s", name, before, after)
			}
			if errs := watched.failed(); len(errs) > 0 {
				t.Errorf("%s: %v", name, errs)
			}
		})
	}
}

// snapshot lists what is below dir, with sizes and times.
func snapshot(t *testing.T, dir string) string {
	t.Helper()
	var b strings.Builder
	_ = filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return nil
		}
		if fi, err := e.Info(); err == nil {
			fmt.Fprintln(&b, path, fi.Size(), fi.ModTime())
		}
		return nil
	})
	return b.String()
}

func TestCannotWriteSendsNothing(t *testing.T) {
	for _, op := range []state.Op{state.OpCreate, state.OpWrite, state.OpReplace} {
		for nth := 1; nth <= 2; nth++ { // the claim, then the start
			c := newFake("room", yes)
			s := newSite(t, route(c))
			s.seed(t, 2)
			n := 0
			broken := siteOn(s.root.WithSteps(func(o state.Op, path string) error {
				if o == op && filepath.Base(path) == "undelivered.json" {
					if n++; n >= nth {
						return syscall.ENOSPC
					}
				}
				return nil
			}), s.routes...)
			r, err := broken.drainer().Cycle(t.Context())
			if err == nil || c.calls() > 0 || r.Sent() > 0 {
				t.Errorf("%s %d: error %v, asked %d times", op, nth, err, c.calls())
			}
			if r := s.cycle(t, s.drainer()); r.Accepted != 2 || len(c.asked()) != 2 {
				t.Errorf("%s %d: afterwards %+v, asked for %v", op, nth, r, c.asked())
			}
			s.wantEmpty(t)
		}
	}
}

// failing gives the site on a root whose outbox cannot be written while broken
// is set.
func failing(s *site, broken *atomic.Bool) *site {
	return siteOn(s.root.WithSteps(func(op state.Op, path string) error {
		if broken.Load() && op == state.OpCreate && filepath.Base(path) == "undelivered.json" {
			return syscall.ENOSPC
		}
		return nil
	}), s.routes...)
}

func TestOutcomeThatCannotBeSavedIsKeptAndSavedLater(t *testing.T) {
	for name, tt := range map[string]struct {
		say   say
		state channels.State // "" when it is gone
	}{
		"accepted": {yes, ""},
		"refused":  {no(channels.ReasonOther, "odd"), channels.StateRefused},
	} {
		var broken atomic.Bool
		c := newFake("room", nil)
		c.becomes(func(ctx context.Context, d channels.Delivery) (channels.Receipt, error) {
			broken.Store(true)
			return tt.say(ctx, d)
		})
		s := failing(newSite(t, route(c)), &broken)
		s.seed(t, 1)
		d := s.drainer()
		if _, err := d.Cycle(t.Context()); err == nil {
			t.Errorf("%s: a cycle that could not save its outcome has no error", name)
		}
		if got := s.delivery(t, "e1", "room").State; got != channels.StateSending {
			t.Errorf("%s: state %s", name, got)
		}
		if _, err := d.Cycle(t.Context()); err == nil || c.calls() != 1 {
			t.Errorf("%s: still broken: error %v, asked %d times", name, err, c.calls())
		}
		broken.Store(false)
		s.cycle(t, d)
		if c.calls() != 1 {
			t.Errorf("%s: asked %d times", name, c.calls())
		}
		if e := s.entries(t)["e1"]; e != nil && e.Deliveries["room"].State != tt.state || e == nil && tt.state != "" {
			t.Errorf("%s: entry %+v", name, e)
		}
		if n := s.lines(t, "e1")["channel.delivered_late"]; tt.state == "" && n != 1 {
			t.Errorf("%s: delivered %d times in the log", name, n)
		}
	}
}

func TestStopSavesWhatTheLastCycleLearned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var broken atomic.Bool
		c := newFake("room", func(context.Context, channels.Delivery) (channels.Receipt, error) {
			broken.Store(true)
			return channels.Receipt{}, nil
		})
		s := failing(newSite(t, route(c)), &broken)
		s.seed(t, 1)
		d := s.drainer()
		d.Start(t.Context())
		synctest.Wait()
		broken.Store(false)
		if len(s.failed()) != 1 || len(s.entries(t)) != 1 {
			t.Fatalf("errors %v", s.failed())
		}
		d.Stop()
		s.wantEmpty(t)
	})
}

func TestPaceIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow, quick := newFake("slow", yes), newFake("quick", yes)
		paced := required(slow)
		paced.Rate = 1
		s := newSite(t, paced, required(quick))
		s.seed(t, 5)
		began := time.Now()
		s.cycle(t, s.drainer())
		s.wantEmpty(t)
		for i, at := range slow.times() {
			if want := time.Duration(i) * time.Second; at.Sub(began) != want {
				t.Errorf("send %d after %s, want %s", i, at.Sub(began), want)
			}
		}
		if times := quick.times(); len(times) != 5 || times[4] != began {
			t.Errorf("the other lane was held up: %v", times)
		}
	})
}

func TestPaceSlowerThanACycleStillMovesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newFake("room", yes)
		r := route(c)
		r.Rate = 0.002 // one each 500 s
		s := newSite(t, r)
		s.seed(t, 3)
		d := s.drainer()
		d.Start(t.Context())
		time.Sleep(20 * time.Minute)
		d.Stop()
		s.wantEmpty(t)
		times := c.times()
		for i := 1; i < len(times); i++ {
			if gap := times[i].Sub(times[i-1]); gap < 500*time.Second || gap > 560*time.Second {
				t.Errorf("gap %d is %s", i, gap)
			}
		}
	})
}

func TestLaneStartsNothingAfterTheInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newFake("room", func(context.Context, channels.Delivery) (channels.Receipt, error) {
			time.Sleep(9 * time.Second)
			return channels.Receipt{}, nil
		})
		s := newSite(t, route(c))
		s.seed(t, 10)
		r := s.cycle(t, s.drainer())
		if r.Accepted != 7 { // at 0, 9, … 54 s
			t.Errorf("report %+v", r)
		}
		for id, e := range s.entries(t) {
			if e.Claim != nil || e.Deliveries["room"].Claim != "" {
				t.Errorf("%s is still claimed", id)
			}
		}
	})
}

func TestSomebodyElseDrains(t *testing.T) {
	c := newFake("room", yes)
	s := newSite(t, route(c))
	s.seed(t, 1)
	release, held, err := s.root.Role(state.DrainRole).Take("webhook, process 7")
	if err != nil || !held {
		t.Fatal(held, err)
	}
	if r := s.cycle(t, s.drainer()); r.Drainer != "webhook, process 7" || c.calls() > 0 {
		t.Errorf("report %+v, asked %d times", r, c.calls())
	}
	release()
	if r := s.cycle(t, s.drainer()); r.Accepted != 1 {
		t.Errorf("report %+v", r)
	}
}

// Whoever looks who drains holds the role's lock for an instant.
func TestALookAtTheRoleDoesNotCostACycle(t *testing.T) {
	c := newFake("room", yes)
	s := newSite(t, route(c))
	s.seed(t, 1)
	s.cycle(t, s.drainer()) // creates the lock file
	s.seed(t, 1)
	f, err := os.Open(s.root.Path(state.DrainRole))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	fd, done := int(f.Fd()), make(chan error)
	if err := syscall.Flock(fd, syscall.LOCK_SH); err != nil {
		t.Fatal(err)
	}
	time.AfterFunc(30*time.Millisecond, func() { done <- syscall.Flock(fd, syscall.LOCK_UN) })
	defer func() { <-done }()
	if r := s.cycle(t, s.drainer()); r.Accepted != 1 || r.Drainer != "" {
		t.Errorf("report %+v", r)
	}
}

func TestRoutesAreAskedForAnewEachCycle(t *testing.T) {
	a, b := newFake("a", no(channels.ReasonOther, "odd")), newFake("b", yes)
	s := newSite(t, route(a))
	s.seed(t, 1)
	d := s.drainer()
	s.cycle(t, d)
	s.routes = []bus.Route{route(b)} // a is gone; what it is owed is nobody else's
	s.cycle(t, d)
	if row := s.delivery(t, "e1", "a"); row.State != channels.StateDead || row.Reason != channels.ReasonGone {
		t.Errorf("delivery %+v", row)
	}
	s.routes = []bus.Route{route(a), route(b)}
	a.becomes(yes)
	s.cycle(t, d)
	s.wantEmpty(t)
	if b.calls() > 0 {
		t.Error("b was never owed it")
	}
}
