package proof

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync"
	"time"

	"the-loop/channels/channelstest"
)

// front is a receiver that misbehaves at random until it is calm. What it does
// with a request is known to it: whether it kept the message, and whether its
// answer was a plain no. It never says yes to what it did not keep, nor no to
// what it did: nobody who only sends could tell.
type front struct {
	*httptest.Server
	dice *dice
	slow time.Duration // longer than a sender waits
	// keep does what the request asks for and answers.
	keep func(r *http.Request, body []byte) *httptest.ResponseRecorder
	noes []answer // ways to say no

	mu       sync.Mutex
	calm     bool
	until    time.Time // of the mood
	good     bool
	requests int
	open     map[string]int // by event: requests that were read and not answered no
	kinds    map[string]int // what it did, by name
}

// answer is a fixed one.
type answer struct {
	status int
	header string // "name: value"
	body   string
}

var eventIn = regexp.MustCompile(`soak(?:/|%2F)([0-9A-Z]{26})`)

func newFront(d *dice, noes []answer, keep func(*http.Request, []byte) *httptest.ResponseRecorder) *front {
	f := &front{
		dice: d, keep: keep, noes: noes, slow: 2 * time.Second,
		open: map[string]int{}, kinds: map[string]int{},
	}
	f.Server = httptest.NewUnstartedServer(f)
	f.Listener = shyListener{f.Listener, f}
	f.Start()
	return f
}

// shyListener hangs up on some, before it has read a byte.
type shyListener struct {
	net.Listener
	f *front
}

func (l shyListener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil || l.f.isCalm() || l.f.dice.n(25) > 0 {
			return c, err
		}
		l.f.count("closed unread")
		hangUp(c)
	}
}

func hangUp(c net.Conn) {
	if tcp, ok := c.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = c.Close()
}

func (f *front) isCalm() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.calm
}

func (f *front) heal() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calm = true
}

func (f *front) count(kind string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.kinds[kind]++
}

// mood says how the next request is met: moods last, so that channels come to
// be failing and recover.
func (f *front) mood() (misbehaves bool) {
	roll, lasts := f.dice.n(100), f.dice.between(100, 900)
	good := f.dice.n(3) > 0
	f.mu.Lock()
	defer f.mu.Unlock()
	f.requests++
	if now := time.Now(); now.After(f.until) {
		f.until, f.good = now.Add(lasts), good
	}
	limit := 75
	if f.good {
		limit = 20
	}
	return !f.calm && roll < limit
}

func (f *front) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the sender died in the middle of it
	}
	id := ""
	if m := eventIn.FindSubmatch(body); m != nil {
		id = string(m[1])
	}
	if !f.mood() {
		f.opened(id)
		f.count("kept")
		send(w, f.keep(r, body))
		return
	}
	f.misbehave(w, r, body, id)
}

func (f *front) opened(id string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.open[id]++
}

func (f *front) misbehave(w http.ResponseWriter, r *http.Request, body []byte, id string) {
	if f.dice.n(2) == 0 {
		no := f.noes[f.dice.n(len(f.noes))]
		f.count(fmt.Sprintf("no %d", no.status))
		if name, value, ok := strings.Cut(no.header, ": "); ok {
			w.Header().Set(name, value)
		}
		w.WriteHeader(no.status)
		_, _ = io.WriteString(w, no.body)
		return
	}
	f.opened(id)
	switch f.dice.n(8) {
	case 0:
		f.count("hung")
		f.hang(r)
	case 1:
		f.count("reset")
		reset(w)
	case 2:
		f.count("kept, then 500")
		f.keep(r, body)
		w.WriteHeader(http.StatusInternalServerError)
		_, _ = io.WriteString(w, `{"ok":true}`)
	case 3:
		f.count("kept, then reset")
		f.keep(r, body)
		reset(w)
	case 4:
		f.count("kept, then hung")
		f.keep(r, body)
		f.hang(r)
	case 5:
		f.count("kept, answer cut short")
		f.keep(r, body)
		w.Header().Set("Content-Length", "100")
		_, _ = io.WriteString(w, `{"ok":`)
	case 6:
		f.count("kept, strange words")
		f.keep(r, body)
		_, _ = io.WriteString(w, "<html>Welcome to the proxy</html>")
	case 7:
		f.count("not kept, 502")
		w.WriteHeader(http.StatusBadGateway)
		_, _ = io.WriteString(w, `{"ok":true,"ts":"1.2"}`)
	}
}

