package slack

import (
	"context"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"the-loop/channels"
	"the-loop/channels/channelstest"
	"the-loop/channels/internal/wire"
	"the-loop/state"
)

// newChannel gives a channel that posts to the fake at full speed, with a root
// of its own.
func newChannel(t *testing.T, s *channelstest.Slack, change ...func(o *Options)) *Channel {
	t.Helper()
	root, err := state.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	client := wire.NewClient()
	t.Cleanup(client.CloseIdleConnections)
	o := Options{
		Name: "slack", Channel: channelstest.SlackRoom, Token: secret(t, channelstest.SlackToken),
		APIURL: s.APIURL(), Root: root, Client: client,
	}
	for _, f := range change {
		f(&o)
	}
	c := New(o)
	c.gap = 0
	return c
}

func newSlack(t *testing.T) *channelstest.Slack {
	s := channelstest.NewSlack(t)
	s.SetPace(0)
	return s
}

func secret(t *testing.T, value string) channels.Secret {
	t.Helper()
	file := filepath.Join(t.TempDir(), "slack.token")
	if err := os.WriteFile(file, []byte(value+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return channels.Secret{File: file}
}

func question(text string) channels.Delivery {
	return channels.Delivery{
		Event: channels.Event{
			ID: state.NewID(), Type: "session.awaiting_input", WorkItem: "github:o/r#7", Text: text,
		},
		At: time.Now(), Attempt: 1,
	}
}

func TestSuite(t *testing.T) {
	channelstest.Run(t, func(t *testing.T) channelstest.Kind {
		s := newSlack(t)
		return channelstest.Kind{
			Channel: newChannel(t, s), Server: s.Server, ReadsBody: true,
			Secrets: []string{channelstest.SlackToken},
			Received: func() (got []channelstest.Received) {
				for _, m := range s.Messages(channelstest.SlackRoom) {
					if m.Metadata.Payload["part"] == 1.0 {
						got = append(got, channelstest.Received{ID: m.Metadata.Payload["id"].(string)})
					}
				}
				return got
			},
		}
	})
}

func TestPost_AsksSlackToLeaveTheTextAlone(t *testing.T) {
	s := newSlack(t)
	d := question("see @channel and https://example.com")
	r, err := newChannel(t, s).Post(t.Context(), d)
	if err != nil {
		t.Fatal(err)
	}
	form := s.Forms("chat.postMessage")[0]
	for key, want := range map[string]string{
		"unfurl_links": "false", "unfurl_media": "false", "link_names": "false", "parse": "none",
		"channel": channelstest.SlackRoom, "thread_ts": "",
	} {
		if got := form.Get(key); got != want {
			t.Errorf("%s = %q, want %q", key, got, want)
		}
	}
	m := s.Messages(channelstest.SlackRoom)[0]
	if r.Ref != m.TS || r.Parts != nil {
		t.Errorf("receipt %+v, want ref %s and no parts", r, m.TS)
	}
	if m.Metadata.EventType != EventType || m.Metadata.Payload["id"] != d.Event.ID {
		t.Errorf("metadata %+v", m.Metadata)
	}
}

func TestL01_OkFalseIsARefusal(t *testing.T) {
	s := newSlack(t)
	s.Queue(channelstest.Answer(200, `{"ok":false,"error":"not_authed"}`))
	_, err := newChannel(t, s).Post(t.Context(), question("A or B?"))
	wantRefusal(t, err, channels.ReasonAuth, "not_authed")
	if err.Error() != "not_authed" {
		t.Errorf("error %q", err)
	}
}

func TestS05_CodesHaveTheirReason(t *testing.T) {
	reasons := map[channels.Reason][]string{
		channels.ReasonAuth: {
			"invalid_auth", "not_authed", "account_inactive", "token_revoked", "token_expired",
			"not_allowed_token_type", "no_permission", "missing_scope", "restricted_action",
		},
		channels.ReasonConfig: {"channel_not_found", "not_in_channel", "is_archived"},
		channels.ReasonUnacceptable: {
			"invalid_blocks", "invalid_blocks_format", "msg_too_long", "msg_blocks_too_long", "no_text",
			"metadata_too_large",
		},
		channels.ReasonRate:  {"ratelimited", "rate_limited"},
		channels.ReasonOther: {"a_code_of_tomorrow"},
	}
	s := newSlack(t)
	c := newChannel(t, s)
	for reason, codes := range reasons {
		for _, code := range codes {
			t.Run(code, func(t *testing.T) {
				s.Queue(channelstest.SlackError(code))
				_, err := c.Post(t.Context(), question("A or B?"))
				wantRefusal(t, err, reason, code)
			})
		}
	}
}

func TestVerdict_WhatSlackDoesNotSayIsUncertain(t *testing.T) {
	for name, tt := range map[string]struct{ body, code string }{
		"internal error": {`{"ok":false,"error":"internal_error"}`, "internal_error"},
		"fatal error":    {`{"ok":false,"error":"fatal_error"}`, "fatal_error"},
		"html":           {`<html>sign in to the hotel wifi</html>`, "not_json"},
		"other json":     {`{"status":"fine"}`, "not_json"},
		"no ts":          {`{"ok":true}`, "no_ts"},
		"strange ts":     {`{"ok":true,"ts":"../../etc"}`, "no_ts"},
		"cut off":        {`{"ok":true,"ts":"1.2"`, "not_json"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSlack(t)
			s.Queue(channelstest.Answer(200, tt.body))
			_, err := newChannel(t, s).Post(t.Context(), question("A or B?"))
			var u *channels.Uncertain
			if !errors.As(err, &u) || u.Code != tt.code {
				t.Errorf("got %T %v, want an *Uncertain with %s", err, err, tt.code)
			}
		})
	}
}

func TestVerdict_StrangeCodeIsNotRepeated(t *testing.T) {
	s := newSlack(t)
	s.Queue(channelstest.SlackError("see https://evil.example/ \x1b[2J"))
	_, err := newChannel(t, s).Post(t.Context(), question("A or B?"))
	wantRefusal(t, err, channels.ReasonOther, "other")
}

func TestVerdict_MissingScopeNamesTheScope(t *testing.T) {
	s := newSlack(t)
	c := newChannel(t, s)
	s.Queue(channelstest.Answer(200, `{"ok":false,"error":"missing_scope","needed":"chat:write","provided":""}`))
	_, err := c.Post(t.Context(), question("A or B?"))
	if want := "missing_scope (needs chat:write)"; err == nil || err.Error() != want {
		t.Errorf("error %v, want %q", err, want)
	}
	s.Queue(channelstest.Answer(200, `{"ok":false,"error":"missing_scope","needed":"all your <base>"}`))
	_, err = c.Post(t.Context(), question("A or B?"))
	if want := "missing_scope"; err == nil || err.Error() != want {
		t.Errorf("error %v, want %q", err, want)
	}
}

func TestQ01_RateLimitIsNotFinal(t *testing.T) {
	for name, tt := range map[string]struct {
		fault channelstest.Fault
		want  time.Duration
	}{
		"header":  {channelstest.Answer(429, `{"ok":false,"error":"rate_limited"}`, "Retry-After: 1"), time.Second},
		"body":    {channelstest.Answer(429, `{"retry_after":1,"ok":false,"error":"rate_limited"}`), time.Second},
		"ok 200":  {channelstest.Answer(200, `{"ok":false,"error":"ratelimited"}`, "Retry-After: 7"), 7 * time.Second},
		"nothing": {channelstest.SlackError("ratelimited"), 30 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSlack(t)
			c := newChannel(t, s)
			s.Queue(tt.fault)
			d := question("A or B?")
			_, err := c.Post(t.Context(), d)
			if r := wantRefusal(t, err, channels.ReasonRate, ""); r.RetryAfter != tt.want {
				t.Errorf("retry after %v, want %v", r.RetryAfter, tt.want)
			}
			if _, err := c.Post(t.Context(), d); err != nil {
				t.Errorf("second request: %v", err)
			}
		})
	}
}

