package channelstest

import (
	"cmp"
	"encoding/json"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode/utf16"
)

// Slack's limits, in characters where nothing else is said. It documents
// neither whether a character beyond the BMP counts as one or as two (taken as
// two here), nor the exact sum of all blocks, nor the size of metadata.
const (
	slackMaxText     = 40_000
	slackMaxBlocks   = 50
	slackMaxObject   = 3_000
	slackMaxSum      = 13_200
	slackMaxMetadata = 8_192 // bytes
)

// do answers a call of a method. The caller holds mu.
func (s *Slack) do(method, token string, form url.Values) slackAnswer {
	if method == "apps.connections.open" {
		return s.socket.grant(token)
	}
	switch token {
	case "":
		return slackError("not_authed")
	case s.token:
	default:
		return slackError("invalid_auth")
	}
	if scope := s.more.denied[method]; scope != "" {
		return slackAnswer{"ok": false, "error": "missing_scope", "needed": scope, "provided": "chat:write"}
	}
	if method == "auth.test" {
		return slackAnswer{
			"ok": true, "url": "https://example.slack.com/", "team": "Example", "team_id": "T1",
			"user": "the-loop", "user_id": SlackUser, "bot_id": SlackBot,
		}
	}
	room := s.rooms[form.Get("channel")]
	if room == nil {
		return slackError("channel_not_found")
	}
	switch method {
	case "chat.postMessage":
		return s.post(room, form)
	case "conversations.history", "conversations.replies":
		return s.read(method, room, form)
	case "chat.update":
		return s.update(room, form)
	case "chat.postEphemeral":
		return s.postEphemeral(room, form)
	case "reactions.add":
		return s.react(room, form)
	}
	return slackError("unknown_method")
}

// post is chat.postMessage. A thread_ts that is not there does not fail: the
// message is put into the room itself, and the answer's message has no
// thread_ts, as Slack does when a root was deleted.
func (s *Slack) post(room *slackRoom, form url.Values) slackAnswer {
	m := SlackMessage{Type: "message", User: SlackUser, BotID: SlackBot, Text: form.Get("text")}
	if code := m.fill(form); code != "" {
		return slackError(code)
	}
	now := time.Now()
	if !room.posted.IsZero() && now.Sub(room.posted) < s.pace {
		return slackError("ratelimited")
	}
	room.posted = now
	s.lastTS = max(s.lastTS+1, now.UnixMicro())
	m.TS = slackTS(s.lastTS)
	if root := room.find(form.Get("thread_ts")); root != nil {
		root.ThreadTS = cmp.Or(root.ThreadTS, root.TS)
		m.ThreadTS = root.ThreadTS
	}
	room.messages = append(room.messages, m)
	return slackAnswer{"ok": true, "channel": form.Get("channel"), "ts": m.TS, "message": m}
}

// fill takes blocks and metadata over from the form and gives the code of the
// first limit that the message breaks.
func (m *SlackMessage) fill(form url.Values) (code string) {
	if blocks := form.Get("blocks"); blocks != "" {
		if code := checkSlackBlocks([]byte(blocks)); code != "" {
			return code
		}
		m.Blocks = json.RawMessage(blocks)
	}
	if meta := form.Get("metadata"); meta != "" {
		if len(meta) > slackMaxMetadata {
			return "metadata_too_large"
		}
		if err := json.Unmarshal([]byte(meta), &m.Metadata); err != nil || m.Metadata == nil || m.Metadata.EventType == "" {
			return "invalid_metadata_format"
		}
	}
	switch {
	case m.Text == "" && len(m.Blocks) == 0:
		return "no_text"
	case slackLen(m.Text) > slackMaxText:
		return "msg_too_long"
	}
	return ""
}

func checkSlackBlocks(b []byte) (code string) {
	var blocks []any
	if err := json.Unmarshal(b, &blocks); err != nil {
		return "invalid_blocks_format"
	}
	if len(blocks) > slackMaxBlocks {
		return "invalid_blocks"
	}
	sum := 0
	for _, text := range slackTexts(blocks) {
		n := slackLen(text)
		if n == 0 || n > slackMaxObject {
			return "invalid_blocks"
		}
		sum += n
	}
	if !slackActionsFit(blocks) {
		return "invalid_blocks"
	}
	if sum > slackMaxSum {
		return "msg_blocks_too_long"
	}
	return ""
}

// slackTexts gives the texts of all text objects in v.
func slackTexts(v any) (texts []string) {
	switch v := v.(type) {
	case []any:
		for _, element := range v {
			texts = append(texts, slackTexts(element)...)
		}
	case map[string]any:
		if text, ok := v["text"].(string); ok {
			return []string{text}
		}
		for _, value := range v {
			texts = append(texts, slackTexts(value)...)
		}
	}
	return texts
}

func slackLen(s string) int { return len(utf16.Encode([]rune(s))) }

func (r *slackRoom) find(ts string) *SlackMessage {
	for i := range r.messages {
		if r.messages[i].TS == ts {
			return &r.messages[i]
		}
	}
	return nil
}

func slackBetween(ts, oldest, latest string, inclusive bool) bool {
	if (ts == oldest || ts == latest) && !inclusive {
		return false
	}
	return (oldest == "" || slackTime(ts) >= slackTime(oldest)) && (latest == "" || slackTime(ts) <= slackTime(latest))
}

// slackTime reads a ts as the time that it is.
func slackTime(ts string) time.Duration {
	seconds, micros, _ := strings.Cut(ts, ".")
	s, _ := strconv.ParseInt(seconds, 10, 64)
	us, _ := strconv.ParseInt((micros + "000000")[:6], 10, 64)
	return time.Duration(s)*time.Second + time.Duration(us)*time.Microsecond
}

func slackBool(s string) bool { return s == "1" || s == "true" }
