package bus_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"the-loop/bus"
	"the-loop/channels"
	"the-loop/outbox"
)

func TestSeed_WithoutAStoreNothingIsRememberedAndNoFolderCreated(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	b := bus.Bus{Routes: []bus.Route{all(refusing("room", channels.ReasonDown, "refused"))}}
	res := b.Publish(t.Context(), question("A or B?"))
	wantPosts(t, res, "room refused down refused")
	if res.Queued || res.Stored || !res.Lost() {
		t.Errorf("queued %v, stored %v, lost %v", res.Queued, res.Stored, res.Lost())
	}
	if names := files(t, dir); len(names) > 0 {
		t.Errorf("created %v", names)
	}
}

func TestSeed_GivenChannelsAreNobodyElsesBusiness(t *testing.T) {
	s := newSite(t, all(&fake{name: "own"}))
	recorded := 0
	s.bus.Ledger = ledgerFunc(func(context.Context, channels.Event) (string, error) { recorded++; return "", nil })
	given := refusing("given", channels.ReasonAuth, "invalid_auth")
	res := s.bus.PostTo(t.Context(), question("A or B?"), bus.Route{Channel: given})
	wantPosts(t, res, "given refused auth invalid_auth")
	if names := files(t, s.root.Dir()); len(names) > 0 || recorded > 0 || res.Queued {
		t.Errorf("created %v, recorded %d, queued %v", names, recorded, res.Queued)
	}
}

func TestSeed_NobodyOwedStoresNothing(t *testing.T) {
	other := refusing("room", channels.ReasonDown, "refused")
	s := newSite(t, bus.Route{Channel: other, Subscribe: []channels.Pattern{"job.*"}})
	res := s.bus.Publish(t.Context(), question("A or B?"))
	if res.Lost() || res.Queued || other.calls() > 0 || len(res.Posts) > 0 || res.Posts == nil {
		t.Errorf("asked %d times; %+v", other.calls(), res)
	}
	if entries := s.entries(t); len(entries) > 0 {
		t.Errorf("stored %v", entries)
	}
	if names := files(t, s.root.Path("channels")); len(names) > 0 {
		t.Errorf("created %v", names)
	}
}

func TestWhoIsOwed(t *testing.T) {
	for _, tt := range []struct {
		patterns, eventType, source string
		want                        bool
	}{
		{"*", "session.reply", "cli", true},
		{"*", "session.reply", "room", false},
		{"session.reply", "session.reply", "", true},
		{"session.reply", "session.replying", "", false},
		{"work_item.*", "work_item.done", "", true},
		{"work_item.*", "work_items.done", "", false},
		{"work_item.*", "work_item", "", false},
		{"job.failed work_item.*", "work_item.blocked", "rooms", true},
		{"", "session.reply", "", false},
	} {
		c := &fake{name: "room"}
		r := bus.Route{Channel: c}
		for _, p := range strings.Fields(tt.patterns) {
			r.Subscribe = append(r.Subscribe, channels.Pattern(p))
		}
		b := bus.Bus{Routes: []bus.Route{r}}
		b.Publish(t.Context(), channels.Event{Type: tt.eventType, Source: tt.source})
		if got := c.calls() == 1; got != tt.want {
			t.Errorf("%q is asked for %s of %q: %v", tt.patterns, tt.eventType, tt.source, got)
		}
	}
}

