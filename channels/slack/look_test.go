package slack

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"the-loop/channels"
	"the-loop/channels/channelstest"
)

const room = channelstest.SlackRoom

// look looks for d, whose send began at d.At.
func look(t *testing.T, c *Channel, d channels.Delivery) (channels.Sighting, error) {
	t.Helper()
	var w channels.Witness = c
	s, err := w.Look(t.Context(), d, d.At)
	channelstest.NoLeak(t, channels.Receipt{Parts: s.Found}, err, channelstest.SlackToken)
	return s, err
}

func wantSeen(t *testing.T, c *Channel, d channels.Delivery, whole bool, want ...string) {
	t.Helper()
	s, err := look(t, c, d)
	if err != nil || s.Whole != whole || !slices.Equal(s.Found, want) {
		t.Errorf("saw %+v, error %v, want %v, whole %v", s, err, want, whole)
	}
}

func wantNothing(t *testing.T, c *Channel, d channels.Delivery) {
	t.Helper()
	s, err := look(t, c, d)
	if err != nil || !s.Complete || s.Whole || len(s.Found) > 0 {
		t.Errorf("saw %+v, error %v, want nothing and complete", s, err)
	}
}

// wantNoProof checks that the look-up failed and may tell another time.
func wantNoProof(t *testing.T, c *Channel, d channels.Delivery) error {
	t.Helper()
	s, err := look(t, c, d)
	var r *channels.Refusal
	standing := errors.As(err, &r) && (r.Reason == channels.ReasonAuth || r.Reason == channels.ReasonConfig)
	if err == nil || standing || len(s.Found) > 0 || s.Complete {
		t.Errorf("saw %+v, error %v, want an error that proves nothing", s, err)
	}
	return err
}

func wantUnjudgeable(t *testing.T, c *Channel, d channels.Delivery, reason channels.Reason, code, detail string) {
	t.Helper()
	s, err := look(t, c, d)
	if r := wantRefusal(t, err, reason, code); !strings.Contains(r.Detail, detail) || len(s.Found) > 0 || s.Complete {
		t.Errorf("saw %+v, detail %q, want nothing and %q", s, r.Detail, detail)
	}
}

// postUncertain posts d while Slack meets the fault, which must leave it open.
func postUncertain(t *testing.T, s *channelstest.Slack, c *Channel, d channels.Delivery, fault channelstest.Fault) {
	t.Helper()
	s.Queue(fault)
	_, err := c.Post(t.Context(), d)
	var u *channels.Uncertain
	if !errors.As(err, &u) {
		t.Fatalf("got %T (%v), want an *Uncertain", err, err)
	}
}

// plant puts a message as c would have posted it into the room.
func plant(s *channelstest.Slack, id string, part, parts int, change ...func(m *channelstest.SlackMessage)) string {
	m := channelstest.SlackMessage{
		User: channelstest.SlackUser, BotID: channelstest.SlackBot, Text: "A or B?",
		Metadata: &channelstest.SlackMetadata{
			EventType: EventType, Payload: map[string]any{"id": id, "part": part, "parts": parts},
		},
	}
	for _, f := range change {
		f(&m)
	}
	return s.Plant(room, m).TS
}

func at(d time.Time) func(m *channelstest.SlackMessage) {
	return func(m *channelstest.SlackMessage) { m.TS = channelstest.SlackTS(d) }
}

func under(root string) func(m *channelstest.SlackMessage) {
	return func(m *channelstest.SlackMessage) { m.ThreadTS = root }
}

// Slack stores the message and the connection is cut; or is cut before that.
// Looking tells which, for a root and for a reply.
func TestD01_LookTellsStoredFromLost(t *testing.T) {
	for name, setUp := range map[string]func(t *testing.T, c *Channel){
		"a root":  func(*testing.T, *Channel) {},
		"a reply": func(t *testing.T, c *Channel) { post(t, c, question("before")) },
	} {
		t.Run(name, func(t *testing.T) {
			s := newSlack(t)
			c := newChannel(t, s)
			setUp(t, c)
			stored, lost := question("stored"), question("lost")
			postUncertain(t, s, c, stored, s.StoreThen(channelstest.DropRead()))
			last := s.Messages(room)[len(s.Messages(room))-1]
			postUncertain(t, s, c, lost, channelstest.DropRead())
			wantSeen(t, c, stored, true, last.TS)
			wantNothing(t, c, lost)
			postUncertain(t, s, c, lost, s.StoreThen(channelstest.Answer(500, "")))
			last = s.Messages(room)[len(s.Messages(room))-1]
			wantSeen(t, c, lost, true, last.TS)
		})
	}
}

// The root was posted, nobody knew, and the next event opened another thread.
func TestLook_ARootBesideTheBoundThread(t *testing.T) {
	s := newSlack(t)
	c := newChannel(t, s)
	d := question("stored")
	postUncertain(t, s, c, d, s.StoreThen(channelstest.DropRead()))
	first := s.Messages(room)[0].TS
	post(t, c, question("next"))
	wantSeen(t, c, d, true, first)
}

