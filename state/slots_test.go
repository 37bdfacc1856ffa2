package state_test

import (
	"errors"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"the-loop/state"
)

// TestSlotsOfGoroutinesAndProcessesAreNeverTooClose, whoever takes them.
func TestSlotsOfGoroutinesAndProcessesAreNeverTooClose(t *testing.T) {
	root := open(t)
	const apart = 10 * time.Millisecond
	var mu sync.Mutex
	var all []time.Time
	var wg sync.WaitGroup
	for range 4 {
		cmd := process(t, root, "slots", "20")
		wg.Go(func() {
			out, err := cmd.Output()
			if err != nil {
				t.Errorf("the other process: %v", err)
			}
			for _, line := range strings.Fields(string(out)) {
				ns, err := strconv.ParseInt(line, 10, 64)
				if err != nil {
					t.Error(err)
				}
				mu.Lock()
				all = append(all, time.Unix(0, ns))
				mu.Unlock()
			}
		})
		wg.Go(func() {
			for range 20 {
				at, ok, err := root.Slots("delivery/pace/slack").Take(t.Context(), apart, time.Now().Add(time.Minute))
				if !ok || err != nil {
					t.Error(ok, err)
				}
				mu.Lock()
				all = append(all, at)
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	slices.SortFunc(all, time.Time.Compare)
	if len(all) != 160 {
		t.Errorf("%d slots", len(all))
	}
	for i := 1; i < len(all); i++ {
		if gap := all[i].Round(0).Sub(all[i-1].Round(0)); gap < apart {
			t.Fatalf("slots %d and %d are %v apart", i-1, i, gap)
		}
	}
}

func TestASlotPastTheLimitIsNotTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slots := open(t).Slots("delivery/pace/slack")
		began := time.Now()
		limit := began.Add(5 * time.Second)
		for i, want := range []time.Duration{0, 2 * time.Second, 4 * time.Second, -1, -1} {
			at, ok, err := slots.Take(t.Context(), 2*time.Second, limit)
			if err != nil || ok != (want >= 0) || ok && at.Sub(began) != want {
				t.Errorf("slot %d: after %v, %v, %v", i, at.Sub(began), ok, err)
			}
		}
		time.Sleep(6 * time.Second)
		if at, ok, err := slots.Take(t.Context(), 2*time.Second, time.Now()); !ok || err != nil || !at.Equal(time.Now()) {
			t.Errorf("what was not taken is free: %v, %v, %v", at, ok, err)
		}
		time.Sleep(time.Hour)
		if at, ok, _ := slots.Take(t.Context(), 2*time.Second, time.Now()); !ok || !at.Equal(time.Now()) {
			t.Errorf("an idle channel owes no wait: %v, %v", at, ok)
		}
	})
}

func TestAPaceOfAWrongClockIsPassedOver(t *testing.T) {
	for name, tt := range map[string]struct {
		text string
		ok   bool
	}{
		"a year ahead":       {strconv.FormatInt(time.Now().Add(8760*time.Hour).UnixNano(), 10), true},
		"ten minutes ahead":  {strconv.FormatInt(time.Now().Add(10*time.Minute).UnixNano(), 10), true},
		"a minute ahead":     {strconv.FormatInt(time.Now().Add(time.Minute).UnixNano(), 10), false},
		"long ago":           {"5", true},
		"damaged":            {"no number at all", true},
		"empty":              {"", true},
		"longer than a time": {strings.Repeat("9", 40), true},
	} {
		root := open(t)
		slots := root.Slots("delivery/pace/slack")
		if _, _, err := slots.Take(t.Context(), time.Millisecond, time.Now()); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(root.Path("delivery/pace/slack"), []byte(tt.text), 0o600); err != nil {
			t.Fatal(err)
		}
		if at, ok, err := slots.Take(t.Context(), time.Second, time.Now().Add(time.Second)); ok != tt.ok || err != nil {
			t.Errorf("%s: %v, %v, %v", name, at, ok, err)
		}
		if !tt.ok {
			continue
		}
		at, ok, err := slots.Take(t.Context(), time.Second, time.Now().Add(2*time.Second))
		if wait := time.Until(at); !ok || err != nil || wait <= 0 || wait > time.Second {
			t.Errorf("%s, the next: in %v, %v, %v", name, wait, ok, err)
		}
	}
}

func TestASlotThatCannotBeTakenIsAnError(t *testing.T) {
	broken := errors.New("broken")
	for _, failing := range []state.Op{state.OpMkdir, state.OpLock} {
		root := open(t).WithSteps(func(op state.Op, _ string) error {
			if op == failing {
				return broken
			}
			return nil
		})
		_, ok, err := root.Slots("delivery/pace/slack").Take(t.Context(), time.Second, time.Now())
		if ok || !errors.Is(err, broken) {
			t.Errorf("%s: %v, %v", failing, ok, err)
		}
	}
}
