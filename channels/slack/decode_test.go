package slack

import (
	"encoding/json"
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"the-loop/channels"
	"the-loop/channels/channelstest"
)

// reply is a person's message in testThread as the fake's room has it.
func reply(s *channelstest.Slack, text string) channelstest.SlackMessage {
	return s.Plant(channelstest.SlackRoom, channelstest.SlackMessage{User: testUser, Text: text, ThreadTS: testThread})
}

// asked is a message with two of our buttons, as the fake's room has it.
func asked(s *channelstest.Slack, question string) channelstest.SlackMessage {
	button := func(n int, label string) map[string]any {
		value, _ := json.Marshal(map[string]any{"q": question, "c": n})
		return map[string]any{
			"type": "button", "action_id": "the_loop_choice_" + strconv.Itoa(n), "value": string(value),
			"text": map[string]any{"type": "plain_text", "text": label},
		}
	}
	blocks, _ := json.Marshal([]any{
		map[string]any{"type": "section", "text": map[string]any{"type": "mrkdwn", "text": "Ship it?"}},
		map[string]any{
			"type": "actions", "block_id": "the_loop_question", "elements": []any{button(0, "yes"), button(1, "no")},
		},
	})
	return s.Plant(channelstest.SlackRoom, channelstest.SlackMessage{
		User: channelstest.SlackUser, BotID: channelstest.SlackBot, Text: "Ship it?", ThreadTS: testThread, Blocks: blocks,
	})
}

func dropped(t *testing.T, a channels.Arrival, word string) {
	t.Helper()
	if a.Dropped != word || len(a.Messages) != 0 {
		t.Errorf("dropped as %q with %d messages, want %q and none", a.Dropped, len(a.Messages), word)
	}
}

func TestEventsDoor_ReplyInOurThreadIsAMessage(t *testing.T) {
	s := newSlack(t)
	events, _ := newDoors(t, newRoom(t, s))
	m := reply(s, "A &amp; B")
	a := open(t, events, s.Signed(testSecret, time.Now(), s.Said(channelstest.SlackRoom, m)))
	at, _ := tsTime(m.TS)
	want := channels.Arrival{Messages: []channels.Message{{
		Key: "slack:C0123456:" + m.TS, Surface: "slack", Channel: "slack", WorkItem: testItem,
		Place: channels.Place{Conversation: channelstest.SlackRoom, Thread: testThread, ID: m.TS},
		From:  channels.Author{ID: testUser, Person: true}, At: at, Text: "A & B",
	}}}
	if diff := cmp.Diff(want, a); diff != "" {
		t.Error(diff)
	}
}

func TestEventsDoor_ThreadOfTheChannelThatKnowsIt(t *testing.T) {
	s := newSlack(t)
	other := newChannel(t, s, func(o *Options) { o.Name = "other" })
	events, _ := newDoors(t, other, newRoom(t, s))
	a := open(t, events, s.Signed(testSecret, time.Now(), s.Said(channelstest.SlackRoom, reply(s, "A"))))
	if len(a.Messages) != 1 || a.Messages[0].Channel != "slack" {
		t.Errorf("arrival %+v, want one message by the channel slack", a)
	}
}

func TestEventsDoor_WhatIsNoReplyOfAPersonIsDropped(t *testing.T) {
	s := newSlack(t)
	room := channelstest.SlackRoom
	events, _ := newDoors(t, newRoom(t, s))
	m := reply(s, "A")
	with := func(change func(e map[string]any)) channelstest.SlackPayload {
		p := s.Said(room, m)
		change(p["event"].(map[string]any))
		return p
	}
	for name, c := range map[string]struct {
		payload channelstest.SlackPayload
		word    string
	}{
		"edit":              {s.Edited(room, m, "B"), "edit"},
		"deletion":          {s.Deleted(room, m), "deletion"},
		"bot":               {s.BotSaid(room, testThread, "A"), "bot"},
		"bot without name":  {with(func(e map[string]any) { e["bot_id"] = "B9" }), "bot"},
		"app":               {with(func(e map[string]any) { e["app_id"] = "A9" }), "bot"},
		"join":              {with(func(e map[string]any) { e["subtype"] = "channel_join" }), "subtype"},
		"me":                {with(func(e map[string]any) { e["subtype"] = "me_message" }), "subtype"},
		"nobody":            {with(func(e map[string]any) { delete(e, "user") }), "subtype"},
		"room itself":       {with(func(e map[string]any) { delete(e, "thread_ts") }), "unknown_thread"},
		"thread not ours":   {with(func(e map[string]any) { e["thread_ts"] = "1.000001" }), "unknown_thread"},
		"conversation":      {s.Said("C0000000", m), "unknown_thread"},
		"no conversation":   {s.Said("", m), "unknown_thread"},
		"another event":     {with(func(e map[string]any) { e["type"] = "reaction_added" }), "other"},
		"user as an object": {with(func(e map[string]any) { e["type"], e["user"] = "team_join", map[string]any{} }), "other"},
		"limit":             {channelstest.SlackPayload{"type": "app_rate_limited"}, "other"},
	} {
		t.Run(name, func(t *testing.T) {
			dropped(t, open(t, events, s.Signed(testSecret, time.Now(), c.payload)), c.word)
		})
	}
}

