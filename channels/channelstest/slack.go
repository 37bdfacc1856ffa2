package channelstest

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// What a fresh Slack knows.
const (
	SlackToken = "xoxb-1111-2222-channelstest"
	SlackRoom  = "C0123456"
	SlackUser  = "U1" // who the token posts as
	SlackBot   = "B1"
)

// Slack is a fake of Slack's Web API: chat.postMessage, chat.update,
// chat.postEphemeral, reactions.add, conversations.history,
// conversations.replies and auth.test, with Slack's documented limits and error
// codes. What else may go wrong is told to its Server. It is safe for several
// goroutines.
type Slack struct {
	*Server

	mu     sync.Mutex
	token  string
	pace   time.Duration
	rooms  map[string]*slackRoom
	lastTS int64 // microseconds

	reading slackReading
	more    slackMore
	socket  SlackSocket
}

type slackRoom struct {
	messages []SlackMessage
	posted   time.Time // when the last message was taken
}

// SlackMessage is a message as Slack keeps it.
type SlackMessage struct {
	Type     string          `json:"type"`
	Subtype  string          `json:"subtype,omitempty"`
	User     string          `json:"user,omitempty"`
	BotID    string          `json:"bot_id,omitempty"`
	AppID    string          `json:"app_id,omitempty"`
	Text     string          `json:"text"`
	TS       string          `json:"ts"`
	ThreadTS string          `json:"thread_ts,omitempty"` // of a reply; of a root with replies its own
	Blocks   json.RawMessage `json:"blocks,omitempty"`
	Metadata *SlackMetadata  `json:"metadata,omitempty"`
	Edited   *SlackEdit      `json:"edited,omitempty"`
	// Reactions are the users who reacted, by the emoji's name.
	Reactions []SlackReaction `json:"reactions,omitempty"`
}

// SlackMetadata is a message's metadata.
type SlackMetadata struct {
	EventType string         `json:"event_type"`
	Payload   map[string]any `json:"event_payload,omitempty"`
}

// NewSlack starts a fake that ends with the test.
func NewSlack(t testing.TB) *Slack {
	s := NewSlackServer()
	t.Cleanup(s.Close)
	return s
}

// NewSlackServer starts a fake that knows SlackToken and SlackRoom and takes
// one message a second in each room. It needs a Close.
func NewSlackServer() *Slack {
	s := &Slack{
		token: SlackToken,
		pace:  time.Second,
		rooms: map[string]*slackRoom{SlackRoom: {}},
	}
	s.Server = NewServer(s)
	return s
}

// APIURL is what a client takes in the place of https://slack.com/api/.
func (s *Slack) APIURL() string { return s.URL() + "/api/" }

// Direct gives a client whose requests reach the fake without a network, past
// the Server and its faults. In a synctest bubble time goes on only so.
func (s *Slack) Direct() *http.Client { return &http.Client{Transport: direct{s}} }

type direct struct{ h http.Handler }

func (d direct) RoundTrip(r *http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	d.h.ServeHTTP(w, r)
	return w.Result(), nil
}

// SetToken makes token the only one that is let in.
func (s *Slack) SetToken(token string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.token = token
}

// SetPace sets how far apart the messages of a room must be; 0 is no limit.
func (s *Slack) SetPace(pace time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pace = pace
}

// AddRoom adds a room.
func (s *Slack) AddRoom(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rooms[id] = &slackRoom{}
}

// Messages gives the room's messages, oldest first.
func (s *Slack) Messages(room string) []SlackMessage {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r := s.rooms[room]; r != nil {
		return slices.Clone(r.messages)
	}
	return nil
}

// Delete takes a message out of the room, as a person may.
func (s *Slack) Delete(room, ts string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r := s.rooms[room]; r != nil {
		r.messages = slices.DeleteFunc(r.messages, func(m SlackMessage) bool { return m.TS == ts })
	}
}

// Forms gives the parameters of all requests for a method, in order.
func (s *Slack) Forms(method string) []url.Values {
	var forms []url.Values
	for _, r := range s.Requests() {
		if r.URI == "/api/"+method {
			form, _ := url.ParseQuery(string(r.Body))
			forms = append(forms, form)
		}
	}
	return forms
}

// SlackError is a Fault: Slack says no with that code.
func SlackError(code string) Fault {
	return Answer(http.StatusOK, string(slackError(code).encode()), "Content-Type: application/json; charset=utf-8")
}

// StoreThen is a Fault: what the request asked for is done, and then the other
// fault is met: DropRead() loses the answer.
func (s *Slack) StoreThen(f Fault) Fault {
	return Fault{act: func(c net.Conn, r Request) {
		s.replay(r)
		f.act(c, r)
	}}
}

// ByteByByte is a Fault: the ordinary answer comes a byte at a time, every so
// often.
func (s *Slack) ByteByByte(every time.Duration) Fault {
	return Fault{act: func(c net.Conn, r Request) {
		w := s.replay(r)
		_, err := io.WriteString(c, head(w.Code, fmt.Sprintf("Content-Length: %d", w.Body.Len())))
		tick := time.NewTicker(every)
		defer tick.Stop()
		for b := w.Body.Next(1); len(b) > 0 && err == nil; b = w.Body.Next(1) {
			<-tick.C
			_, err = c.Write(b)
		}
	}}
}

// replay does what the request asks for.
func (s *Slack) replay(r Request) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r.again())
	return w
}

// ServeHTTP implements http.Handler.
func (s *Slack) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if err := r.ParseForm(); err != nil {
		http.Error(w, "bad form", http.StatusBadRequest)
		return
	}
	token, bearer := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !bearer {
		token = r.Form.Get("token")
	}
	s.mu.Lock()
	answer := s.do(strings.TrimPrefix(r.URL.Path, "/api/"), token, r.Form)
	s.mu.Unlock()
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	if answer["error"] == "ratelimited" {
		w.Header().Set("Retry-After", "1")
		w.WriteHeader(http.StatusTooManyRequests)
	}
	_, _ = w.Write(answer.encode())
}

// slackAnswer is the body of an answer.
type slackAnswer map[string]any

func slackError(code string) slackAnswer { return slackAnswer{"ok": false, "error": code} }

func (a slackAnswer) encode() []byte {
	b, err := json.Marshal(map[string]any(a))
	if err != nil {
		panic(fmt.Sprintf("encode answer: %v", err))
	}
	return b
}
