package receiver

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"

	"the-loop/channels"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// door is a surface's: "X-Seal: yes" is signed, and any other seal is forged.
// Each line of the body is the key of a message.
type door struct {
	limit  int64
	ready  error
	opened atomic.Int64
	open   func(body []byte) (channels.Arrival, error) // nil: as told
}

func (d *door) Limit() int64              { return d.limit }
func (d *door) Ready() error              { return d.ready }
func (d *door) Sealed(h http.Header) bool { return len(h.Values("X-Seal")) == 1 }

func (d *door) Open(h http.Header, body []byte) (channels.Arrival, error) {
	if h.Get("X-Seal") != "yes" {
		return channels.Arrival{}, channels.ErrForged
	}
	d.opened.Add(1)
	if d.open != nil {
		return d.open(body)
	}
	var a channels.Arrival
	for key := range strings.FieldsSeq(string(body)) {
		a.Messages = append(a.Messages, channels.Message{Key: key})
	}
	if len(a.Messages) == 0 {
		a.Dropped = "empty"
	}
	return a, nil
}

// taker is who takes.
type taker struct {
	mu    sync.Mutex
	calls [][]string
	take  func(ctx context.Context, keys []string) error // nil: all is taken
}

func (k *taker) Take(ctx context.Context, ms ...channels.Message) error {
	var keys []string
	for _, m := range ms {
		keys = append(keys, m.Key)
	}
	k.mu.Lock()
	k.calls = append(k.calls, keys)
	k.mu.Unlock()
	if k.take != nil {
		return k.take(ctx, keys)
	}
	return nil
}

func (k *taker) got() [][]string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Clone(k.calls)
}

// site is a receiver with one door, at /in.
type site struct {
	*Receiver
	door *door
	taker
	log bytes.Buffer
}

func newSite(t testing.TB) *site {
	s := &site{door: &door{limit: 1 << 20}}
	s.Receiver = New(Options{
		Doors: map[string]Door{"/in": s.door}, Take: s.Take, Logger: slog.New(slog.NewTextHandler(&s.log, nil)),
	})
	s.Start(context.Background())
	t.Cleanup(s.Stop)
	return s
}

func post(path, seal string, body io.Reader) *http.Request {
	r := httptest.NewRequest(http.MethodPost, path, body)
	if seal != "" {
		r.Header.Set("X-Seal", seal)
	}
	return r
}

// send gives the answer to one signed request.
func (s *site) send(body string) *httptest.ResponseRecorder {
	return s.do(post("/in", "yes", strings.NewReader(body)))
}

func (s *site) do(r *http.Request) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	return w
}

// untouchable fails the test when it is read.
type untouchable struct{ t *testing.T }

func (u untouchable) Read([]byte) (int, error) {
	u.t.Error("the body was read")
	return 0, errors.New("read")
}

// unsized hides a body's length from httptest.
type unsized struct{ io.Reader }