func TestEventsDoor_SharedAndWithFilesIsAPersonsToo(t *testing.T) {
	s := newSlack(t)
	events, _ := newDoors(t, newRoom(t, s))
	for _, subtype := range []string{"thread_broadcast", "file_share"} {
		p := s.Said(channelstest.SlackRoom, reply(s, "A"))
		p["event"].(map[string]any)["subtype"] = subtype
		a := open(t, events, s.Signed(testSecret, time.Now(), p))
		if len(a.Messages) != 1 || !a.Messages[0].From.Person {
			t.Errorf("%s: %+v", subtype, a)
		}
	}
}

// The duplicate check is the pipeline's, by the key: a request that bears
// Slack's retry header is read like any other, and gives the same key.
func TestL10_RetriedEventIsReadAndHasTheSameKey(t *testing.T) {
	s := newSlack(t)
	events, _ := newDoors(t, newRoom(t, s))
	m := reply(s, "A")
	var keys []string
	for range 2 {
		r := s.Signed(testSecret, time.Now(), s.Said(channelstest.SlackRoom, m)) // each with an event_id of its own
		r.Header.Set("X-Slack-Retry-Num", "1")
		r.Header.Set("X-Slack-Retry-Reason", "http_timeout")
		a := open(t, events, r)
		if len(a.Messages) != 1 {
			t.Fatalf("arrival %+v", a)
		}
		keys = append(keys, a.Messages[0].Key)
	}
	if keys[0] != keys[1] {
		t.Errorf("keys %q", keys)
	}
}

func TestDoor_SignedNonsenseIsNoForgery(t *testing.T) {
	s := newSlack(t)
	events, interactions := newDoors(t, newRoom(t, s))
	p := s.Said(channelstest.SlackRoom, reply(s, "A"))
	p["event"].(map[string]any)["ts"] = "yesterday"
	noTS := s.Signed(testSecret, time.Now(), p)
	for _, body := range []string{"", "{", "[]", `{"type":"event_callback","event":[]}`, string(noTS.Body)} {
		r := channelstest.SignSlack(testSecret, time.Now(), channelstest.SlackEventsPath, []byte(body))
		if _, err := events.Open(r.Header, r.Body); err == nil || errors.Is(err, channels.ErrForged) {
			t.Errorf("event %q: %v", body, err)
		}
	}
	for _, body := range []string{
		"", "payload=", "payload={", "payload=%zz", "payload=%7B%7D&payload=%7B%7D", `{"type":"x"}`,
	} {
		r := channelstest.SignSlack(testSecret, time.Now(), channelstest.SlackInteractionsPath, []byte(body))
		if _, err := interactions.Open(r.Header, r.Body); err == nil || errors.Is(err, channels.ErrForged) {
			t.Errorf("interaction %q: %v", body, err)
		}
	}
}

func TestInteractionsDoor_PressIsAMessage(t *testing.T) {
	s := newSlack(t)
	_, interactions := newDoors(t, newRoom(t, s))
	const id = "01KB3Z0000000000000000000A"
	q := asked(s, id)
	p := s.Pressed(channelstest.SlackRoom, q, testUser, 1)
	ts := p["actions"].([]any)[0].(map[string]any)["action_ts"].(string)
	at, _ := tsTime(ts)
	want := channels.Arrival{Messages: []channels.Message{{
		Key: "slack:press:" + id + ":" + testUser + ":" + ts, Surface: "slack", Channel: "slack", WorkItem: testItem,
		Place: channels.Place{Conversation: channelstest.SlackRoom, Thread: testThread, ID: q.TS},
		From:  channels.Author{ID: testUser, Person: true}, At: at, Press: &channels.Press{Question: id, Choice: 1},
	}}}
	if diff := cmp.Diff(want, open(t, interactions, s.Signed(testSecret, time.Now(), p))); diff != "" {
		t.Error(diff)
	}
	again := open(t, interactions, s.Signed(testSecret, time.Now(), p))
	second := open(t, interactions, s.Signed(testSecret, time.Now(), s.Pressed(channelstest.SlackRoom, q, testUser, 1)))
	if again.Messages[0].Key != want.Messages[0].Key || second.Messages[0].Key == want.Messages[0].Key {
		t.Error("a press has the key of the press, however often it is sent")
	}
}

