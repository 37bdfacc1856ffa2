package slack

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"the-loop/channels"
	"the-loop/channels/channelstest"
)

func placeOf(m channelstest.SlackMessage) channels.Place {
	return channels.Place{Conversation: room, Thread: m.ThreadTS, ID: m.TS}
}

func messageAt(t *testing.T, s *channelstest.Slack, ts string) channelstest.SlackMessage {
	t.Helper()
	for _, m := range s.Messages(room) {
		if m.TS == ts {
			return m
		}
	}
	t.Fatalf("no message %s", ts)
	return channelstest.SlackMessage{}
}

func TestTaken_ACheckMarkOnce(t *testing.T) {
	s := newSlack(t)
	c := newChannel(t, s)
	root := post(t, c, inquiry("Ship it?"))
	reply := s.Reply(room, root.Ref, "U7", "yes")
	for range 2 {
		if err := c.Taken(t.Context(), placeOf(reply)); err != nil {
			t.Error(err)
		}
	}
	got := messageAt(t, s, reply.TS).Reactions
	if len(got) != 1 || got[0].Name != "white_check_mark" || got[0].Count != 1 {
		t.Errorf("reactions %+v", got)
	}
}

func TestTaken_ReactionsAreOptional(t *testing.T) {
	var log bytes.Buffer
	s := newSlack(t)
	c := newChannel(t, s, func(o *Options) { o.Log = slog.New(slog.NewTextHandler(&log, nil)) })
	reply := s.Reply(room, post(t, c, inquiry("Ship it?")).Ref, "U7", "yes")
	s.Deny("reactions.add", "reactions:write")
	for range 3 {
		if err := c.Taken(t.Context(), placeOf(reply)); err != nil {
			t.Error(err)
		}
	}
	if n := strings.Count(log.String(), "reactions:write"); n != 1 {
		t.Errorf("said %d times: %s", n, &log)
	}
	s.Deny("reactions.add", "")
	for name, at := range map[string]channels.Place{
		"gone":    {Conversation: room, ID: "1700000000.000001"},
		"a press": {Conversation: room},
	} {
		if err := c.Taken(t.Context(), at); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	s.Queue(channelstest.SlackError("not_reactable"))
	if err := c.Taken(t.Context(), placeOf(reply)); err != nil {
		t.Error(err)
	}
	s.Queue(channelstest.Answer(429, `{"ok":false,"error":"ratelimited"}`, "Retry-After: 5"))
	err := c.Taken(t.Context(), placeOf(reply))
	if r := wantRefusal(t, err, channels.ReasonRate, "ratelimited"); r.RetryAfter != 5*time.Second {
		t.Errorf("wait %s", r.RetryAfter)
	}
}

// settled checks what the settled question's messages say.
func settled(t *testing.T, s *channelstest.Slack, refs []string, how string, texts ...string) {
	t.Helper()
	for i, ref := range refs {
		m := messageAt(t, s, ref)
		if len(m.Blocks) > 0 {
			t.Errorf("part %d still has %s", i+1, m.Blocks)
		}
		edge := i == 0 || i == len(refs)-1
		if n := strings.Count(m.Text, "✅"); (n == 1) != edge || edge && !strings.HasSuffix(m.Text, "\n✅ "+how) {
			t.Errorf("part %d ends in %q", i+1, tail(m.Text))
		}
		if i == 0 && m.Metadata.Payload["state"] != "closed" {
			t.Errorf("part 1 has metadata %v", m.Metadata.Payload)
		}
		if !strings.Contains(m.Text, texts[i]) {
			t.Errorf("part %d has lost %q", i+1, texts[i])
		}
	}
}

func TestSettle_SaysHowItEndedAndTakesTheButtonsAway(t *testing.T) {
	s := newSlack(t)
	c := newChannel(t, s)
	d := inquiry("Ship <it>?", "yes", "no")
	r := post(t, c, d)
	for range 2 {
		if err := c.Settle(t.Context(), d, []string{r.Ref}, "Octo answered: <yes>\nat once"); err != nil {
			t.Fatal(err)
		}
	}
	m := messageAt(t, s, r.Ref)
	if want := "*Question · github:o/r#7*\nShip &lt;it&gt;?\n✅ Octo answered: &lt;yes&gt; at once"; m.Text != want {
		t.Errorf("got %q, want %q", m.Text, want)
	}
	if form := s.Forms("chat.update")[0]; form.Get("blocks") != "[]" { // what is left out may stay, by older documents
		t.Errorf("form %v", form)
	}
	meta := m.Metadata.Payload
	if len(m.Blocks) > 0 || meta["id"] != d.Event.ID || meta["code"] != "7K2" || meta["state"] != "closed" {
		t.Errorf("blocks %s, metadata %v", m.Blocks, meta)
	}
	wantSeen(t, c, d, true, r.Ref) // a look-up finds it as before
}

func TestSettle_TheFirstAndTheLastPart(t *testing.T) {
	for _, known := range []bool{true, false} {
		t.Run(fmt.Sprintf("refs known %v", known), func(t *testing.T) {
			s := newSlack(t)
			c := newChannel(t, s)
			d := inquiry(strings.Repeat("a", 2_000)+strings.Repeat("b", 3_000)+strings.Repeat("c", 2_000), "yes", "no")
			post(t, c, inquiry("Something else?", "yes", "no"))
			r := post(t, c, d)
			if len(r.Parts) != 3 {
				t.Fatalf("%d parts", len(r.Parts))
			}
			refs := r.Parts
			if !known {
				refs = nil
			}
			if err := c.Settle(t.Context(), d, refs, "withdrawn"); err != nil {
				t.Fatal(err)
			}
			settled(t, s, r.Parts, "withdrawn", "1/3\naaa", "bbb", "ccc")
			if n := len(s.Forms("chat.update")); n != 2 {
				t.Errorf("%d updates", n)
			}
			other := s.Messages(room)[0]
			if len(other.Blocks) == 0 || strings.Contains(other.Text, "✅") {
				t.Errorf("another question was settled: %q", other.Text)
			}
		})
	}
}

// The text is the one that was posted, although it would say by now that it
// came late, and although the whole of it is as long as can be.
func TestSettle_KeepsTheTextAsItWas(t *testing.T) {
	s := newSlack(t)
	c := newChannel(t, s)
	d := inquiry(strings.Repeat("<>&", 50_000), "yes", "no")
	d.At = time.Now().Add(-7 * time.Hour)
	r := post(t, c, d)
	before := s.Messages(room)
	if err := c.Settle(t.Context(), d, r.Parts, strings.Repeat("&", 1000)); err != nil {
		t.Fatal(err)
	}
	for i, m := range s.Messages(room) {
		was, _, _ := strings.Cut(before[i].Text, "\n1. yes")
		if !strings.HasPrefix(m.Text, was) {
			t.Errorf("part %d was %q and is %q", i+1, tail(was), tail(m.Text))
		}
	}
	d = inquiry("Ship it?")
	d.At = time.Now()
	r = post(t, c, d)
	d.At = d.At.Add(-4*time.Minute - 59*time.Second) // soon late, and not when it was posted
	if err := c.Settle(t.Context(), d, []string{r.Ref}, "expired"); err != nil {
		t.Fatal(err)
	}
	if text := messageAt(t, s, r.Ref).Text; strings.Contains(text, "ago") {
		t.Errorf("text %q", text)
	}
}

func TestSettle_WhatIsNotThereIsNoError(t *testing.T) {
	s := newSlack(t)
	c := newChannel(t, s)
	never := inquiry("Ship it?")
	if err := c.Settle(t.Context(), never, nil, "withdrawn"); err != nil {
		t.Errorf("never posted: %v", err)
	}
	old := never
	old.At = time.Now().Add(-100 * 24 * time.Hour)
	if err := c.Settle(t.Context(), old, nil, "expired"); err != nil {
		t.Errorf("too old: %v", err)
	}
	d := inquiry("Ship it?")
	r := post(t, c, d)
	theirs := s.Plant(room, channelstest.SlackMessage{User: "U7", Text: "x"})
	for _, ref := range []string{theirs.TS, "1700000000.000001", "not a ts"} {
		if err := c.Settle(t.Context(), d, []string{ref}, "withdrawn"); err != nil {
			t.Errorf("%s: %v", ref, err)
		}
	}
	s.Queue(channelstest.SlackError("edit_window_closed"))
	if err := c.Settle(t.Context(), d, []string{r.Ref}, "withdrawn"); err != nil {
		t.Error(err)
	}
	s.Delete(room, r.Ref)
	for _, refs := range [][]string{{r.Ref}, nil} {
		if err := c.Settle(t.Context(), d, refs, "withdrawn"); err != nil {
			t.Errorf("deleted, refs %v: %v", refs, err)
		}
	}
}

func TestSettle_VerdictsAreThoseOfPost(t *testing.T) {
	s := newSlack(t)
	c := newChannel(t, s)
	d := inquiry("Ship it?")
	r := post(t, c, d)
	s.Queue(channelstest.SlackError("ratelimited"))
	wantRefusal(t, c.Settle(t.Context(), d, []string{r.Ref}, "x"), channels.ReasonRate, "ratelimited")
	s.Queue(channelstest.SlackError("token_revoked"))
	err := c.Settle(t.Context(), d, []string{r.Ref}, "x")
	wantRefusal(t, err, channels.ReasonAuth, "token_revoked")
	s.Queue(s.StoreThen(channelstest.DropRead()))
	err = c.Settle(t.Context(), d, []string{r.Ref}, "x")
	if o := channels.OutcomeOf(channels.Receipt{}, err); o.State != channels.StateUncertain {
		t.Errorf("an answer that is lost is %+v", o)
	}
	channelstest.NoLeak(t, channels.Receipt{}, err, channelstest.SlackToken)
	s.DenyReading("channels:history")
	wantRefusal(t, c.Settle(t.Context(), d, nil, "x"), channels.ReasonAuth, "missing_scope")
}

func TestTell_IntoTheThreadWithTheNotesID(t *testing.T) {
	s := newSlack(t)
	c := newChannel(t, s)
	d := inquiry("Ship it?")
	root := post(t, c, d)
	reply := s.Reply(room, root.Ref, "U7", "maybe")
	if err := c.Tell(t.Context(), placeOf(reply), "NOTE1", "U7", "not a choice: <!here> & maybe", false); err != nil {
		t.Fatal(err)
	}
	messages := s.Messages(room)
	m := messages[len(messages)-1]
	if m.Text != "not a choice: &lt;!here&gt; &amp; maybe" || m.ThreadTS != root.Ref ||
		m.Metadata.Payload["id"] != "NOTE1" {
		t.Errorf("got %+v with %+v", m, m.Metadata)
	}
	if form := s.Forms("chat.postMessage")[1]; form.Get("parse") != "none" || form.Get("unfurl_links") != "false" {
		t.Errorf("form %v", form)
	}
	wantSeen(t, c, d, true, root.Ref) // a note disturbs no look-up
	lost := inquiry("And?")
	wantNothing(t, c, lost)

	if err := c.Tell(t.Context(), placeOf(reply), "NOTE2", "U7", strings.Repeat("&", 9_000), false); err != nil {
		t.Fatal(err)
	}
	messages = s.Messages(room)
	if text := messages[len(messages)-1].Text; escapedLen(text) < 2000 || !strings.HasSuffix(text, "&amp; …") {
		t.Errorf("%d characters, %q", len(text), tail(text))
	}
}

func TestTell_PrivatelyToOneUserAlone(t *testing.T) {
	s := newSlack(t)
	c := newChannel(t, s)
	root := post(t, c, inquiry("Ship it?"))
	at := channels.Place{Conversation: room, ID: root.Ref} // a press on the root itself
	if err := c.Tell(t.Context(), at, "NOTE1", "U7", "not here & now", true); err != nil {
		t.Fatal(err)
	}
	want := channelstest.SlackEphemeral{Room: room, User: "U7", ThreadTS: root.Ref, Text: "not here &amp; now"}
	if got := s.Ephemeral(); len(got) != 1 || got[0] != want || len(s.Messages(room)) != 1 {
		t.Errorf("got %+v and %d messages in the room", got, len(s.Messages(room)))
	}
	s.Leave("U7")
	err := c.Tell(t.Context(), at, "NOTE2", "U7", "x", true)
	wantRefusal(t, err, channels.ReasonUnacceptable, "user_not_in_channel")
}

func TestTell_VerdictsAreThoseOfPost(t *testing.T) {
	for _, private := range []bool{true, false} {
		s := newSlack(t)
		c := newChannel(t, s)
		at := channels.Place{Conversation: room, ID: post(t, c, inquiry("Ship it?")).Ref}
		s.Queue(channelstest.SlackError("is_archived"))
		wantRefusal(t, c.Tell(t.Context(), at, "N", "U7", "x", private), channels.ReasonConfig, "is_archived")
		s.Queue(channelstest.DropRead())
		err := c.Tell(t.Context(), at, "N", "U7", "x", private)
		if o := channels.OutcomeOf(channels.Receipt{}, err); o.State != channels.StateUncertain {
			t.Errorf("private %v: %+v", private, o)
		}
		channelstest.NoLeak(t, channels.Receipt{}, err, channelstest.SlackToken)
	}
}
