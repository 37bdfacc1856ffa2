package drain_test

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"the-loop/bus"
	"the-loop/channels"
)

func TestStopLetsTheSendInFlightFinish(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newFake("room", func(context.Context, channels.Delivery) (channels.Receipt, error) {
			time.Sleep(3 * time.Second)
			return channels.Receipt{}, nil
		})
		s := newSite(t, route(c))
		s.seed(t, 2)
		d := s.drainer()
		d.Start(t.Context())
		time.Sleep(time.Second)
		began := time.Now()
		d.Stop()
		if took := time.Since(began); took != 2*time.Second {
			t.Errorf("stopped after %s", took)
		}
		if got := c.asked(); !slices.Equal(got, []string{"e1"}) || len(s.entries(t)) != 1 {
			t.Errorf("asked for %v, %d entries left", got, len(s.entries(t)))
		}
		if row := s.delivery(t, "e2", "room"); row.State != channels.StatePending || row.Claim != "" {
			t.Errorf("what was not sent: %+v", row)
		}
		if errs := s.failed(); len(errs) > 0 {
			t.Errorf("stopping is no trouble: %v", errs)
		}
	})
}

func TestStopSettlesAHangingSendAsUncertainAfterFourSeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newFake("room", hang)
		s := newSite(t, route(c))
		s.seed(t, 2)
		d := s.drainer()
		d.Start(t.Context())
		time.Sleep(time.Second)
		began := time.Now()
		d.Stop()
		if took := time.Since(began); took != 4*time.Second {
			t.Errorf("stopped after %s", took)
		}
		if row := s.delivery(t, "e1", "room"); row.State != channels.StateUncertain || row.Attempts != 1 {
			t.Errorf("what hung: %+v", row)
		}
		if c.calls() != 1 {
			t.Errorf("asked %d times", c.calls())
		}
		if st := s.store.Standing(s.routes[0].Asker()); st != nil {
			t.Errorf("we gave up, and the channel has a standing: %+v", st)
		}
	})
}

func TestEveryStopWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newFake("room", hang)
		s := newSite(t, route(c))
		s.seed(t, 1)
		d := s.drainer()
		d.Stop() // of one that never ran
		d.Start(t.Context())
		d.Start(t.Context())
		time.Sleep(time.Second)
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() {
				d.Stop()
				if s.delivery(t, "e1", "room").State != channels.StateUncertain {
					t.Error("Stop came back before the send was settled")
				}
			})
		}
		wg.Wait()
		if c.calls() != 1 {
			t.Errorf("asked %d times", c.calls())
		}
	})
}

func TestDrainerStartsAgainAfterItsContextEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newFake("room", no(channels.ReasonDown, "refused"))
		s := newSite(t, route(c))
		s.seed(t, 1)
		d := s.drainer()
		ctx, cancel := context.WithCancel(t.Context())
		d.Start(ctx)
		time.Sleep(time.Second)
		cancel()
		time.Sleep(time.Hour)
		if c.calls() != 1 {
			t.Errorf("asked %d times", c.calls())
		}
		c.becomes(yes)
		d.Start(t.Context())
		time.Sleep(time.Second)
		d.Stop()
		s.wantEmpty(t)
	})
}

func TestWakeRunsACycleNowAndProbes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newFake("room", no(channels.ReasonDown, "refused"))
		s := newSite(t, route(c))
		s.seed(t, 2)
		d := s.drainer()
		d.Start(t.Context())
		time.Sleep(10 * time.Second)
		c.becomes(yes)
		if c.calls() != 1 {
			t.Fatalf("asked %d times", c.calls())
		}
		d.Wake()
		d.Wake()
		synctest.Wait()
		s.wantEmpty(t)
		d.Stop()
	})
}

func TestStartProbesAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newFake("room", no(channels.ReasonDown, "refused"))
		s := newSite(t, route(c))
		s.seed(t, 2)
		s.cycle(t, s.drainer())
		c.becomes(yes)
		d := s.drainer()
		d.Start(t.Context())
		synctest.Wait()
		s.wantEmpty(t)
		d.Stop()
	})
}

func TestPanickingCycleIsSurvived(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newFake("room", yes)
		s := newSite(t, route(c))
		s.seed(t, 1)
		opts := s.options()
		routes := opts.Routes
		var broken atomic.Bool
		broken.Store(true)
		opts.Routes = func() (r []bus.Route) {
			if broken.Load() {
				panic("PRIVATE")
			}
			return routes()
		}
		d := newDrainer(opts)
		d.Start(t.Context())
		time.Sleep(2*time.Minute + time.Second)
		broken.Store(false)
		errs := s.failed()
		if len(errs) != 3 || errs[0].Error() != errs[2].Error() {
			t.Errorf("errors %v", errs)
		}
		time.Sleep(time.Minute)
		d.Stop()
		s.wantEmpty(t)
	})
}

func TestStartAndStopInAnyOrder(t *testing.T) {
	c := newFake("room", no(channels.ReasonOther, "odd"))
	s := newSite(t, route(c))
	s.seed(t, 3)
	for range 50 {
		d := s.drainer()
		var wg sync.WaitGroup
		for i := range 10 {
			wg.Go(func() {
				switch i % 3 {
				case 0:
					d.Start(t.Context())
				case 1:
					d.Stop()
				default:
					d.Wake()
				}
			})
		}
		wg.Wait()
		d.Stop()
		d.Stop()
	}
	if errs := s.failed(); len(errs) > 0 {
		t.Errorf("%d errors, the first %v", len(errs), errs[0])
	}
	for id, e := range s.entries(t) {
		if e.Claim != nil {
			t.Errorf("%s is still claimed", id)
		}
	}
}
