package wire_test

import (
	"context"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"the-loop/channels"
	"the-loop/channels/channelstest"
	"the-loop/channels/internal/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const secretPath = "/services/T0/B0/SECRET123"

func newClient(t *testing.T) (*http.Client, *http.Transport) {
	client := wire.NewClient()
	t.Cleanup(client.CloseIdleConnections)
	transport := client.Transport.(*http.Transport)
	transport.Proxy = nil // whatever the environment says
	return client, transport
}

func newServer(t *testing.T, faults ...channelstest.Fault) *channelstest.Server {
	server := channelstest.NewServer(nil)
	t.Cleanup(server.Close)
	server.Queue(faults...)
	return server
}

func post(t *testing.T, ctx context.Context, url string) *http.Request {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(`{"text":"A or B?"}`))
	if err != nil {
		t.Fatal(err)
	}
	return req
}

// What fails before the request is written is a refusal, a timeout included,
// and shows the host alone.
func TestM01_NothingWritten(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = silent.Close() })
	stranger := httptest.NewUnstartedServer(nil)
	stranger.Config.ErrorLog = log.New(io.Discard, "", 0)
	stranger.StartTLS()
	t.Cleanup(stranger.Close)
	plain := newServer(t)

	tests := []struct {
		name, url, code string
		dial            func(ctx context.Context, network, addr string) (net.Conn, error)
	}{
		{"nobody listens", "http://127.0.0.1:1", "refused", nil},
		{"name is unknown", "http://ops.example", "dns", (&net.Dialer{Resolver: &net.Resolver{
			PreferGo: true,
			Dial:     func(context.Context, string, string) (net.Conn, error) { return nil, syscall.ECONNREFUSED },
		}}).DialContext},
		{"no route", "http://127.0.0.1:9", "unreachable", func(context.Context, string, string) (net.Conn, error) {
			return nil, &net.OpError{Op: "dial", Err: os.NewSyscallError("connect", syscall.EHOSTUNREACH)}
		}},
		{
			"connecting takes too long", "http://127.0.0.1:9", "timeout",
			func(ctx context.Context, _, _ string) (net.Conn, error) { <-ctx.Done(); return nil, ctx.Err() },
		},
		{"TLS with a plain server", strings.Replace(plain.URL(), "http:", "https:", 1), "tls", nil},
		{"TLS with a stranger's certificate", stranger.URL, "tls", nil},
		{"TLS with a silent peer", "https://" + silent.Addr().String(), "timeout", nil},
		{"no such scheme", "gopher://127.0.0.1", "broken", nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			client, transport := newClient(t)
			if tt.dial != nil {
				transport.DialContext = tt.dial
			}
			ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
			defer cancel()
			x := wire.Do(client, post(t, ctx, tt.url+secretPath))
			if x.Wrote || x.Status != 0 {
				t.Errorf("wrote %v, status %d", x.Wrote, x.Status)
			}
			err := x.Verdict()
			var r *channels.Refusal
			if !errors.As(err, &r) || r.Reason != channels.ReasonDown || r.Code != tt.code {
				t.Errorf("got %#v, want a refusal with code %s", err, tt.code)
			}
			if tt.code == "timeout" && !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%v is not context.DeadlineExceeded", err)
			}
			if host := strings.SplitN(tt.url, "/", 3)[2]; !strings.Contains(err.Error(), host) {
				t.Errorf("%q does not name the host %s", err, host)
			}
			channelstest.NoLeak(t, channels.Receipt{}, err, "SECRET123")
			channelstest.NoLeak(t, channels.Receipt{}, x.Err, "SECRET123")
		})
	}
}

func TestCodesOfAnUncertainOutcome(t *testing.T) {
	tests := []struct {
		code  string
		fault channelstest.Fault
	}{
		{"timeout", channelstest.Hang()},
		{"timeout", channelstest.HangInBody(200)},
		{"eof", channelstest.DropRead()},
		{"eof", channelstest.ShortBody(200)},
		{"reset", channelstest.ResetInBody(200)},
		{"broken", channelstest.Raw("SECRET123\r\n")},
		{"http_101", channelstest.Answer(101, "", "Upgrade: websocket")},
		{"http_500", channelstest.Answer(500, "")},
	}
	for _, tt := range tests {
		t.Run(tt.code, func(t *testing.T) {
			client, _ := newClient(t)
			ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
			defer cancel()
			err := wire.Do(client, post(t, ctx, newServer(t, tt.fault).URL()+secretPath)).Verdict()
			var u *channels.Uncertain
			if !errors.As(err, &u) || u.Code != tt.code {
				t.Errorf("got %#v, want uncertain with code %s", err, tt.code)
			}
			channelstest.NoLeak(t, channels.Receipt{}, err, "SECRET123")
		})
	}
}

// A reused connection that dies after the request was written: the transport
// must not repeat it, even though the body can be had again and the header
// says that the request may be repeated.
func TestRequestIsNeverSentTwice(t *testing.T) {
	server := newServer(t)
	client, _ := newClient(t)
	if err := wire.Do(client, post(t, t.Context(), server.URL())).Verdict(); err != nil {
		t.Fatal(err)
	}
	server.Always(channelstest.DropRead())
	req := post(t, t.Context(), server.URL())
	req.Header.Set("Idempotency-Key", "01KB3Z0000000000000000000A")
	err := wire.Do(client, req).Verdict()
	var u *channels.Uncertain
	if !errors.As(err, &u) {
		t.Errorf("got %v, want uncertain", err)
	}
	sent := server.Requests()
	if len(sent) != 2 || server.Connections() != 1 {
		t.Fatalf("%d requests on %d connections, want 2 on 1", len(sent), server.Connections())
	}
	if sent[1].Header.Get("Idempotency-Key") == "" || req.Header.Get("Idempotency-Key") == "" {
		t.Error("the header is gone")
	}
}

