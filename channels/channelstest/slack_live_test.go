package channelstest

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"
)

func TestSlackSigned_HasTheHeadersAndTheBodyOfItsKind(t *testing.T) {
	s := NewSlack(t)
	at := time.Unix(1531420618, 0)
	event := s.Signed("secret", at, s.Said(SlackRoom, s.Plant(SlackRoom, SlackMessage{User: "U9", Text: "hi"})))
	press := s.Signed("secret", at, SlackPayload{"type": "block_actions", "actions": []any{}})
	for path, r := range map[string]SlackRequest{SlackEventsPath: event, SlackInteractionsPath: press} {
		req, err := r.Request(t.Context(), "http://127.0.0.1:1/")
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(req.Body)
		stamp := req.Header.Get("X-Slack-Request-Timestamp")
		if req.Method != http.MethodPost || req.URL.Path != path || stamp != "1531420618" {
			t.Errorf("%s %s at %s", req.Method, req.URL.Path, stamp)
		}
		if got, want := req.Header.Get("X-Slack-Signature"), SlackSignature("secret", stamp, body); got != want {
			t.Errorf("%s: signature %s, want %s", path, got, want)
		}
	}
	if !strings.HasPrefix(string(press.Body), "payload=%7B") || !strings.HasPrefix(string(event.Body), "{") {
		t.Errorf("bodies %.20q and %.20q", press.Body, event.Body)
	}
}

func TestSlackSocket_OpensForAnAppTokenAlone(t *testing.T) {
	s := NewSlack(t)
	for token, code := range map[string]string{
		"": "not_authed", SlackToken: "not_allowed_token_type", "xapp-other": "invalid_auth", SlackAppToken: "",
	} {
		if got := s.socket.grant(token)["error"]; got != code && (code != "" || got != nil) {
			t.Errorf("%q: %v, want %q", token, got, code)
		}
	}
	if s.Socket().Opened() != 1 {
		t.Errorf("%d opened", s.Socket().Opened())
	}
}

// connect opens a websocket at the fake and gives it after its hello.
func connect(t *testing.T, s *Slack, address string) *websocket.Conn {
	t.Helper()
	ws, _, err := websocket.DefaultDialer.Dial(address, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ws.Close() })
	if got := frame(t, ws); got["type"] != "hello" || got["num_connections"] != 1.0 {
		t.Fatalf("frame %v", got)
	}
	return ws
}

func frame(t *testing.T, ws *websocket.Conn) (f map[string]any) {
	t.Helper()
	_ = ws.SetReadDeadline(time.Now().Add(20 * time.Second))
	if err := ws.ReadJSON(&f); err != nil {
		t.Fatal(err)
	}
	return f
}

func TestSlackSocket_SendsAgainUntilAcknowledged(t *testing.T) {
	s := NewSlack(t)
	s.Socket().SetPace(time.Second, 20*time.Millisecond)
	address := s.socket.grant(SlackAppToken)["url"].(string)
	id := s.Socket().Send(s.Challenge("before anybody is there"))
	ws := connect(t, s, address)
	if _, _, err := websocket.DefaultDialer.Dial(address, nil); err == nil {
		t.Error("a ticket let in twice")
	}
	first, second := frame(t, ws), frame(t, ws)
	if first["envelope_id"] != id || second["envelope_id"] != id || second["retry_attempt"] != 1.0 ||
		s.Socket().Acked(id) {
		t.Errorf("frames %v and %v", first, second)
	}
	if err := ws.WriteJSON(map[string]string{"envelope_id": id}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if err := s.Socket().Await(ctx, id); err != nil {
		t.Fatal(err)
	}
}

func TestSlackSocket_RefusesSilencesAndDisconnects(t *testing.T) {
	s := NewSlack(t)
	s.Socket().Refuse(1)
	refused := s.socket.grant(SlackAppToken)["url"].(string)
	if _, answer, err := websocket.DefaultDialer.Dial(refused, nil); err == nil || answer.StatusCode != 503 {
		t.Errorf("refused with %v", err)
	}
	s.Socket().SetPace(time.Millisecond, 10*time.Millisecond)
	ws := connect(t, s, s.socket.grant(SlackAppToken)["url"].(string))
	s.Socket().Disconnect("warning")
	if got := frame(t, ws); got["type"] != "disconnect" || got["reason"] != "warning" {
		t.Errorf("frame %v", got)
	}
	s.Socket().Hush()
	s.Socket().Send(s.Challenge("into the void"))
	_ = ws.SetReadDeadline(time.Now().Add(200 * time.Millisecond))
	if _, got, err := ws.ReadMessage(); err == nil {
		t.Errorf("a silent connection sent %s", got)
	}
}
