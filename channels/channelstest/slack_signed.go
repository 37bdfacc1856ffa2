package channelstest

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// Where a Slack app's requests go, by our receiver's routes.
const (
	SlackEventsPath       = "/slack/events"
	SlackInteractionsPath = "/slack/interactions"
)

// SlackSigningSecret is what a fresh Slack's app signs with, as a rule: the
// fake signs with whatever secret it is given.
const SlackSigningSecret = "8f742231b10e8888abcd99yyyzzz85a5"

// SlackPayload is the JSON that Slack sends to an app, by a request or by a
// socket.
type SlackPayload map[string]any

// SlackRequest is one that Slack makes to an app's address.
type SlackRequest struct {
	Path   string
	Header http.Header
	Body   []byte
}

// Request gives the request as it would be made to the server at base, such as
// "http://127.0.0.1:8787".
func (r SlackRequest) Request(ctx context.Context, base string) (*http.Request, error) {
	address := strings.TrimSuffix(base, "/") + r.Path
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, address, bytes.NewReader(r.Body))
	if err != nil {
		return nil, err
	}
	req.Header = r.Header.Clone()
	return req, nil
}

// Signed gives the request for the payload, signed at that time with secret.
// Its address follows from the payload: what has an "actions" is an
// interaction, in a form's field, and everything else an event.
func (s *Slack) Signed(secret string, at time.Time, payload SlackPayload) SlackRequest {
	body := slackAnswer(payload).encode()
	if _, ok := payload["actions"]; ok {
		form := url.Values{"payload": {string(body)}}
		return SignSlack(secret, at, SlackInteractionsPath, []byte(form.Encode()))
	}
	return SignSlack(secret, at, SlackEventsPath, body)
}

// SignSlack signs any body for one of the two paths.
func SignSlack(secret string, at time.Time, path string, body []byte) SlackRequest {
	timestamp := strconv.FormatInt(at.Unix(), 10)
	kind := "application/json"
	if path == SlackInteractionsPath {
		kind = "application/x-www-form-urlencoded"
	}
	return SlackRequest{Path: path, Body: body, Header: http.Header{
		"Content-Type":              {kind},
		"User-Agent":                {"Slackbot 1.0 (+https://api.slack.com/robots)"},
		"X-Slack-Request-Timestamp": {timestamp},
		"X-Slack-Signature":         {SlackSignature(secret, timestamp, body)},
	}}
}

// SlackSignature is the value of X-Slack-Signature, by the scheme v0.
func SlackSignature(secret, timestamp string, body []byte) string {
	mac := hmac.New(sha256.New, []byte(secret))
	fmt.Fprintf(mac, "v0:%s:%s", timestamp, body)
	return "v0=" + hex.EncodeToString(mac.Sum(nil))
}

// Challenge is the request that proves an address.
func (s *Slack) Challenge(challenge string) SlackPayload {
	return SlackPayload{"type": "url_verification", "challenge": challenge, "token": "deprecated"}
}

// Said is the event for a message as it stands in the room, see Plant. Each
// event has an event_id of its own, even for the same message.
func (s *Slack) Said(room string, m SlackMessage) SlackPayload {
	return s.event(room, m.TS, slackFields(m))
}

// Edited is the event for m having been given another text.
func (s *Slack) Edited(room string, m SlackMessage, text string) SlackPayload {
	edited := slackFields(m)
	edited["text"] = text
	edited["edited"] = map[string]any{"user": m.User, "ts": s.nextTS()}
	return s.event(room, s.nextTS(), map[string]any{
		"type": "message", "subtype": "message_changed", "hidden": true,
		"message": edited, "previous_message": slackFields(m),
	})
}

// Deleted is the event for m having been deleted.
func (s *Slack) Deleted(room string, m SlackMessage) SlackPayload {
	return s.event(room, s.nextTS(), map[string]any{
		"type": "message", "subtype": "message_deleted", "hidden": true,
		"deleted_ts": m.TS, "previous_message": slackFields(m),
	})
}

// BotSaid is the event for what another app posted into a thread.
func (s *Slack) BotSaid(room, thread, text string) SlackPayload {
	ts := s.nextTS()
	return s.event(room, ts, map[string]any{
		"type": "message", "subtype": "bot_message", "bot_id": "B0OTHER", "app_id": "A0OTHER",
		"username": "other", "text": text, "ts": ts, "thread_ts": thread,
	})
}

// event puts a room's event into its wrapping.
func (s *Slack) event(room, ts string, fields map[string]any) SlackPayload {
	if _, ok := fields["ts"]; !ok {
		fields["ts"] = ts
	}
	fields["channel"], fields["channel_type"], fields["event_ts"] = room, "channel", ts
	return SlackPayload{
		"type": "event_callback", "token": "deprecated", "team_id": "T1", "api_app_id": "A1",
		"event": fields, "event_id": "Ev" + strings.ReplaceAll(s.nextTS(), ".", ""),
		"event_time": time.Now().Unix(), "is_ext_shared_channel": false,
		"authorizations": []any{map[string]any{"team_id": "T1", "user_id": SlackUser, "is_bot": true}},
	}
}

// slackFields gives a message as the fields of its JSON.
func slackFields(m SlackMessage) map[string]any {
	var fields map[string]any
	b, err := json.Marshal(m)
	if err == nil {
		err = json.Unmarshal(b, &fields)
	}
	if err != nil {
		panic(fmt.Sprintf("encode message: %v", err))
	}
	return fields
}

// nextTS gives a ts that no message has.
func (s *Slack) nextTS() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lastTS = max(s.lastTS+1, time.Now().UnixMicro())
	return slackTS(s.lastTS)
}

// Pressed is what Slack sends when the user presses the nth button, from 0, of
// a message in the room. Every press has an action_ts of its own. It panics
// when the message has no such button.
func (s *Slack) Pressed(room string, m SlackMessage, user string, n int) SlackPayload {
	var blocks []struct {
		ID       string           `json:"block_id"`
		Elements []map[string]any `json:"elements"`
	}
	if len(m.Blocks) > 0 {
		if err := json.Unmarshal(m.Blocks, &blocks); err != nil {
			panic(fmt.Sprintf("blocks of %s: %v", m.TS, err))
		}
	}
	at := s.nextTS()
	for _, block := range blocks {
		for _, button := range block.Elements {
			if button["type"] != "button" {
				continue
			}
			if n == 0 {
				action := maps.Clone(button)
				action["block_id"], action["action_ts"] = block.ID, at
				return s.press(room, m, user, action)
			}
			n--
		}
	}
	panic(fmt.Sprintf("message %s has no such button", m.TS))
}

func (s *Slack) press(room string, m SlackMessage, user string, action map[string]any) SlackPayload {
	container := map[string]any{
		"type": "message", "message_ts": m.TS, "channel_id": room, "is_ephemeral": false,
	}
	if m.ThreadTS != "" {
		container["thread_ts"] = m.ThreadTS
	}
	return SlackPayload{
		"type": "block_actions", "api_app_id": "A1", "token": "deprecated", "trigger_id": "1.2.3",
		"team":      map[string]any{"id": "T1", "domain": "example"},
		"user":      map[string]any{"id": user, "username": "someone", "name": "someone", "team_id": "T1"},
		"container": container, "channel": map[string]any{"id": room, "name": "room"},
		"message": slackFields(m), "response_url": s.URL() + "/actions/unused",
		"actions": []any{action},
	}
}
