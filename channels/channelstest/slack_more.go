package channelstest

import (
	"maps"
	"net/url"
	"regexp"
	"slices"
	"time"
)

// Slack's limits for changing a message and for what can be pressed, in
// characters where nothing else is said.
const (
	slackMaxUpdate   = 4_000 // of the text given to chat.update
	slackMaxElements = 25    // of one actions block
	slackMaxLabel    = 75    // of a button's text
	slackMaxValue    = 2_000 // of a button's value
	slackMaxID       = 255   // of a block_id and an action_id
	slackMaxEmoji    = 23    // different ones on one message
)

// slackMore is what else a Slack keeps.
type slackMore struct {
	denied    map[string]string // scope that is missing, by method
	outsiders map[string]bool
	ephemeral []SlackEphemeral
}

// SlackEdit says who changed a message last, and when.
type SlackEdit struct {
	User string `json:"user"`
	TS   string `json:"ts"`
}

// SlackReaction is who reacted to a message with an emoji.
type SlackReaction struct {
	Name  string   `json:"name"`
	Users []string `json:"users"`
	Count int      `json:"count"`
}

// SlackEphemeral is a message that one user alone was shown.
type SlackEphemeral struct {
	Room, User, ThreadTS, Text string
}

// Deny makes the method fail for want of that scope, such as "reactions.add"
// for "reactions:write"; "" grants it again.
func (s *Slack) Deny(method, scope string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.more.denied == nil {
		s.more.denied = map[string]string{}
	}
	s.more.denied[method] = scope
}

// Leave takes the user out of all rooms.
func (s *Slack) Leave(user string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.more.outsiders == nil {
		s.more.outsiders = map[string]bool{}
	}
	s.more.outsiders[user] = true
}

// Ephemeral gives the messages that one user alone was shown, in order.
func (s *Slack) Ephemeral() []SlackEphemeral {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.more.ephemeral)
}

// Reply puts a person's reply into a thread and gives it back. text is as Slack
// keeps it, escaped.
func (s *Slack) Reply(room, thread, user, text string) SlackMessage {
	return s.Plant(room, SlackMessage{User: user, Text: text, ThreadTS: thread})
}

// Edit changes a message's text, as the person who wrote it may.
func (s *Slack) Edit(room, ts, text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if m := s.rooms[room].find(ts); m != nil {
		m.Text, m.Edited = text, s.edit(m.User)
	}
}

// Bury deletes the root of a thread that has replies: a tombstone stays in its
// place.
func (s *Slack) Bury(room, ts string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if m := s.rooms[room].find(ts); m != nil {
		*m = SlackMessage{
			Type: "message", Subtype: "tombstone", User: "USLACKBOT", Text: "This message was deleted.",
			TS: m.TS, ThreadTS: m.ThreadTS,
		}
	}
}

func (s *Slack) edit(user string) *SlackEdit {
	s.lastTS = max(s.lastTS+1, time.Now().UnixMicro())
	return &SlackEdit{User: user, TS: slackTS(s.lastTS)}
}

// update is chat.update. Text without blocks takes the blocks away and marks
// the message as edited, blocks leave no such mark. Metadata that is not given
// stays.
func (s *Slack) update(room *slackRoom, form url.Values) slackAnswer {
	m := room.find(form.Get("ts"))
	switch {
	case m == nil || m.Subtype == "tombstone":
		return slackError("message_not_found")
	case m.BotID != SlackBot:
		return slackError("cant_update_message")
	case slackLen(form.Get("text")) > slackMaxUpdate:
		return slackError("msg_too_long")
	}
	changed := *m
	changed.Text, changed.Blocks = form.Get("text"), nil
	if blocks := form.Get("blocks"); blocks == "[]" {
		form = maps.Clone(form)
		form.Del("blocks")
	}
	if code := changed.fill(form); code != "" {
		return slackError(code)
	}
	if len(changed.Blocks) == 0 {
		changed.Edited = s.edit(SlackUser)
	}
	*m = changed
	return slackAnswer{"ok": true, "channel": form.Get("channel"), "ts": m.TS, "text": m.Text, "message": *m}
}

// postEphemeral is chat.postEphemeral. What it shows stands in no room.
func (s *Slack) postEphemeral(_ *slackRoom, form url.Values) slackAnswer {
	m := SlackMessage{Text: form.Get("text")}
	if code := m.fill(form); code != "" {
		return slackError(code)
	}
	user := form.Get("user")
	if user == "" || s.more.outsiders[user] {
		return slackError("user_not_in_channel")
	}
	s.more.ephemeral = append(s.more.ephemeral,
		SlackEphemeral{form.Get("channel"), user, form.Get("thread_ts"), m.Text})
	return slackAnswer{"ok": true, "message_ts": s.edit(user).TS}
}

var (
	slackTSPattern    = regexp.MustCompile(`^[0-9]+\.[0-9]+$`)
	slackEmojiPattern = regexp.MustCompile(`^[a-z0-9_+'-]+(::skin-tone-[2-6])?$`)
)

// react is reactions.add.
func (s *Slack) react(room *slackRoom, form url.Values) slackAnswer {
	name, ts := form.Get("name"), form.Get("timestamp")
	switch {
	case ts == "":
		return slackError("no_item_specified")
	case !slackTSPattern.MatchString(ts):
		return slackError("bad_timestamp")
	case !slackEmojiPattern.MatchString(name):
		return slackError("invalid_name")
	}
	m := room.find(ts)
	if m == nil {
		return slackError("message_not_found")
	}
	m.Reactions = slices.Clone(m.Reactions) // who was given the message keeps what they saw
	for i, r := range m.Reactions {
		if r.Name != name {
			continue
		}
		if slices.Contains(r.Users, SlackUser) {
			return slackError("already_reacted")
		}
		m.Reactions[i] = SlackReaction{name, append(slices.Clone(r.Users), SlackUser), r.Count + 1}
		return slackAnswer{"ok": true}
	}
	if len(m.Reactions) >= slackMaxEmoji {
		return slackError("too_many_emoji")
	}
	m.Reactions = append(m.Reactions, SlackReaction{name, []string{SlackUser}, 1})
	return slackAnswer{"ok": true}
}

// slackActionsFit reports whether all ids are short and told apart, and all
// buttons as they may be.
func slackActionsFit(blocks []any) bool {
	ids := map[string]bool{}
	for _, b := range blocks {
		block, _ := b.(map[string]any)
		id, _ := block["block_id"].(string)
		if slackLen(id) > slackMaxID || id != "" && ids[id] {
			return false
		}
		ids[id] = true
		if block["type"] != "actions" {
			continue
		}
		elements, _ := block["elements"].([]any)
		if len(elements) == 0 || len(elements) > slackMaxElements {
			return false
		}
		actions := map[string]bool{}
		for _, e := range elements {
			element, _ := e.(map[string]any)
			id, _ := element["action_id"].(string)
			if slackLen(id) > slackMaxID || id != "" && actions[id] || !slackButtonFits(element) {
				return false
			}
			actions[id] = true
		}
	}
	return true
}

func slackButtonFits(element map[string]any) bool {
	if element["type"] != "button" {
		return true
	}
	text, _ := element["text"].(map[string]any)
	label, _ := text["text"].(string)
	value, _ := element["value"].(string)
	return text["type"] == "plain_text" && label != "" && slackLen(label) <= slackMaxLabel &&
		slackLen(value) <= slackMaxValue
}
