package slack

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"the-loop/channels"
	"the-loop/channels/channelstest"
)

// patience is what a test waits for a thing that comes in milliseconds.
const patience = 20 * time.Second

// listener runs a socket until the test ends, and records.
type listener struct {
	*Socket
	t        *testing.T
	arrivals chan channels.Arrival
	connects chan SocketState
	log      *lockedBuffer
	stop     func() // waits for Run

	mu     sync.Mutex
	handle func(ctx context.Context, a channels.Arrival) error // nil: kept
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func (l *listener) handleBy(f func(ctx context.Context, a channels.Arrival) error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.handle = f
}

// quickSlack is a fake that pings and sends again within milliseconds, and
// leaves no goroutine.
func quickSlack(t *testing.T) *channelstest.Slack {
	t.Cleanup(func() { goleak.VerifyNone(t) })
	s := newSlack(t)
	s.Socket().SetPace(20*time.Millisecond, 50*time.Millisecond)
	return s
}

func startSocket(t *testing.T, s *channelstest.Slack, change ...func(o *SocketOptions)) *listener {
	t.Helper()
	l := &listener{
		t: t, arrivals: make(chan channels.Arrival, 100), connects: make(chan SocketState, 100), log: &lockedBuffer{},
	}
	room := newRoom(t, s)
	o := SocketOptions{
		AppToken: secret(t, channelstest.SlackAppToken), APIURL: s.APIURL(), Rooms: []*Channel{room},
		Client: room.o.Client, Log: slog.New(slog.NewTextHandler(l.log, nil)), SilentAfter: 10 * time.Second,
	}
	for _, f := range change {
		f(&o)
	}
	l.Socket = NewSocket(o)
	l.min, l.max = time.Millisecond, 20*time.Millisecond
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		l.Run(ctx, func(ctx context.Context, a channels.Arrival) error {
			l.mu.Lock()
			handle := l.handle
			l.mu.Unlock()
			if handle != nil {
				if err := handle(ctx, a); err != nil {
					return err
				}
			}
			l.arrivals <- a
			return nil
		}, func() { l.connects <- l.State() })
	}()
	l.stop = func() {
		cancel()
		await(t, done, "Run to return")
	}
	t.Cleanup(l.stop)
	return l
}

func await[T any](t *testing.T, c <-chan T, what string) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(patience):
		t.Fatalf("waited in vain for %s", what)
		panic("unreachable")
	}
}

func acked(t *testing.T, s *channelstest.Slack, id string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := s.Socket().Await(ctx, id); err != nil {
		t.Fatal(err)
	}
}

func (l *listener) message() channels.Message {
	l.t.Helper()
	a := await(l.t, l.arrivals, "an arrival")
	if len(a.Messages) != 1 {
		l.t.Fatalf("arrival %+v, want one message", a)
	}
	return a.Messages[0]
}

func TestSocket_DecodesAsTheDoorsDo(t *testing.T) {
	s := quickSlack(t)
	l := startSocket(t, s)
	if state := await(t, l.connects, "a connection"); !state.Connected || state.Listeners != 1 || state.LastError != "" {
		t.Errorf("state %+v", state)
	}
	events, interactions := newDoors(t, l.o.Rooms...)
	m, q := reply(s, "A"), asked(s, "01KB3Z0000000000000000000A")
	said, pressed := s.Said(channelstest.SlackRoom, m), s.Pressed(channelstest.SlackRoom, q, testUser, 0)
	for payload, d := range map[string]anyDoor{"said": events, "pressed": interactions} {
		p := said
		if payload == "pressed" {
			p = pressed
		}
		id := s.Socket().Send(p)
		acked(t, s, id)
		want := open(t, d, s.Signed(testSecret, time.Now(), p)).Messages[0]
		if diff := cmp.Diff(want, l.message()); diff != "" {
			t.Errorf("%s, by the door and by the socket: %s", payload, diff)
		}
	}
}

