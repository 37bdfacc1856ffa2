package drain_test

import (
	"bytes"
	"context"
	"net/http"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"the-loop/bus"
	"the-loop/channels"
	"the-loop/channels/channelstest"
	"the-loop/channels/webhook"
	"the-loop/outbox"
)

func TestP2_UncertainIsNotRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newFake("room", unknown)
		s := newSite(t, route(c))
		s.seed(t, 1)
		d := s.drainer()
		d.Start(t.Context())
		time.Sleep(time.Minute)
		c.becomes(yes)
		for range 30 {
			time.Sleep(20 * time.Minute)
			d.Wake()
		}
		d.Stop()
		d.Start(t.Context())
		time.Sleep(time.Hour)
		d.Stop()
		e := s.entries(t)["e1"]
		if c.calls() != 1 || e == nil || !e.NeedsPerson(time.Now(), func(string) outbox.Lane { return outbox.Lane{} }) {
			t.Errorf("asked %d times, entry %+v", c.calls(), e)
		}
	})
}

func TestP2_UncertainIsRepeatedByIDWhereTheReceiverDropsRepeats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newFake("room", unknown)
		c.drops = time.Hour
		s := newSite(t, route(c))
		s.seed(t, 1)
		d := s.drainer()
		d.Start(t.Context())
		time.Sleep(30*time.Minute + time.Second)
		tried := c.calls()
		c.becomes(yes)
		time.Sleep(6 * time.Minute)
		s.wantEmpty(t)
		if c.calls() != tried+1 || tried < 5 {
			t.Errorf("asked %d times, and then %d", tried, c.calls()-tried)
		}
		for i, got := range c.got {
			if got.Event.ID != "e1" || got.Attempt != i+1 {
				t.Errorf("attempt %d: %s, %d", i+1, got.Event.ID, got.Attempt)
			}
		}
		c.becomes(unknown)
		s.seed(t, 1)
		time.Sleep(90*time.Minute + time.Second) // past the time for which repeats are dropped
		tried = c.calls()
		time.Sleep(6 * time.Hour)
		d.Stop()
		if c.calls() != tried {
			t.Errorf("repeated %d times after the receiver forgot the id", c.calls()-tried)
		}
		if row := s.delivery(t, "e1", "room"); row.State != channels.StateUncertain {
			t.Errorf("delivery %+v", row)
		}
	})
}

func TestP2_NoRepeatArrivesAfterTheReceiverForgot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var first, last time.Time
		c := newFake("room", nil)
		c.drops = time.Hour
		c.becomes(func(_ context.Context, d channels.Delivery) (channels.Receipt, error) {
			if last = time.Now(); first.IsZero() {
				first = last
			}
			if d.Attempt%2 == 0 { // a refusal in between makes the first attempt no less possible
				return channels.Receipt{}, &channels.Refusal{Reason: channels.ReasonDown, Code: "refused"}
			}
			return unknown(t.Context(), d)
		})
		s := newSite(t, route(c))
		s.seed(t, 1)
		d := s.drainer()
		d.Start(t.Context())
		time.Sleep(5 * time.Hour)
		d.Stop()
		if c.calls() < 5 || last.Sub(first) >= time.Hour {
			t.Errorf("%d sends, the last %s after the first", c.calls(), last.Sub(first))
		}
		if row := s.delivery(t, "e1", "room"); row.State != channels.StateUncertain {
			t.Errorf("delivery %+v", row)
		}
	})
}

