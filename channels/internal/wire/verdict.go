package wire

import (
	"bytes"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"the-loop/channels"
)

// maxWait caps what we are told to wait.
const maxWait = time.Hour

// How long to wait when told to wait without being told how long.
const (
	defaultWait   = 30 * time.Second
	secondaryWait = time.Minute // what GitHub asks for after its secondary limit
)

// Verdict says what the exchange proves: nil for a complete 2xx, else a
// *channels.Refusal or a *channels.Uncertain. A kind whose provider answers
// in the body looks at that after a nil.
//
// An answer that says no by its status is a refusal even when its body did not
// come whole; a 2xx is an acceptance only when it did, or was cut by MaxBody.
func (x *Exchange) Verdict() error {
	switch s := x.Status; {
	case s == 0 && !x.Wrote:
		return &channels.Refusal{Reason: channels.ReasonDown, Code: x.word(), Detail: x.Host, Err: x.Err}
	case s == 0, s/100 == 2 && x.Err != nil:
		return x.uncertain(x.word())
	case s/100 == 2:
		return nil
	case s/100 == 3:
		return x.refuse(channels.ReasonRedirect)
	case s/100 == 4 && s != http.StatusRequestTimeout:
		return x.refuse(x.clientError())
	case s == http.StatusServiceUnavailable && x.saysWhen():
		return x.refuse(channels.ReasonRate)
	default:
		return x.uncertain(httpCode(s))
	}
}

// clientError gives the reason that a 4xx stands for.
func (x *Exchange) clientError() channels.Reason {
	switch x.Status {
	case http.StatusTooManyRequests:
		return channels.ReasonRate
	case http.StatusForbidden:
		if x.saysWhen() || x.Header.Get("X-Ratelimit-Remaining") == "0" || x.bodySays("rate limit") {
			return channels.ReasonRate
		}
		return channels.ReasonAuth
	case http.StatusUnauthorized:
		return channels.ReasonAuth
	case http.StatusNotFound, http.StatusGone:
		return channels.ReasonConfig
	case http.StatusBadRequest, http.StatusRequestEntityTooLarge, http.StatusUnprocessableEntity:
		return channels.ReasonUnacceptable
	}
	return channels.ReasonOther
}

func (x *Exchange) refuse(reason channels.Reason) error {
	r := &channels.Refusal{Reason: reason, Code: httpCode(x.Status), Detail: x.Host, Err: x.Err}
	if reason == channels.ReasonRate {
		r.RetryAfter, r.Guessed = x.wait(time.Now())
	}
	return r
}

func (x *Exchange) uncertain(code string) error {
	return &channels.Uncertain{Code: code, Detail: x.Host, Err: x.Err}
}

// wait says how long we are told to wait: what Retry-After says; without it
// GitHub's reset time, which holds only when nothing remains; else a default,
// which is guessed.
func (x *Exchange) wait(now time.Time) (d time.Duration, guessed bool) {
	if d, ok := RetryAfter(x.Header, now); ok {
		return d, false
	}
	if x.Header.Get("X-Ratelimit-Remaining") == "0" {
		if at, err := strconv.ParseInt(x.Header.Get("X-Ratelimit-Reset"), 10, 64); err == nil {
			return clamp(time.Unix(at, 0).Sub(now)), false
		}
	}
	if x.Status == http.StatusForbidden || x.bodySays("secondary rate limit") {
		return secondaryWait, true
	}
	return defaultWait, true
}

func (x *Exchange) saysWhen() bool {
	_, ok := RetryAfter(x.Header, time.Now())
	return ok
}

func (x *Exchange) bodySays(words string) bool {
	return bytes.Contains(bytes.ToLower(x.Body), []byte(words))
}

func (x *Exchange) word() string {
	if x.code == "" {
		return codeBroken
	}
	return x.code
}

func httpCode(status int) string { return fmt.Sprintf("http_%d", status) }

// RetryAfter reads the Retry-After header: seconds, or an HTTP date in any of
// its three forms, as seen from now. What is past or negative is 0, and what is
// absurd is capped at an hour. ok is false when there is none that can be read.
func RetryAfter(h http.Header, now time.Time) (wait time.Duration, ok bool) {
	v := strings.TrimSpace(h.Get("Retry-After"))
	if seconds, err := strconv.ParseFloat(v, 64); err == nil && !math.IsNaN(seconds) {
		return clamp(time.Duration(min(max(seconds, 0), maxWait.Seconds()) * float64(time.Second))), true
	}
	if at, err := http.ParseTime(v); err == nil {
		return clamp(at.Sub(now)), true
	}
	return 0, false
}

func clamp(d time.Duration) time.Duration { return min(max(d, 0), maxWait) }
