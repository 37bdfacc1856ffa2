// Package receiver is the HTTP listener for what providers send: its routes,
// its limits, and one durable write for what arrives together. Verifying and
// decoding belong to the surfaces, who stand behind its doors; what a message
// means belongs to whoever takes it.
//
// Nothing is read of a request that could not be genuine, and what is genuine
// is answered with 200 only once it has been taken.
package receiver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"the-loop/channels"
)

const (
	// Budget is how many bytes of bodies are held at any time, of all requests
	// together.
	Budget = 64 << 20
	// ReadWithin is how long a body may take to arrive. GitHub gives up after
	// 10 s and Slack after 3 s; whoever needs longer is neither.
	ReadWithin = 10 * time.Second
	// TakeWithin is how long a message may take to be taken, its wait for
	// others included. Slack wants its answer within 3 s.
	TakeWithin = 2500 * time.Millisecond
)

// Door is a surface's side of one path. It is used by several goroutines.
type Door interface {
	// Limit is the largest body in bytes.
	Limit() int64
	// Sealed: the headers bear one well-formed signature. The body of a request
	// without is not read.
	Sealed(h http.Header) bool
	// Open verifies the body and decodes it. channels.ErrForged is for what is
	// not signed by one of our secrets, or not signed now; any other error for
	// what is signed and makes no sense.
	Open(h http.Header, body []byte) (channels.Arrival, error)
	// Ready is nil when its secret is there and not empty.
	Ready() error
}

// Options say what is received, and who takes it. Take is needed.
type Options struct {
	// Doors gives the door of each path.
	Doors map[string]Door
	// Take stores the messages, durably on return. One call may get those of
	// several requests, and after an error some of them again: it must know
	// what it has. It returns when ctx ends.
	Take func(ctx context.Context, ms ...channels.Message) error
	// Dropped, when set, is told the path and the rule of what was signed and
	// is nothing for us. It must not block.
	Dropped func(path, word string)
	// Forged, when set, is told the path of what was not signed, or not by one
	// of our secrets. It must not block.
	Forged func(path string)
	// Logger gets the failures, without a word of what came in. nil discards.
	Logger *slog.Logger
}

// Receiver is the handler. Make one with New.
type Receiver struct {
	opts  Options
	queue *queue
	held  atomic.Int64 // bytes of bodies

	taken, forged atomic.Int64
	mu            sync.Mutex
	dropped       map[string]int64
}

// Counts is what came in since the start.
type Counts struct {
	// Taken is how many messages were taken, repeats included.
	Taken int64
	// Forged is how many requests were not signed, or not by us.
	Forged int64
	// Dropped is how many signed requests held nothing for us, by the rule's
	// word; "malformed" are those that made no sense.
	Dropped map[string]int64
}

// New gives a Receiver that takes nothing yet: requests wait for Start, for as
// long as they may. Nothing runs.
func New(o Options) *Receiver {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return &Receiver{opts: o, queue: newQueue(o.Take, o.Logger), dropped: map[string]int64{}}
}

// Start takes what comes, until Stop. It is of no consequence after that, or the
// second time.
func (r *Receiver) Start(context.Context) { r.queue.start() }

// Stop stops taking, for good, and waits for what is being taken at the moment.
// Requests that come later, or were waiting, are told to come again.
func (r *Receiver) Stop() { r.queue.close() }

// Ready is nil when every door has its secret; else it says which has not.
func (r *Receiver) Ready() error {
	var errs []error
	for _, path := range slices.Sorted(maps.Keys(r.opts.Doors)) {
		if err := r.opts.Doors[path].Ready(); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", path, err))
		}
	}
	return errors.Join(errs...)
}

// Counts says what came in so far.
func (r *Receiver) Counts() Counts {
	r.mu.Lock()
	defer r.mu.Unlock()
	return Counts{r.taken.Load(), r.forged.Load(), maps.Clone(r.dropped)}
}

// ServeHTTP answers one request.
func (r *Receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	defer func() {
		if p := recover(); p != nil {
			r.opts.Logger.ErrorContext(req.Context(), "a request could not be handled",
				"path", r.known(req.URL.Path), "error", describePanic(p))
			refuse(w, http.StatusInternalServerError)
		}
	}()
	if req.URL.Path == "/healthz" {
		health(w, req)
		return
	}
	door, ok := r.opts.Doors[req.URL.Path]
	switch {
	case !ok:
		refuse(w, http.StatusNotFound)
	case req.Method != http.MethodPost:
		w.Header().Set("Allow", http.MethodPost)
		refuse(w, http.StatusMethodNotAllowed)
	case !door.Sealed(req.Header):
		r.refuseForged(w, req.URL.Path)
	case req.ContentLength > door.Limit():
		refuse(w, http.StatusRequestEntityTooLarge)
	default:
		r.receive(w, req, door)
	}
}

