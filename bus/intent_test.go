package bus_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gofrs/flock"

	"the-loop/bus"
	"the-loop/channels"
	"the-loop/outbox"
	"the-loop/state"
)

// orderly writes down what happened, in order.
type orderly struct {
	mu   sync.Mutex
	list []string
}

func (o *orderly) add(what string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.list = append(o.list, what)
}

// at is where the n-th happened, -1 when it did not.
func (o *orderly) at(what string, n int) int {
	o.mu.Lock()
	defer o.mu.Unlock()
	for i, s := range o.list {
		if s == what {
			if n--; n == 0 {
				return i
			}
		}
	}
	return -1
}

func isJournal(path string) bool { return strings.Contains(path, filepath.FromSlash(state.Sending())) }

// TestP3_IntentThenRecordThenFirstByte: what is intended is durable before the
// ledger is written, and the record's fate is before the first byte leaves.
func TestP3_IntentThenRecordThenFirstByte(t *testing.T) {
	root, err := state.Open(filepath.Join(t.TempDir(), "root"))
	if err != nil {
		t.Fatal(err)
	}
	var did orderly
	watched := root.WithSteps(func(op state.Op, path string) error {
		if isJournal(path) {
			did.add("journal " + string(op))
		}
		if op == state.OpReplace && path == root.Path(state.Outbox) {
			did.add("outbox")
		}
		return nil
	})
	c := &fake{name: "slack", post: func(context.Context, channels.Delivery) (channels.Receipt, error) {
		did.add("post")
		return channels.Receipt{}, &channels.Uncertain{Code: "timeout"}
	}}
	s := siteOn(watched, all(c))
	s.bus.Ledger = ledgerFunc(func(context.Context, channels.Event) (string, error) {
		did.add("record")
		return "https://example.com/1", nil
	})
	res := s.bus.Publish(t.Context(), question("A or B?"))
	if !res.Stored || !res.Queued || res.Recorded != bus.RecordedYes {
		t.Errorf("%+v", res)
	}
	order := []int{
		did.at("journal sync", 1), did.at("journal replace", 1), did.at("journal syncdir", 1), did.at("record", 1),
		did.at("journal sync", 2), did.at("post", 1), did.at("outbox", 1), did.at("journal sync", 3),
	}
	if order[0] < 0 || !slices.IsSorted(order) || len(slices.Compact(order)) != 8 {
		t.Errorf("steps %v at %v", did.list, order)
	}
	if err := s.store.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestP3_StoredIsFalseOnlyWhenTheIntentCouldNotBeWritten(t *testing.T) {
	broken := errors.New("broken")
	for name, tt := range map[string]struct {
		fails          func(op state.Op, path string) bool
		stored, queued bool
	}{
		"nothing":    {func(state.Op, string) bool { return false }, true, true},
		"the intent": {func(op state.Op, p string) bool { return op == state.OpCreate && isJournal(p) }, false, true},
		"the outbox": {func(op state.Op, p string) bool {
			return op == state.OpReplace && strings.HasSuffix(p, "undelivered.json")
		}, true, true},
		"both": {func(op state.Op, p string) bool {
			return op == state.OpCreate && !strings.Contains(p, "logs")
		}, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			root, err := state.Open(filepath.Join(t.TempDir(), "root"))
			if err != nil {
				t.Fatal(err)
			}
			c := refusing("slack", channels.ReasonDown, "refused")
			s := siteOn(root.WithSteps(func(op state.Op, path string) error {
				if tt.fails(op, path) {
					return broken
				}
				return nil
			}), all(c))
			res := s.bus.Publish(t.Context(), question("A or B?"))
			if res.Stored != tt.stored || res.Queued != tt.queued || c.calls() != 1 {
				t.Errorf("stored %v, queued %v, %d sends, notes %q", res.Stored, res.Queued, c.calls(), res.Notes)
			}
			if (len(res.Notes) == 0) != (name == "nothing") {
				t.Errorf("notes %q", res.Notes)
			}
			if err := s.store.Close(); err != nil {
				t.Fatal(err)
			}
			// Whoever comes next finds it where the result said that it is.
			if entries, _, _, err := outbox.Open(root, outbox.Options{}).Entries(); (len(entries) == 1) != tt.queued {
				t.Errorf("%d entries, %v", len(entries), err)
			}
		})
	}
}