// hang answers nothing until the sender gives up.
func (f *front) hang(r *http.Request) {
	t := time.NewTimer(f.slow)
	defer t.Stop()
	select {
	case <-r.Context().Done():
	case <-t.C:
	}
	panic(http.ErrAbortHandler)
}

func reset(w http.ResponseWriter) {
	c, _, err := http.NewResponseController(w).Hijack()
	if err == nil {
		hangUp(c)
	}
}

func send(w http.ResponseWriter, rec *httptest.ResponseRecorder) {
	for name, values := range rec.Header() {
		w.Header()[name] = values
	}
	w.WriteHeader(rec.Code)
	_, _ = w.Write(rec.Body.Bytes())
}

// httpNoes are the ways in which a webhook says no.
func httpNoes() []answer {
	return []answer{
		{http.StatusForbidden, "", "no"},
		{http.StatusUnauthorized, "", ""},
		{http.StatusBadRequest, "", `{"ok":true}`}, // a lie in the body
		{http.StatusUnprocessableEntity, "", ""},
		{http.StatusNotFound, "", "<html>"},
		{http.StatusMovedPermanently, "Location: /elsewhere", ""},
		{http.StatusTooManyRequests, "Retry-After: 1", ""},
		{http.StatusTooManyRequests, "Retry-After: 0", ""},
		{http.StatusServiceUnavailable, "Retry-After: 1", ""},
	}
}

// slackNoes are the ways in which Slack says no.
func slackNoes() []answer {
	noes := []answer{
		{http.StatusTooManyRequests, "Retry-After: 1", `{"ok":false,"error":"ratelimited"}`},
		{http.StatusServiceUnavailable, "Retry-After: 1", ""},
	}
	for _, code := range []string{"invalid_auth", "channel_not_found", "is_archived", "msg_too_long", "odd_code"} {
		noes = append(noes, answer{http.StatusOK, "Content-Type: application/json", `{"ok":false,"error":"` + code + `"}`})
	}
	return noes
}

// hook is the mind of a webhook: what it did, by the event that the body names,
// so that it does not depend on ids. An idempotent one drops repeated ids.
type hook struct {
	idempotent bool

	mu      sync.Mutex
	seen    map[string]bool // by webhook-id
	effects map[string]int  // by event
}

func newHook(idempotent bool) *hook {
	return &hook{idempotent: idempotent, seen: map[string]bool{}, effects: map[string]int{}}
}

func (h *hook) keep(r *http.Request, body []byte) *httptest.ResponseRecorder {
	h.mu.Lock()
	defer h.mu.Unlock()
	id := r.Header.Get("webhook-id")
	if !h.idempotent || !h.seen[id] {
		for _, m := range eventIn.FindAllSubmatch(body, 1) {
			h.effects[string(m[1])]++
		}
	}
	h.seen[id] = true
	rec := httptest.NewRecorder()
	rec.WriteString("ok")
	return rec
}

// slackKeeper hands a request on to the fake.
func slackKeeper(s *channelstest.Slack) func(*http.Request, []byte) *httptest.ResponseRecorder {
	return func(r *http.Request, body []byte) *httptest.ResponseRecorder {
		again := r.Clone(r.Context())
		again.Body = io.NopCloser(bytes.NewReader(body))
		rec := httptest.NewRecorder()
		s.ServeHTTP(rec, again)
		return rec
	}
}

// slackEffects counts the messages in the room by event.
func slackEffects(s *channelstest.Slack) map[string]int {
	effects := map[string]int{}
	for _, m := range s.Messages(channelstest.SlackRoom) {
		if found := eventIn.FindStringSubmatch(m.Text + string(m.Blocks)); found != nil {
			effects[found[1]]++
		}
	}
	return effects
}