func TestSocket_AcknowledgedOnlyOnceKept(t *testing.T) {
	s := quickSlack(t)
	l := startSocket(t, s)
	await(t, l.connects, "a connection")
	tries := make(chan struct{}, 100)
	enough := make(chan struct{})
	l.handleBy(func(context.Context, channels.Arrival) error {
		select {
		case <-enough:
			return nil
		default:
			tries <- struct{}{}
			return errors.New("disk full")
		}
	})
	id := s.Socket().Send(s.Said(channelstest.SlackRoom, reply(s, "A")))
	for range 3 {
		await(t, tries, "another try")
	}
	if s.Socket().Acked(id) {
		t.Error("acknowledged, and not kept")
	}
	close(enough)
	acked(t, s, id)
	l.message()
	if n := strings.Count(l.log.String(), "disk full"); n != 1 {
		t.Errorf("logged %d times", n)
	}
	if s.Socket().Accepted() != 1 {
		t.Error("what is not kept is no reason for another connection")
	}
}

func TestSocket_AcknowledgesWhatIsNotForUs(t *testing.T) {
	s := quickSlack(t)
	l := startSocket(t, s)
	await(t, l.connects, "a connection")
	s.Socket().SendRaw([]byte("{"))
	s.Socket().SendRaw([]byte(`{"type":"new_thing"}`))
	for _, c := range []struct {
		kind, word string
		payload    channelstest.SlackPayload
	}{
		{"slash_commands", "other", channelstest.SlackPayload{"command": "/x"}},
		{"events_api", "unknown_thread", s.Said("C0000000", reply(s, "A"))},
		{"events_api", "url_verification", s.Challenge("x")},
		{"events_api", "malformed", channelstest.SlackPayload{"type": 7}},
		{"interactive", "malformed", channelstest.SlackPayload{"type": 7}},
	} {
		acked(t, s, s.Socket().SendAs(c.kind, c.payload))
		a := await(t, l.arrivals, "an arrival")
		dropped(t, a, c.word)
		if len(a.Reply) > 0 {
			t.Errorf("reply %q", a.Reply)
		}
	}
}

func TestSocket_DisconnectLosesNothing(t *testing.T) {
	for _, reason := range []string{"warning", "refresh_requested"} {
		t.Run(reason, func(t *testing.T) {
			s := quickSlack(t)
			l := startSocket(t, s)
			await(t, l.connects, "a connection")
			keys := map[string]bool{}
			var ids []string
			for n := range 20 {
				m := reply(s, fmt.Sprint(n))
				keys["slack:"+channelstest.SlackRoom+":"+m.TS] = true
				ids = append(ids, s.Socket().Send(s.Said(channelstest.SlackRoom, m)))
				if n == 10 {
					s.Socket().Disconnect(reason)
				}
			}
			await(t, l.connects, "another connection")
			for _, id := range ids {
				acked(t, s, id)
			}
			for len(keys) > 0 {
				delete(keys, l.message().Key) // some may come twice
			}
			if opened := s.Socket().Opened(); opened < 2 {
				t.Errorf("apps.connections.open was called %d times", opened)
			}
			if log := l.log.String(); strings.Contains(log, "WARN") {
				t.Errorf("what Slack does every few hours is no warning: %s", log)
			}
		})
	}
}

func TestSocket_ComesAgainAfterACutAndARefusal(t *testing.T) {
	s := quickSlack(t)
	l := startSocket(t, s)
	await(t, l.connects, "a connection")
	s.Socket().Refuse(3)
	s.Queue(channelstest.SlackError("internal_error"), channelstest.Answer(503, "down"))
	s.Socket().Cut()
	await(t, l.connects, "another connection")
	id := s.Socket().Send(s.Said(channelstest.SlackRoom, reply(s, "A")))
	acked(t, s, id)
	l.message()
	log := l.log.String()
	for _, want := range []string{"websocket: answered 503", "internal_error", "http_503", "connected again"} {
		if !strings.Contains(log, want) {
			t.Errorf("the log lacks %q: %s", want, log)
		}
	}
	if strings.Contains(log, "ticket") || strings.Contains(log, channelstest.SlackAppToken) {
		t.Errorf("the log holds an address or the token: %s", log)
	}
}

