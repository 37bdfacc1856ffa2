package reader

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"the-loop/state"
)

func TestOnlyWhoHoldsTheRoleReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one, other := newSurface("slack", "a"), newSurface("slack", "a")
		one.say("a", "m0")
		other.say("a", "m0")
		a := newSite(t, one)
		b := newSiteOn(a.root, other)
		a.Start(t.Context())
		synctest.Wait()
		b.Start(t.Context())
		time.Sleep(time.Hour)
		if n := len(other.order()); n != 0 || len(one.order()) == 0 {
			t.Fatalf("%d reads without the role, %d with it", n, len(one.order()))
		}
		if err := b.CatchUp(t.Context()); !errors.Is(err, ErrElsewhere) {
			t.Errorf("catching up: %v", err)
		}
		if err := a.CatchUp(t.Context()); err != nil {
			t.Errorf("the one that reads catches up too: %v", err)
		}
		other.say("a", "m1")
		a.Stop()
		time.Sleep(look + 2*time.Second) // and the budget of what was just read
		if got := b.taken(); !slices.Equal(got, []string{"m1"}) {
			t.Errorf("the other took over %v, from where it was read to", got)
		}
		b.Stop()
		if who, err := a.root.Role(state.ReaderRole).Holder(); who != "" || err != nil {
			t.Errorf("the role is left to %q, %v", who, err)
		}
		if len(a.trouble())+len(b.trouble()) != 0 {
			t.Errorf("told: %v %v", a.trouble(), b.trouble())
		}
	})
}

func TestCatchUpReadsEverythingOnceAndBesideTheLoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := newSurface("slack", "a", "b", "c")
		s := newSite(t, src)
		s.ask("c")
		if err := s.CatchUp(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := src.order(); !slices.Equal(got, []string{"c", "a", "b"}) {
			t.Errorf("%v", got)
		}
		s.ask()
		s.Start(t.Context())
		defer s.Stop()
		time.Sleep(10 * time.Hour)
		src.say("a", "m1")
		src.say("b", "m2")
		if err := s.CatchUp(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := s.taken(); len(got) != 2 {
			t.Errorf("%v", got)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		src.read = hang
		if err := s.CatchUp(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v", err)
		}
	})
}

func TestWakeReadsOpenQuestionsNow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := newSurface("slack", "a", "b")
		s := newSite(t, src)
		s.Wake() // nobody reads
		s.Start(t.Context())
		defer s.Stop()
		time.Sleep(10*time.Hour + time.Second)
		began := time.Now()
		src.say("b", "m1")
		s.ask("b")
		s.Wake()
		synctest.Wait()
		if got := src.when("b", began); got[len(got)-1] != 0 || !slices.Equal(s.taken(), []string{"m1"}) {
			t.Errorf("read %v, taken %v", got[len(got)-1], s.taken())
		}
		time.Sleep(1500 * time.Millisecond)
		src.say("b", "m2")
		s.Wake()
		synctest.Wait()
		if !slices.Equal(s.taken(), []string{"m1", "m2"}) {
			t.Errorf("taken %v", s.taken())
		}
	})
}

// No timer runs while the machine sleeps; the wall clock does.
func TestAfterASleepOfTheMachineEverythingIsRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := newSurface("slack", "a", "b")
		s := newSite(t, src)
		s.Start(t.Context())
		defer s.Stop()
		time.Sleep(10*time.Hour + time.Second)
		n := len(src.order())
		one := s.sources[0]
		slept := func(d time.Duration) {
			if err := one.enter(t.Context()); err != nil {
				t.Fatal(err)
			}
			one.wall = one.wall.Add(-d)
			one.leave()
			time.Sleep(2 * look)
		}
		slept(2 * time.Minute)
		slept(-8 * time.Hour) // it was set back
		if got := len(src.order()) - n; got != 0 {
			t.Errorf("%d reads for nothing", got)
		}
		slept(2*time.Minute + time.Second)
		if got := len(src.order()) - n; got != 2 {
			t.Errorf("%d reads", got)
		}
	})
}

func TestReadSinceIsAboutReadsThatBeganLaterAndWentWell(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src, other := newSurface("slack", "a", "b"), newSurface("github", "a")
		var broken atomic.Bool
		src.read = func(_ context.Context, key string) error {
			if broken.Load() && key == "a" {
				return errors.New("no answer")
			}
			time.Sleep(time.Second)
			return nil
		}
		s := newSite(t, src, other)
		s.ask("a", "b")
		began := time.Now()
		read := func(item string, since time.Duration) bool { return s.ReadSince(item, began.Add(since)) }
		if read("item:a", -time.Hour) {
			t.Error("before the start")
		}
		s.Start(t.Context())
		defer s.Stop()
		time.Sleep(time.Minute)
		if !read("item:a", 0) || !read("item:b", 0) || !read("item:nowhere", 0) {
			t.Error("all has been read")
		}
		if now := time.Since(began); read("item:a", now) || read("item:nowhere", now) {
			t.Error("nothing was read, nor looked for, after now")
		}
		broken.Store(true)
		over := time.Since(began)
		time.Sleep(3 * time.Minute)
		if read("item:a", over) || !read("item:b", over) {
			t.Error("a place that cannot be read has not been")
		}
		broken.Store(false)
		time.Sleep(5 * time.Minute)
		if !read("item:a", over) {
			t.Error("a place that can be read again has been")
		}
		s.failWith(errors.New("disk full"))
		src.say("a", "m")
		over = time.Since(began)
		time.Sleep(time.Minute)
		if read("item:a", over) {
			t.Error("what came was not taken")
		}
		s.Stop()
		if read("item:b", 0) {
			t.Error("who does not read knows nothing")
		}
	})
}

