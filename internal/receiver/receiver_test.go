package receiver

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"the-loop/channels"
)

func TestWhatIsTakenIsAnswered200(t *testing.T) {
	s := newSite(t)
	if w := s.send("k1 k2"); w.Code != 200 || w.Body.Len() != 0 || w.Header().Get("Connection") != "" {
		t.Errorf("%d, %q", w.Code, w.Body)
	}
	if got := fmt.Sprint(s.got()); got != "[[k1 k2]]" {
		t.Errorf("taken: %s", got)
	}
	if c := s.Counts(); c.Taken != 2 || c.Forged != 0 || len(c.Dropped) != 0 {
		t.Errorf("%+v", c)
	}
	if s.held.Load() != 0 {
		t.Errorf("%d bytes are still held", s.held.Load())
	}
}

// Whatever is refused for its headers costs no byte of its body.
func TestNothingIsReadOfWhatCannotBeGenuine(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(r *http.Request)
		status int
	}{
		"no such path":        {func(r *http.Request) { r.URL.Path = "/in/" }, 404},
		"the root":            {func(r *http.Request) { r.URL.Path = "/" }, 404},
		"another method":      {func(r *http.Request) { r.Method = http.MethodPut }, 405},
		"posted to healthz":   {func(r *http.Request) { r.URL.Path = "/healthz" }, 405},
		"too long":            {func(r *http.Request) { r.ContentLength = 1<<20 + 1 }, 413},
		"too long, no seal":   {func(r *http.Request) { r.ContentLength = 1 << 40; r.Header.Del("X-Seal") }, 401},
		"no seal":             {func(r *http.Request) { r.Header.Del("X-Seal") }, 401},
		"two seals":           {func(r *http.Request) { r.Header.Add("X-Seal", "yes") }, 401},
		"no seal, no length":  {func(r *http.Request) { r.Header.Del("X-Seal"); r.ContentLength = -1 }, 401},
		"the budget is spent": {func(r *http.Request) { r.ContentLength = 500; r.Header.Set("Full", "yes") }, 503},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t)
			r := post("/in", "yes", untouchable{t})
			r.ContentLength = 10
			tt.change(r)
			if r.Header.Get("Full") != "" {
				s.held.Store(Budget - 499)
			}
			w := s.do(r)
			if w.Code != tt.status || w.Header().Get("Connection") != "close" {
				t.Errorf("%d, Connection: %q", w.Code, w.Header().Get("Connection"))
			}
			if again := w.Header().Get("Retry-After"); (again == "1") != (tt.status == 503) {
				t.Errorf("Retry-After: %q", again)
			}
			if len(s.got()) != 0 || s.door.opened.Load() != 0 || (s.Counts().Forged == 1) != (tt.status == 401) {
				t.Errorf("taken %v, opened %d, %+v", s.got(), s.door.opened.Load(), s.Counts())
			}
		})
	}
}

func TestABodyOfTheLimitIsReadAndNoByteMore(t *testing.T) {
	for _, sized := range []bool{true, false} {
		for extra, status := range map[int]int{0: 200, 1: 413, 1 << 20: 413} {
			s := newSite(t)
			s.door.limit = 100
			body := &io.LimitedReader{R: strings.NewReader(strings.Repeat("k", 2<<20)), N: int64(100 + extra)}
			r := post("/in", "yes", unsized{body})
			if sized && extra == 0 {
				r.ContentLength = 100
			}
			w := s.do(r)
			read := int64(100+extra) - body.N
			if w.Code != status || read > 101 || s.held.Load() != 0 {
				t.Errorf("%d bytes over: %d, %d read, %d held", extra, w.Code, read, s.held.Load())
			}
		}
	}
}

func TestABodyOfUnknownLengthCountsAsItsLimitUntilItIsRead(t *testing.T) {
	s := newSite(t)
	var during, after int64
	body := readFunc(func(p []byte) (int, error) {
		during = s.held.Load()
		return copy(p, "k1"), io.EOF
	})
	s.door.open = func([]byte) (channels.Arrival, error) {
		after = s.held.Load()
		return channels.Arrival{}, nil
	}
	if w := s.do(post("/in", "yes", body)); w.Code != 200 || during != 1<<20 || after != 2 || s.held.Load() != 0 {
		t.Errorf("%d: %d while read, %d then, %d in the end", w.Code, during, after, s.held.Load())
	}
}

type readFunc func(p []byte) (int, error)

func (f readFunc) Read(p []byte) (int, error) { return f(p) }

func TestABodyThatBreaksOffIsRefused(t *testing.T) {
	s := newSite(t)
	broken := readFunc(func([]byte) (int, error) { return 0, errors.New("secret words") })
	if w := s.do(post("/in", "yes", broken)); w.Code != 400 || strings.Contains(w.Body.String(), "secret") {
		t.Errorf("%d %q", w.Code, w.Body)
	}
	if s.held.Load() != 0 || len(s.got()) != 0 {
		t.Errorf("%d held, %v", s.held.Load(), s.got())
	}
}