func TestResultTellsWhatEachChannelSaid(t *testing.T) {
	linked := &fake{name: "linked", post: func(context.Context, channels.Delivery) (channels.Receipt, error) {
		return channels.Receipt{Ref: "17.1", Link: "https://example.invalid/17"}, nil
	}}
	split := &fake{name: "split", post: func(context.Context, channels.Delivery) (channels.Receipt, error) {
		return channels.Receipt{Parts: []string{"p1"}}, &channels.Refusal{Reason: channels.ReasonRate, Code: "more_parts"}
	}}
	plain := &fake{name: "plain", post: func(context.Context, channels.Delivery) (channels.Receipt, error) {
		return channels.Receipt{}, errors.New("http://secret.invalid/ is down")
	}}
	s := newSite(t, all(linked), all(refusing("locked", channels.ReasonConfig, "not_in_channel")), all(split), all(plain))
	before := time.Now()
	res := s.bus.Publish(t.Context(), question("A or B?"))
	want := []bus.Post{
		{Channel: "linked", State: "accepted", Ref: "17.1", Link: "https://example.invalid/17"},
		{Channel: "locked", State: "refused", Reason: "config", Code: "not_in_channel", Error: "post failed: not_in_channel"},
		{
			Channel: "split", State: "accepted", Reason: "rate", Code: "more_parts", Ref: "p1",
			Error: "from part 2 on: post failed: more_parts",
		},
		{Channel: "plain", State: "uncertain", Reason: "unknown", Code: "error", Error: "outcome unknown: error"},
	}
	if diff := cmp.Diff(want, res.Posts); diff != "" {
		t.Errorf("posts (-want +got):\n%s", diff)
	}
	if res.ID == "" || res.ID != res.Event.ID || res.Recorded != bus.RecordedUnneeded || res.Accepted() != 2 ||
		!res.Stored {
		t.Errorf("result: %+v", res)
	}
	// The rest of the split message is still owed, and nothing else is.
	if e := s.entry(t); !res.Queued || !slices.Equal(e.Owed(), []string{"split"}) || e.ID != res.ID {
		t.Errorf("queued %v, owed %v", res.Queued, e.Owed())
	}
	d := linked.got[0]
	if d.Attempt != 1 || d.At.Before(before) || d.Event.ID != res.ID || d.Parts != nil || d.OnPart == nil {
		t.Errorf("delivery: %+v", d)
	}
}

func TestFanOutTakesAsLongAsTheSlowestChannel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var routes []bus.Route
		for i := range 10 {
			routes = append(routes, all(&fake{
				name: fmt.Sprintf("c%d", i),
				post: func(context.Context, channels.Delivery) (channels.Receipt, error) {
					time.Sleep(time.Duration(91+i) * time.Millisecond)
					return channels.Receipt{}, nil
				},
			}))
		}
		began := time.Now()
		res := newSite(t, routes...).bus.Publish(t.Context(), question("A or B?"))
		if took := time.Since(began); res.Accepted() != 10 || took != 100*time.Millisecond {
			t.Errorf("%d accepted after %s, want 10 after 100ms", res.Accepted(), took)
		}
	})
}

func TestP05_ASilentChannelIsGivenItsTimeoutAndNoMore(t *testing.T) {
	for timeout, want := range map[time.Duration]time.Duration{0: 10 * time.Second, time.Minute: time.Minute} {
		synctest.Test(t, func(t *testing.T) {
			slow := all(silent("slow"))
			slow.Timeout = timeout
			s := newSite(t, slow, all(&fake{name: "quick"}))
			began := time.Now()
			res := s.bus.Publish(t.Context(), question("A or B?"))
			if took := time.Since(began); took != want {
				t.Errorf("took %s, want %s", took, want)
			}
			wantPosts(t, res, "slow uncertain unknown timeout; quick accepted  ")
		})
	}
}

func TestOneAcceptanceSettlesWhatIsNotRequired(t *testing.T) {
	s := newSite(t, all(&fake{name: "a"}), all(refusing("b", channels.ReasonDown, "refused")), all(silentNow("c")))
	res := s.bus.Publish(t.Context(), question("A or B?"))
	if res.Queued || !res.Stored || len(s.entries(t)) > 0 {
		t.Errorf("queued %v, stored %v, entries %v", res.Queued, res.Stored, s.entries(t))
	}
	partly := s.lines(t, "channel.partly_delivered")
	if len(partly) != 1 || !slices.Equal(partly[0].Channels, []string{"b", "c"}) || partly[0].EntryID != res.ID {
		t.Errorf("partly delivered: %+v", partly)
	}
	if n := len(s.lines(t, "channel.undelivered")); n > 0 {
		t.Errorf("%d lines say undelivered", n)
	}
}

func silentNow(name string) *fake {
	return &fake{name: name, post: func(context.Context, channels.Delivery) (channels.Receipt, error) {
		return channels.Receipt{}, &channels.Uncertain{Code: "eof"}
	}}
}