// receive reads, opens and takes what bears a signature.
func (r *Receiver) receive(w http.ResponseWriter, req *http.Request, door Door) {
	reserved := req.ContentLength
	if reserved < 0 {
		reserved = min(door.Limit(), Budget)
	}
	if !r.reserve(reserved) {
		w.Header().Set("Retry-After", "1")
		refuse(w, http.StatusServiceUnavailable)
		return
	}
	defer func() { r.held.Add(-reserved) }()
	body, status := read(w, req, door.Limit())
	if status != 0 {
		refuse(w, status)
		return
	}
	r.held.Add(int64(len(body)) - reserved)
	reserved = int64(len(body))
	arrival, err := door.Open(req.Header, body)
	switch {
	case errors.Is(err, channels.ErrForged):
		r.refuseForged(w, req.URL.Path)
		return
	case err != nil:
		r.drop(req.URL.Path, "malformed")
		refuse(w, http.StatusBadRequest)
		return
	}
	if err := r.queue.take(arrival.Messages); err != nil {
		// The error is of our own house, and stays in it. The provider sends again.
		w.Header().Set("Retry-After", "1")
		write(w, http.StatusServiceUnavailable, []byte("not taken\n"))
		return
	}
	r.taken.Add(int64(len(arrival.Messages)))
	if arrival.Dropped != "" {
		r.drop(req.URL.Path, arrival.Dropped)
	}
	answer(w, arrival.Reply)
}

// reserve takes n bytes of the budget, when they are there.
func (r *Receiver) reserve(n int64) bool {
	if r.held.Add(n) <= Budget {
		return true
	}
	r.held.Add(-n)
	return false
}

// read gives the body, or the status to refuse it with. No more than limit is
// kept, and no more memory is taken than bytes have come.
func read(w http.ResponseWriter, req *http.Request, limit int64) (body []byte, status int) {
	// net/http lifts it when the body has ended. A recorder of tests has none.
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(ReadWithin))
	body, err := io.ReadAll(io.LimitReader(req.Body, limit+1))
	switch {
	case int64(len(body)) > limit:
		return nil, http.StatusRequestEntityTooLarge
	case err != nil && isTimeout(err):
		return nil, http.StatusRequestTimeout
	case err != nil:
		return nil, http.StatusBadRequest
	}
	return body, 0
}

func isTimeout(err error) bool {
	var t interface{ Timeout() bool }
	return errors.As(err, &t) && t.Timeout()
}

func (r *Receiver) refuseForged(w http.ResponseWriter, path string) {
	r.forged.Add(1)
	if r.opts.Forged != nil {
		r.opts.Forged(path)
	}
	refuse(w, http.StatusUnauthorized)
}

func (r *Receiver) drop(path, word string) {
	r.mu.Lock()
	r.dropped[word]++
	r.mu.Unlock()
	if r.opts.Dropped != nil {
		r.opts.Dropped(path, word)
	}
}

// known gives the path if it is one of ours: another's may hold anything.
func (r *Receiver) known(path string) string {
	if _, ok := r.opts.Doors[path]; ok {
		return path
	}
	return "another"
}

func health(w http.ResponseWriter, req *http.Request) {
	if req.Method != http.MethodGet && req.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		refuse(w, http.StatusMethodNotAllowed)
		return
	}
	answer(w, []byte("ok\n"))
}

// refuse answers with the status alone, and hangs up: of a body that was not
// read, net/http would read another 256 KiB first.
func refuse(w http.ResponseWriter, status int) {
	w.Header().Set("Connection", "close")
	write(w, status, []byte(http.StatusText(status)+"\n"))
}

func answer(w http.ResponseWriter, body []byte) { write(w, http.StatusOK, body) }

func write(w http.ResponseWriter, status int, body []byte) {
	h := w.Header()
	h.Set("Content-Type", "text/plain; charset=utf-8")
	if len(body) > 0 && body[0] == '{' {
		h.Set("Content-Type", "application/json")
	}
	h.Set("X-Content-Type-Options", "nosniff") // a reply may repeat what came in
	h.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	_, _ = w.Write(body)
}