func TestLook_AReplyInTheRoomBecauseItsRootWasGone(t *testing.T) {
	s := newSlack(t)
	c := newChannel(t, s)
	s.Delete(room, post(t, c, question("before")).Ref)
	lost, d := question("lost"), question("stored")
	postUncertain(t, s, c, lost, channelstest.DropRead())
	postUncertain(t, s, c, d, s.StoreThen(channelstest.DropRead()))
	wantSeen(t, c, d, true, s.Messages(room)[0].TS)
	wantUnjudgeable(t, c, lost, channels.ReasonConfig, "thread_not_found", "gone")
}

func TestLook_OnlyOurOwnAuthorCounts(t *testing.T) {
	for name, forge := range map[string]func(m *channelstest.SlackMessage){
		"another bot":              func(m *channelstest.SlackMessage) { m.BotID, m.User = "B666", "U666" },
		"a bot with our user":      func(m *channelstest.SlackMessage) { m.BotID = "B666" },
		"a person":                 func(m *channelstest.SlackMessage) { m.BotID, m.User = "", "U666" },
		"our user without the bot": func(m *channelstest.SlackMessage) { m.BotID = "" },
		"a change of the message":  func(m *channelstest.SlackMessage) { m.Subtype = "message_changed" },
		"another event type":       func(m *channelstest.SlackMessage) { m.Metadata.EventType = "the_loop_events" },
	} {
		t.Run(name, func(t *testing.T) {
			s := newSlack(t)
			c := newChannel(t, s)
			root := post(t, c, question("before")).Ref
			d := question("A or B?")
			plant(s, d.Event.ID, 1, 1, forge)
			plant(s, d.Event.ID, 1, 1, forge, under(root))
			wantNothing(t, c, d)
		})
	}
}

// A user's token has no bot: its messages are known by the user.
func TestLook_AUserTokenIsKnownByItsUser(t *testing.T) {
	s := newSlack(t)
	c := newChannel(t, s)
	s.Queue(channelstest.Answer(200, `{"ok":true,"user_id":"U7"}`))
	d := question("A or B?")
	plant(s, d.Event.ID, 1, 1)
	ts := plant(s, d.Event.ID, 1, 1, func(m *channelstest.SlackMessage) { m.User, m.BotID = "U7", "B7" })
	wantSeen(t, c, d, true, ts)
}

func TestLook_AsksWhoWeAreOnceForEachToken(t *testing.T) {
	s := newSlack(t)
	c := newChannel(t, s)
	for range 3 {
		wantNothing(t, c, question("A or B?"))
	}
	if n := len(s.Forms("auth.test")); n != 1 {
		t.Errorf("asked %d times, want once", n)
	}
	s.SetToken("xoxb-rotated")
	c.o.Token = secret(t, "xoxb-rotated")
	wantNothing(t, c, question("A or B?"))
	if n := len(s.Forms("auth.test")); n != 2 {
		t.Errorf("asked %d times, want twice", n)
	}
}

func TestLook_ReadsEveryPage(t *testing.T) {
	for name, inThread := range map[string]bool{"of the room": false, "of the thread": true} {
		t.Run(name, func(t *testing.T) {
			s := newSlack(t)
			s.LimitPages(2)
			c := newChannel(t, s)
			d := question("A or B?")
			root := post(t, c, question("before")).Ref
			where := func(*channelstest.SlackMessage) {}
			if inThread {
				where = under(root)
			}
			// Newest first in the room and oldest first in the thread: in both
			// cases far from where the reading begins.
			for range 4 {
				plant(s, "another", 1, 1, where)
			}
			ts := plant(s, d.Event.ID, 1, 1, where)
			for range 4 {
				plant(s, "another", 1, 1, where)
			}
			wantSeen(t, c, d, true, ts)
			wantNothing(t, c, question("not there"))
		})
	}
}

// Past the bound, and with a page that promises more and does not say where,
// something was not read.
func TestLook_WhatIsNotReadToItsEndIsNotComplete(t *testing.T) {
	for name, setUp := range map[string]func(s *channelstest.Slack){
		"too many pages": func(s *channelstest.Slack) {
			s.LimitPages(1)
			for range maxPages + 1 {
				plant(s, "another", 1, 1)
			}
		},
		"no cursor": func(s *channelstest.Slack) {
			s.Queue(channelstest.Answer(200, `{"ok":true,"bot_id":"B1"}`),
				channelstest.Answer(200, `{"ok":true,"messages":[],"has_more":true}`))
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSlack(t)
			setUp(s)
			got, err := look(t, newChannel(t, s), question("A or B?"))
			if err != nil || got.Complete || len(got.Found) > 0 {
				t.Errorf("saw %+v, error %v, want nothing and not complete", got, err)
			}
			if n := len(s.Forms("conversations.history")); n > maxPages {
				t.Errorf("%d pages were read, want %d at most", n, maxPages)
			}
		})
	}
}