func TestRequiredChannelIsOwedItsOwnAcceptance(t *testing.T) {
	s := newSite(t, all(&fake{name: "a"}), required(refusing("b", channels.ReasonDown, "refused")),
		all(refusing("c", channels.ReasonDown, "refused")))
	res := s.bus.Publish(t.Context(), question("A or B?"))
	e := s.entry(t)
	if !res.Queued || !slices.Equal(e.Channels, []string{"b"}) || !slices.Equal(e.Owed(), []string{"b"}) {
		t.Errorf("queued %v, channels %v, owed %v", res.Queued, e.Channels, e.Owed())
	}
	if d := e.Deliveries["a"]; d.State != channels.StateAccepted || d.Ref != "ref-a" {
		t.Errorf("the acceptance is not in the entry: %+v", d)
	}
	partly := s.lines(t, "channel.partly_delivered")
	if len(partly) != 1 || !slices.Equal(partly[0].Channels, []string{"b", "c"}) {
		t.Errorf("partly delivered: %+v", partly)
	}
}

func TestRequiredAcceptanceSettlesNobodyElse(t *testing.T) {
	s := newSite(t, required(&fake{name: "a"}), all(refusing("b", channels.ReasonDown, "refused")))
	s.bus.Publish(t.Context(), question("A or B?"))
	if e := s.entry(t); !slices.Equal(e.Owed(), []string{"b"}) {
		t.Errorf("owed %v", e.Owed())
	}
}

func TestFailingChannelIsHeldAndTheEventKept(t *testing.T) {
	c := refusing("room", channels.ReasonAuth, "invalid_auth")
	s := newSite(t, all(c))
	s.bus.Publish(t.Context(), question("first"))
	res := s.bus.Publish(t.Context(), question("second"))
	wantPosts(t, res, "room pending held invalid_auth")
	if c.calls() != 1 || !res.Queued || res.Lost() {
		t.Errorf("asked %d times, queued %v", c.calls(), res.Queued)
	}
	entries := s.entries(t)
	if len(entries) != 2 {
		t.Fatalf("%d entries", len(entries))
	}
	e := entries[slices.IndexFunc(entries, func(e *outbox.Entry) bool { return e.ID == res.ID })]
	d := e.Deliveries["room"]
	if d.State != channels.StatePending || d.Reason != channels.ReasonHeld || d.Attempts != 0 || e.Attempts != 0 ||
		!e.LastAttemptAt.IsZero() || e.LastError != "room: not asked: invalid_auth" {
		t.Errorf("entry %+v, delivery %+v", e, d)
	}
}

func TestPublishProbesAFailingChannelWhenItsTimeHasCome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken := true
		c := &fake{name: "room", post: func(context.Context, channels.Delivery) (channels.Receipt, error) {
			if broken {
				return channels.Receipt{}, &channels.Refusal{Reason: channels.ReasonDown, Code: "refused"}
			}
			return channels.Receipt{}, nil
		}}
		s := newSite(t, all(c))
		s.bus.Publish(t.Context(), question("1"))
		time.Sleep(59 * time.Second)
		s.bus.Publish(t.Context(), question("2"))
		if c.calls() != 1 {
			t.Fatalf("asked %d times within the minute", c.calls())
		}
		broken = false
		time.Sleep(2 * time.Second)
		wantPosts(t, s.bus.Publish(t.Context(), question("3")), "room accepted  ")
		wantPosts(t, s.bus.Publish(t.Context(), question("4")), "room accepted  ")
		if n := len(s.lines(t, "channel.recovered")); n != 1 {
			t.Errorf("recovered %d times in the log", n)
		}
	})
}

func TestPublishDoesNotProbeABlackHole(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := silent("hole")
		s := newSite(t, all(c))
		s.bus.Publish(t.Context(), question("1"))
		time.Sleep(time.Hour)
		began := time.Now()
		res := s.bus.Publish(t.Context(), question("2"))
		wantPosts(t, res, "hole pending held timeout")
		if took := time.Since(began); took > 0 || c.calls() != 1 {
			t.Errorf("took %s, asked %d times", took, c.calls())
		}
	})
}