func TestL11_SilentConnectionIsReplacedAndTheCallerToldToCatchUp(t *testing.T) {
	s := quickSlack(t)
	s.Socket().Silence(1)
	l := startSocket(t, s, func(o *SocketOptions) { o.SilentAfter = 200 * time.Millisecond })
	await(t, l.connects, "the silent connection")
	missed := s.Socket().Send(s.Said(channelstest.SlackRoom, reply(s, "A")))
	state := await(t, l.connects, "the one in its place")
	if !state.Connected || s.Socket().Accepted() < 2 {
		t.Errorf("state %+v after %d connections", state, s.Socket().Accepted())
	}
	acked(t, s, missed)
	l.message()
	if log := l.log.String(); !strings.Contains(log, "no sign of life for 200ms") {
		t.Errorf("log: %s", log)
	}
	s.Socket().Hush() // one that was lively goes silent
	await(t, l.connects, "another one in its place")
}

func TestL11_PingsKeepAQuietConnection(t *testing.T) {
	s := quickSlack(t)
	l := startSocket(t, s, func(o *SocketOptions) { o.SilentAfter = 300 * time.Millisecond })
	await(t, l.connects, "a connection")
	select {
	case <-l.connects:
		t.Error("a connection that is pinged was replaced")
	case <-time.After(800 * time.Millisecond):
	}
	if !l.State().Connected {
		t.Errorf("state %+v", l.State())
	}
}

func TestL11_LongHandlingIsNoSilence(t *testing.T) {
	s := quickSlack(t)
	l := startSocket(t, s, func(o *SocketOptions) { o.SilentAfter = 300 * time.Millisecond })
	await(t, l.connects, "a connection")
	l.handleBy(func(ctx context.Context, _ channels.Arrival) error {
		sleep(ctx, 500*time.Millisecond)
		return nil
	})
	acked(t, s, s.Socket().Send(s.Said(channelstest.SlackRoom, reply(s, "A"))))
	l.message()
	if s.Socket().Accepted() != 1 {
		t.Errorf("%d connections", s.Socket().Accepted())
	}
}

func TestSocket_BadTokenIsSaidAndTriedAgainSlowly(t *testing.T) {
	s := quickSlack(t)
	s.Socket().SetToken("xapp-other")
	var file string
	l := startSocket(t, s, func(o *SocketOptions) { file = o.AppToken.File })
	until(t, func() bool { return l.State().LastError == "apps.connections.open: invalid_auth" })
	if l.State().Connected {
		t.Error("connected")
	}
	if err := os.WriteFile(file, []byte("xoxb-wrong-kind"), 0o600); err != nil {
		t.Fatal(err)
	}
	until(t, func() bool { return l.State().LastError == "apps.connections.open: not_allowed_token_type" })
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	until(t, func() bool {
		return l.State().LastError == "apps.connections.open: no_secret (file slack.token is not there)"
	})
	if err := os.WriteFile(file, []byte("xapp-other"), 0o600); err != nil {
		t.Fatal(err)
	}
	await(t, l.connects, "a connection with the new token")
	for _, code := range []string{"invalid_auth", "not_allowed_token_type", "no_secret"} {
		if n := strings.Count(l.log.String(), code); n != 1 {
			t.Errorf("%s was logged %d times", code, n)
		}
	}
}

// until looks for what a fast test has no channel for.
func until(t *testing.T, holds func() bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(patience); !holds(); <-tick.C {
		if time.Now().After(deadline) {
			t.Fatal("waited in vain")
		}
	}
}

func TestSocket_WaitsGrowToAMinuteAndHearSlack(t *testing.T) {
	s := NewSocket(SocketOptions{})
	for n, low := range []time.Duration{1, 2, 4, 8, 16, 32, 48, 48, 48} {
		for range 50 {
			wait := s.wait(errors.New("x"), n)
			if wait < low*time.Second || wait > low*time.Second*5/4+1 || wait > time.Minute+1 {
				t.Errorf("wait %s after %d failures", wait, n)
			}
		}
	}
	if wait := s.wait(errors.New("x"), 1<<20); wait > time.Minute+1 {
		t.Errorf("wait %s", wait)
	}
	told := func(reason channels.Reason, after time.Duration) time.Duration {
		return s.wait(openError{&channels.Refusal{Reason: reason, RetryAfter: after}}, 0)
	}
	if wait := told(channels.ReasonRate, 3*time.Minute); wait != 3*time.Minute {
		t.Errorf("told to wait 3m: %s", wait)
	}
	if wait := told(channels.ReasonAuth, 0); wait != time.Minute {
		t.Errorf("not let in: %s", wait)
	}
}