// As many pages as allowed, and no more: that is all of it.
func TestLook_TheLastPageAllowedMayBeTheLast(t *testing.T) {
	s := newSlack(t)
	s.LimitPages(1)
	for range maxPages {
		plant(s, "another", 1, 1)
	}
	wantNothing(t, newChannel(t, s), question("A or B?"))
}

// A page of strangers' messages is far longer than the answer to a post.
func TestLook_LongPages(t *testing.T) {
	s := newSlack(t)
	d := question("A or B?")
	ts := plant(s, d.Event.ID, 1, 1)
	for range 40 {
		s.Plant(room, channelstest.SlackMessage{User: "U9", Text: strings.Repeat("x", 40_000)})
	}
	wantSeen(t, newChannel(t, s), d, true, ts)
}

func TestLook_Parts(t *testing.T) {
	s := newSlack(t)
	c := newChannel(t, s)
	d := question(strings.Repeat("0123456789\n", 1000)) // four parts
	s.Queue(s.ByteByByte(time.Microsecond), s.StoreThen(channelstest.DropRead()))
	r, err := c.Post(t.Context(), d)
	if err == nil || len(r.Parts) != 1 {
		t.Fatalf("receipt %+v, error %v, want one part", r, err)
	}
	messages := s.Messages(room)
	one, two := messages[0].TS, messages[1].TS
	wantSeen(t, c, d, false, one, two)

	d.Parts = r.Parts // a later attempt's look-up: the first part is older than it
	d.At = d.At.Add(2 * lookBack)
	got, err := look(t, c, d)
	if err != nil || !got.Complete || got.Whole || !slices.Equal(got.Found, []string{one}) {
		t.Errorf("saw %+v, error %v, want part one, complete", got, err)
	}
	d.At = d.At.Add(-2 * lookBack)
	d.Parts = []string{one, two}
	d.Parts = post(t, c, d).Parts
	wantSeen(t, c, d, true, d.Parts...)
	s.Delete(room, d.Parts[2])
	want := d.Parts[:2]
	d.Parts = nil
	wantSeen(t, c, d, false, want...)
}

// Without a binding the thread is known by the first part, or found by it.
func TestLook_PartsOfAnUnboundThread(t *testing.T) {
	s := newSlack(t)
	c := newChannel(t, s, func(o *Options) { o.Root = nil })
	d := question("A or B?")
	d.At = time.Now().Add(-time.Hour)
	root := plant(s, d.Event.ID, 1, 2, at(d.At))
	reply := plant(s, d.Event.ID, 2, 2, under(root))
	wantSeen(t, c, d, true, root, reply)
	d.Parts, d.At = []string{root}, time.Now()
	wantSeen(t, c, d, true, root, reply)
}

func TestLook_SinceIsTheOldestThatCounts(t *testing.T) {
	for name, inThread := range map[string]bool{"in the room": false, "in the thread": true} {
		t.Run(name, func(t *testing.T) {
			s := newSlack(t)
			c := newChannel(t, s)
			d := question("A or B?")
			d.At = time.Now().Add(-time.Hour)
			where := func(*channelstest.SlackMessage) {}
			if inThread {
				where = under(post(t, c, question("before")).Ref)
			}
			edge := d.At.Add(-lookBack).Truncate(time.Microsecond)
			plant(s, d.Event.ID, 1, 1, where, at(edge.Add(-time.Microsecond)))
			wantNothing(t, c, d)
			ts := plant(s, d.Event.ID, 1, 1, where, at(edge))
			wantSeen(t, c, d, true, ts)
		})
	}
}

// A thread's root comes with its replies, however old it is.
func TestLook_AnOldRootIsNotTheMessage(t *testing.T) {
	s := newSlack(t)
	c := newChannel(t, s, func(o *Options) { o.Root = nil })
	d := question("A or B?")
	d.Parts = []string{plant(s, d.Event.ID, 2, 3, at(time.Now().Add(-time.Hour)))}
	got, err := look(t, c, d)
	if err != nil || !slices.Equal(got.Found, d.Parts) || !got.Complete {
		t.Errorf("saw %+v, error %v, want %v", got, err, d.Parts)
	}
}

// What is asked of Slack: all metadata, the window and whole pages.
func TestLook_Requests(t *testing.T) {
	s := newSlack(t)
	c := newChannel(t, s)
	root := post(t, c, question("before")).Ref
	d := question("A or B?")
	wantNothing(t, c, d)
	for _, method := range []string{"conversations.history", "conversations.replies"} {
		form := s.Forms(method)[0]
		for key, want := range map[string]string{
			"include_all_metadata": "1", "inclusive": "1", "limit": fmt.Sprint(pageSize), "latest": "",
			"channel": room, "oldest": channelstest.SlackTS(d.At.Add(-lookBack)),
		} {
			if got := form.Get(key); got != want {
				t.Errorf("%s: %s = %q, want %q", method, key, got, want)
			}
		}
	}
	if got := s.Forms("conversations.replies")[0].Get("ts"); got != root {
		t.Errorf("replies of %q were read, want of %q", got, root)
	}
}
