package slack

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/gorilla/websocket"

	"the-loop/channels"
)

const (
	maxFrame  = 1 << 20          // of what Slack sends, in bytes
	writeTime = 5 * time.Second  // for an acknowledgement or a pong
	byeTime   = time.Second / 10 // for the close frame
	// ackBuffer holds an acknowledgement whole: Slack drops those that come in
	// several frames.
	ackBuffer = 4 << 10
)

// errAsked: Slack has asked us to come anew, which it does every few hours.
var errAsked = errors.New("slack asked for a new connection")

// envelope is one frame of Slack's.
type envelope struct {
	Type        string          `json:"type"`
	ID          string          `json:"envelope_id"`
	Payload     json.RawMessage `json:"payload"`
	Connections int             `json:"num_connections"` // of hello
	Reason      string          `json:"reason"`          // of disconnect
}

// listen is one connection, from asking for its address to its end. The error
// says why it ended and never holds an address. hello is called once Slack has
// greeted, with the number of the app's connections.
func (s *Socket) listen(
	ctx context.Context, handle func(context.Context, channels.Arrival) error, hello func(int),
) error {
	address, err := s.open(ctx)
	if err != nil {
		return err
	}
	ws, err := s.dial(ctx, address)
	if err != nil {
		return err
	}
	// Closing the connection is what wakes a read. Slack is told, so that it
	// does not count us as a listener any longer.
	ctx, cancel := context.WithCancel(ctx)
	var closing sync.WaitGroup
	closing.Go(func() {
		<-ctx.Done()
		bye := websocket.FormatCloseMessage(websocket.CloseNormalClosure, "")
		_ = ws.WriteControl(websocket.CloseMessage, bye, time.Now().Add(byeTime))
		_ = ws.Close()
	})
	defer closing.Wait()
	defer cancel()

	ws.SetReadLimit(maxFrame)
	alive := func() { _ = ws.SetReadDeadline(time.Now().Add(s.o.SilentAfter)) }
	ws.SetPingHandler(func(data string) error {
		alive()
		err := ws.WriteControl(websocket.PongMessage, []byte(data), time.Now().Add(writeTime))
		if errors.Is(err, websocket.ErrCloseSent) {
			return nil
		}
		return err
	})
	for greeted := false; ; {
		alive() // also after a payload whose handling took long
		kind, frame, err := ws.ReadMessage()
		if err != nil {
			return s.ended(err)
		}
		var e envelope
		if kind != websocket.TextMessage || json.Unmarshal(frame, &e) != nil {
			continue // nothing that could be acknowledged
		}
		switch e.Type {
		case "hello":
			if !greeted {
				greeted = true
				hello(e.Connections)
			}
		case "disconnect":
			if e.Reason == "link_disabled" {
				return errors.New("websocket: socket mode is switched off for the app")
			}
			return errAsked
		default:
			if err := s.take(ctx, ws, e, handle); err != nil {
				return err
			}
		}
	}
}

// take lets an envelope's payload be kept and acknowledges it then. What will
// never be readable is acknowledged too: sent again it is no better.
func (s *Socket) take(
	ctx context.Context, ws *websocket.Conn, e envelope, handle func(context.Context, channels.Arrival) error,
) error {
	if e.ID == "" {
		return nil
	}
	arrival, err := s.decode(e)
	if err != nil {
		arrival = channels.Arrival{Dropped: droppedMalformed}
	}
	limited, cancel := context.WithTimeoutCause(ctx, handleTime, errors.New("what came in is not kept in time"))
	err = handle(limited, arrival)
	cancel()
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case err != nil:
		if s.unkept.news(err.Error(), s.again) {
			s.o.Log.Warn("slack payload not kept; slack will send it again", "error", err)
		}
		return nil
	}
	if n := s.unkept.recovered(); n > 0 {
		s.o.Log.Info("slack payloads are kept again", "attempts", n)
	}
	_ = ws.SetWriteDeadline(time.Now().Add(writeTime))
	if err := ws.WriteJSON(map[string]string{"envelope_id": e.ID}); err != nil {
		return s.ended(err)
	}
	return nil
}

func (s *Socket) decode(e envelope) (channels.Arrival, error) {
	switch e.Type {
	case "events_api":
		a, err := rooms(s.o.Rooms).decodeEvents(e.Payload)
		a.Reply = nil // there is nobody to answer
		return a, err
	case "interactive":
		return rooms(s.o.Rooms).decodeInteraction(e.Payload)
	}
	return channels.Arrival{Dropped: droppedOther}, nil
}

// ended says in our own words why a connection is gone.
func (s *Socket) ended(err error) error {
	var closed *websocket.CloseError
	var timeout net.Error
	switch {
	case errors.As(err, &closed):
		return fmt.Errorf("websocket: closed (%d)", closed.Code)
	case errors.As(err, &timeout) && timeout.Timeout():
		return fmt.Errorf("websocket: no sign of life for %s", s.o.SilentAfter)
	case errors.Is(err, websocket.ErrReadLimit):
		return errors.New("websocket: frame too large")
	}
	return errors.New("websocket: connection lost")
}

// dial opens the websocket. It is spoken in the clear only when the API is.
func (s *Socket) dial(ctx context.Context, address string) (*websocket.Conn, error) {
	u, err := url.Parse(address)
	if err != nil || u.Host == "" || (u.Scheme != "wss" && (u.Scheme != "ws" || !strings.HasPrefix(s.o.APIURL, "http:"))) {
		return nil, errors.New("apps.connections.open: no proper address")
	}
	dialer := &websocket.Dialer{Proxy: http.ProxyFromEnvironment, HandshakeTimeout: dialTime, WriteBufferSize: ackBuffer}
	if t, ok := s.o.Client.Transport.(*http.Transport); ok {
		dialer.Proxy, dialer.NetDialContext = t.Proxy, t.DialContext
		if t.TLSClientConfig != nil {
			dialer.TLSClientConfig = t.TLSClientConfig.Clone()
			dialer.TLSClientConfig.NextProtos = []string{"http/1.1"}
		}
	}
	ctx, cancel := context.WithTimeoutCause(ctx, dialTime, errors.New("the websocket does not open in time"))
	defer cancel()
	ws, answer, err := dialer.DialContext(ctx, address, nil)
	switch {
	case err == nil:
		return ws, nil
	case answer != nil:
		return nil, fmt.Errorf("websocket: answered %d", answer.StatusCode)
	case ctx.Err() != nil:
		return nil, errors.New("websocket: no answer in time")
	}
	return nil, fmt.Errorf("websocket: no connection to %s", u.Hostname())
}
