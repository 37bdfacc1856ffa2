package drain_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"the-loop/channels"
	"the-loop/drain"
	"the-loop/outbox"
)

// runFor runs a drainer for a while.
func runFor(t *testing.T, d *drain.Drainer, long time.Duration) {
	t.Helper()
	d.Start(t.Context())
	time.Sleep(long)
	d.Stop()
}

func TestD01_FoundIsDeliveredAndNotSentAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWitness(unknown, found("17.1"))
		s := newSite(t, auto(w))
		began := time.Now()
		id := s.doubt(t)
		runFor(t, s.drainer(), time.Second) // one look is enough, and needs no age
		s.wantEmpty(t)
		if w.calls() != 1 || len(w.looked()) != 1 || !w.since[0].Equal(began.Truncate(time.Millisecond)) {
			t.Errorf("%d sends, looks %v since %v", w.calls(), w.looked(), w.since)
		}
		l := s.told(t, id)
		if d := l.Deliveries["slack"]; l.How != outbox.LeftDelivered || d.Reason != channels.ReasonFound || d.Ref != "17.1" {
			t.Errorf("%+v, %+v", l, d)
		}
		lines := s.lines(t, id)
		if lines["channel.uncertain"] != 1 || lines["channel.found"] != 1 {
			t.Errorf("lines %v", lines)
		}
	})
}

// TestD01_LostByTwoCompleteLooks: the first that counts is begun evidenceAfter
// after the doubt was first seen, the second an interval later.
func TestD01_LostByTwoCompleteLooksIsSentAgainOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWitness(unknown, complete)
		s := newSite(t, auto(w))
		id := s.doubt(t)
		var lostAt time.Time
		w.becomes(func(ctx context.Context, d channels.Delivery) (channels.Receipt, error) {
			lostAt = time.Now()
			if d.Event.ID == id || d.Event.Text != "A or B?" {
				t.Errorf("sent again as %s: %q", d.Event.ID, d.Event.Text)
			}
			return channels.Receipt{Ref: "2"}, nil
		})
		time.Sleep(10 * time.Minute) // its age before we saw it does not count
		began := time.Now()
		runFor(t, s.drainer(), 20*time.Minute)
		s.wantEmpty(t)
		if got := w.looked(); len(got) != 3 || w.calls() != 2 || lostAt.Sub(began) < drain.DefaultEvidenceAfter+time.Minute {
			t.Errorf("looks %v, %d sends, lost after %v", got, w.calls(), lostAt.Sub(began))
		}
		l := s.told(t, id)
		if l.How != outbox.LeftResent || l.ResentAs == "" || l.Deliveries["slack"].Reason != channels.ReasonLost {
			t.Errorf("%+v", l)
		}
		if again := s.told(t, l.ResentAs); again.How != outbox.LeftDelivered {
			t.Errorf("%+v", again)
		}
	})
}

// TestP2_TheSecondAttemptIsTheLast: a provider that loses everything costs two
// requests, and not one every few minutes.
func TestP2_TheSecondAttemptIsTheLast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWitness(unknown, complete)
		s := newSite(t, auto(w))
		id := s.doubt(t)
		runFor(t, s.drainer(), 4*time.Hour)
		if w.calls() != 2 {
			t.Errorf("%d sends", w.calls())
		}
		again := s.told(t, id).ResentAs
		if d := s.delivery(t, again, "slack"); d.State != channels.StateLost {
			t.Errorf("the second is %s", d.State)
		}
	})
}

// TestP2_ManualMakesNoSecondAttemptIn1000Hours: no timer, loop, restart or
// release does, whatever the look-ups prove.
func TestP2_ManualMakesNoSecondAttemptIn1000Hours(t *testing.T) {
	for name, sees := range map[string]look{
		"lost": complete, "partly there": parts("p1"), "nothing provable": partial, "failing": fails(errors.New("EOF")),
		"unjudgeable": fails(&channels.Refusal{Reason: channels.ReasonAuth, Code: "missing_scope"}),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newWitness(unknown, sees)
				s := newSite(t, route(w))
				id := s.doubt(t)
				w.becomes(yes)
				o := s.options()
				o.Interval = time.Hour // 1,000 cycles tell what 60,000 would
				for range 10 {
					runFor(t, drain.New(o), 100*time.Hour)
					if err := s.store.Release(t.Context()); err != nil {
						t.Fatal(err)
					}
					if _, err := s.store.Retry(t.Context(), id); err != nil {
						t.Fatal(err)
					}
				}
				if w.calls() != 1 || len(w.looked()) == 0 {
					t.Errorf("%d sends, %d looks", w.calls(), len(w.looked()))
				}
				d := s.delivery(t, id, "slack")
				want := channels.StateUncertain
				if name == "lost" || name == "partly there" {
					want = channels.StateLost
				}
				if d.State != want || name == "partly there" && !slices.Equal(d.Parts, []string{"p1"}) {
					t.Errorf("%+v, want %s", d, want)
				}
			})
		})
	}
}