func TestWhatADoorSaysIsAnswered(t *testing.T) {
	for name, tt := range map[string]struct {
		arrival channels.Arrival
		err     error
		status  int
		body    string
		kind    string
		counts  string
	}{
		"forged": {
			err: fmt.Errorf("secret: %w", channels.ErrForged), status: 401, body: "Unauthorized\n",
			kind: "text/plain; charset=utf-8", counts: "{0 1 map[]}",
		},
		"makes no sense": {
			err: errors.New("secret"), status: 400, body: "Bad Request\n",
			kind: "text/plain; charset=utf-8", counts: "{0 0 map[malformed:1]}",
		},
		"nothing for us": {
			arrival: channels.Arrival{Dropped: "bot"}, status: 200,
			kind: "text/plain; charset=utf-8", counts: "{0 0 map[bot:1]}",
		},
		"a challenge": {
			arrival: channels.Arrival{Reply: []byte("<b>x")}, status: 200, body: "<b>x",
			kind: "text/plain; charset=utf-8", counts: "{0 0 map[]}",
		},
		"an object": {
			arrival: channels.Arrival{Reply: []byte(`{"a":1}`)}, status: 200, body: `{"a":1}`,
			kind: "application/json", counts: "{0 0 map[]}",
		},
	} {
		s := newSite(t)
		s.door.open = func([]byte) (channels.Arrival, error) { return tt.arrival, tt.err }
		w := s.send("x")
		if w.Code != tt.status || w.Body.String() != tt.body || w.Header().Get("Content-Type") != tt.kind ||
			w.Header().Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("%s: %d %q %v", name, w.Code, w.Body, w.Header())
		}
		if got := fmt.Sprint(s.Counts()); got != tt.counts {
			t.Errorf("%s: %s", name, got)
		}
		if strings.Contains(s.log.String(), "secret") {
			t.Errorf("%s is logged: %s", name, &s.log)
		}
	}
}

func TestThoseWhoCountAreTold(t *testing.T) {
	var told []string
	d := &door{limit: 10}
	r := New(Options{
		Doors: map[string]Door{"/in": d}, Take: (&taker{}).Take,
		Dropped: func(path, word string) { told = append(told, path+" "+word) },
		Forged:  func(path string) { told = append(told, path+" forged") },
	})
	r.Start(t.Context())
	defer r.Stop()
	for _, seal := range []string{"", "no", "yes"} {
		r.ServeHTTP(httptest.NewRecorder(), post("/in", seal, strings.NewReader(" ")))
	}
	if got := strings.Join(told, ", "); got != "/in forged, /in forged, /in empty" {
		t.Error(got)
	}
}

func TestAPanicInADoorIsA500WithoutItsWords(t *testing.T) {
	s := newSite(t)
	for _, what := range []any{"secret words", errors.New("secret words")} {
		s.door.open = func([]byte) (channels.Arrival, error) { panic(what) }
		if w := s.send("secret body"); w.Code != 500 || strings.Contains(w.Body.String(), "secret") {
			t.Errorf("%d %q", w.Code, w.Body)
		}
	}
	s.door.open = nil
	if w := s.send("k1"); w.Code != 200 || s.held.Load() != 0 {
		t.Errorf("afterwards: %d, %d held", w.Code, s.held.Load())
	}
	if got := s.log.String(); strings.Contains(got, "secret") || !strings.Contains(got, "receiver_test.go") {
		t.Errorf("logged: %s", got)
	}
}

func TestHealthz(t *testing.T) {
	s := newSite(t)
	w := s.do(httptest.NewRequest(http.MethodGet, "/healthz", nil))
	if w.Code != 200 || w.Body.String() != "ok\n" {
		t.Errorf("%d %q", w.Code, w.Body)
	}
}

func TestReadyNamesEveryDoorWithoutASecret(t *testing.T) {
	r := New(Options{Take: (&taker{}).Take, Doors: map[string]Door{
		"/b": &door{ready: errors.New("empty")}, "/a": &door{}, "/c": &door{ready: errors.New("missing")},
	}})
	if err := r.Ready(); err == nil || err.Error() != "/b: empty\n/c: missing" {
		t.Error(err)
	}
}

// P12: what is not signed by us changes nothing, however much of it there is.
func TestP12_TenThousandForgedRequestsLeaveNothing(t *testing.T) {
	s := newSite(t)
	heap := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	body := strings.Repeat("k", 1000)
	before := heap()
	for i := range 10_000 {
		seal := []string{"", "no", fmt.Sprint("seal ", i)}[i%3]
		if w := s.do(post("/in", seal, strings.NewReader(body))); w.Code != 401 {
			t.Fatalf("request %d: %d", i, w.Code)
		}
	}
	if grown := int64(heap()) - int64(before); grown > 1<<20 {
		t.Errorf("%d bytes are kept", grown)
	}
	if len(s.got()) != 0 || s.door.opened.Load() != 0 || s.held.Load() != 0 || s.log.Len() != 0 {
		t.Errorf("taken %v, opened %d, held %d, log %s", s.got(), s.door.opened.Load(), s.held.Load(), &s.log)
	}
	if c := s.Counts(); c.Forged != 10_000 || c.Taken != 0 {
		t.Errorf("%+v", c)
	}
}

