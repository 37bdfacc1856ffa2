package slack

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"the-loop/channels"
	"the-loop/channels/channelstest"
)

func TestLook_MissingScopeIsNamed(t *testing.T) {
	s := newSlack(t)
	c := newChannel(t, s)
	d := question("A or B?")
	s.DenyReading("groups:history")
	wantUnjudgeable(t, c, d, channels.ReasonAuth, "missing_scope", "needs groups:history")
	s.Queue(channelstest.SlackError("missing_scope"))
	wantUnjudgeable(t, c, d, channels.ReasonAuth, "missing_scope", "needs channels:history")
	s.DenyReading("")
	wantNothing(t, c, d)
}

func TestLook_StandingRefusalsAreUnjudgeable(t *testing.T) {
	for code, reason := range map[string]channels.Reason{
		"not_in_channel": channels.ReasonConfig, "channel_not_found": channels.ReasonConfig,
		"invalid_auth": channels.ReasonAuth, "token_revoked": channels.ReasonAuth,
	} {
		s := newSlack(t)
		c := newChannel(t, s)
		wantNothing(t, c, question("who are we"))
		s.Queue(channelstest.SlackError(code))
		wantUnjudgeable(t, c, question("A or B?"), reason, code, "")
	}
	s := newSlack(t)
	c := newChannel(t, s, func(o *Options) { o.Token = channels.Secret{Env: "THE_LOOP_TEST_NOT_SET"} })
	wantUnjudgeable(t, c, question("A or B?"), channels.ReasonAuth, "no_secret", "THE_LOOP_TEST_NOT_SET")
}

func TestLook_RateLimitProvesNothingAndEndsIt(t *testing.T) {
	for name, fault := range map[string]channelstest.Fault{
		"429": channelstest.Answer(429, `{"ok":false,"error":"ratelimited"}`, "Retry-After: 7"),
		"200": channelstest.Answer(200, `{"ok":false,"error":"ratelimited","retry_after":7}`),
		"503": channelstest.Answer(503, `busy`, "Retry-After: 7"),
	} {
		t.Run(name, func(t *testing.T) {
			s := newSlack(t)
			c := newChannel(t, s)
			d := question("A or B?")
			post(t, c, d)
			s.Queue(s.ByteByByte(time.Microsecond), fault) // auth.test, then the limit
			var r *channels.Refusal
			err := wantNoProof(t, c, d)
			if !errors.As(err, &r) || r.Reason != channels.ReasonRate || r.RetryAfter != 7*time.Second {
				t.Errorf("got %#v, want a rate limit of 7s", err)
			}
			if n := len(s.Requests()); n != 3 {
				t.Errorf("%d requests, want the post and two", n)
			}
		})
	}
}

func TestLook_WhatSlackDoesNotSayProvesNothing(t *testing.T) {
	for name, fault := range map[string]channelstest.Fault{
		"html":            channelstest.Answer(200, "<html>sign in to the hotel wifi</html>"),
		"html with 404":   channelstest.Answer(404, "<html>not found</html>"),
		"html with 403":   channelstest.Answer(403, "<html>blocked by your company</html>"),
		"html with 401":   channelstest.Answer(401, "<html>proxy login</html>"),
		"redirect":        channelstest.Redirect(302, "http://portal.invalid/"),
		"500":             channelstest.Answer(500, ""),
		"502":             channelstest.Answer(502, "<html>"),
		"internal error":  channelstest.SlackError("internal_error"),
		"unknown code":    channelstest.SlackError("a_code_of_tomorrow"),
		"no messages":     channelstest.Answer(200, `{"ok":true}`),
		"null messages":   channelstest.Answer(200, `{"ok":true,"messages":null}`),
		"strange message": channelstest.Answer(200, `{"ok":true,"messages":[{"ts":7}]}`),
		"cut off":         channelstest.Answer(200, `{"ok":true,"messages":[]`),
		"dropped":         channelstest.DropRead(),
		"not read":        channelstest.DropUnread(),
		"reset":           channelstest.ResetInBody(200),
		"too long":        channelstest.Answer(200, `{"ok":true,"messages":[`+strings.Repeat(" ", maxPage)+`]}`),
		"another time": channelstest.Answer(200, `{"ok":true,"messages":[]}`,
			"Date: "+time.Now().Add(-2*lookBack).UTC().Format(http.TimeFormat)),
	} {
		t.Run(name, func(t *testing.T) {
			s := newSlack(t)
			c := newChannel(t, s)
			wantNothing(t, c, question("who are we"))
			s.Queue(fault)
			wantNoProof(t, c, question("A or B?"))
		})
	}
	t.Run("nobody", func(t *testing.T) {
		s := newSlack(t)
		s.Queue(channelstest.Answer(200, `{"ok":true}`))
		wantNoProof(t, newChannel(t, s), question("A or B?"))
	})
	t.Run("no id", func(t *testing.T) {
		d := question("A or B?")
		d.Event.ID = ""
		wantNoProof(t, newChannel(t, newSlack(t)), d)
	})
}

