//go:build crashmain

// Command crashmain does one thing to a root, so that strace can kill it at any
// of its system calls. It is built for that alone: `make crash`.
//
// strace counts calls per thread ("when=N"), and Go moves goroutines between
// threads as it likes. So every goroutine that touches a file is locked to a
// thread of its own, for good. One of these threads, the SLOT-th to touch one,
// first makes the call under test in vain, Window times; the others make it
// fewer times than that altogether. So an N beyond Window names one call of one
// goroutine, the same one in every run.
package main

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"the-loop/bus"
	"the-loop/channels"
	"the-loop/drain"
	"the-loop/internal/eventlog"
	"the-loop/outbox"
	"the-loop/state"
)

// Window is more calls than a thread makes by itself.
const Window = 200

func main() {
	if len(os.Args) != 7 {
		fmt.Fprintln(os.Stderr, "usage: crashmain publish|drain idempotent|plain ROOT ADDRESS CALL SLOT")
		os.Exit(2)
	}
	slot, err := strconv.Atoi(os.Args[6])
	if err != nil {
		panic(err)
	}
	p := &padding{call: os.Args[5], slot: slot, seen: map[int]bool{}}
	_ = p.step("", "")
	root, err := state.Open(os.Args[3])
	if err != nil {
		panic(err)
	}
	root = root.WithSteps(p.step)
	store := outbox.Open(root, outbox.Options{Log: eventlog.New(root, nil)})
	to := &plainHTTP{address: os.Args[4]}
	if os.Args[2] == "idempotent" {
		to.repeats = 24 * time.Hour
	}
	routes := []bus.Route{{Channel: to, Subscribe: []channels.Pattern{"*"}, Timeout: 20 * time.Second}}
	ctx := context.Background()
	switch os.Args[1] {
	case "publish":
		b := &bus.Bus{Routes: routes, Store: store, Standing: store, Log: eventlog.New(root, nil)}
		b.Publish(ctx, channels.Event{ID: "01KB3Z0000000000000000000A", Type: "job.failed", Text: "x"})
	case "drain":
		d := drain.New(drain.Options{
			Store: store, Role: root.Role(state.DrainRole), Who: "crashmain",
			Routes: func() []bus.Route { return routes },
		})
		if _, err := d.Cycle(ctx); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	if err := store.Close(); err != nil {
		panic(err)
	}
}

// padding gives every goroutine that makes a step a thread, and one of them a
// range of N of its own.
type padding struct {
	call string
	slot int

	mu   sync.Mutex
	seen map[int]bool // by thread
}

func (p *padding) step(state.Op, string) error {
	runtime.LockOSThread() // for good: the thread ends with the goroutine
	p.mu.Lock()
	defer p.mu.Unlock()
	if tid := syscall.Gettid(); !p.seen[tid] {
		for range Window {
			if len(p.seen) == p.slot {
				p.inVain()
			}
		}
		p.seen[tid] = true
	}
	return nil
}

// inVain makes the call in a way that does nothing.
func (p *padding) inVain() {
	switch p.call {
	case "write":
		_, _ = syscall.Write(-1, nil)
	case "fsync":
		_ = syscall.Fsync(-1)
	case "fdatasync":
		_ = syscall.Fdatasync(-1)
	case "rename":
		_ = syscall.Rename("", "")
	case "unlink":
		_ = syscall.Unlink("")
	case "open":
		_, _ = syscall.Open("", syscall.O_RDONLY, 0)
	case "flock":
		_ = syscall.Flock(-1, syscall.LOCK_UN)
	case "mkdir":
		_ = syscall.Mkdir("", 0)
	}
}

// plainHTTP is a channel that asks by blocking calls on its own thread, none of
// which is among those under test.
type plainHTTP struct {
	address string
	repeats time.Duration
}

func (c *plainHTTP) Name() string { return "a" }

func (c *plainHTTP) DropsRepeats() time.Duration { return c.repeats }

func (c *plainHTTP) Post(_ context.Context, d channels.Delivery) (channels.Receipt, error) {
	host, port, err := net.SplitHostPort(c.address)
	if err != nil {
		return channels.Receipt{}, &channels.Refusal{Reason: channels.ReasonConfig, Code: "bad_url", Err: err}
	}
	to := &syscall.SockaddrInet4{}
	copy(to.Addr[:], net.ParseIP(host).To4())
	to.Port, _ = strconv.Atoi(port)
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err == nil {
		defer syscall.Close(fd)
		err = syscall.Connect(fd, to)
	}
	if err != nil {
		return channels.Receipt{}, &channels.Refusal{Reason: channels.ReasonDown, Code: "connect", Err: err}
	}
	request := fmt.Sprintf("POST / HTTP/1.0\r\nHost: a\r\nwebhook-id: %s\r\nContent-Length: 0\r\n\r\n", d.Event.ID)
	if _, err := syscall.SendmsgN(fd, []byte(request), nil, nil, 0); err != nil {
		return channels.Receipt{}, &channels.Uncertain{Code: "send", Err: err}
	}
	var answer bytes.Buffer
	for buf := make([]byte, 4096); ; {
		n, err := syscall.Read(fd, buf)
		if err == syscall.EINTR {
			continue
		}
		if n <= 0 || err != nil {
			break
		}
		answer.Write(buf[:n])
	}
	_, status, _ := strings.Cut(answer.String(), " ")
	switch {
	case strings.HasPrefix(status, "200"):
		return channels.Receipt{Ref: d.Event.ID}, nil
	case strings.HasPrefix(status, "403"):
		return channels.Receipt{}, &channels.Refusal{Reason: channels.ReasonAuth, Code: "http_403"}
	}
	return channels.Receipt{}, &channels.Uncertain{Code: "no_answer"}
}
