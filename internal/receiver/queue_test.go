package receiver

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

	"the-loop/channels"
)

// bubble runs the test in one, with a site whose receiver ends in it.
func bubble(t *testing.T, test func(t *testing.T, s *site)) {
	synctest.Test(t, func(t *testing.T) { test(t, newSite(t)) })
}

// together sends requests so that all but the first wait while the first is
// taken, which takes a tenth of a second, and gives their statuses.
func (s *site) together(bodies ...string) []int {
	codes := make([]int, len(bodies))
	var wg sync.WaitGroup
	for i, b := range bodies {
		wg.Go(func() { codes[i] = s.send(b).Code })
		synctest.Wait()
	}
	wg.Wait()
	return codes
}

func TestWhatWaitsIsTakenInOneCall(t *testing.T) {
	bubble(t, func(t *testing.T, s *site) {
		s.take = func(context.Context, []string) error { time.Sleep(100 * time.Millisecond); return nil }
		if codes := s.together("a", "b", "c d", "e"); !slices.Equal(codes, []int{200, 200, 200, 200}) {
			t.Error(codes)
		}
		calls := s.got()
		if len(calls) != 2 {
			t.Fatalf("%d calls: %v", len(calls), calls)
		}
		slices.Sort(calls[1]) // goroutines that wait at one channel are in no order that we promise
		if fmt.Sprint(calls) != "[[a] [b c d e]]" {
			t.Errorf("%v", calls)
		}
	})
}

func TestABatchHasAtMost256MessagesAndPartsNoRequest(t *testing.T) {
	bubble(t, func(t *testing.T, s *site) {
		s.take = func(context.Context, []string) error { time.Sleep(100 * time.Millisecond); return nil }
		bodies := []string{"a"}
		for range 10 {
			bodies = append(bodies, strings.Repeat("k ", 100))
		}
		bodies = append(bodies, strings.Repeat("big ", 300))
		for i, code := range s.together(bodies...) {
			if code != 200 {
				t.Errorf("request %d: %d", i, code)
			}
		}
		total := 0
		for _, call := range s.got() {
			total += len(call)
			if len(call) != 1 && len(call)%100 != 0 || len(call) > 256 && len(call) != 300 {
				t.Errorf("a call of %d messages", len(call))
			}
		}
		if total != 1301 {
			t.Errorf("%d messages", total)
		}
	})
}

func TestABadMessageFailsItsOwnRequestOnly(t *testing.T) {
	bubble(t, func(t *testing.T, s *site) {
		s.take = func(_ context.Context, keys []string) error {
			time.Sleep(100 * time.Millisecond)
			if slices.Contains(keys, "bad") {
				return errors.New("our own secret")
			}
			return nil
		}
		codes := s.together("a", "b", "c bad", "d")
		if !slices.Equal(codes, []int{200, 200, 503, 200}) {
			t.Error(codes)
		}
		calls := s.got()
		alone := map[string]int{}
		for _, call := range calls[2:] {
			if len(call) != 1 {
				t.Errorf("again, and not alone: %v", call)
			}
			alone[call[0]]++
		}
		if fmt.Sprint(alone) != "map[b:1 bad:1 c:1 d:1]" {
			t.Errorf("alone: %v", alone)
		}
		if c := s.Counts(); c.Taken != 3 {
			t.Errorf("%+v", c)
		}
	})
}

func TestWhatCannotBeTakenIsAskedForAgainAndSaysNothing(t *testing.T) {
	s := newSite(t)
	s.take = func(context.Context, []string) error { return errors.New("our own secret") }
	for range 3 {
		w := s.send("a")
		if w.Code != 503 || w.Header().Get("Retry-After") != "1" || strings.Contains(w.Body.String(), "secret") {
			t.Errorf("%d %q %v", w.Code, w.Body, w.Header())
		}
	}
	if n := len(s.got()); n != 3 {
		t.Errorf("a single message was alone already: %d calls", n)
	}
	s.take = nil
	if w := s.send("a"); w.Code != 200 {
		t.Errorf("again: %d", w.Code)
	}
	s.Stop()
	log := s.log.String()
	if strings.Count(log, "our own secret") != 1 || strings.Count(log, "recovered") != 1 ||
		!strings.Contains(log, "after_attempts=3") {
		t.Errorf("logged:\n%s", log)
	}
}