// serve runs the receiver behind a real connection.
func serve(t *testing.T, s *site) string {
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	return server.Listener.Addr().String()
}

// Who announces a body and sends none is answered at once: nobody waits for it.
func TestARefusalDoesNotWaitForTheBody(t *testing.T) {
	s := newSite(t)
	address := serve(t, s)
	for head, want := range map[string]string{
		"POST /in HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n":                            "401",
		"POST /in HTTP/1.1\r\nHost: x\r\nContent-Length: 9000000\r\nX-Seal: yes\r\n\r\n":            "413",
		"POST /in HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n":                        "401",
		"POST /in HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\nExpect: 100-continue\r\n\r\n":         "401",
		"POST /no HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\nExpect: 100-continue\r\n\r\n":    "404",
		"DELETE /in HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\nX-Seal: yes\r\nA: b\r\n\r\n":   "405",
		"POST /healthz HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\nX-Seal: yes\r\nA:b\r\n\r\n": "405",
	} {
		conn, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		_ = conn.SetDeadline(time.Now().Add(ReadWithin / 2))
		_, _ = io.WriteString(conn, head)
		res, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatalf("%q: %v", head, err)
		}
		if !strings.HasPrefix(res.Status, want) || !res.Close {
			t.Errorf("%q: %s, close %v", head, res.Status, res.Close)
		}
		_ = res.Body.Close()
		_ = conn.Close()
	}
}

// A sender that goes on byte by byte is hung up on, and holds no budget then.
func TestASlowBodyIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &site{door: &door{limit: 1 << 20}}
		s.Receiver = New(Options{Doors: map[string]Door{"/in": s.door}, Take: s.Take})
		s.Start(t.Context())
		defer s.Stop()
		l := newPipes()
		server := http.Server{Handler: s, IdleTimeout: time.Minute}
		go func() { _ = server.Serve(l) }()
		defer server.Close()
		conn := l.dial()
		var sender sync.WaitGroup
		defer sender.Wait()
		defer conn.Close()
		began := time.Now()
		sender.Go(func() {
			_, _ = io.WriteString(conn, "POST /in HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\nX-Seal: yes\r\n\r\n")
			for {
				if _, err := io.WriteString(conn, "k"); err != nil {
					return
				}
				time.Sleep(time.Second)
			}
		})
		res, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); res.StatusCode != 408 || took != ReadWithin || s.held.Load() != 0 {
			t.Errorf("%s after %s, %d held", res.Status, took, s.held.Load())
		}
	})
}

// The deadline of a body is over once it is there: neither the taking nor the
// next request on the connection falls under it.
func TestTheDeadlineOfABodyEndsWithIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &site{door: &door{limit: 1 << 20}}
		hungUp := false
		s.take = func(context.Context, []string) error { time.Sleep(2 * time.Second); return nil }
		s.Receiver = New(Options{Doors: map[string]Door{"/in": s.door}, Take: s.Take})
		s.Start(t.Context())
		defer s.Stop()
		l := newPipes()
		server := http.Server{IdleTimeout: time.Hour, Handler: http.HandlerFunc(
			func(w http.ResponseWriter, r *http.Request) {
				s.ServeHTTP(w, r)
				hungUp = hungUp || r.Context().Err() != nil
			})}
		go func() { _ = server.Serve(l) }()
		defer server.Close()
		conn := l.dial()
		defer conn.Close()
		in := bufio.NewReader(conn)
		for range 3 {
			go func() {
				_, _ = io.WriteString(conn, "POST /in HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nX-Seal: yes\r\n\r\nk")
				time.Sleep(ReadWithin - time.Second)
				_, _ = io.WriteString(conn, "1")
			}()
			res, err := http.ReadResponse(in, nil)
			if err != nil || res.StatusCode != 200 || hungUp {
				t.Fatal(res, err, hungUp)
			}
			time.Sleep(3 * ReadWithin)
		}
	})
}

// pipes is a listener of connections in memory, which a bubble can wait for.
type pipes struct {
	conns chan net.Conn
	done  chan struct{}
}

func newPipes() *pipes { return &pipes{make(chan net.Conn), make(chan struct{})} }

func (p *pipes) dial() net.Conn {
	ours, theirs := net.Pipe()
	p.conns <- theirs
	return ours
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error   { close(p.done); return nil }
func (p *pipes) Addr() net.Addr { return &net.TCPAddr{} }