func TestP2_WhatProvesNothingProvesNothing(t *testing.T) {
	for name, sees := range map[string]look{
		"partial": partial, "failing": fails(errors.New("EOF")),
		"down":         fails(&channels.Refusal{Reason: channels.ReasonDown, Code: "refused"}),
		"rate limited": fails(&channels.Refusal{Reason: channels.ReasonRate, Code: "ratelimited", RetryAfter: time.Second}),
		"panicking":    func(context.Context, channels.Delivery) (channels.Sighting, error) { panic("SECRET") },
		"hanging": func(ctx context.Context, _ channels.Delivery) (channels.Sighting, error) {
			<-ctx.Done()
			return channels.Sighting{Complete: true}, ctx.Err()
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWitness(unknown, sees)
				s := newSite(t, auto(w))
				id := s.doubt(t)
				w.becomes(yes)
				d := s.drainer()
				runFor(t, d, time.Hour)
				row := s.delivery(t, id, "slack")
				if w.calls() != 1 || row.State != channels.StateUncertain || row.Unjudgeable != "" || len(w.looked()) < 30 {
					t.Errorf("%d sends, %d looks, %+v", w.calls(), len(w.looked()), row)
				}
				if other := s.seed(t, 1)[0]; name != "" { // and holds up no other message
					runFor(t, d, 10*time.Minute)
					if !slices.Contains(w.accepted(), other) {
						t.Errorf("the next message was not sent: %v", s.failed())
					}
				}
				w.nowSees(found("1"))
				runFor(t, d, 10*time.Minute)
				s.wantEmpty(t)
			})
		})
	}
}

func TestManyHangingLooksLeaveTimeForSending(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWitness(yes, func(ctx context.Context, _ channels.Delivery) (channels.Sighting, error) {
			<-ctx.Done()
			return channels.Sighting{}, ctx.Err()
		})
		s := newSite(t, route(w))
		for _, id := range []string{"u1", "u2", "u3", "u4", "u5", "u6", "u7"} {
			o := channels.OutcomeOf(channels.Receipt{}, &channels.Uncertain{Code: "timeout"})
			e, err := outbox.NewEntry(channels.Event{ID: id, Type: "work_item.done"}, time.Now(),
				[]outbox.Attempted{{Channel: "slack", At: time.Now(), Outcome: o}})
			if err == nil {
				err = s.store.Remember(t.Context(), e, nil)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		w.becomes(yes)
		next := s.seedAt(t, "next", time.Now())
		runFor(t, s.drainer(), 5*time.Minute)
		if !slices.Contains(w.accepted(), next) {
			t.Errorf("%d looks, and the next message was not sent", len(w.looked()))
		}
	})
}

func TestUnjudgeableIsLookedUpAgainOnceItIsMended(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWitness(unknown, fails(&channels.Refusal{
			Reason: channels.ReasonAuth, Code: "missing_scope", Detail: "channels:history",
		}))
		s := newSite(t, auto(w))
		id := s.doubt(t)
		d := s.drainer()
		runFor(t, d, 30*time.Minute)
		row := s.delivery(t, id, "slack")
		if n := len(w.looked()); n < 4 || n > 7 {
			t.Errorf("%d looks in 30 minutes, want one in five", n)
		}
		if row.Unjudgeable != "missing_scope" || row.Detail != "channels:history" || row.State != channels.StateUncertain {
			t.Errorf("%+v", row)
		}
		w.nowSees(found("1"))
		runFor(t, d, 6*time.Minute)
		s.wantEmpty(t)
	})
}

