package reader

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"the-loop/state"
)

func TestADayOfQuietIsReadEverMoreRarelyAndWritesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := newSurface("slack", "a")
		var mu sync.Mutex
		written := 0
		root := newSite(t).root.WithSteps(func(op state.Op, path string) error {
			mu.Lock()
			defer mu.Unlock()
			if op == state.OpReplace || op == state.OpAppend {
				written++
			}
			return nil
		})
		s := newSiteOn(root, src)
		began := time.Now()
		s.Start(t.Context())
		time.Sleep(24 * time.Hour)
		s.Stop()
		want := []time.Duration{0, 1, 3, 7, 15, 31} // then hourly, at the latest look after it
		got := src.when("a", began)
		for i, w := range want {
			if d := got[i] - w*time.Minute; d < 0 || d > look*time.Duration(i+1) {
				t.Errorf("read %d came after %s", i, got[i])
			}
		}
		if len(got) < 28 || len(got) > 30 {
			t.Errorf("%d reads in a day", len(got))
		}
		if written != 1 {
			t.Errorf("%d writes: only the first cursor is news", written)
		}
	})
}

func TestNewsBringsAPlaceBackToTheInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := newSurface("slack", "a")
		s := newSite(t, src)
		began := time.Now()
		s.Start(t.Context())
		defer s.Stop()
		time.Sleep(5 * time.Hour)
		n := len(src.when("a", began))
		src.say("a", "m1")
		time.Sleep(2 * time.Hour)
		if got := s.taken(); !slices.Equal(got, []string{"m1"}) {
			t.Fatalf("taken: %v", got)
		}
		reads := src.when("a", began)[n:] // that with the news first
		for i, want := range []time.Duration{1, 2, 4, 8, 16} {
			if d := reads[i+1] - reads[i] - want*time.Minute; d < 0 || d > look {
				t.Errorf("wait %d: %s", i, reads[i+1]-reads[i])
			}
		}
	})
}

func TestAnOpenQuestionMakesItsPlaceUrgent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := newSurface("slack", "a", "b")
		s := newSite(t, src)
		s.Start(t.Context())
		defer s.Stop()
		time.Sleep(10 * time.Hour)
		s.ask("b")
		began := time.Now()
		time.Sleep(time.Minute)
		reads := src.when("b", began)
		reads = slices.DeleteFunc(reads, func(d time.Duration) bool { return d < 0 })
		if len(reads) == 0 || reads[0] > look || len(reads) < 10 || len(reads) > 13 {
			t.Errorf("read after %v", reads)
		}
		s.ask()
		began = time.Now()
		time.Sleep(time.Hour)
		reads = slices.DeleteFunc(src.when("b", began), func(d time.Duration) bool { return d < 0 })
		if len(reads) > 8 {
			t.Errorf("answered, and read after %v", reads)
		}
	})
}

func TestOpenQuestionsComeFirstAndStarveNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := newSurface("slack", "q1", "o1", "q2", "o2", "o3")
		s := newSite(t, src)
		s.ask("o1", "o2", "o3")
		s.Start(t.Context())
		time.Sleep(10 * time.Second)
		s.Stop()
		if got := src.order()[:5]; !slices.Equal(got, []string{"o1", "o2", "o3", "q1", "q2"}) &&
			!slices.Equal(got, []string{"o1", "o2", "o3", "q1", "o1"}) {
			t.Errorf("%v", got)
		}
		var open []string
		for i := range 12 { // more than the budget has room for every five seconds
			open = append(open, fmt.Sprint("o", i))
		}
		src = newSurface("slack", append(open, "q")...)
		s = newSite(t, src)
		s.ask(open...)
		s.Start(t.Context())
		time.Sleep(5 * time.Minute)
		s.Stop()
		if n := len(src.when("q", time.Now())); n < 2 {
			t.Errorf("the quiet place was read %d times", n)
		}
		for _, o := range open {
			if n := len(src.when(o, time.Now())); n < 12 {
				t.Errorf("%s was read %d times", o, n)
			}
		}
	})
}

// paced is a surface that is only caught up with.
type paced struct {
	*surface
	every time.Duration
}

func (p paced) Every() time.Duration { return p.every }

func TestAPacedSourceIsNeverReadMoreRarelyThanItSays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := newSurface("slack", "quiet", "open", "broken")
		src.read = func(_ context.Context, key string) error {
			if key == "broken" {
				return errors.New("no such thread")
			}
			return nil
		}
		s := newSite(t, paced{src, 15 * time.Minute})
		s.ask("open")
		began := time.Now()
		s.Start(t.Context())
		defer s.Stop()
		time.Sleep(4*time.Hour + time.Minute)
		for _, key := range []string{"quiet", "open"} {
			got := src.when(key, began)
			for i, at := range got {
				if late := at - time.Duration(i)*15*time.Minute; late < 0 || late > look*time.Duration(i+1) {
					t.Errorf("%s: read %d came after %s", key, i, at)
				}
			}
			if len(got) != 17 {
				t.Errorf("%s was read %d times in four hours", key, len(got))
			}
		}
		// What failed in passing is not left alone for so long; and in the end it is.
		last := -time.Minute
		for i, at := range src.when("broken", began) {
			if at-last > 15*time.Minute+look || i == 1 && at > 2*time.Minute {
				t.Errorf("broken: read %d came after %s, and the one before after %s", i, at, last)
			}
			last = at
		}
		if n := len(src.when("broken", began)); n > 21 {
			t.Errorf("broken was read %d times in four hours", n)
		}
		n := len(src.order())
		s.Wake()
		synctest.Wait()
		if got := src.order()[n:]; !slices.Equal(got, []string{"open"}) {
			t.Errorf("woken, it read %v", got)
		}
	})
}