func TestCancelledPublishIsSettledAsUncertainAndKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		s := newSite(t, all(silent("room")))
		time.AfterFunc(2*time.Second, cancel)
		began := time.Now()
		res := s.bus.Publish(ctx, question("A or B?"))
		if took := time.Since(began); took != 2*time.Second {
			t.Errorf("returned after %s", took)
		}
		wantPosts(t, res, "room uncertain unknown timeout")
		e := s.entry(t)
		if d := e.Deliveries["room"]; !res.Queued || d.State != channels.StateUncertain || d.Attempts != 1 {
			t.Errorf("queued %v, delivery %+v", res.Queued, d)
		}
		if len(s.lines(t, "channel.uncertain")) != 1 || len(s.lines(t, "bus.published")) != 1 {
			t.Error("the event log does not tell")
		}
		// We gave up, not the channel: it is in good standing.
		if st := s.store.Standing(bus.Route{Channel: &fake{name: "room"}}.Asker()); st != nil {
			t.Errorf("standing %+v", st)
		}
	})
}

func TestFailedRecordIsSaidAndTheFanOutGoesOn(t *testing.T) {
	broken := errors.New("ledger: no space left on device")
	for name, l := range map[string]ledgerFunc{
		"error": func(context.Context, channels.Event) (string, error) { return "", broken },
		"panic": func(context.Context, channels.Event) (string, error) { panic("SECRET123") },
	} {
		c := &fake{name: "room"}
		s := newSite(t, all(c))
		s.bus.Ledger = l
		res := s.bus.Publish(t.Context(), question("A or B?"))
		if res.Recorded != bus.RecordedNo || res.RecordErr == nil || c.calls() != 1 || res.Accepted() != 1 {
			t.Errorf("%s: %+v", name, res)
		}
		if lines := s.lines(t, "bus.published"); len(lines) != 1 || lines[0].Recorded != "no" {
			t.Errorf("%s: logged %+v", name, lines)
		}
		wantNowhere(t, s.root, "SECRET123", res)
	}
}

func TestRecordComesBeforeTheFirstByteAndOnlyForRecordedTypes(t *testing.T) {
	var recorded atomic.Int32
	c := &fake{name: "room", post: func(context.Context, channels.Delivery) (channels.Receipt, error) {
		if recorded.Load() != 1 {
			t.Error("asked before it was recorded")
		}
		return channels.Receipt{}, nil
	}}
	s := newSite(t, all(c))
	s.bus.Ledger = ledgerFunc(func(context.Context, channels.Event) (string, error) {
		recorded.Add(1)
		return "/somewhere#1", nil
	})
	if res := s.bus.Publish(t.Context(), question("?")); res.Recorded != bus.RecordedYes || res.Record != "/somewhere#1" {
		t.Errorf("recorded %s at %q", res.Recorded, res.Record)
	}
	res := s.bus.Publish(t.Context(), channels.Event{Type: "job.failed"})
	if res.Recorded != bus.RecordedUnneeded || recorded.Load() != 1 {
		t.Errorf("a job's end is recorded: %s", res.Recorded)
	}
}

func TestWebLinkOfTheRecordRidesOnTheEvent(t *testing.T) {
	for _, tt := range []struct{ link, url, want string }{
		{"https://example.invalid/o/r/issues/7#c1", "", "https://example.invalid/o/r/issues/7#c1"},
		{"http://example.invalid/7", "", "http://example.invalid/7"},
		{"https://example.invalid/7", "https://example.invalid/own", "https://example.invalid/own"},
		{"/var/ledger/x.jsonl#1", "", ""},
	} {
		c := refusing("room", channels.ReasonDown, "refused")
		s := newSite(t, all(c))
		s.bus.Ledger = ledgerFunc(func(context.Context, channels.Event) (string, error) { return tt.link, nil })
		ev := question("?")
		ev.URL = tt.url
		res := s.bus.Publish(t.Context(), ev)
		stored, err := s.entry(t).Event()
		if err != nil {
			t.Fatal(err)
		}
		if c.got[0].Event.URL != tt.want || stored.URL != tt.want || res.Event.URL != tt.want || res.Record != tt.link {
			t.Errorf("%+v: sent %q, stored %q, result %q", tt, c.got[0].Event.URL, stored.URL, res.Event.URL)
		}
	}
}
