package channelstest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"the-loop/channels"
)

// verdict is one row of the table that says what a failure means, for kinds
// that speak HTTP.
type verdict struct {
	name  string
	fault Fault
	// reason is that of a refusal; "" stands for uncertain.
	reason channels.Reason
	// wait is what the refusal must say to wait, but for the seconds that the
	// test itself takes.
	wait time.Duration
	// hangs says that nothing but the deadline ends the request.
	hangs bool
	// body says that only a kind that reads the body can know.
	body bool
}

// verdicts is the table of docs/delivery.md.
func verdicts() []verdict {
	rows := []verdict{
		uncertain("reset_before_reading", DropUnread()),
		uncertain("eof_after_reading", DropRead()),
		uncertain("reset_in_body", ResetInBody(200)),
		uncertain("short_body", ShortBody(200)),
		uncertain("no_http", Raw("SSH-2.0-OpenSSH_9.6\r\n")),
		uncertain("503_with_rubbish", Answer(503, "", "Retry-After: soon")),
		{name: "P-05_never_answers", fault: Hang(), hangs: true},
		{name: "P-05_drips", fault: Drip(200, 20*time.Millisecond), hangs: true},
		{name: "P-05_stops_in_body", fault: HangInBody(200), hangs: true},
		{name: "html_in_200", fault: Answer(200, "<html>welcome to the hotel</html>"), body: true},
		{name: "empty_200", fault: Answer(200, ""), body: true},

		refused("short_body_of_a_refusal", ShortBody(401), channels.ReasonAuth),
		{name: "stops_in_body_of_a_refusal", fault: HangInBody(400), reason: channels.ReasonUnacceptable, hangs: true},
		refused("huge_refusal", Answer(400, strings.Repeat("x", 1<<20)), channels.ReasonUnacceptable),
		refused("1xx_is_passed_over", Raw("HTTP/1.1 103 Early Hints\r\n\r\n"+head(401)), channels.ReasonAuth),

		told("M-01_429", Answer(429, ""), 30*time.Second),
		told("Q-01_429", Answer(429, "", "Retry-After: 1"), time.Second),
		told("Q-02_429", Answer(429, "", "Retry-After: 30"), 30*time.Second),
		told("Q-04_429_past", Answer(429, "", "Retry-After: Thu, 13 Aug 2020 15:37:13 GMT"), 0),
		told("429_absurd", Answer(429, "", "Retry-After: 99999999999999999999"), time.Hour),
		told("503_with_a_time", Answer(503, "", "Retry-After: 7"), 7*time.Second),
		told("403_rate_limit_in_headers", Answer(403, "", "X-RateLimit-Remaining: 0"), time.Minute),
		told("403_rate_limit_in_body", Answer(403, "You have exceeded a secondary rate limit."), time.Minute),

		redirected("307_elsewhere", Redirect(307, "http://127.0.0.2:1/elsewhere")),
		redirected("307_to_https", Redirect(307, "https://127.0.0.1/elsewhere")),
		redirected("308_for_ever", Redirect(308, "/again")),
		redirected("308_without_location", Answer(308, "")),
		redirected("302_malformed", Redirect(302, "http://%zz/")),
		redirected("M-01_301", Redirect(301, "/elsewhere")),
		redirected("M-01_302", Redirect(302, "/elsewhere")),
		redirected("M-01_303", Redirect(303, "/elsewhere")),
	}
	for _, s := range []struct {
		status int
		reason channels.Reason
	}{
		{101, ""},
		{408, ""},
		{500, ""},
		{502, ""},
		{503, ""},
		{504, ""},
		{520, ""},
		{401, channels.ReasonAuth},
		{403, channels.ReasonAuth},
		{404, channels.ReasonConfig},
		{410, channels.ReasonConfig},
		{400, channels.ReasonUnacceptable},
		{413, channels.ReasonUnacceptable},
		{422, channels.ReasonUnacceptable},
		{405, channels.ReasonOther},
		{418, channels.ReasonOther},
	} {
		rows = append(rows, verdict{name: fmt.Sprint(s.status), fault: Answer(s.status, "no"), reason: s.reason})
	}
	return rows
}

func uncertain(name string, f Fault) verdict { return verdict{name: name, fault: f} }

func refused(name string, f Fault, reason channels.Reason) verdict {
	return verdict{name: name, fault: f, reason: reason}
}

func told(name string, f Fault, wait time.Duration) verdict {
	return verdict{name: name, fault: f, reason: channels.ReasonRate, wait: wait}
}

func redirected(name string, f Fault) verdict { return refused(name, f, channels.ReasonRedirect) }

// deadline is short, and long enough for a loopback answer on a busy machine.
const deadline = 500 * time.Millisecond

func (v verdict) check(t *testing.T, k Kind) {
	if v.body && !k.ReadsBody {
		return
	}
	ctx := t.Context()
	if v.hangs {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, deadline, errors.New("the named cause of the deadline"))
		defer cancel()
	}
	k.Server.Always(v.fault)
	start := time.Now()
	_, err := k.post(t, ctx, Delivery(marker))
	if took := time.Since(start); took > 10*time.Second {
		t.Errorf("took %v", took)
	}
	if v.hangs && !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error %v is not context.DeadlineExceeded", err)
	}
	if v.reason == "" {
		wantUncertain(t, err)
		return
	}
	r := wantRefusal(t, err, v.reason)
	if slack := v.wait - r.RetryAfter; slack < 0 || slack > 10*time.Second {
		t.Errorf("told to wait %v, want %v", r.RetryAfter, v.wait)
	}
	if !strings.Contains(err.Error(), "127.0.0.1") {
		t.Errorf("%q does not name the host", err)
	}
}
