package slack

import (
	"errors"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"the-loop/channels"
	"the-loop/channels/channelstest"
	"the-loop/state"
)

const (
	testItem   = "github:o/r#7"
	testThread = "1699999999.000100"
	testUser   = "U012ABCDEF"
	testSecret = channelstest.SlackSigningSecret
)

// newRoom gives a channel in which testThread is bound to testItem.
func newRoom(t *testing.T, s *channelstest.Slack, change ...func(o *Options)) *Channel {
	t.Helper()
	c := newChannel(t, s, change...)
	if err := c.threads.move(t.Context(), testItem, "", testThread); err != nil {
		t.Fatal(err)
	}
	return c
}

// anyDoor is what both doors are to the receiver.
type anyDoor interface {
	Limit() int64
	Sealed(h http.Header) bool
	Open(h http.Header, body []byte) (channels.Arrival, error)
	Ready() error
}

func newDoors(t *testing.T, rooms ...*Channel) (events, interactions anyDoor) {
	o := DoorOptions{Secret: secret(t, testSecret), Rooms: rooms}
	return NewEventsDoor(o), NewInteractionsDoor(o)
}

func open(t *testing.T, d anyDoor, r channelstest.SlackRequest) channels.Arrival {
	t.Helper()
	if !d.Sealed(r.Header) {
		t.Fatal("not sealed")
	}
	a, err := d.Open(r.Header, r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func TestEventsDoor_ChallengeOnlyWhenSigned(t *testing.T) {
	s := newSlack(t)
	events, _ := newDoors(t)
	a := open(t, events, s.Signed(testSecret, time.Now(), s.Challenge("3eZbrw1a")))
	if string(a.Reply) != "3eZbrw1a" || a.Dropped == "" {
		t.Errorf("arrival %+v", a)
	}
	r := s.Signed("another", time.Now(), s.Challenge("3eZbrw1a"))
	if a, err := events.Open(r.Header, r.Body); !errors.Is(err, channels.ErrForged) || len(a.Reply) != 0 {
		t.Errorf("forged: %+v, %v", a, err)
	}
}

func TestW01_OnlyWhatIsSignedNowIsOpened(t *testing.T) {
	s := newSlack(t)
	room := newRoom(t, s)
	m, q := reply(s, "A"), asked(s, "01KB3Z0000000000000000000A")
	for name, payload := range map[string]channelstest.SlackPayload{
		"events": s.Said(channelstest.SlackRoom, m), "interactions": s.Pressed(channelstest.SlackRoom, q, testUser, 0),
	} {
		synctest.Test(t, func(t *testing.T) {
			d, interactions := newDoors(t, room)
			if name == "interactions" {
				d = interactions
			}
			for offset, want := range map[time.Duration]bool{
				0: true, -5 * time.Minute: true, 5 * time.Minute: true,
				-5*time.Minute - time.Second: false, 5*time.Minute + time.Second: false,
				-6 * time.Minute: false, 6 * time.Minute: false, -30 * time.Hour: false,
			} {
				time.Sleep(700 * time.Millisecond) // a part of a second is no excuse
				r := s.Signed(testSecret, time.Now().Add(offset), payload)
				a, err := d.Open(r.Header, r.Body)
				if got := err == nil && len(a.Messages) == 1; got != want {
					t.Errorf("%s signed at %s from now: %+v, %v", name, offset, a, err)
				}
				if !want && (!errors.Is(err, channels.ErrForged) || len(a.Messages) != 0) {
					t.Errorf("%s signed at %s from now: %+v, %v", name, offset, a, err)
				}
			}
		})
	}
}

// The example of Slack's own page "Verifying requests from Slack".
func TestW01_SlacksOwnExampleHolds(t *testing.T) {
	d := NewInteractionsDoor(DoorOptions{Secret: secret(t, "8f742231b10e8888abcd99yyyzzz85a5")})
	body := []byte("token=xyzz0WbapA4vBCDEFasx0q6G&team_id=T1DC2JH3J&team_domain=testteamnow&channel_id=G8PSS9T3V" +
		"&channel_name=foobar&user_id=U2CERLKJA&user_name=roadrunner&command=%2Fwebhook-collect&text=" +
		"&response_url=https%3A%2F%2Fhooks.slack.com%2Fcommands%2FT1DC2JH3J%2F397700885554%2F96rGlfmibIGlgcZRskXaIFfN" +
		"&trigger_id=398738663015.47445629121.803a0bc887a14d10d2c447fce8b6703c")
	h := http.Header{
		"X-Slack-Request-Timestamp": {"1531420618"},
		"X-Slack-Signature":         {"v0=a2114d57b48eac39b9ad189dd8316235a7b4a8d21a10bd27519666489c69b503"},
	}
	if err := d.verify(h, body, time.Unix(1531420618, 0)); err != nil {
		t.Error(err)
	}
	if err := d.verify(h, body[1:], time.Unix(1531420618, 0)); !errors.Is(err, channels.ErrForged) {
		t.Errorf("changed: %v", err)
	}
}

func TestW01_TimestampThatIsNoNumberIsNotSealed(t *testing.T) {
	s := newSlack(t)
	events, interactions := newDoors(t, newRoom(t, s))
	body := []byte(`{"type":"url_verification","challenge":"x"}`)
	for _, stamp := range []string{
		"", "now", "-5", "+5", "1e9", "0x10", "1700000000.5", " 1700000000", "1700000000 ", "99999999999999999999",
		"١٧٠٠٠٠٠٠٠٠",
	} {
		h := http.Header{
			"X-Slack-Request-Timestamp": {stamp}, "X-Slack-Signature": {channelstest.SlackSignature(testSecret, stamp, body)},
		}
		refused(t, events, h, body)
		refused(t, interactions, h, body)
	}
	r := s.Signed(testSecret, time.Now(), s.Challenge("x"))
	r.Header.Del("X-Slack-Request-Timestamp")
	refused(t, events, r.Header, r.Body)
	r = s.Signed(testSecret, time.Now(), s.Challenge("x"))
	r.Header.Add("X-Slack-Request-Timestamp", r.Header.Get("X-Slack-Request-Timestamp"))
	refused(t, events, r.Header, r.Body)
}

// refused: not even the form holds, so that the body need not be read.
func refused(t *testing.T, d anyDoor, h http.Header, body []byte) {
	t.Helper()
	if d.Sealed(h) {
		t.Errorf("sealed: %q", h)
	}
	a, err := d.Open(h, body)
	if !errors.Is(err, channels.ErrForged) || a.Dropped != "" || len(a.Reply)+len(a.Messages) > 0 {
		t.Errorf("opened %q: %+v, %v", h, a, err)
	}
}

func TestW02_SignatureHeaderOfAnotherFormIsNotSealed(t *testing.T) {
	s := newSlack(t)
	events, interactions := newDoors(t, newRoom(t, s))
	good := s.Signed(testSecret, time.Now(), s.Challenge("x"))
	seal := good.Header.Get("X-Slack-Signature")
	for name, values := range map[string][]string{
		"missing": nil, "empty": {""}, "no hex": {"v0="}, "github's": {"sha256=" + seal[3:]}, "bare": {seal[3:]},
		"short": {seal[:len(seal)-1]}, "long": {seal + "0"}, "upper case": {"v0=" + strings.ToUpper(seal[3:])},
		"other scheme": {"v1=" + seal[3:]}, "no hex digit": {seal[:len(seal)-1] + "g"}, "line": {seal + "\n"},
		"two": {seal, seal}, "two in one": {seal + "," + seal},
	} {
		h := good.Header.Clone()
		h["X-Slack-Signature"] = values
		t.Run(name, func(t *testing.T) {
			refused(t, events, h, good.Body)
			refused(t, interactions, h, good.Body)
		})
	}
	refused(t, events, nil, nil)
}

func TestW02_ForgedWithoutOrUnderAnotherSecret(t *testing.T) {
	s := newSlack(t)
	room := newRoom(t, s)
	payload := s.Said(channelstest.SlackRoom, reply(s, "A"))
	for name, value := range map[string]string{"another": "another", "empty": "", "blanks": " \n\t\n"} {
		t.Run(name, func(t *testing.T) {
			sec := secret(t, value)
			d := NewEventsDoor(DoorOptions{Secret: sec, Rooms: []*Channel{room}})
			if err := d.Ready(); (err == nil) != (name == "another") {
				t.Errorf("ready: %v", err)
			}
			for _, with := range []string{testSecret, "", " "} {
				r := s.Signed(with, time.Now(), payload)
				if a, err := d.Open(r.Header, r.Body); !errors.Is(err, channels.ErrForged) || len(a.Messages) > 0 {
					t.Errorf("signed by %q: %+v, %v", with, a, err)
				}
			}
		})
	}
	for name, sec := range map[string]channels.Secret{
		"no file": {File: "/nonexistent/slack.secret"}, "no variable": {Env: "THE_LOOP_TEST_NOT_SET"}, "nothing": {},
	} {
		d := NewInteractionsDoor(DoorOptions{Secret: sec})
		if err := d.Ready(); err == nil || strings.Contains(err.Error(), "post failed") {
			t.Errorf("%s: ready: %v", name, err)
		}
		r := s.Signed("", time.Now(), payload)
		if _, err := d.Open(r.Header, r.Body); !errors.Is(err, channels.ErrForged) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestDoor_ChangedBodyOrTimestampIsForged(t *testing.T) {
	s := newSlack(t)
	events, _ := newDoors(t, newRoom(t, s))
	r := s.Signed(testSecret, time.Now(), s.Said(channelstest.SlackRoom, reply(s, "A")))
	for i := range r.Body {
		body := []byte(string(r.Body))
		body[i] ^= 1
		if _, err := events.Open(r.Header, body); !errors.Is(err, channels.ErrForged) {
			t.Fatalf("byte %d changed: %v", i, err)
		}
	}
	h := r.Header.Clone()
	h.Set("X-Slack-Request-Timestamp", strconv.FormatInt(time.Now().Unix()+1, 10))
	if _, err := events.Open(h, r.Body); !errors.Is(err, channels.ErrForged) {
		t.Errorf("timestamp changed: %v", err)
	}
}

func TestDoor_AnyLineOfTheSecretVerifiesAndIsReadAnew(t *testing.T) {
	s := newSlack(t)
	sec := secret(t, "old\n\n  new  ")
	d := NewEventsDoor(DoorOptions{Secret: sec})
	opens := func(with string) bool {
		r := s.Signed(with, time.Now(), s.Challenge("x"))
		_, err := d.Open(r.Header, r.Body)
		return err == nil
	}
	if !opens("old") || !opens("new") || opens("") || opens("old\n\n  new") {
		t.Error("not just the lines verify")
	}
	if err := os.WriteFile(sec.File, []byte("newest\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if opens("old") || !opens("newest") {
		t.Error("the rotated secret is not taken up")
	}
	if d.Limit() != 1<<20 {
		t.Errorf("limit %d", d.Limit())
	}
}

// fuzzDoor opens what nobody signed, which must never give anything, and the
// same body signed, which must give no panic and only messages of our thread.
func fuzzDoor(f *testing.F, path string, pick func(events, interactions anyDoor) anyDoor) {
	root, err := state.Open(f.TempDir())
	if err != nil {
		f.Fatal(err)
	}
	room := New(Options{Name: "slack", Channel: channelstest.SlackRoom, Root: root})
	if err := room.threads.move(f.Context(), testItem, "", testThread); err != nil {
		f.Fatal(err)
	}
	o := DoorOptions{Secret: channels.Secret{File: filepath.Join(f.TempDir(), "secret")}, Rooms: []*Channel{room}}
	if err := os.WriteFile(o.Secret.File, []byte(testSecret), 0o600); err != nil {
		f.Fatal(err)
	}
	d := pick(NewEventsDoor(o), NewInteractionsDoor(o))
	f.Fuzz(func(t *testing.T, signature, timestamp, twice string, body []byte) {
		h := http.Header{"X-Slack-Signature": {signature}, "X-Slack-Request-Timestamp": {timestamp}}
		if twice != "" {
			h.Add("X-Slack-Signature", twice)
		}
		d.Sealed(h)
		if a, err := d.Open(h, body); !errors.Is(err, channels.ErrForged) || len(a.Messages)+len(a.Reply) > 0 {
			t.Fatalf("forged: %+v, %v", a, err)
		}
		r := channelstest.SignSlack(testSecret, time.Now(), path, body)
		if !d.Sealed(r.Header) {
			t.Fatal("signed and not sealed")
		}
		a, err := d.Open(r.Header, r.Body)
		if errors.Is(err, channels.ErrForged) {
			t.Fatal("signed and forged")
		}
		if got := len(a.Messages) > 0; got == (a.Dropped != "") && err == nil {
			t.Fatalf("neither messages nor a word, or both: %+v", a)
		}
		for _, m := range a.Messages {
			if m.Place.Conversation != channelstest.SlackRoom || !m.From.Person || m.Key == "" || m.At.IsZero() {
				t.Fatalf("message %+v", m)
			}
		}
	})
}

func FuzzEventsDoor(f *testing.F) {
	s := channelstest.NewSlack(f)
	m := reply(s, "A")
	now := strconv.FormatInt(time.Now().Unix(), 10)
	for _, p := range []channelstest.SlackPayload{
		s.Said(channelstest.SlackRoom, m), s.Edited(channelstest.SlackRoom, m, "B"), s.Deleted(channelstest.SlackRoom, m),
		s.BotSaid(channelstest.SlackRoom, testThread, "A"), s.Challenge("x"),
	} {
		body := s.Signed("another", time.Now(), p).Body
		f.Add(channelstest.SlackSignature("another", now, body), now, "", body)
	}
	f.Add("v0=", "", "v0=", []byte("null"))
	f.Add("", "-1", "", []byte(`{"type":"event_callback","event":null}`))
	fuzzDoor(f, channelstest.SlackEventsPath, func(events, _ anyDoor) anyDoor { return events })
}

func FuzzInteractionsDoor(f *testing.F) {
	s := channelstest.NewSlack(f)
	q := asked(s, "01KB3Z0000000000000000000A")
	now := strconv.FormatInt(time.Now().Unix(), 10)
	body := s.Signed("another", time.Now(), s.Pressed(channelstest.SlackRoom, q, testUser, 0)).Body
	f.Add(channelstest.SlackSignature("another", now, body), now, "", body)
	nulls := "payload=" + url.QueryEscape(`{"type":"block_actions","actions":[null]}`)
	f.Add("v0="+strings.Repeat("0", 64), now, "", []byte(nulls))
	f.Add("v0=", "", "v0=", []byte("payload=null"))
	fuzzDoor(f, channelstest.SlackInteractionsPath, func(_, interactions anyDoor) anyDoor { return interactions })
}
