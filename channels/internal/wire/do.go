// Package wire makes one HTTP request for a channel and says what is known
// about it afterwards: whether bytes of it may have reached the peer, what the
// peer answered, and which verdict follows.
package wire

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strings"
	"sync/atomic"
	"time"
)

// MaxBody is how much of an answer's body Do reads.
const MaxBody = 64 << 10

// maxHops is how often a request follows redirects within its own origin.
const maxHops = 3

// idleTimeout is how long an unused connection is kept. It is shorter than
// what common receivers allow (Node and uvicorn hang up after 5 s): a request
// on a connection that the peer is just closing ends as uncertain, and that
// costs more than a new connection.
const idleTimeout = 4 * time.Second

// NewClient gives a client with a transport of its own, for Do. Its
// connections are reused; CloseIdleConnections lets them go. HTTP_PROXY and
// its kin are honoured as net/http does.
//
// It speaks HTTP/1.1 only: there a connection carries one request at a time,
// so what was written on it is known. It has no timeout for the whole request;
// that is the request's context.
func NewClient() *http.Client {
	dialer := &net.Dialer{Timeout: 10 * time.Second, KeepAlive: 15 * time.Second}
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	return &http.Client{Transport: &http.Transport{
		Proxy:                  http.ProxyFromEnvironment,
		DialContext:            dialer.DialContext,
		TLSHandshakeTimeout:    10 * time.Second,
		MaxIdleConnsPerHost:    8,
		IdleConnTimeout:        idleTimeout,
		MaxResponseHeaderBytes: 64 << 10,
		DisableCompression:     true, // MaxBody counts what is sent
		Protocols:              protocols,
	}}
}

// Exchange is what became of one request.
type Exchange struct {
	// Wrote says that bytes of the request may have reached the peer. When it
	// is false, no whole header did, and nobody can have acted on it.
	Wrote bool
	// Status is the answer's status, 0 when none came.
	Status int
	Header http.Header
	// Body is the answer's body, cut at the limit (Truncated), or as much as
	// came before Err.
	Body      []byte
	Truncated bool
	// Err says why there is no answer or not all of it. It is for errors.Is
	// only: its text says nothing, for net/http's holds whole addresses.
	Err error
	// Host is the host, with its port if the address has one: safe to show.
	Host string

	code string // of Err, in our own short words
}

// Do sends req with the client's transport and reads the answer until it is
// complete or req's context ends; the caller gives that a deadline. The
// client's Timeout, Jar and CheckRedirect are not used. Its transport must be
// one that reports through httptrace what it writes, as http.Transport does.
//
// The request is sent once. net/http's transport repeats a request on a fresh
// connection when a reused one turns out dead: always when it can prove that
// no byte was written, which is fine, and otherwise only when the request
// counts as replayable, which a POST does by an Idempotency-Key header alone.
// Do spells that header so that the transport does not take it as leave.
//
// 307 and 308 are followed a few times, within the same scheme, host and port
// only; 301, 302 and 303 too for GET and HEAD. The exchange is then that of
// the last request, the ones before having been answered with "not here".
func Do(client *http.Client, req *http.Request) *Exchange { return DoLimit(client, req, MaxBody) }

// DoLimit is Do for an answer that may be longer: limit bytes of its body are
// read, in place of MaxBody.
func DoLimit(client *http.Client, req *http.Request, limit int) *Exchange {
	req = sendable(req)
	for hop := 0; ; hop++ {
		x := try(client, req, limit)
		if hop == maxHops {
			return x
		}
		next := follow(req, x)
		if next == nil {
			return x
		}
		req = next
	}
}

// sendable gives a copy of req that may be handed to a RoundTripper, and that
// no transport takes for replayable when it is a POST.
func sendable(req *http.Request) *http.Request {
	req = req.Clone(req.Context())
	if req.Header == nil {
		req.Header = http.Header{}
	}
	for _, name := range []string{"Idempotency-Key", "X-Idempotency-Key"} {
		if values, ok := req.Header[name]; ok {
			delete(req.Header, name)
			req.Header[strings.ToLower(name)] = values
		}
	}
	if user := req.URL.User; user != nil && req.Header.Get("Authorization") == "" {
		password, _ := user.Password()
		req.SetBasicAuth(user.Username(), password)
	}
	return req
}

// try makes one round trip. Wrote is what the transport reports through its
// trace. WroteHeaders is called when the header has been handed to the
// connection's buffer: at or before the moment at which a receiver can have it
// whole. The transport has stopped writing by the time it returns an error.
func try(client *http.Client, req *http.Request, limit int) *Exchange {
	x := &Exchange{Host: req.URL.Host}
	var wrote, tlsFailed atomic.Bool
	ctx := httptrace.WithClientTrace(req.Context(), &httptrace.ClientTrace{
		WroteHeaders:     func() { wrote.Store(true) },
		TLSHandshakeDone: func(_ tls.ConnectionState, err error) { tlsFailed.Store(err != nil) },
	})
	resp, err := transport(client).RoundTrip(req.WithContext(ctx))
	x.Wrote = wrote.Load()
	if err != nil {
		x.fail(req.Context(), err, tlsFailed.Load())
		return x
	}
	defer resp.Body.Close()
	x.Wrote, x.Status, x.Header = true, resp.StatusCode, resp.Header
	if x.Status == http.StatusSwitchingProtocols {
		return x // what follows is no body, and reading it would never end
	}
	x.Body, err = io.ReadAll(io.LimitReader(resp.Body, int64(limit)+1))
	if err != nil {
		x.fail(req.Context(), err, false)
	}
	if len(x.Body) > limit {
		x.Body, x.Truncated = x.Body[:limit], true
	}
	return x
}

func transport(client *http.Client) http.RoundTripper {
	if client == nil || client.Transport == nil {
		return http.DefaultTransport
	}
	return client.Transport
}

func (x *Exchange) fail(ctx context.Context, err error, tlsFailed bool) {
	x.Err, x.code = cause{err}, codeOf(ctx, err)
	if tlsFailed && x.code != codeTimeout && x.code != codeCanceled {
		x.code = codeTLS
	}
	if ctx.Err() != nil && !errors.Is(err, ctx.Err()) {
		x.Err = cause{errors.Join(ctx.Err(), err)} // the transport gives the context's cause instead
	}
}

// follow gives the request that the answer asks for, nil when there is none
// or it leads elsewhere.
func follow(req *http.Request, x *Exchange) *http.Request {
	safe := req.Method == http.MethodGet || req.Method == http.MethodHead
	switch x.Status {
	case http.StatusTemporaryRedirect, http.StatusPermanentRedirect:
	case http.StatusMovedPermanently, http.StatusFound, http.StatusSeeOther:
		if !safe {
			return nil
		}
	default:
		return nil
	}
	to, err := req.URL.Parse(x.Header.Get("Location"))
	if err != nil || x.Header.Get("Location") == "" || origin(to) != origin(req.URL) {
		return nil
	}
	to.User = req.URL.User
	next := req.Clone(req.Context())
	next.URL = to
	if req.Body == nil || req.Body == http.NoBody {
		return next
	}
	if req.GetBody == nil {
		return nil
	}
	if next.Body, err = req.GetBody(); err != nil {
		return nil
	}
	return next
}

func origin(u *url.URL) string {
	port := u.Port()
	if port == "" && u.Scheme == "http" {
		port = "80"
	} else if port == "" && u.Scheme == "https" {
		port = "443"
	}
	return strings.ToLower(u.Scheme + "://" + net.JoinHostPort(u.Hostname(), port))
}