func TestSocket_TwoListenersAreSeenAndSplitThePayloads(t *testing.T) {
	s := quickSlack(t)
	one, two := startSocket(t, s), (*listener)(nil)
	if n := await(t, one.connects, "a connection").Listeners; n != 1 {
		t.Errorf("%d listeners", n)
	}
	two = startSocket(t, s)
	if n := await(t, two.connects, "a connection").Listeners; n != 2 {
		t.Errorf("%d listeners", n)
	}
	for n := range 4 {
		acked(t, s, s.Socket().Send(s.Said(channelstest.SlackRoom, reply(s, fmt.Sprint(n)))))
	}
	for _, l := range []*listener{one, two} {
		l.message()
		l.message()
	}
	s.Socket().SetOthers(3)
	s.Socket().Disconnect("warning")
	if n := await(t, one.connects, "another connection").Listeners; n < 4 {
		t.Errorf("%d listeners", n)
	}
}

func TestSocket_RunReturnsWhateverItWaitsFor(t *testing.T) {
	stopped := func(t *testing.T, l *listener) {
		t.Helper()
		l.stop()
		if state := l.State(); state.Connected || state.LastError != "stopped" {
			t.Errorf("state %+v", state)
		}
	}
	t.Run("payload", func(t *testing.T) {
		s := quickSlack(t)
		first := startSocket(t, s) // after it, the fake has all its own goroutines
		await(t, first.connects, "a connection")
		first.stop()
		others := goleak.IgnoreCurrent()
		l := startSocket(t, s, func(o *SocketOptions) { o.Client = nil })
		await(t, l.connects, "a connection")
		stopped(t, l)
		goleak.VerifyNone(t, others)
	})
	t.Run("hello", func(t *testing.T) {
		s := quickSlack(t)
		s.Always(channelstest.Hang())
		l := startSocket(t, s)
		until(t, func() bool { return len(s.Requests()) > 0 })
		stopped(t, l)
	})
	t.Run("handle", func(t *testing.T) {
		s := quickSlack(t)
		l := startSocket(t, s)
		await(t, l.connects, "a connection")
		in := make(chan struct{}, 100)
		l.handleBy(func(ctx context.Context, _ channels.Arrival) error {
			in <- struct{}{}
			<-ctx.Done()
			return ctx.Err()
		})
		s.Socket().Send(s.Said(channelstest.SlackRoom, reply(s, "A")))
		await(t, in, "the payload")
		stopped(t, l)
	})
	t.Run("the next try", func(t *testing.T) {
		s := quickSlack(t)
		s.Socket().SetToken("xapp-other")
		l := startSocket(t, s)
		until(t, func() bool { return strings.Contains(l.State().LastError, "invalid_auth") })
		stopped(t, l)
	})
}

func TestSocket_NoClearTextWhenTheAPIIsEncrypted(t *testing.T) {
	s := NewSocket(SocketOptions{APIURL: "https://slack.example/api"})
	for _, address := range []string{"ws://127.0.0.1:1/", "http://127.0.0.1:1/", "wss://", "%", ""} {
		if _, err := s.dial(t.Context(), address); err == nil || err.Error() != "apps.connections.open: no proper address" {
			t.Errorf("%q: %v", address, err)
		}
	}
}

func TestSocket_SaysAgainAfterAnHour(t *testing.T) {
	var c complaints
	got := []bool{
		c.news("a", time.Hour), c.news("a", time.Hour), c.news("b", time.Hour), c.news("b", 0), c.news("a", time.Hour),
	}
	if want := []bool{true, false, true, true, true}; !slices.Equal(got, want) {
		t.Errorf("news: %v, want %v", got, want)
	}
	if n := c.recovered(); n != 5 || c.recovered() != 0 {
		t.Errorf("recovered after %d", n)
	}
}
