package drain_test

import (
	"context"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"the-loop/channels"
	"the-loop/channels/slack"
	"the-loop/channels/webhook"
)

const day = 24 * time.Hour

func TestS02_AfterTheFirst403OnlyProbesGoOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var at []time.Time
		hook := webhook.New(webhook.Options{Name: "ops", URL: "http://ops.invalid/hook", Client: &http.Client{
			Transport: roundTrip(func(*http.Request) *http.Response {
				at = append(at, time.Now())
				return &http.Response{StatusCode: 403, Body: io.NopCloser(strings.NewReader("no"))}
			}),
		}})
		s := newSite(t, route(hook))
		s.seed(t, 2) // each is every other probe
		opts := s.options()
		opts.Interval = 2 * time.Minute
		d := newDrainer(opts)
		d.Start(t.Context())
		time.Sleep(day)
		d.Stop()
		// After one minute, two, four, and then one each five minutes; the
		// drainer looks each two minutes, so a probe may be that much late.
		if n := len(at); n < 200 || n > 290 {
			t.Errorf("%d requests in a day", n)
		}
		for i := 1; i < len(at); i++ {
			want := min(time.Minute<<min(i-1, 3), 5*time.Minute)
			if gap := at[i].Sub(at[i-1]); gap < want || gap > 6*time.Minute {
				t.Fatalf("request %d came %s after the one before", i, gap)
			}
		}
		attempts := 0
		for id, e := range s.entries(t) {
			row := e.Deliveries["ops"]
			attempts += row.Attempts
			if row.State != channels.StateRefused && row.State != channels.StatePending || row.Attempts == 0 {
				t.Errorf("%s: %+v", id, row)
			}
			if !strings.Contains(e.LastError, "http_403") {
				t.Errorf("%s: last error %q", id, e.LastError)
			}
		}
		if attempts != len(at) {
			t.Errorf("%d attempts are written down, %d were made", attempts, len(at))
		}
		if n := sum(s.lines(t, "")); n != 1 {
			t.Errorf("%d lines in the log of a day: %v", n, s.lines(t, ""))
		}
	})
}

func TestS03_OneBadEntryDoesNotHoldUpThoseBehindIt(t *testing.T) {
	for name, bad := range map[string]say{
		"unacceptable": no(channels.ReasonUnacceptable, "http_422"),
		"unknown code": no(channels.ReasonOther, "odd"),
		"hangs":        hang,
		"answers 500":  unknown,
		"panics": func(context.Context, channels.Delivery) (channels.Receipt, error) {
			panic("boom")
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			c := newFake("room", func(ctx context.Context, d channels.Delivery) (channels.Receipt, error) {
				if d.Event.ID == "e1" {
					return bad(ctx, d)
				}
				return channels.Receipt{}, nil
			})
			s := newSite(t, route(c))
			ids := s.seed(t, 6)
			r := s.cycle(t, s.drainer())
			if got := c.accepted(); !slices.Equal(got, ids[1:]) || r.Accepted != 5 {
				t.Errorf("%s: the first pass delivered %v, %+v", name, got, r)
			}
			if len(s.entries(t)) != 1 || s.entries(t)["e1"] == nil {
				t.Errorf("%s: left %v", name, s.entries(t))
			}
			if st := s.store.Standing(s.routes[0].Asker()); st != nil {
				t.Errorf("%s: standing %+v", name, st)
			}
		})
	}
}

func TestS03_UnacceptableIsDeadAfterFive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newFake("room", no(channels.ReasonUnacceptable, "http_422"))
		s := newSite(t, route(c))
		s.seed(t, 1)
		d := s.drainer()
		d.Start(t.Context())
		time.Sleep(3 * time.Hour)
		d.Stop()
		row := s.delivery(t, "e1", "room")
		if c.calls() != 5 || row.State != channels.StateDead || row.Attempts != 5 {
			t.Errorf("asked %d times, %+v", c.calls(), row)
		}
		if n := s.lines(t, "e1"); sum(n) != 1 || n["channel.dead"] != 1 {
			t.Errorf("logged %v", n)
		}
	})
}

func TestS03_ABlackHoleCostsTwoUncertainRowsAndThenOneAProbe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newFake("room", hang)
		s := newSite(t, route(c))
		s.seed(t, 10)
		d := s.drainer()
		if r := s.cycle(t, d); r.Uncertain != 2 || !slices.Equal(c.asked(), []string{"e1", "e2"}) {
			t.Errorf("report %+v, asked for %v", r, c.asked())
		}
		if r := s.cycle(t, d); r.Sent() != 0 || r.Held["room"].IsZero() {
			t.Errorf("a second cycle at once: %+v", r)
		}
		time.Sleep(61 * time.Second)
		if r := s.cycle(t, d); r.Uncertain != 1 {
			t.Errorf("a probe: %+v", r)
		}
	})
}

func TestS03_AHangingLaneHoldsUpNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hanging, healthy := newFake("hanging", hang), newFake("healthy", yes)
		s := newSite(t, required(hanging), required(healthy))
		s.seed(t, 6)
		began := time.Now()
		s.cycle(t, s.drainer())
		times := healthy.times()
		if len(times) != 6 || times[5] != began {
			t.Errorf("the healthy one was asked at %v", times)
		}
		if took := time.Since(began); took != 20*time.Second {
			t.Errorf("the cycle took %s", took)
		}
	})
}

// slackSaying gives a Slack channel whose every request is answered with code,
// and counts the requests.
func slackSaying(t *testing.T, token channels.Secret, code func(token string) string) (*slack.Channel, *atomic.Int64) {
	t.Helper()
	n := &atomic.Int64{}
	return slack.New(slack.Options{
		Name: "slack", Channel: "C0123456", Token: token, APIURL: "http://slack.invalid/api/",
		Client: &http.Client{Transport: roundTrip(func(r *http.Request) *http.Response {
			n.Add(1)
			body := `{"ok":true,"channel":"C0123456","ts":"17.000100"}`
			form, _ := io.ReadAll(r.Body)
			sent, _ := url.ParseQuery(string(form))
			if c := code(sent.Get("token")); c != "" {
				body = `{"ok":false,"error":"` + c + `"}`
			}
			return &http.Response{
				StatusCode: 200, Header: http.Header{"Content-Type": {"application/json"}},
				Body: io.NopCloser(strings.NewReader(body)), Request: r,
			}
		})},
	}), n
}

func tokenFile(t *testing.T, token string) channels.Secret {
	t.Helper()
	path := filepath.Join(t.TempDir(), "token")
	writeToken(t, path, token)
	return channels.Secret{File: path}
}

func writeToken(t *testing.T, path, token string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(token+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestS05_KnownCodesAreParkedAndTheUnknownOneBacksOff(t *testing.T) {
	for code, span := range map[string]time.Duration{
		"invalid_auth": time.Hour, "not_authed": time.Hour, "account_inactive": time.Hour,
		"token_revoked": time.Hour, "token_expired": time.Hour, "not_allowed_token_type": day,
		"no_permission": time.Hour, "channel_not_found": time.Hour, "not_in_channel": time.Hour,
		"is_archived": time.Hour, "quite_new_error": day,
	} {
		synctest.Test(t, func(t *testing.T) {
			c, requests := slackSaying(t, tokenFile(t, "xoxb-1"), func(string) string { return code })
			s := newSite(t, route(c))
			s.seed(t, 2)
			opts := s.options()
			opts.Interval = 5 * time.Minute
			d := newDrainer(opts)
			d.Start(t.Context())
			time.Sleep(span)
			d.Stop()
			known := code != "quite_new_error"
			most := int64(span/(5*time.Minute)) + 4 // one probe each five minutes
			if !known {
				most = 2 * (24 + 8) // each entry once an hour in the end
			}
			if n := requests.Load(); n < most/2 || n > most {
				t.Errorf("%s: %d requests in %s, want at most %d", code, n, span, most)
			}
			for id, e := range s.entries(t) {
				row := e.Deliveries["slack"]
				if row.Code != code || known != (row.Reason == channels.ReasonAuth || row.Reason == channels.ReasonConfig) ||
					row.State == channels.StateDead {
					t.Errorf("%s: %s: %+v", code, id, row)
				}
				if n := s.lines(t, id); sum(n) > 1 {
					t.Errorf("%s: lines about %s: %v", code, id, n)
				}
			}
			if n := s.lines(t, ""); sum(n) > 2 || known != (n["channel.failing"] == 1) {
				t.Errorf("%s: lines: %v", code, n)
			}
		})
	}
}

func TestS12_ParkedEntriesAreDeliveredOnceAfterTheRepair(t *testing.T) {
	for name, repair := range map[string]struct {
		do     func(t *testing.T, s *site, token channels.Secret, broken *atomic.Bool)
		within time.Duration
		again  bool // the daemon is restarted
	}{
		"new token": {func(t *testing.T, _ *site, token channels.Secret, _ *atomic.Bool) {
			writeToken(t, token.File, "xoxb-new")
		}, 61 * time.Second, false},
		"the same token heals": {func(_ *testing.T, _ *site, _ channels.Secret, broken *atomic.Bool) {
			broken.Store(false)
		}, 6*time.Minute + time.Second, false},
		"restart": {func(_ *testing.T, _ *site, _ channels.Secret, broken *atomic.Bool) {
			broken.Store(false)
		}, time.Second, true},
		"one command": {func(t *testing.T, s *site, _ channels.Secret, broken *atomic.Bool) {
			broken.Store(false)
			if err := s.store.Release(t.Context()); err != nil {
				t.Error(err)
			}
		}, 61 * time.Second, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			var broken atomic.Bool
			broken.Store(true)
			token := tokenFile(t, "xoxb-old")
			c, requests := slackSaying(t, token, func(token string) string {
				if token == "xoxb-old" && broken.Load() {
					return "invalid_auth"
				}
				return ""
			})
			s := newSite(t, route(c))
			s.seed(t, 5)
			d := s.drainer()
			d.Start(t.Context())
			time.Sleep(time.Hour + 30*time.Second)
			if n := requests.Load(); n < 10 || n > 12+4 {
				t.Errorf("%s: %d requests in an hour", name, n)
			}
			if len(s.entries(t)) != 5 {
				t.Fatalf("%s: %d entries are left", name, len(s.entries(t)))
			}
			before := requests.Load()
			repair.do(t, s, token, &broken)
			if repair.again {
				d.Stop()
				d = s.drainer()
				d.Start(t.Context())
			}
			time.Sleep(repair.within)
			d.Stop()
			s.wantEmpty(t)
			if n := requests.Load() - before; n != 5 {
				t.Errorf("%s: %d requests for five entries", name, n)
			}
			// With a new token nobody knows the channel to have failed.
			if n := s.lines(t, "")["channel.recovered"]; n != 1 && name != "new token" {
				t.Errorf("%s: recovered %d times in the log", name, n)
			}
		})
	}
}

func TestG03_MissingTokenUsesNoAttemptAndIsTakenUpWhenItIsThere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		token := tokenFile(t, "")
		c, requests := slackSaying(t, token, func(string) string { return "" })
		s := newSite(t, route(c))
		s.seed(t, 2)
		d := s.drainer()
		d.Start(t.Context())
		time.Sleep(3 * time.Hour)
		for id, e := range s.entries(t) {
			if row := e.Deliveries["slack"]; row.Attempts != 0 || e.Attempts != 0 {
				t.Errorf("%s: %d attempts", id, row.Attempts)
			}
		}
		if n := requests.Load(); n > 0 {
			t.Errorf("%d requests without a token", n)
		}
		writeToken(t, token.File, "xoxb-1")
		time.Sleep(61 * time.Second)
		d.Stop()
		s.wantEmpty(t)
	})
}

