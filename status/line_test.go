package status_test

import (
	"strings"
	"testing"
	"time"

	"the-loop/channels"
	"the-loop/status"
)

func TestLine_IsOneLineWhateverTheErrorHolds(t *testing.T) {
	now := time.Now()
	for text, want := range map[string]string{
		"":                              "",
		"slack: post failed: other":     " (slack: other)",
		"slack: not asked: held":        " (slack: held)",
		"ops: outcome unknown: eof":     " (ops: outcome unknown: eof)",
		"old\nfile \x1b[31m: timed out": ` (old\nfile \x1b[31m: timed out)`,
	} {
		d := status.Delivery{Pending: 2, Oldest: &now, LastError: text}
		got := d.Line(now)
		if !strings.HasPrefix(got, "2 events undelivered, oldest just now"+want+" — ") {
			t.Errorf("%q: %s", text, got)
		}
	}
}

func TestLine_SilentWhenNothingWaits(t *testing.T) {
	if got := (status.Delivery{Draining: true, BadEntries: 3}).Line(time.Now()); got != "" {
		t.Errorf("got %q", got)
	}
}

// What becomes of the backlog hangs on the channels, which only the config has.
func TestLine_ClaimsNothingThatHangsOnAConfigThatCannotBeUsed(t *testing.T) {
	s := newSite(t)
	s.src.ConfigError, s.src.Askers, s.src.Interval = "line 3: ops: unknown key", nil, 0
	s.src.Services = []status.Service{{Name: "poller"}}
	s.put(t, "e1", time.Now(), map[string]channels.Outcome{"ops": unknown()})
	want := func(ending string) {
		t.Helper()
		r := status.Make(s.src)
		if r.OK || r.ConfigError == "" || r.ChannelDelivery.NeedsPerson != 0 || r.ChannelDelivery.NextTryAt != nil {
			t.Errorf("%+v", r)
		}
		if got := r.ChannelDelivery.Line(time.Now()); !strings.HasSuffix(got, "(ops: outcome unknown: timeout) — "+ending) {
			t.Error(got)
		}
	}
	want("nothing is draining them: mend the config first, the-loop check")
	s.run(t, "poller")
	want("retried as the config was when the daemon read it")
	s.beat(t, "poller", status.Heartbeat{PID: 4711, LastCycleAt: time.Now(), LastError: "disk full"})
	want("the poller's cycles fail: see above")
}
