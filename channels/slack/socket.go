package slack

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"time"

	slackapi "github.com/slack-go/slack"

	"the-loop/channels"
	"the-loop/channels/internal/wire"
)

const (
	// defaultSilence is after how long without a sign of life a connection
	// counts as dead. Slack pings more often than that: its own clients give
	// up after as long (serverPingTimeout of @slack/socket-mode).
	defaultSilence = 30 * time.Second
	minReconnect   = time.Second
	maxReconnect   = time.Minute
	openTime       = 15 * time.Second // for apps.connections.open
	dialTime       = 10 * time.Second // for the websocket's handshake
	handleTime     = 10 * time.Second // for keeping what came in
	complainAgain  = time.Hour
)

// SocketOptions says how to listen.
type SocketOptions struct {
	// AppToken is the app-level token (xapp-…) with the scope
	// connections:write, read anew for each connection.
	AppToken channels.Secret
	// APIURL is where apps.connections.open is. Defaults to DefaultAPIURL.
	APIURL string
	// Rooms are the channels that replies may come in for.
	Rooms []*Channel
	// Client sends the request. Its transport's proxy, dialer and TLS config
	// are the websocket's too. Defaults to wire.NewClient().
	Client *http.Client
	// Log hears of connections that fail. nil discards.
	Log *slog.Logger
	// SilentAfter is how long a connection may give no ping and no frame before
	// it is replaced. Defaults to 30 s.
	SilentAfter time.Duration
}

// SocketState is how a socket stands, for status.
type SocketState struct {
	Connected bool
	Since     time.Time // when Connected last changed
	// Listeners is how many connections the app had when ours began, ours
	// among them: Slack says so then and never again. With more than one, Slack
	// sends each payload to one of them only. A connection of ours that broke
	// a moment before may be counted.
	Listeners int
	// LastError is why there is no connection, "" while there is one.
	LastError string
}

// Socket listens to Slack by Socket Mode. It decodes as the doors do; here it
// is the connection that says that it is Slack who speaks, and nothing is
// signed.
//
// It is a loop of its own on a plain websocket, for slack-go's socketmode lacks
// what is needed here. It hands a payload out through a buffer and sends the
// acknowledgement by whichever connection is there later, on which Slack does
// not know it. It counts pings alone as life, so that a connection on which
// payloads arrive may be dropped, and has no limit for the hello. After a
// connection that was granted and broke it comes again at once and without end.
// Its Run returns while the goroutine that reads is still there. Its errors
// are taken from the library and may hold the address with its ticket.
type Socket struct {
	o    SocketOptions
	owns bool // the client is nobody else's

	min, max, again time.Duration // between two connections; between two complaints
	unkept          complaints    // about payloads; Run's alone

	mu    sync.Mutex
	state SocketState
}

