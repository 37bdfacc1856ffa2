package status_test

import (
	"strings"
	"testing"
	"time"

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
