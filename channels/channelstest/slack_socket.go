package channelstest

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gorilla/websocket"
)

// SlackAppToken is what a fresh Slack lets open a socket.
const SlackAppToken = "xapp-1-A1-1111-channelstest"

// SlackSocket is a Slack's Socket Mode: apps.connections.open at the Slack's
// own address, and the websockets at one more. What is sent goes to one of the
// connections, in turn, as Slack splits it, and again while nobody
// acknowledges it. The zero value works; it is safe for several goroutines.
type SlackSocket struct {
	mu       sync.Mutex
	token    string
	ping     time.Duration
	resend   time.Duration
	others   int
	silent   int
	refuse   int
	opened   int // answers of apps.connections.open
	accepted int
	closed   bool

	server    *http.Server
	address   string
	tickets   map[string]bool
	conns     []*slackConn
	turn      int
	envelopes map[string]*slackEnvelope
	wg        sync.WaitGroup
}

// slackConn is one websocket. Writing is under its mu.
type slackConn struct {
	mu     sync.Mutex
	ws     *websocket.Conn
	silent bool
	ended  chan struct{}
}

type slackEnvelope struct {
	kind    string
	payload SlackPayload
	tries   int
	acked   chan struct{}
	timer   *time.Timer
}

// Socket gives the Slack's Socket Mode.
func (s *Slack) Socket() *SlackSocket { return &s.socket }

// Close stops the Slack with its sockets, and waits for its goroutines.
func (s *Slack) Close() {
	s.socket.close()
	s.Server.Close()
}

// SetToken makes token the only app token that is let in.
func (k *SlackSocket) SetToken(token string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.token = token
}

// SetPace sets how often a connection is pinged (5 s when nothing is set), and
// after how long an envelope that nobody acknowledged is sent again (3 s).
func (k *SlackSocket) SetPace(ping, resend time.Duration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.ping, k.resend = ping, resend
}

// SetOthers makes hello count that many more connections.
func (k *SlackSocket) SetOthers(n int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.others = n
}

// Silence makes the next n connections go silent after their hello: no ping, no
// envelope, no pong, and nothing that is sent to them is read.
func (k *SlackSocket) Silence(n int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.silent = n
}

// Hush makes the connections that are open go silent.
func (k *SlackSocket) Hush() {
	for _, c := range k.open() {
		c.mu.Lock()
		c.silent = true
		c.mu.Unlock()
	}
}

// Refuse makes the next n handshakes fail with 503.
func (k *SlackSocket) Refuse(n int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.refuse = n
}

// Disconnect asks all open connections to come anew, with the reason "warning"
// (the connection stays for now) or "refresh_requested" (it is closed).
func (k *SlackSocket) Disconnect(reason string) {
	for _, c := range k.open() {
		_ = c.send(map[string]any{"type": "disconnect", "reason": reason, "debug_info": slackDebug()})
		if reason != "warning" {
			message := websocket.FormatCloseMessage(websocket.CloseNormalClosure, "")
			_ = c.ws.WriteControl(websocket.CloseMessage, message, time.Now().Add(time.Second))
		}
	}
}

// Cut ends all open connections without a word.
func (k *SlackSocket) Cut() {
	for _, c := range k.open() {
		_ = c.ws.NetConn().Close()
	}
}

// Opened counts the calls of apps.connections.open that were granted.
func (k *SlackSocket) Opened() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.opened
}

// Accepted counts the websockets that were let in.
func (k *SlackSocket) Accepted() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.accepted
}

// Send sends the payload to one of the connections, and again until somebody
// acknowledges it: at once, or when there is a connection. It gives the id of
// the envelope.
func (k *SlackSocket) Send(payload SlackPayload) string {
	kind := "events_api"
	if _, ok := payload["actions"]; ok {
		kind = "interactive"
	}
	return k.SendAs(kind, payload)
}

// SendAs is Send for any type of envelope, such as "slash_commands".
func (k *SlackSocket) SendAs(kind string, payload SlackPayload) string {
	k.mu.Lock()
	if k.envelopes == nil {
		k.envelopes = map[string]*slackEnvelope{}
	}
	id := fmt.Sprintf("00000000-0000-4000-8000-%012d", len(k.envelopes)+1)
	e := &slackEnvelope{kind: kind, payload: payload, acked: make(chan struct{})}
	k.envelopes[id] = e
	k.mu.Unlock()
	k.try(id, e)
	return id
}

// SendRaw sends a frame as it is to every open connection.
func (k *SlackSocket) SendRaw(frame []byte) {
	for _, c := range k.open() {
		_ = c.write(frame)
	}
}

// Tries says how often the envelope was sent.
func (k *SlackSocket) Tries(id string) int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.envelopes[id].tries
}

// Acked reports whether the envelope has been acknowledged.
func (k *SlackSocket) Acked(id string) bool {
	k.mu.Lock()
	acked := k.envelopes[id].acked
	k.mu.Unlock()
	select {
	case <-acked:
		return true
	default:
		return false
	}
}

// Await waits until the envelope has been acknowledged, or ctx ends.
func (k *SlackSocket) Await(ctx context.Context, id string) error {
	k.mu.Lock()
	acked := k.envelopes[id].acked
	k.mu.Unlock()
	select {
	case <-acked:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("envelope %s is not acknowledged: %w", id, ctx.Err())
	}
}