// A reused connection that dies before a byte was written costs nothing: the
// request goes out on a fresh one.
func TestStaleConnectionWithNothingWrittenIsReplaced(t *testing.T) {
	server := newServer(t)
	client, transport := newClient(t)
	var dead atomic.Bool
	dial := transport.DialContext
	transport.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := dial(ctx, network, addr)
		if err != nil || dead.Load() {
			return c, err // the one that takes the dead one's place
		}
		return dyingConn{c, &dead}, nil
	}
	for range 2 {
		if err := wire.Do(client, post(t, t.Context(), server.URL())).Verdict(); err != nil {
			t.Fatal(err)
		}
		dead.Store(true)
	}
	if n := len(server.Requests()); n != 2 || server.Connections() != 2 {
		t.Errorf("%d requests on %d connections, want 2 on 2", n, server.Connections())
	}
}

// dyingConn can no longer be written to once it is dead.
type dyingConn struct {
	net.Conn
	dead *atomic.Bool
}

func (c dyingConn) Write(b []byte) (int, error) {
	if c.dead.Load() {
		return 0, syscall.EPIPE
	}
	return c.Conn.Write(b)
}

func TestBodyIsCut(t *testing.T) {
	client, _ := newClient(t)
	for _, tt := range []struct {
		size, want int
	}{{0, 0}, {wire.MaxBody, wire.MaxBody}, {wire.MaxBody + 1, wire.MaxBody}, {1 << 20, wire.MaxBody}} {
		server := newServer(t, channelstest.Answer(200, strings.Repeat("x", tt.size)))
		x := wire.Do(client, post(t, t.Context(), server.URL()))
		if len(x.Body) != tt.want || x.Truncated != (tt.size > tt.want) || x.Verdict() != nil {
			t.Errorf("%d bytes: got %d, cut %v, verdict %v", tt.size, len(x.Body), x.Truncated, x.Verdict())
		}
	}
}

func TestDoLimit_BodyIsCutThereAndNoSooner(t *testing.T) {
	client, _ := newClient(t)
	for _, size := range []int{3 * wire.MaxBody, 3*wire.MaxBody + 1} {
		server := newServer(t, channelstest.Answer(200, strings.Repeat("x", size)))
		x := wire.DoLimit(client, post(t, t.Context(), server.URL()), 3*wire.MaxBody)
		if len(x.Body) != 3*wire.MaxBody || x.Truncated != (size > 3*wire.MaxBody) {
			t.Errorf("%d bytes: got %d, cut %v", size, len(x.Body), x.Truncated)
		}
	}
}

func TestRedirects(t *testing.T) {
	tests := []struct {
		name, method, to string
		status           int
		followed         bool
	}{
		{"POST 307", "POST", "/moved", 307, true},
		{"POST 308", "POST", "/moved", 308, true},
		{"POST 302", "POST", "/moved", 302, false},
		{"GET 301", "GET", "/moved", 301, true},
		{"GET elsewhere", "GET", "http://127.0.0.2/moved", 301, false},
		{"no Location", "POST", "", 307, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			server := newServer(t, channelstest.Redirect(tt.status, tt.to))
			client, _ := newClient(t)
			req := post(t, t.Context(), server.URL()+secretPath)
			req.Method = tt.method
			err := wire.Do(client, req).Verdict()
			var r *channels.Refusal
			if tt.followed && err != nil || !tt.followed && (!errors.As(err, &r) || r.Reason != channels.ReasonRedirect) {
				t.Errorf("verdict %v", err)
			}
			sent := server.Requests()
			if last := sent[len(sent)-1]; tt.followed != (last.URI == "/moved") || len(last.Body) == 0 {
				t.Errorf("last request: %+v", last)
			}
		})
	}
}

func TestUserInAddressBecomesBasicAuth(t *testing.T) {
	server := newServer(t, channelstest.Answer(401, ""))
	client, _ := newClient(t)
	x := wire.Do(client, post(t, t.Context(), strings.Replace(server.URL(), "//", "//ops:SECRET123@", 1)))
	if got := server.Requests()[0].Header.Get("Authorization"); got != "Basic b3BzOlNFQ1JFVDEyMw==" {
		t.Errorf("Authorization %q", got)
	}
	channelstest.NoLeak(t, channels.Receipt{}, x.Verdict(), "SECRET123")
}

// A transport that hands over an error of the old kind, address and all.
func TestM01_AddressInTheErrorStaysInside(t *testing.T) {
	client := &http.Client{Transport: leaking{}}
	x := wire.Do(client, post(t, t.Context(), "http://127.0.0.1:1"+secretPath))
	channelstest.NoLeak(t, channels.Receipt{}, x.Verdict(), "SECRET123")
	if !errors.Is(x.Verdict(), io.ErrUnexpectedEOF) {
		t.Error("errors.Is does not find the cause")
	}
}

type leaking struct{}

func (leaking) RoundTrip(req *http.Request) (*http.Response, error) {
	return nil, &addressError{req.URL.String(), io.ErrUnexpectedEOF}
}

type addressError struct {
	url string
	err error
}

func (e *addressError) Error() string { return "Post " + e.url + ": " + e.err.Error() }
func (e *addressError) Unwrap() error { return e.err }