func TestG03_MissingTokenIsNamedAndNothingIsSent(t *testing.T) {
	s := newSlack(t)
	c := newChannel(t, s, func(o *Options) { o.Token = channels.Secret{Env: "THE_LOOP_TEST_NOT_SET"} })
	r, err := c.Post(t.Context(), question("A or B?"))
	wantRefusal(t, err, channels.ReasonAuth, "no_secret")
	if !strings.Contains(err.Error(), "THE_LOOP_TEST_NOT_SET") {
		t.Errorf("error %q does not name the variable", err)
	}
	if r.Ref != "" || len(s.Requests()) != 0 {
		t.Errorf("receipt %+v, %d requests, want none", r, len(s.Requests()))
	}
}

func TestToken_IsReadAtEveryPost(t *testing.T) {
	s := newSlack(t)
	c := newChannel(t, s)
	before := c.Credential()
	s.SetToken("xoxb-rotated")
	_, err := c.Post(t.Context(), question("A or B?"))
	wantRefusal(t, err, channels.ReasonAuth, "invalid_auth")
	if err := os.WriteFile(c.o.Token.File, []byte("xoxb-rotated"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Post(t.Context(), question("A or B?")); err != nil {
		t.Error(err)
	}
	if c.Credential() == before {
		t.Error("the credential did not change with the token")
	}
}

func TestM01_NoErrorHoldsTokenOrText(t *testing.T) {
	const text = "the text of the message"
	for name, fault := range map[string]channelstest.Fault{
		"echo":     channelstest.Answer(200, channelstest.SlackToken+text),
		"code":     channelstest.SlackError(channelstest.SlackToken),
		"needed":   channelstest.Answer(200, `{"ok":false,"error":"missing_scope","needed":"`+text+`"}`),
		"status":   channelstest.Answer(500, channelstest.SlackToken+text),
		"redirect": channelstest.Redirect(302, "http://x/"+channelstest.SlackToken),
		"drop":     channelstest.DropRead(),
	} {
		t.Run(name, func(t *testing.T) {
			s := newSlack(t)
			s.Queue(fault)
			r, err := newChannel(t, s).Post(t.Context(), question(text))
			if err == nil {
				t.Fatal("no error")
			}
			channelstest.NoLeak(t, r, err, channelstest.SlackToken, text)
		})
	}
}

func TestNew_APIURL(t *testing.T) {
	s := newSlack(t)
	c := newChannel(t, s, func(o *Options) { o.APIURL = strings.TrimSuffix(o.APIURL, "/") })
	if _, err := c.Post(t.Context(), question("A or B?")); err != nil {
		t.Errorf("without the slash: %v", err)
	}
	c = newChannel(t, s, func(o *Options) { o.APIURL = "http://%zz/" })
	_, err := c.Post(t.Context(), question("A or B?"))
	wantRefusal(t, err, channels.ReasonConfig, "bad_address")
	if got := New(Options{}).o.APIURL; got != "https://slack.com/api/" {
		t.Errorf("default %q", got)
	}
}

func TestReadBack(t *testing.T) {
	s := newSlack(t)
	c := newChannel(t, s)
	var last channels.Receipt
	for range 2 { // a root, then a reply
		r, err := c.Post(t.Context(), question("A or B?"))
		if err != nil {
			t.Fatal(err)
		}
		if err := c.ReadBack(t.Context(), r); err != nil {
			t.Errorf("read back %s: %v", r.Ref, err)
		}
		last = r
	}
	s.Queue(channelstest.Answer(200, `{"ok":false,"error":"missing_scope","needed":"channels:history"}`))
	err := c.ReadBack(t.Context(), last)
	wantRefusal(t, err, channels.ReasonAuth, "missing_scope")
	if !strings.Contains(err.Error(), "channels:history") {
		t.Errorf("error %q does not name the scope", err)
	}
	s.Delete(channelstest.SlackRoom, last.Ref)
	if err := c.ReadBack(t.Context(), last); err == nil {
		t.Error("found a message that is gone")
	}
}

// Within one delivery Slack's pace is kept, told waits included.
func TestQ01_PartsKeepThePace(t *testing.T) {
	s := channelstest.NewSlack(t)
	token := secret(t, channelstest.SlackToken)
	d := question(strings.Repeat("0123456789\n", 1000))
	synctest.Test(t, func(t *testing.T) {
		waits := 0
		client := &http.Client{Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
			if waits++; waits == 3 {
				return answer429("5"), nil
			}
			return s.Direct().Transport.RoundTrip(r)
		})}
		c := New(Options{Name: "slack", Channel: channelstest.SlackRoom, Token: token, Client: client})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		start := time.Now()
		r, err := c.Post(ctx, d)
		if err != nil || len(r.Parts) != 4 {
			t.Fatalf("receipt %+v, error %v, want four parts", r, err)
		}
		if took, want := time.Since(start), 3*gap+5*time.Second; took != want {
			t.Errorf("took %v, want %v", took, want)
		}
	})
}