// NewSocket gives a socket. It reads and sends nothing.
func NewSocket(o SocketOptions) *Socket {
	o.APIURL = strings.TrimSuffix(cmp.Or(o.APIURL, DefaultAPIURL), "/") + "/"
	o.SilentAfter = cmp.Or(o.SilentAfter, defaultSilence)
	owns := o.Client == nil
	if owns {
		o.Client = wire.NewClient()
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return &Socket{
		o: o, owns: owns, min: minReconnect, max: maxReconnect, again: complainAgain,
		state: SocketState{Since: time.Now(), LastError: "not connected yet"},
	}
}

// State says how the socket stands.
func (s *Socket) State() SocketState {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state
}

// Run listens until ctx ends, and has no goroutine left when it returns.
//
// handle is called for each payload, one after the other, also for those with
// nothing for us. When it returns nil the payload is acknowledged, so that by
// then it must be kept; when it fails, or takes longer than Slack waits (3 s),
// Slack sends the payload again, a few times. A payload may thus come twice,
// and one that came while no connection was there may never come: onConnect,
// which may be nil, is called at each connection before its first payload and
// without waiting for it, so that the caller reads what was missed. It must
// return at once.
func (s *Socket) Run(ctx context.Context, handle func(context.Context, channels.Arrival) error, onConnect func()) {
	if s.owns {
		defer s.o.Client.CloseIdleConnections()
	}
	var told complaints
	for failures := 0; ctx.Err() == nil; {
		began := time.Now()
		err := s.listen(ctx, handle, func(listeners int) {
			s.set(SocketState{Connected: true, Listeners: listeners})
			if n := told.recovered(); n > 0 {
				s.o.Log.Info("slack socket is connected again", "attempts", n)
			}
			if onConnect != nil {
				onConnect()
			}
		})
		lived := s.connectedFor()
		if ctx.Err() != nil {
			break
		}
		s.set(SocketState{LastError: err.Error()})
		if errors.Is(err, errAsked) && lived >= s.min {
			failures = 0
			continue
		}
		if lived >= s.max {
			failures = 0
		}
		if !errors.Is(err, errAsked) && told.news(err.Error(), s.again) {
			after := time.Since(began).Round(time.Millisecond).String()
			s.o.Log.Warn("slack socket is not connected", "error", err, "after", after)
		}
		if !sleep(ctx, s.wait(err, failures)) {
			break
		}
		failures++
	}
	s.set(SocketState{LastError: "stopped"})
}

// set changes the state; Since stays while Connected does.
func (s *Socket) set(state SocketState) {
	s.mu.Lock()
	defer s.mu.Unlock()
	state.Since = s.state.Since
	if state.Connected != s.state.Connected {
		state.Since = time.Now()
	}
	s.state = state
}

// connectedFor is how long the connection has been there, 0 without one.
func (s *Socket) connectedFor() time.Duration {
	state := s.State()
	if !state.Connected {
		return 0
	}
	return time.Since(state.Since)
}

// wait is how long to wait after the nth failure in a row, from 0: from 1 s
// doubling to 1 min, as long as Slack says, and 1 min when it does not let us
// in, which waiting does not mend.
func (s *Socket) wait(err error, n int) time.Duration {
	base := s.min
	for ; n > 0 && base < s.max; n-- {
		base *= 2
	}
	// Up to a quarter is by chance, so that many do not come all at once.
	base = min(base, s.max*4/5)
	wait := base + rand.N(base/4+1)
	var refusal *channels.Refusal
	if !errors.As(err, &refusal) {
		return wait
	}
	switch refusal.Reason {
	case channels.ReasonRate:
		wait = max(wait, refusal.RetryAfter)
	case channels.ReasonAuth, channels.ReasonConfig:
		wait = s.max
	}
	return wait
}

// openError is why apps.connections.open gave no address.
type openError struct{ err error }

func (e openError) Error() string {
	var refusal *channels.Refusal
	var uncertain *channels.Uncertain
	code, detail := "other", ""
	switch {
	case errors.As(e.err, &refusal):
		code, detail = refusal.Code, refusal.Detail
	case errors.As(e.err, &uncertain):
		code, detail = uncertain.Code, uncertain.Detail
	}
	if detail != "" {
		code += " (" + detail + ")"
	}
	return "apps.connections.open: " + code
}

func (e openError) Unwrap() error { return e.err }

// open asks for the address of a connection, which is good for one alone.
func (s *Socket) open(ctx context.Context) (address string, err error) {
	token, err := s.o.AppToken.Value()
	if err != nil {
		return "", openError{err}
	}
	ctx, cancel := context.WithTimeoutCause(ctx, openTime, errors.New("slack gives no address for a socket in time"))
	defer cancel()
	one := &call{client: s.o.Client}
	api := slackapi.New("", slackapi.OptionAppLevelToken(token), slackapi.OptionHTTPClient(one),
		slackapi.OptionAPIURL(s.o.APIURL))
	_, address, err = api.StartSocketModeContext(ctx)
	if _, err := one.verdict(err); err != nil {
		return "", openError{err}
	}
	return address, nil
}

// complaints keeps an error from being logged again and again: it is news when
// its text changes, or after a while.
type complaints struct {
	text  string
	at    time.Time
	count int
}

func (c *complaints) news(text string, again time.Duration) bool {
	c.count++
	if text == c.text && time.Since(c.at) < again {
		return false
	}
	c.text, c.at = text, time.Now()
	return true
}

// recovered ends the row of errors and says how many it had.
func (c *complaints) recovered() int {
	n := c.count
	*c = complaints{}
	return n
}