// What we posted ourselves comes without its metadata: that it was not seen
// then says nothing about the message.
func TestLook_HiddenMetadataIsUnjudgeable(t *testing.T) {
	for name, hide := range map[string]func(m *channelstest.SlackMessage){
		"all of it":      func(m *channelstest.SlackMessage) { m.Metadata = nil },
		"the payload":    func(m *channelstest.SlackMessage) { m.Metadata.Payload = nil },
		"an empty one":   func(m *channelstest.SlackMessage) { m.Metadata.Payload = map[string]any{} },
		"a strange form": func(m *channelstest.SlackMessage) { m.Metadata.Payload = map[string]any{"id": 7} },
	} {
		t.Run(name, func(t *testing.T) {
			s := newSlack(t)
			c := newChannel(t, s)
			d := question("A or B?")
			post(t, c, d)
			s.Disguise(hide)
			wantUnjudgeable(t, c, d, channels.ReasonAuth, "no_metadata", "metadata.message:read")
		})
	}
}

// Messages that never had metadata hide nothing: of others, of Slack in our
// name, and of ours beside one that shows its own.
func TestLook_MessagesWithoutMetadata(t *testing.T) {
	s := newSlack(t)
	c := newChannel(t, s)
	d := question("A or B?")
	s.Plant(room, channelstest.SlackMessage{User: "U9", Text: "hello"})
	s.Plant(room, channelstest.SlackMessage{User: channelstest.SlackUser, Subtype: "channel_join", Text: "has joined"})
	wantNothing(t, c, d)
	s.Plant(room, channelstest.SlackMessage{BotID: channelstest.SlackBot, Text: "by another program"})
	wantUnjudgeable(t, c, d, channels.ReasonAuth, "no_metadata", "")
	plant(s, "another", 1, 1)
	wantNothing(t, c, d)
}

func TestLook_TooOldToBeShown(t *testing.T) {
	s := newSlack(t)
	c := newChannel(t, s)
	d := question("A or B?")
	d.At = time.Now().Add(-visibleFor - time.Minute)
	wantUnjudgeable(t, c, d, channels.ReasonConfig, "too_old", "")
	if n := len(s.Requests()); n != 0 {
		t.Errorf("%d requests for what cannot be seen", n)
	}
	d.At = time.Now().Add(-visibleFor + time.Minute)
	wantNothing(t, c, d)
}

// A workspace that hides old messages proves a loss only when it shows one that
// is older than all that was read.
func TestLook_LimitedHistory(t *testing.T) {
	s := newSlack(t)
	c := newChannel(t, s)
	d := question("A or B?")
	plant(s, "hidden", 1, 1, at(d.At.Add(-3*time.Hour)))
	plant(s, "shown", 1, 1, at(d.At.Add(-time.Hour)))
	s.HideBefore(d.At.Add(-2 * time.Hour))
	wantNothing(t, c, d)
	s.HideBefore(d.At.Add(-time.Minute))
	wantUnjudgeable(t, c, d, channels.ReasonConfig, "too_old", "")
	ts := plant(s, d.Event.ID, 1, 1)
	wantSeen(t, c, d, true, ts)
}

func TestLook_BindingsThatCannotBeReadProveNothing(t *testing.T) {
	s := newSlack(t)
	c := newChannel(t, s)
	writeBindings(t, c, `{"version":1,"thre`)
	wantNoProof(t, c, question("A or B?"))
	if n := len(s.Forms("conversations.history")); n != 0 {
		t.Errorf("%d pages were read without knowing the thread", n)
	}
}

func TestLook_CancelledOnTheWay(t *testing.T) {
	s := newSlack(t)
	c := newChannel(t, s)
	d := question("A or B?")
	wantNothing(t, c, d)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	s.Queue(channelstest.HangAfter(cancel))
	got, err := c.Look(ctx, d, d.At)
	if !errors.Is(err, context.Canceled) || got.Complete {
		t.Errorf("saw %+v, error %v, want context.Canceled", got, err)
	}
	requests := len(s.Requests())
	if _, err := c.Look(ctx, d, d.At); !errors.Is(err, context.Canceled) || len(s.Requests()) != requests {
		t.Errorf("error %v, %d requests, want none more", err, len(s.Requests())-requests)
	}
}