func TestAPanicOfWhoTakesIsAFailure(t *testing.T) {
	s := newSite(t)
	s.take = func(context.Context, []string) error { panic("secret words") }
	if w := s.send("a"); w.Code != 503 || strings.Contains(s.log.String(), "secret") {
		t.Errorf("%d, logged %s", w.Code, &s.log)
	}
	s.take = nil
	if w := s.send("a"); w.Code != 200 {
		t.Errorf("afterwards: %d", w.Code)
	}
}

// Slack wants its answer within 3 s, and asks again without one.
func TestEveryRequestIsAnsweredIn2500Milliseconds(t *testing.T) {
	bubble(t, func(t *testing.T, s *site) {
		s.take = func(ctx context.Context, _ []string) error { <-ctx.Done(); return context.Cause(ctx) }
		var wg sync.WaitGroup
		for i := range 20 { // one every half second, while none is taken
			wg.Go(func() {
				began := time.Now()
				w := s.send(fmt.Sprint("k", i))
				if took := time.Since(began); w.Code != 503 || took > TakeWithin {
					t.Errorf("request %d: %d after %s", i, w.Code, took)
				}
			})
			time.Sleep(500 * time.Millisecond)
		}
		wg.Wait()
	})
}

// Even where the disk hangs and knows no deadline.
func TestEveryRequestIsAnsweredWhileTakingHangs(t *testing.T) {
	bubble(t, func(t *testing.T, s *site) {
		s.take = func(context.Context, []string) error { time.Sleep(10 * time.Second); return nil }
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() {
				began := time.Now()
				if w := s.send("k"); w.Code != 503 || time.Since(began) != TakeWithin {
					t.Errorf("%d after %s", w.Code, time.Since(began))
				}
			})
		}
		wg.Wait()
		if len(s.got()) != 1 {
			t.Errorf("%d calls", len(s.got()))
		}
	})
}

func TestTheLateAreNotTriedAgain(t *testing.T) {
	bubble(t, func(t *testing.T, s *site) {
		s.take = func(ctx context.Context, keys []string) error {
			if d, ok := ctx.Deadline(); !ok || time.Until(d) > TakeWithin || time.Until(d) <= 0 {
				t.Errorf("the deadline is in %s", time.Until(d))
			}
			<-ctx.Done()
			return context.Cause(ctx)
		}
		if w := s.send("a b"); w.Code != 503 {
			t.Errorf("%d", w.Code)
		}
		synctest.Wait()
		if calls := s.got(); len(calls) != 1 {
			t.Errorf("nobody waits any more, and there were %v", calls)
		}
	})
}

// Who hangs up may never send again: what came is taken all the same.
func TestAHangUpDoesNotDropWhatCame(t *testing.T) {
	s := newSite(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	s.do(post("/in", "yes", strings.NewReader("a")).WithContext(ctx))
	if got := fmt.Sprint(s.got()); got != "[[a]]" {
		t.Error(got)
	}
}

func TestStopWaitsForWhatIsBeingTakenAndRefusesTheRest(t *testing.T) {
	bubble(t, func(t *testing.T, s *site) {
		s.take = func(context.Context, []string) error { time.Sleep(time.Second); return nil }
		codes := make(chan int, 2)
		go func() { codes <- s.send("a").Code }()
		synctest.Wait()
		go func() { codes <- s.send("b").Code }()
		synctest.Wait()
		began := time.Now()
		s.Stop()
		s.Stop()
		if took := time.Since(began); took < time.Second {
			t.Errorf("closed after %s", took)
		}
		got := []int{<-codes, <-codes}
		slices.Sort(got)
		if !slices.Equal(got, []int{200, 503}) && !slices.Equal(got, []int{200, 200}) {
			t.Errorf("%v", got)
		}
		if w := s.send("c"); w.Code != 503 {
			t.Errorf("after the end: %d", w.Code)
		}
	})
}

// One that was made and is not wanted after all has nothing that runs (goleak).
func TestNothingIsTakenBeforeTheStartNorAfterTheStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &site{door: &door{limit: 1 << 20}}
		s.Receiver = New(Options{Doors: map[string]Door{"/in": s.door}, Take: s.Take})
		if w := s.send("early"); w.Code != 503 || len(s.got()) != 0 {
			t.Errorf("before the start: %d, taken %v", w.Code, s.got())
		}
		code := make(chan int, 1)
		go func() { code <- s.send("patient").Code }()
		synctest.Wait()
		s.Start(t.Context())
		s.Start(t.Context())
		if got := <-code; got != 200 {
			t.Errorf("who waited for the start: %d", got)
		}
		s.Stop()
		s.Start(t.Context())
		if w := s.send("late"); w.Code != 503 || len(s.got()) != 1 {
			t.Errorf("after the stop: %d, taken %v", w.Code, s.got())
		}
		unwanted := New(Options{Take: s.Take})
		unwanted.Stop()
		unwanted.Stop()
	})
}