// TestP7_WhereNothingCanBeLockedItIsSaid: the intent stands, nobody takes it
// over by itself, and the result says so.
func TestP7_WhereNothingCanBeLockedItIsSaid(t *testing.T) {
	root, err := state.Open(filepath.Join(t.TempDir(), "root"))
	if err != nil {
		t.Fatal(err)
	}
	var others []*flock.Flock
	s := siteOn(root.WithSteps(func(op state.Op, path string) error {
		if op == state.OpLock && isJournal(path) { // its lock is not to be had
			l := flock.New(path)
			ok, err := l.TryLock()
			others = append(others, l)
			if !ok {
				return errors.Join(err, errors.New("the test's lock failed"))
			}
		}
		return nil
	}), all(&fake{name: "slack"}))
	res := s.bus.Publish(t.Context(), question("A or B?"))
	if !res.Stored || res.Accepted() != 1 || len(res.Notes) != 1 || !strings.Contains(res.Notes[0], "no locks") {
		t.Errorf("%+v, notes %q", res, res.Notes)
	}
	if err := s.store.Close(); err != nil {
		t.Fatal(err)
	}
	for _, l := range others {
		if err := l.Unlock(); err != nil {
			t.Fatal(err)
		}
	}
}

// told is a channel that says when to come back, n times.
func told(name string, n int, after time.Duration, at *[]time.Time) *fake {
	var mu sync.Mutex
	return &fake{name: name, post: func(context.Context, channels.Delivery) (channels.Receipt, error) {
		mu.Lock()
		defer mu.Unlock()
		*at = append(*at, time.Now())
		if len(*at) <= n {
			return channels.Receipt{}, &channels.Refusal{
				Reason: channels.ReasonRate, Code: "ratelimited", RetryAfter: after,
			}
		}
		return channels.Receipt{Ref: "1"}, nil
	}}
}

func TestQ01_AWaitThatFitsIsWaitedOutOnce(t *testing.T) {
	for name, tt := range map[string]struct {
		times int
		after time.Duration
		sends int
		want  string
	}{
		"fits":            {1, time.Second, 2, "slack accepted  "},
		"just fits":       {1, 9 * time.Second, 2, "slack accepted  "},
		"does not fit":    {1, 9*time.Second + 1, 1, "slack refused rate ratelimited"},
		"an hour":         {1, time.Hour, 1, "slack refused rate ratelimited"},
		"told once more":  {2, time.Second, 2, "slack refused rate ratelimited"},
		"no wait at all":  {1, 0, 2, "slack accepted  "},
		"not told at all": {0, 0, 1, "slack accepted  "},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var at []time.Time
				s := newSite(t, all(told("slack", tt.times, tt.after, &at)))
				res := s.bus.Publish(t.Context(), question("A or B?"))
				wantPosts(t, res, tt.want)
				if len(at) != tt.sends || len(at) == 2 && at[1].Sub(at[0]) < tt.after {
					t.Errorf("sends at %v", at)
				}
				st := s.store.Standing(s.bus.Routes[0].Asker())
				if res.Accepted() == 1 {
					if st != nil || res.Queued {
						t.Errorf("standing %+v, queued %v", st, res.Queued)
					}
					return
				}
				e := s.entry(t)
				if st == nil || st.Verdict != outbox.Cooling || e.Deliveries["slack"].Attempts != 0 {
					t.Errorf("standing %+v, delivery %+v", st, e.Deliveries["slack"])
				}
			})
		})
	}
}

// TestP5_WhoeverWaitsHoldsTheOthersToo: the wait is the channel's, and not the
// one publisher's that was told.
func TestP5_WhoeverWaitsHoldsTheOthersToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var at []time.Time
		c := told("slack", 1, 5*time.Second, &at)
		s := newSite(t, all(c))
		var wg sync.WaitGroup
		wg.Go(func() { s.bus.Publish(t.Context(), question("first")) })
		time.Sleep(time.Second)
		res := siteOn(s.root, all(c)).bus.Publish(t.Context(), question("second"))
		wantPosts(t, res, "slack pending held ratelimited")
		wg.Wait()
		if len(at) != 2 || at[1].Sub(at[0]) != 5*time.Second {
			t.Errorf("sends at %v", at)
		}
		wantPosts(t, s.bus.Publish(t.Context(), question("third")), "slack accepted  ")
	})
}

