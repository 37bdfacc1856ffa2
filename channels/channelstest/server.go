package channelstest

import (
	"bufio"
	"bytes"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
)

// Server is an HTTP/1.1 server on 127.0.0.1 that answers as its handler says
// until it is told to misbehave. It works on the bare connection, so that it
// can do what no well-meant server does. It is safe for several goroutines.
type Server struct {
	handler http.Handler
	addr    string // fixed, so that a server that was down comes up again there

	mu       sync.Mutex
	listener net.Listener // nil while down
	open     map[net.Conn]struct{}
	accepted int
	requests []Request
	queue    []Fault
	always   *Fault
	wg       sync.WaitGroup
}

// Request is one that the server has read whole.
type Request struct {
	Method string
	URI    string
	Header http.Header
	Body   []byte
}

// again is the same request for a handler.
func (r Request) again() *http.Request {
	req := httptest.NewRequest(r.Method, r.URI, bytes.NewReader(r.Body))
	req.Header = r.Header
	return req
}

// NewServer starts a server. A nil handler answers 200 "ok".
func NewServer(handler http.Handler) *Server {
	if handler == nil {
		handler = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") })
	}
	s := &Server{handler: handler, addr: "127.0.0.1:0", open: map[net.Conn]struct{}{}}
	s.Up()
	return s
}

// URL is the server's address without a path: http://127.0.0.1:port.
func (s *Server) URL() string { return "http://" + s.addr }

// Close stops the server, cuts what is open and waits for its goroutines.
func (s *Server) Close() {
	s.Down()
	s.wg.Wait()
}

// Down makes the address refuse connections and cuts those that are open.
func (s *Server) Down() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.listener != nil {
		_ = s.listener.Close()
		s.listener = nil
	}
	for c := range s.open {
		_ = c.Close()
	}
}

// Up makes a server that is down listen again at its address. It panics when
// somebody else has taken the port.
func (s *Server) Up() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.listener != nil {
		return
	}
	l, err := net.Listen("tcp", s.addr)
	if err != nil {
		panic(err)
	}
	s.listener, s.addr = l, l.Addr().String()
	s.wg.Go(func() { s.accept(l) })
}

// Queue gives one fault to each of the next requests, in order, but see
// Fault.To. After them the server does what it did before.
func (s *Server) Queue(faults ...Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.queue = append(s.queue, faults...)
}

// Always gives the fault to every request from now on.
func (s *Server) Always(f Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.always = &f
}

// Heal ends all faults.
func (s *Server) Heal() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.queue, s.always = nil, nil
}

// Requests gives what was read whole, in order, whatever was answered.
func (s *Server) Requests() []Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]Request(nil), s.requests...)
}

// Connections counts the connections that were accepted.
func (s *Server) Connections() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.accepted
}

func (s *Server) accept(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		s.mu.Lock()
		if s.listener != l {
			_ = c.Close()
		}
		s.accepted++
		s.open[c] = struct{}{}
		s.mu.Unlock()
		s.wg.Go(func() {
			s.serve(c)
			_ = c.Close()
			s.mu.Lock()
			delete(s.open, c)
			s.mu.Unlock()
		})
	}
}

// serve answers the connection's requests one after the other. Which fault a
// request meets is settled when its first byte is there.
func (s *Server) serve(c net.Conn) {
	r := bufio.NewReader(c)
	for {
		if _, err := r.Peek(1); err != nil {
			return
		}
		fault := s.nextFault()
		if fault != nil && fault.unread {
			fault.act(c, Request{})
			return
		}
		req, err := http.ReadRequest(r)
		if err != nil {
			return
		}
		body, err := io.ReadAll(req.Body)
		if err != nil {
			return
		}
		whole := Request{req.Method, req.RequestURI, req.Header, body}
		s.mu.Lock()
		s.requests = append(s.requests, whole)
		if fault == nil {
			fault = s.take(func(f Fault) bool { return f.to != "" && strings.HasSuffix(req.URL.Path, f.to) })
		}
		s.mu.Unlock()
		if fault != nil {
			fault.act(c, whole)
			return
		}
		req.Body = io.NopCloser(bytes.NewReader(body))
		if !s.answer(c, req) {
			return
		}
	}
}

func (s *Server) nextFault() *Fault {
	s.mu.Lock()
	defer s.mu.Unlock()
	if f := s.take(func(f Fault) bool { return f.to == "" }); f != nil {
		return f
	}
	return s.always
}

// take takes the first fault that matches out of the queue, nil for none. The
// lock is held.
func (s *Server) take(match func(Fault) bool) *Fault {
	i := slices.IndexFunc(s.queue, match)
	if i < 0 {
		return nil
	}
	f := s.queue[i]
	s.queue = slices.Delete(s.queue, i, i+1)
	return &f
}

// answer lets the handler answer and reports whether the connection stays.
func (s *Server) answer(c net.Conn, req *http.Request) bool {
	rec := httptest.NewRecorder()
	s.handler.ServeHTTP(rec, req)
	resp := rec.Result()
	resp.Request, resp.ContentLength = req, int64(rec.Body.Len())
	return resp.Write(c) == nil && !req.Close
}