// Ten goroutines, fifty rounds: each request is answered, and what was answered
// with 200 was taken.
func TestSendingAndStoppingInAnyOrder(t *testing.T) {
	for range 50 {
		s := newSite(t)
		var taken atomic.Int64
		s.take = func(_ context.Context, keys []string) error { taken.Add(int64(len(keys))); return nil }
		var ok atomic.Int64
		var wg sync.WaitGroup
		for i := range 10 {
			wg.Go(func() {
				for range 3 {
					switch code := s.send("k").Code; code {
					case 200:
						ok.Add(1)
					case 503:
					default:
						t.Errorf("%d", code)
					}
				}
				if i%3 == 0 {
					s.Stop()
				}
			})
		}
		wg.Wait()
		if ok.Load() != taken.Load() || ok.Load() != s.Counts().Taken {
			t.Fatalf("%d answered, %d taken, %+v", ok.Load(), taken.Load(), s.Counts())
		}
	}
}

func FuzzReceiver(f *testing.F) {
	f.Add("POST", "/in", "X-Seal", "yes", []byte("k1 k2"), int64(5))
	f.Add("POST", "/in", "X-Seal", "no", []byte("k1"), int64(-1))
	f.Add("POST", "/in", "x", "", []byte{0, 0xff}, int64(1<<62))
	f.Add("GET", "/healthz", "Content-Length", "-9", []byte{}, int64(0))
	f.Add("PUT", "/../in", "Transfer-Encoding", "chunked", []byte("{"), int64(-7))
	s := newSite(f)
	var mu sync.Mutex
	f.Fuzz(func(t *testing.T, method, path, name, value string, body []byte, length int64) {
		mu.Lock()
		defer mu.Unlock()
		before, calls := s.Counts(), len(s.got())
		r := post("/in", "", strings.NewReader(string(body)))
		r.Method, r.URL.Path, r.ContentLength = method, path, length
		r.Header.Set(name, value)
		w := s.do(r)
		signed := method == "POST" && path == "/in" && r.Header.Get("X-Seal") == "yes"
		if took := s.Counts().Taken > before.Taken || len(s.got()) > calls; took && !signed {
			t.Errorf("%s %s with %s: %q was taken", method, path, name, value)
		}
		switch w.Code {
		case 200:
			if !signed && path != "/healthz" {
				t.Errorf("%s %s with %s: %q is a 200", method, path, name, value)
			}
		case 401, 404, 405, 413, 503:
		default:
			t.Errorf("%d", w.Code)
		}
		if s.held.Load() != 0 {
			t.Errorf("%d bytes are held", s.held.Load())
		}
	})
}

func BenchmarkReceiver(b *testing.B) {
	for _, flush := range []time.Duration{0, 2 * time.Millisecond} {
		b.Run(fmt.Sprint("flush ", flush), func(b *testing.B) {
			var calls atomic.Int64
			r := New(Options{
				Doors: map[string]Door{"/in": &door{limit: 1 << 20}},
				Take: func(ctx context.Context, _ ...channels.Message) error {
					calls.Add(1)
					return waited(ctx, flush)
				},
			})
			r.Start(b.Context())
			defer r.Stop()
			s := &site{Receiver: r}
			b.SetParallelism(32)
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					if code := s.send("k1").Code; code != 200 {
						b.Error(code)
					}
				}
			})
			b.ReportMetric(float64(b.N)/float64(max(calls.Load(), 1)), "messages/flush")
		})
	}
}

// waited is a disk that takes so long.
func waited(ctx context.Context, d time.Duration) error {
	if d == 0 {
		return nil
	}
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