func TestD03_ADeadDrainersClaimIsSentOnceAndItsSendNever(t *testing.T) {
	c := newFake("room", yes)
	s := newSite(t, route(c))
	s.seed(t, 2)
	dead := siteOn(s.root, s.routes...)
	claims, err := dead.store.Claim(t.Context(), "room", 2, "")
	if err != nil || len(claims) != 2 {
		t.Fatal(claims, err)
	}
	if _, ok, err := dead.store.Start(t.Context(), claims[1]); !ok || err != nil {
		t.Fatal(ok, err)
	}
	for range 3 {
		s.cycle(t, s.drainer())
	}
	if got := c.asked(); !slices.Equal(got, []string{"e1"}) {
		t.Errorf("asked for %v", got)
	}
	row := s.delivery(t, "e2", "room")
	if row.State != channels.StateUncertain || row.Code != "process_died" || row.Attempts != 1 {
		t.Errorf("delivery %+v", row)
	}
	if n := s.lines(t, "e2"); n["channel.uncertain"] != 1 {
		t.Errorf("logged %v", n)
	}
	// The dead one comes back to life with an acceptance: that is a fact.
	if _, err := dead.store.Settle(t.Context(), claims[1], channels.OutcomeOf(channels.Receipt{}, nil)); err != nil {
		t.Fatal(err)
	}
	s.wantEmpty(t)
}

func TestD03_ADeadSendIsRepeatedByIDWhereTheReceiverDropsRepeats(t *testing.T) {
	c := newFake("room", yes)
	c.drops = time.Hour
	s := newSite(t, route(c))
	s.seed(t, 1)
	claims, err := s.store.Claim(t.Context(), "room", 1, "")
	if err == nil {
		_, _, err = s.store.Start(t.Context(), claims[0])
	}
	if err != nil {
		t.Fatal(err)
	}
	s.cycle(t, s.drainer())
	s.wantEmpty(t)
	if c.calls() != 1 || c.got[0].Attempt != 2 {
		t.Errorf("asked %d times, attempt %d", c.calls(), c.got[0].Attempt)
	}
}

func TestD06_EveryAttemptCarriesTheSameIDAndBytes(t *testing.T) {
	for name, first := range map[string]channelstest.Fault{
		"500":     channelstest.Answer(500, ""),
		"dropped": channelstest.DropRead(),
		"refused": channelstest.Answer(404, ""),
	} {
		server := channelstest.NewServer(nil)
		defer server.Close()
		server.Queue(first)
		hook := webhook.New(webhook.Options{
			Name: "ops", URL: server.URL(), Idempotent: time.Hour,
			Client: &http.Client{Transport: &http.Transport{DisableKeepAlives: true}},
		})
		s := newSite(t, route(hook))
		res := s.bus().Publish(t.Context(), channels.Event{
			Type: "job.failed", WorkItem: "local:work#1", Text: "a < b & \"ü\"\n\x00", URL: "https://example.invalid/?a&b",
			Detail: map[string]any{"big": int64(9007199254740993), "f": 1.0, "z": nil, "a": []any{"<", map[string]any{"k": 1}}},
			Actor:  &channels.Actor{Name: "Octo", IDs: map[string]string{"slack": "U1", "github": "octocat"}},
		})
		if !res.Queued || res.Accepted() != 0 {
			t.Fatalf("%s: %+v", name, res)
		}
		if err := s.store.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		// Another process drains, with another store.
		other := siteOn(s.root, s.routes...)
		if r := other.cycle(t, other.drainer()); r.Accepted != 1 {
			t.Fatalf("%s: %+v", name, r)
		}
		s.wantEmpty(t)
		got := server.Requests()
		if len(got) != 2 {
			t.Fatalf("%s: %d requests", name, len(got))
		}
		for i, r := range got {
			if id := r.Header.Get("webhook-id"); id != res.ID {
				t.Errorf("%s: attempt %d has webhook-id %q, want %s", name, i+1, id, res.ID)
			}
		}
		if !bytes.Equal(got[0].Body, got[1].Body) || len(got[0].Body) == 0 {
			t.Errorf("%s:\nfirst  %s\nsecond %s", name, got[0].Body, got[1].Body)
		}
		for header := range got[0].Header {
			if header != "Webhook-Timestamp" && got[0].Header.Get(header) != got[1].Header.Get(header) {
				t.Errorf("%s: header %s differs", name, header)
			}
		}
	}
}

func TestD09_WhoHasItIsNotAskedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := newFake("a", yes), newFake("b", wait(90*time.Second))
		s := newSite(t, route(a), required(b))
		res := s.bus().Publish(t.Context(), channels.Event{Type: "job.failed", Text: "?"})
		if res.Accepted() != 1 || !res.Queued {
			t.Fatalf("%+v", res)
		}
		d := s.drainer()
		d.Start(t.Context())
		time.Sleep(10 * time.Minute)
		b.becomes(no(channels.ReasonDown, "refused"))
		time.Sleep(20 * time.Minute)
		if len(s.entries(t)) != 1 || b.calls() < 5 {
			t.Errorf("%d entries, b was asked %d times", len(s.entries(t)), b.calls())
		}
		b.becomes(yes)
		time.Sleep(7 * time.Minute)
		d.Stop()
		s.wantEmpty(t)
		if got := a.asked(); !slices.Equal(got, []string{res.ID}) {
			t.Errorf("a was asked for %v", got)
		}
		if got := b.accepted(); !slices.Equal(got, []string{res.ID}) {
			t.Errorf("b took %v", got)
		}
	})
}

func TestD10_TwoDrainersDeliverOnce(t *testing.T) {
	for name, tt := range map[string]struct {
		broken say
		drops  time.Duration
	}{
		"refusing":   {no(channels.ReasonDown, "refused"), 0},
		"503":        {wait(45 * time.Second), 0},
		"500 by id":  {unknown, day},
		"hang by id": {hang, day},
	} {
		synctest.Test(t, func(t *testing.T) {
			c := newFake("room", tt.broken)
			c.drops = tt.drops
			s := newSite(t, route(c))
			ids := s.seed(t, 3)
			var others []*site
			for range 2 {
				other := siteOn(s.root, s.routes...)
				others = append(others, other)
				d := other.drainer()
				d.Start(t.Context())
				defer d.Stop()
			}
			time.Sleep(20 * time.Minute)
			if len(s.entries(t)) != 3 || len(c.accepted()) > 0 || c.calls() > 40 {
				t.Errorf("%s: %d entries, asked %d times", name, len(s.entries(t)), c.calls())
			}
			c.becomes(yes)
			time.Sleep(7 * time.Minute)
			s.wantEmpty(t)
			got := c.accepted()
			slices.Sort(got)
			if !slices.Equal(got, ids) {
				t.Errorf("%s: accepted %v", name, got)
			}
			for _, other := range others {
				if errs := other.failed(); len(errs) > 0 {
					t.Errorf("%s: %v", name, errs)
				}
			}
		})
	}
}

func TestD10_CyclesOfTwoDrainersAtTheSameInstant(t *testing.T) {
	c := newFake("room", func(context.Context, channels.Delivery) (channels.Receipt, error) {
		return channels.Receipt{}, nil
	})
	s := newSite(t, route(c))
	ids := s.seed(t, 20)
	var wg sync.WaitGroup
	for range 4 {
		other := siteOn(s.root, s.routes...)
		wg.Go(func() {
			d := other.drainer()
			for len(other.entries(t)) > 0 {
				if _, err := d.Cycle(t.Context()); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	if got := c.accepted(); !slices.Equal(got, ids) {
		t.Errorf("accepted %v", got)
	}
}

func TestD10_APublishBesideADrainIsDeliveredOnce(t *testing.T) {
	c := newFake("room", yes)
	s := newSite(t, route(c))
	s.seed(t, 5)
	b := s.bus()
	var wg sync.WaitGroup
	var results []bus.Result
	wg.Go(func() {
		for range 5 {
			results = append(results, b.Publish(t.Context(), channels.Event{Type: "job.failed"}))
		}
	})
	s.cycle(t, s.drainer())
	wg.Wait()
	if got := c.accepted(); len(got) != 10 || len(slices.Compact(slices.Sorted(slices.Values(got)))) != 10 {
		t.Errorf("accepted %v", got)
	}
	for _, r := range results {
		if r.Accepted() != 1 || r.Queued {
			t.Errorf("%+v", r)
		}
	}
	s.wantEmpty(t)
}