func TestAnInterruptedWaitIsNoSend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var at []time.Time
		slow := all(told("slack", 1, 5*time.Second, &at))
		paced := all(&fake{name: "paced"})
		paced.Rate = 0.25
		s := newSite(t, slow, paced)
		if _, ok, err := s.store.Pace(t.Context(), "paced", 4*time.Second, time.Now()); !ok || err != nil {
			t.Fatal(ok, err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		res := s.bus.Publish(ctx, question("A or B?"))
		wantPosts(t, res, "slack refused rate ratelimited; paced pending held interrupted")
		if len(at) != 1 || !res.Queued {
			t.Errorf("sends %v, queued %v", at, res.Queued)
		}
	})
}

// TestThePaceIsSharedByThePublishersOfARoot: no two sends within a second, and
// those that would begin past half of the timeout are left to the drain.
func TestThePaceIsSharedByThePublishersOfARoot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var at []time.Time
		c := &fake{name: "slack", post: func(context.Context, channels.Delivery) (channels.Receipt, error) {
			mu.Lock()
			defer mu.Unlock()
			at = append(at, time.Now())
			return channels.Receipt{Ref: "1"}, nil
		}}
		r := all(c)
		r.Rate, r.Timeout = 1, 5*time.Second
		root := newSite(t).root
		began := time.Now()
		results := make([]bus.Result, 5)
		var wg sync.WaitGroup
		for i := range results {
			wg.Go(func() { // each is a process of its own as far as locks go
				results[i] = siteOn(root, r).bus.Publish(t.Context(), question(fmt.Sprint(i)))
			})
		}
		wg.Wait()
		slices.SortFunc(at, time.Time.Compare)
		if len(at) != 3 || at[2].Sub(began) > 2500*time.Millisecond {
			t.Errorf("sends after %v", at)
		}
		for i := 1; i < len(at); i++ {
			if gap := at[i].Sub(at[i-1]); gap < time.Second {
				t.Errorf("two sends %v apart", gap)
			}
		}
		held := 0
		for _, res := range results {
			if res.Accepted() == 0 {
				held++
				wantPosts(t, res, "slack pending held pace")
				if !res.Queued || !res.Stored {
					t.Errorf("%+v", res)
				}
			}
		}
		entries := siteOn(root).entries(t)
		if held != 2 || len(entries) != 2 {
			t.Fatalf("%d held, %d stored", held, len(entries))
		}
		for _, e := range entries {
			if d := e.Deliveries["slack"]; d.Attempts != 0 || e.Attempts != 0 {
				t.Errorf("waiting for the pace cost %+v", d)
			}
		}
	})
}

// TestASecondAttemptKeepsThePaceToo: who was told to wait takes a new turn.
func TestASecondAttemptKeepsThePaceToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var at []time.Time
		r := all(told("slack", 1, time.Second, &at))
		r.Rate = 0.5
		s := newSite(t, r)
		wantPosts(t, s.bus.Publish(t.Context(), question("A or B?")), "slack accepted  ")
		if len(at) != 2 || at[1].Sub(at[0]) < 2*time.Second {
			t.Errorf("sends at %v, want two seconds between them", at)
		}
	})
}

func TestAPacedFailureOfTheDiskStopsNoMessage(t *testing.T) {
	root, err := state.Open(filepath.Join(t.TempDir(), "root"))
	if err != nil {
		t.Fatal(err)
	}
	r := all(&fake{name: "slack"})
	r.Rate = 1
	s := siteOn(root.WithSteps(func(_ state.Op, path string) error {
		if strings.Contains(path, "pace") {
			return syscall.EIO
		}
		return nil
	}), r)
	wantPosts(t, s.bus.Publish(t.Context(), question("A or B?")), "slack accepted  ")
	if _, err := os.Stat(root.Path(state.Pace("slack"))); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("pace file: %v", err)
	}
}