// A deadline that comes too soon for the next part leaves it to the next
// attempt, rather than cutting it off in flight.
func TestParts_StopBeforeTheDeadline(t *testing.T) {
	s := channelstest.NewSlack(t)
	token := secret(t, channelstest.SlackToken)
	d := question(strings.Repeat("0123456789\n", 1000))
	synctest.Test(t, func(t *testing.T) {
		c := New(Options{Name: "slack", Channel: channelstest.SlackRoom, Token: token, Client: s.Direct()})
		for want := 2; want <= 4; want += 2 {
			ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second)
			r, err := c.Post(ctx, d)
			cancel()
			if len(r.Parts) != want {
				t.Fatalf("receipt %+v, want %d parts", r, want)
			}
			if want < 4 {
				wantRefusal(t, err, channels.ReasonRate, "more_parts")
			} else if err != nil {
				t.Fatal(err)
			}
			d.Parts = r.Parts
			time.Sleep(gap)
		}
	})
	wantThread(t, s, 4)
}

type roundTripper func(r *http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func answer429(retryAfter string) *http.Response {
	return &http.Response{
		StatusCode: http.StatusTooManyRequests, Body: http.NoBody, Header: http.Header{"Retry-After": {retryAfter}},
	}
}

func wantRefusal(t *testing.T, err error, reason channels.Reason, code string) *channels.Refusal {
	t.Helper()
	var r *channels.Refusal
	if !errors.As(err, &r) {
		t.Fatalf("got %T (%v), want a *Refusal", err, err)
	}
	if r.Reason != reason || (code != "" && r.Code != code) {
		t.Errorf("refused as %s with %s, want %s with %s", r.Reason, r.Code, reason, code)
	}
	return r
}