func TestInteractionsDoor_PressOnAPostedQuestion(t *testing.T) {
	s := newSlack(t)
	c := newChannel(t, s)
	_, interactions := newDoors(t, c)
	d := question("Ship it?")
	d.Event.Detail = channels.Asked{Code: "7K2", Choices: []string{"yes", "no"}, Buttons: true}.Detail()
	r, err := c.Post(t.Context(), d)
	if err != nil {
		t.Fatal(err)
	}
	m := s.Messages(channelstest.SlackRoom)[0]
	for n := range 2 {
		p := s.Signed(testSecret, time.Now(), s.Pressed(channelstest.SlackRoom, m, testUser, n))
		a := open(t, interactions, p)
		if len(a.Messages) != 1 {
			t.Fatalf("arrival %+v", a)
		}
		got := a.Messages[0]
		if *got.Press != (channels.Press{Question: d.Event.ID, Choice: n}) || got.WorkItem != d.Event.WorkItem {
			t.Errorf("button %d: %+v, pressed %+v", n, got, *got.Press)
		}
		if want := (channels.Place{Conversation: channelstest.SlackRoom, Thread: r.Ref, ID: r.Ref}); got.Place != want {
			t.Errorf("place %+v, want %+v", got.Place, want)
		}
	}
}

func TestInteractionsDoor_PressInARoomOfOursWithoutAKnownThread(t *testing.T) {
	s := newSlack(t)
	_, interactions := newDoors(t, newChannel(t, s))
	q := asked(s, "elsewhere.1")
	q.ThreadTS = "" // it stands in the room itself: it is the root
	a := open(t, interactions, s.Signed(testSecret, time.Now(), s.Pressed(channelstest.SlackRoom, q, testUser, 0)))
	want := channels.Place{Conversation: channelstest.SlackRoom, Thread: q.TS, ID: q.TS}
	if len(a.Messages) != 1 || a.Messages[0].WorkItem != "" || a.Messages[0].Place != want {
		t.Errorf("arrival %+v", a)
	}
}

func TestInteractionsDoor_WhatIsNoPressOfOursIsDropped(t *testing.T) {
	s := newSlack(t)
	room := channelstest.SlackRoom
	_, interactions := newDoors(t, newRoom(t, s))
	q := asked(s, "01KB3Z0000000000000000000A")
	with := func(key string, value any) channelstest.SlackPayload {
		p := s.Pressed(room, q, testUser, 0)
		p["actions"].([]any)[0].(map[string]any)[key] = value
		return p
	}
	none := s.Pressed(room, q, testUser, 0)
	none["actions"] = []any{}
	for name, c := range map[string]struct {
		payload channelstest.SlackPayload
		word    string
	}{
		"foreign room":    {s.Pressed("C0000000", q, testUser, 0), "unknown_thread"},
		"another action":  {with("action_id", "approve"), "foreign_button"},
		"no number":       {with("action_id", "the_loop_choice_"), "foreign_button"},
		"another block":   {with("block_id", "b1"), "foreign_button"},
		"no value":        {with("value", ""), "foreign_button"},
		"no choice":       {with("value", `{"q":"01KB3Z0000000000000000000A"}`), "foreign_button"},
		"negative choice": {with("value", `{"q":"01KB3Z0000000000000000000A","c":-1}`), "foreign_button"},
		"large choice":    {with("value", `{"q":"01KB3Z0000000000000000000A","c":4}`), "foreign_button"},
		"no question":     {with("value", `{"c":0}`), "foreign_button"},
		"path":            {with("value", `{"q":"../x","c":0}`), "foreign_button"},
		"no actions":      {none, "foreign_button"},
		"view":            {channelstest.SlackPayload{"type": "view_submission", "actions": 1}, "other"},
	} {
		t.Run(name, func(t *testing.T) {
			dropped(t, open(t, interactions, s.Signed(testSecret, time.Now(), c.payload)), c.word)
		})
	}
	for name, p := range map[string]channelstest.SlackPayload{
		"no time": with("action_ts", "now"), "no user": s.Pressed(room, q, "", 0), "odd user": s.Pressed(room, q, "a:b", 0),
	} {
		r := s.Signed(testSecret, time.Now(), p)
		if a, err := interactions.Open(r.Header, r.Body); err == nil || len(a.Messages) > 0 {
			t.Errorf("%s: %+v, %v", name, a, err)
		}
	}
}

func TestDoor_ErrorsHoldNoText(t *testing.T) {
	s := newSlack(t)
	events, interactions := newDoors(t, newRoom(t, s))
	for _, text := range []string{"geheim", `{"type":"event_callback","event":"geheim"}`, `payload={"type":"geheim`} {
		for _, d := range []anyDoor{events, interactions} {
			r := channelstest.SignSlack(testSecret, time.Now(), channelstest.SlackEventsPath, []byte(text))
			if _, err := d.Open(r.Header, r.Body); err == nil || strings.Contains(err.Error(), "geheim") {
				t.Errorf("%q: %v", text, err)
			}
		}
	}
}
