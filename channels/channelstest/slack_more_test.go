package channelstest

import (
	"fmt"
	"strings"
	"testing"
)

func TestSlack_LimitsOfButtons(t *testing.T) {
	x := func(n int) string { return strings.Repeat("x", n) }
	button := func(id, label, value string) string {
		const form = `{"type":"button","action_id":%q,"value":%q,"text":{"type":"plain_text","text":%q}}`
		return fmt.Sprintf(form, id, value, label)
	}
	actions := func(block string, buttons ...string) string {
		return fmt.Sprintf(`{"type":"actions","block_id":%q,"elements":[%s]}`, block, strings.Join(buttons, ","))
	}
	var many []string
	for i := range 26 {
		many = append(many, button(fmt.Sprint(i), "x", "x"))
	}
	for name, tt := range map[string]struct{ blocks, want string }{
		"full":             {actions(x(255), button(x(255), x(75), x(2000))), ""},
		"most buttons":     {actions("b", many[:25]...), ""},
		"too many buttons": {actions("b", many...), "invalid_blocks"},
		"no buttons":       {actions("b"), "invalid_blocks"},
		"long label":       {actions("b", button("a", x(76), "v")), "invalid_blocks"},
		"long value":       {actions("b", button("a", "x", x(2001))), "invalid_blocks"},
		"long action":      {actions("b", button(x(256), "x", "v")), "invalid_blocks"},
		"long block":       {actions(x(256), button("a", "x", "v")), "invalid_blocks"},
		"same actions":     {actions("b", many[0], many[0]), "invalid_blocks"},
		"same blocks":      {actions("b", many[0]) + "," + actions("b", many[1]), "invalid_blocks"},
		"formatted label":  {actions("b", strings.ReplaceAll(many[0], "plain_text", "mrkdwn")), "invalid_blocks"},
	} {
		t.Run(name, func(t *testing.T) {
			_, answer := NewSlack(t).call(t, "chat.postMessage", "text", "x", "blocks", "["+tt.blocks+"]")
			if code, _ := answer["error"].(string); code != tt.want {
				t.Errorf("answer %v, want error %q", answer, tt.want)
			}
		})
	}
}

// wantCode calls the method and checks its error, "" for none.
func (s *Slack) wantCode(t *testing.T, want, method string, params ...string) {
	t.Helper()
	_, answer := s.call(t, method, params...)
	if code, _ := answer["error"].(string); code != want || answer["ok"] != (want == "") {
		t.Errorf("%s %v: answer %v, want error %q", method, params, answer, want)
	}
}

func TestSlack_Updating(t *testing.T) {
	s := NewSlack(t)
	const (
		section = `[{"type":"section","text":{"type":"mrkdwn","text":"x"}}]`
		meta    = `{"event_type":"e","event_payload":{"id":"1"}}`
	)
	_, answer := s.call(t, "chat.postMessage", "text", "x", "blocks", section, "metadata", meta)
	ts := answer["ts"].(string)
	theirs := s.Plant(SlackRoom, SlackMessage{User: "U7", Text: "x"})

	s.wantCode(t, "", "chat.update", "ts", ts, "text", "y", "blocks", section)
	if m := s.Messages(SlackRoom)[0]; m.Text != "y" || len(m.Blocks) == 0 || m.Edited != nil || m.Metadata == nil {
		t.Errorf("with blocks: %+v", m)
	}
	s.wantCode(t, "", "chat.update", "ts", ts, "text", "z", "blocks", "[]")
	if m := s.Messages(SlackRoom)[0]; m.Text != "z" || len(m.Blocks) > 0 || m.Edited == nil {
		t.Errorf("without: %+v", m)
	}
	s.wantCode(t, "message_not_found", "chat.update", "ts", "1.2", "text", "y")
	s.wantCode(t, "cant_update_message", "chat.update", "ts", theirs.TS, "text", "y")
	s.wantCode(t, "msg_too_long", "chat.update", "ts", ts, "text", strings.Repeat("x", 4001))
	s.wantCode(t, "no_text", "chat.update", "ts", ts)
	if m := s.Messages(SlackRoom)[0]; m.Text != "z" {
		t.Errorf("a refused update changed it to %q", m.Text)
	}
}

func TestSlack_Reacting(t *testing.T) {
	s := NewSlack(t)
	m := s.Plant(SlackRoom, SlackMessage{User: "U7", Text: "x"})
	for _, tt := range []struct{ name, ts, want string }{
		{"white_check_mark", m.TS, ""},
		{"white_check_mark", m.TS, "already_reacted"},
		{"+1", m.TS, ""},
		{"No Such", m.TS, "invalid_name"},
		{"+1", "", "no_item_specified"},
		{"+1", "soon", "bad_timestamp"},
		{"+1", "1.2", "message_not_found"},
	} {
		s.wantCode(t, tt.want, "reactions.add", "name", tt.name, "timestamp", tt.ts)
	}
	s.Deny("reactions.add", "reactions:write")
	s.wantCode(t, "missing_scope", "reactions.add", "name", "eyes", "timestamp", m.TS)
	s.wantCode(t, "", "auth.test")
	if got := s.Messages(SlackRoom)[0].Reactions; len(got) != 2 || got[1].Name != "+1" || got[1].Users[0] != SlackUser {
		t.Errorf("reactions %+v", got)
	}
}

func TestSlack_ShowingToOneUser(t *testing.T) {
	s := NewSlack(t)
	s.wantCode(t, "", "chat.postEphemeral", "user", "U7", "text", "x", "thread_ts", "1.2")
	s.wantCode(t, "no_text", "chat.postEphemeral", "user", "U7")
	s.wantCode(t, "user_not_in_channel", "chat.postEphemeral", "text", "x")
	s.Leave("U7")
	s.wantCode(t, "user_not_in_channel", "chat.postEphemeral", "user", "U7", "text", "x")
	got := s.Ephemeral()
	if len(got) != 1 || got[0] != (SlackEphemeral{SlackRoom, "U7", "1.2", "x"}) || len(s.Messages(SlackRoom)) > 0 {
		t.Errorf("shown: %+v", got)
	}
}

func TestSlack_WhatPeopleDo(t *testing.T) {
	s := NewSlack(t)
	root := s.Plant(SlackRoom, SlackMessage{User: "U7", Text: "root"})
	reply := s.Reply(SlackRoom, root.TS, "U8", "no")
	s.Reply(SlackRoom, root.TS, "U9", "later")
	s.Edit(SlackRoom, reply.TS, "yes")
	s.Bury(SlackRoom, root.TS)
	s.LimitPages(2)
	for _, tt := range []struct{ cursor, want string }{
		{"", "tombstone/USLACKBOT/This message was deleted. /U8/yes*"},
		{"2", "tombstone/USLACKBOT/This message was deleted. /U9/later"},
	} {
		_, answer := s.call(t, "conversations.replies", "ts", root.TS, "cursor", tt.cursor, "oldest", root.TS)
		var got []string
		for _, m := range answer["messages"].([]any) {
			m := m.(map[string]any)
			subtype, _ := m["subtype"].(string)
			text := fmt.Sprintf("%s/%s/%s", subtype, m["user"], m["text"])
			if m["edited"] != nil {
				text += "*"
			}
			got = append(got, text)
		}
		if strings.Join(got, " ") != tt.want {
			t.Errorf("page %q: %q, want %q", tt.cursor, got, tt.want)
		}
	}
}