// try sends the envelope to the connection whose turn it is and looks again
// after a while.
func (k *SlackSocket) try(id string, e *slackEnvelope) {
	k.mu.Lock()
	select {
	case <-e.acked:
		k.mu.Unlock()
		return
	default:
	}
	if k.closed {
		k.mu.Unlock()
		return
	}
	var c *slackConn
	if len(k.conns) > 0 {
		c = k.conns[k.turn%len(k.conns)]
		k.turn++
		e.tries++
	}
	frame := map[string]any{
		"envelope_id": id, "type": e.kind, "payload": e.payload, "accepts_response_payload": false,
	}
	if e.tries > 1 {
		frame["retry_attempt"], frame["retry_reason"] = e.tries-1, "timeout"
	}
	e.timer = time.AfterFunc(orElse(k.resend, 3*time.Second), func() { k.try(id, e) })
	k.mu.Unlock()
	if c != nil {
		_ = c.send(frame)
	}
}

func orElse(d, otherwise time.Duration) time.Duration {
	if d > 0 {
		return d
	}
	return otherwise
}

// grant is apps.connections.open.
func (k *SlackSocket) grant(token string) slackAnswer {
	k.mu.Lock()
	defer k.mu.Unlock()
	want := k.token
	if want == "" {
		want = SlackAppToken
	}
	switch {
	case token == "":
		return slackError("not_authed")
	case !strings.HasPrefix(token, "xapp-"):
		return slackError("not_allowed_token_type")
	case token != want:
		return slackError("invalid_auth")
	}
	if err := k.listen(); err != nil {
		return slackError("internal_error")
	}
	k.opened++
	ticket := fmt.Sprintf("ticket-%d", k.opened)
	k.tickets[ticket] = true
	return slackAnswer{"ok": true, "url": "ws://" + k.address + "/link/?ticket=" + ticket + "&app_id=A1"}
}

// listen starts the websockets' server. The caller holds mu.
func (k *SlackSocket) listen() error {
	if k.server != nil {
		return nil
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	k.server = &http.Server{Handler: k, ReadHeaderTimeout: 10 * time.Second}
	k.address, k.tickets = l.Addr().String(), map[string]bool{}
	k.wg.Go(func() { _ = k.server.Serve(l) })
	return nil
}

func (k *SlackSocket) close() {
	k.mu.Lock()
	k.closed = true
	server := k.server
	for _, e := range k.envelopes {
		if e.timer != nil {
			e.timer.Stop()
		}
	}
	k.mu.Unlock()
	if server != nil {
		_ = server.Close()
	}
	k.Cut()
	k.wg.Wait()
}

// ServeHTTP is the websockets' server. A ticket lets in once.
func (k *SlackSocket) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	k.mu.Lock()
	ticket := r.URL.Query().Get("ticket")
	known := k.tickets[ticket]
	delete(k.tickets, ticket)
	refuse := k.refuse > 0
	if refuse {
		k.refuse--
	}
	k.mu.Unlock()
	switch {
	case refuse:
		http.Error(w, "refused", http.StatusServiceUnavailable)
		return
	case !known:
		http.Error(w, "no such ticket", http.StatusForbidden)
		return
	}
	upgrader := websocket.Upgrader{CheckOrigin: func(*http.Request) bool { return true }}
	ws, err := upgrader.Upgrade(w, r, nil)
	if err != nil {
		return
	}
	defer ws.Close()
	c := &slackConn{ws: ws, ended: make(chan struct{})}
	ping, ok := k.enter(c)
	if !ok {
		return
	}
	defer k.wg.Done()
	defer k.leave(c)
	var pings sync.WaitGroup
	pings.Go(func() { c.pings(ping) })
	k.read(c)
	close(c.ended)
	pings.Wait()
}

// enter says hello on the connection and counts it among the open ones.
func (k *SlackSocket) enter(c *slackConn) (ping time.Duration, ok bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.closed {
		return 0, false
	}
	hello := map[string]any{
		"type": "hello", "num_connections": len(k.conns) + 1 + k.others, "debug_info": slackDebug(),
		"connection_info": map[string]any{"app_id": "A1"},
	}
	if c.send(hello) != nil {
		return 0, false
	}
	if k.silent > 0 {
		k.silent--
		c.silent = true
	}
	k.accepted++
	k.conns = append(k.conns, c)
	k.wg.Add(1)
	return orElse(k.ping, 5*time.Second), true
}

func (k *SlackSocket) leave(c *slackConn) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.conns = slices.DeleteFunc(k.conns, func(other *slackConn) bool { return other == c })
}

func (k *SlackSocket) open() []*slackConn {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Clone(k.conns)
}

// read takes acknowledgements until the connection ends.
func (k *SlackSocket) read(c *slackConn) {
	for {
		var ack struct {
			ID string `json:"envelope_id"`
		}
		if err := c.ws.ReadJSON(&ack); err != nil {
			return
		}
		if c.isSilent() {
			continue
		}
		k.mu.Lock()
		if e := k.envelopes[ack.ID]; e != nil {
			select {
			case <-e.acked:
			default:
				close(e.acked)
				if e.timer != nil {
					e.timer.Stop()
				}
			}
		}
		k.mu.Unlock()
	}
}

// pings pings until the connection ends.
func (c *slackConn) pings(every time.Duration) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			if !c.isSilent() {
				_ = c.ws.WriteControl(websocket.PingMessage, []byte("Ping from the-loop"), time.Now().Add(time.Second))
			}
		case <-c.ended:
			return
		}
	}
}

func (c *slackConn) isSilent() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.silent
}

func (c *slackConn) send(frame map[string]any) error { return c.write(slackAnswer(frame).encode()) }

func (c *slackConn) write(frame []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.silent {
		return nil
	}
	_ = c.ws.SetWriteDeadline(time.Now().Add(5 * time.Second))
	return c.ws.WriteMessage(websocket.TextMessage, frame)
}

func slackDebug() map[string]any {
	return map[string]any{"host": "applink-1", "approximate_connection_time": 18060}
}