func TestWhoHasNothingToReadHasReadAllOfIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newSite(t)
		b := newSiteOn(a.root)
		a.Start(t.Context())
		time.Sleep(time.Hour)
		b.Start(t.Context())
		defer b.Stop()
		time.Sleep(time.Minute)
		if !a.ReadSince("local:a#1", time.Now()) || b.ReadSince("local:a#1", time.Now().Add(-time.Hour)) {
			t.Error("the first one reads, and no other")
		}
		a.Stop()
		time.Sleep(look)
		synctest.Wait()
		if a.ReadSince("local:a#1", time.Now()) || !b.ReadSince("local:a#1", time.Now()) {
			t.Error("the second one has taken over")
		}
	})
}

func TestWhatIsDoneBesideIsDoneByTheReaderAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var doing atomic.Int32
		beside := []func(context.Context){func(ctx context.Context) {
			doing.Add(1)
			<-ctx.Done()
			time.Sleep(time.Second) // it ends in its own time
			doing.Add(-1)
		}}
		a := newSite(t, newSurface("slack", "a"))
		b := newSiteOn(a.root, newSurface("slack", "a"))
		a.Reader.opts.Beside, b.Reader.opts.Beside = beside, beside
		a.Start(t.Context())
		synctest.Wait()
		b.Start(t.Context())
		for range 60 {
			time.Sleep(time.Second)
			if n := doing.Load(); n != 1 {
				t.Fatalf("%d do it", n)
			}
		}
		a.Stop()
		if n := doing.Load(); n != 0 {
			t.Errorf("%d do it after the end", n)
		}
		time.Sleep(2 * look)
		if n := doing.Load(); n != 1 {
			t.Errorf("%d do it after the hand-over", n)
		}
		b.Stop()
	})
}

func TestStartAndStopInAnyOrder(t *testing.T) {
	for range 50 {
		src := newSurface("slack", "a")
		s := newSite(t, src)
		s.Reader.opts.Budget = 1_000_000 // here time is real
		s.Stop()
		var wg sync.WaitGroup
		for i := range 10 {
			wg.Go(func() {
				switch i % 5 {
				case 0, 1:
					s.Start(t.Context())
				case 2:
					s.Wake()
					_ = s.State()
				case 3:
					_ = s.CatchUp(t.Context())
				case 4:
					s.Stop()
				}
			})
		}
		wg.Wait()
		s.Stop()
		if who, err := s.root.Role(state.ReaderRole).Holder(); who != "" || err != nil {
			t.Fatalf("the role is left to %q, %v", who, err)
		}
	}
}

func TestAReaderMayBeStartedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := newSurface("slack", "a")
		s := newSite(t, src)
		for i := range 3 {
			src.say("a", fmt.Sprint("m", i))
			s.Start(t.Context())
			s.Start(t.Context())
			time.Sleep(2 * time.Hour)
			s.Stop()
			s.Stop()
			if got := s.taken(); len(got) != i+1 {
				t.Errorf("round %d: %v", i, got)
			}
		}
	})
}

func TestARepositoryCoversItsTickets(t *testing.T) {
	repo := ReadPlace{Key: "github:o/r", Repo: "o/r"}
	for item, want := range map[string]bool{
		"github:o/r#7": true, "github:O/R#7": true, "github:o/r#": false, "github:o/rr#7": false,
		"github:o/r": false, "local:o/r#7": false, "": false,
	} {
		if repo.Covers(item) != want {
			t.Errorf("%s: %v", item, !want)
		}
	}
	if (ReadPlace{}).Covers("github:#7") || !(ReadPlace{WorkItems: []string{"local:x#1"}}).Covers("local:x#1") {
		t.Error("a thread covers its own work items alone")
	}
}

func TestTheFilesOfTheBudgetAreDeclared(t *testing.T) {
	long := strings.Repeat("m", 300)
	for _, method := range []string{"conversations.replies", "GET /repos/x", "../../x", "", "ü", long} {
		name := paceName("slack", method)
		if file := state.Pace(name); !state.IsDeclared(file) || strings.ContainsAny(name, "/ ") || len(name) > 100 {
			t.Errorf("%q: %s", method, file)
		}
	}
	if got := paceName("slack", "conversations.replies"); got != "slack.conversations.replies" {
		t.Error(got)
	}
}