func TestP5_NothingIsLookedUpWhilePausedOrCooling(t *testing.T) {
	for name, hold := range map[string]func(s *site, id string) error{
		"paused": func(s *site, _ string) error {
			return s.store.Pause(context.Background(), "slack", time.Now().Add(20*time.Minute))
		},
		"cooling": func(s *site, id string) error {
			return s.store.Observe(context.Background(), s.routes[0].Asker(), id, channels.Outcome{
				State: channels.StateRefused, Reason: channels.ReasonRate, Code: "ratelimited",
				RetryAfter: 20 * time.Minute, At: time.Now(),
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWitness(unknown, found("1"))
				s := newSite(t, auto(w))
				id := s.doubt(t)
				if err := hold(s, id); err != nil {
					t.Fatal(err)
				}
				d := s.drainer()
				runFor(t, d, 19*time.Minute)
				if n := len(w.looked()); n > 0 || w.calls() != 1 {
					t.Errorf("%d looks, %d sends", n, w.calls())
				}
				runFor(t, d, 3*time.Minute)
				s.wantEmpty(t)
			})
		})
	}
}

func TestP5_APauseOrAWaitEndsALaneUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFake("slack", nil)
		s := newSite(t, route(w))
		w.becomes(func(context.Context, channels.Delivery) (channels.Receipt, error) {
			if w.calls() == 2 {
				return channels.Receipt{}, s.store.Pause(context.Background(), "slack", time.Time{})
			}
			return channels.Receipt{}, nil
		})
		s.seed(t, 5)
		s.cycle(t, s.drainer())
		if w.calls() != 2 || len(s.entries(t)) != 3 {
			t.Errorf("%d sends, %d left", w.calls(), len(s.entries(t)))
		}
		for id, e := range s.entries(t) {
			if d := e.Deliveries["slack"]; d.Attempts != 0 || d.Claim != "" {
				t.Errorf("waiting cost %s: %+v", id, d)
			}
		}
	})
}

// TestD01_ARestartBeginsTheProofAnew: its clock is monotonic, and not kept.
func TestD01_ARestartBeginsTheProofAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWitness(unknown, complete)
		s := newSite(t, route(w))
		id := s.doubt(t)
		for range 50 { // each sees two looks at most, of which one counts
			runFor(t, s.drainer(), 2*time.Minute-time.Second)
		}
		if d := s.delivery(t, id, "slack"); d.State != channels.StateUncertain {
			t.Errorf("after %d looks of 50 drainers it is %s", len(w.looked()), d.State)
		}
		runFor(t, s.drainer(), 2*time.Minute+time.Second)
		if d := s.delivery(t, id, "slack"); d.State != channels.StateLost {
			t.Errorf("it is %s", d.State)
		}
	})
}

// TestD01_WakingDoesNotHurryTheProof: the second look is an interval after the
// first, however often a cycle runs.
func TestD01_WakingDoesNotHurryTheProof(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWitness(unknown, complete)
		s := newSite(t, route(w))
		id := s.doubt(t)
		d := s.drainer()
		d.Start(t.Context())
		for range 119 {
			time.Sleep(time.Second)
			d.Wake()
		}
		synctest.Wait()
		if row := s.delivery(t, id, "slack"); row.State != channels.StateUncertain || len(w.looked()) != 2 {
			t.Errorf("after %d looks it is %s", len(w.looked()), row.State)
		}
		for range 5 {
			time.Sleep(time.Second)
			d.Wake()
		}
		d.Stop()
		if row := s.delivery(t, id, "slack"); row.State != channels.StateLost || len(w.looked()) != 3 {
			t.Errorf("after %d looks it is %s", len(w.looked()), row.State)
		}
	})
}

func TestP2_ASplitMessageGoesOnOnceAndIsThenLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWitness(unknown, parts("p1"))
		s := newSite(t, auto(w))
		id := s.doubt(t)
		w.becomes(func(_ context.Context, d channels.Delivery) (channels.Receipt, error) {
			if !slices.Equal(d.Parts, []string{"p1"}) {
				t.Errorf("sent with %v", d.Parts)
			}
			return channels.Receipt{Parts: d.Parts}, &channels.Uncertain{Code: "timeout"}
		})
		runFor(t, s.drainer(), 4*time.Hour)
		l := s.told(t, id)
		if w.calls() != 3 || l.How != outbox.LeftResent {
			t.Errorf("%d sends, %+v: the first, the rest, and the rest sent again", w.calls(), l)
		}
		if d := s.delivery(t, l.ResentAs, "slack"); d.State != channels.StateLost || !slices.Equal(d.Parts, []string{"p1"}) {
			t.Errorf("%+v", d)
		}
	})
}