func TestQ01_TheSecondRequestComesAfterTheWaitAndDelivers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newFake("room", nil)
		c.becomes(func(ctx context.Context, d channels.Delivery) (channels.Receipt, error) {
			c.becomes(yes)
			return wait(time.Second)(ctx, d)
		})
		s := newSite(t, route(c))
		s.seed(t, 1)
		opts := s.options()
		opts.Interval = 250 * time.Millisecond
		d := newDrainer(opts)
		d.Start(t.Context())
		time.Sleep(3 * time.Second)
		d.Stop()
		s.wantEmpty(t)
		times := c.times()
		if len(times) != 2 {
			t.Fatalf("asked at %v", times)
		}
		if gap := times[1].Sub(times[0]); gap < time.Second || gap > 1300*time.Millisecond {
			t.Errorf("asked again after %s", gap)
		}
	})
}

func TestQ02_ToldToWaitNobodyIsAskedAndNothingIsUsedUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newFake("room", wait(30*time.Second))
		s := newSite(t, route(c))
		s.seed(t, 3)
		opts := s.options()
		opts.Interval = time.Second
		d := newDrainer(opts)
		d.Start(t.Context())
		for range 12 {
			time.Sleep(5 * time.Second)
			s.bus().Publish(t.Context(), channels.Event{Type: "job.failed"})
			d.Wake() // a person's command does not outrank the provider
		}
		d.Stop()
		times := c.times()
		for i := 1; i < len(times); i++ {
			if gap := times[i].Sub(times[i-1]); gap < 30*time.Second {
				t.Errorf("request %d came after %s", i, gap)
			}
		}
		if n := len(times); n < 2 || n > 3 {
			t.Errorf("%d requests in a minute", n)
		}
		for id, e := range s.entries(t) {
			if row := e.Deliveries["room"]; row.Attempts != 0 || row.Failures != 0 || e.Attempts != 0 {
				t.Errorf("%s: %+v", id, row)
			}
		}
		c.becomes(yes)
		d.Start(t.Context())
		time.Sleep(32 * time.Second)
		d.Stop()
		s.wantEmpty(t)
	})
}