func TestP4_ALateAcceptanceWhileTheDoubtIsLookedUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWitness(unknown, nil)
		s := newSite(t, auto(w))
		s.seed(t, 1)
		claims, err := s.store.Claim(t.Context(), "slack", 1, "")
		if err != nil || len(claims) != 1 {
			t.Fatal(claims, err)
		}
		if _, ok, err := s.store.Start(t.Context(), claims[0]); !ok || err != nil {
			t.Fatal(ok, err)
		}
		n := 0
		w.sees = func(context.Context, channels.Delivery) (channels.Sighting, error) {
			if n++; n == 3 { // just as the proof is complete the first drainer comes back
				_, err := s.store.Settle(context.Background(), claims[0], channels.Outcome{
					State: channels.StateAccepted, Receipt: channels.Receipt{Ref: "1"}, At: time.Now(),
				})
				if err != nil {
					t.Error(err)
				}
			}
			return channels.Sighting{Complete: true}, nil
		}
		runFor(t, s.drainer(), time.Hour)
		s.wantEmpty(t)
		if l := s.told(t, "e1"); n != 3 || w.calls() != 0 || l.How != outbox.LeftDelivered || l.ResentAs != "" {
			t.Errorf("%d looks, %d sends, %+v", n, w.calls(), l)
		}
	})
}

func TestD02_ASlowSendIsMadeByOneOfTwoDrainers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFake("slack", func(ctx context.Context, _ channels.Delivery) (channels.Receipt, error) {
			select {
			case <-time.After(9 * time.Second):
				return channels.Receipt{Ref: "1"}, nil
			case <-ctx.Done():
				return channels.Receipt{}, ctx.Err()
			}
		})
		s := newSite(t, route(w))
		s.seed(t, 1)
		o := s.options()
		o.Interval = time.Second
		a, b := drain.New(o), drain.New(o)
		a.Start(t.Context())
		b.Start(t.Context())
		time.Sleep(time.Minute)
		a.Stop()
		b.Stop()
		s.wantEmpty(t)
		if w.calls() != 1 {
			t.Errorf("%d requests", w.calls())
		}
	})
}

func TestD03_ADeadSendIsLookedUpAndNeverSentBlindly(t *testing.T) {
	for name, sees := range map[string]look{"it arrived": found("1"), "it did not": complete} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWitness(yes, sees)
				s := newSite(t, auto(w))
				s.seed(t, 1)
				claims, err := s.store.Claim(t.Context(), "slack", 1, "")
				if err != nil {
					t.Fatal(err)
				}
				if _, ok, err := s.store.Start(t.Context(), claims[0]); !ok || err != nil {
					t.Fatal(ok, err)
				}
				runFor(t, s.drainer(), 10*time.Minute) // whoever began is dead
				s.wantEmpty(t)
				want := 0
				if name == "it did not" {
					want = 1
				}
				if w.calls() != want || slices.Contains(w.asked(), "e1") {
					t.Errorf("%d sends, as %v, want %d under a new id", w.calls(), w.asked(), want)
				}
			})
		})
	}
}

// TestThePaceIsSharedByPublishersAndTheDrain: no two of their sends are closer
// together than the rate allows.
func TestThePaceIsSharedByPublishersAndTheDrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFake("slack", yes)
		r := route(w)
		r.Rate = 1
		s := newSite(t, r)
		s.seed(t, 10)
		d := s.drainer()
		d.Start(t.Context())
		var wg sync.WaitGroup
		for range 10 {
			time.Sleep(1500 * time.Millisecond)
			wg.Go(func() {
				siteOn(s.root, r).bus().Publish(t.Context(), channels.Event{Type: "work_item.done", Text: "done"})
			})
		}
		wg.Wait()
		time.Sleep(3 * time.Minute)
		d.Stop()
		s.wantEmpty(t)
		at := w.times()
		slices.SortFunc(at, time.Time.Compare)
		if len(at) != 20 {
			t.Errorf("%d sends", len(at))
		}
		for i := 1; i < len(at); i++ {
			if gap := at[i].Sub(at[i-1]); gap < time.Second {
				t.Errorf("two sends %v apart", gap)
			}
		}
	})
}
