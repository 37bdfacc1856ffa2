package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"the-loop/bus"
	"the-loop/channels"
	"the-loop/internal/eventlog"
	"the-loop/outbox"
	"the-loop/state"
)

// refuser refuses each message for itself, at once: what is left is what it costs
// to keep the event.
type refuser struct{}

func (refuser) Name() string { return "hook" }

func (refuser) Post(context.Context, channels.Delivery) (channels.Receipt, error) {
	return channels.Receipt{}, &channels.Refusal{Reason: channels.ReasonOther, Code: "http_418"}
}

// testBus is a bus on a root of its own, wired as that of the program is, without
// a ledger: the event is none that is recorded.
type testBus struct {
	bus.Bus
	store *outbox.Store
}

func newBus(dir string, routes ...bus.Route) (*testBus, error) {
	root, err := state.Open(dir)
	if err != nil {
		return nil, err
	}
	store := outbox.Open(root, outbox.Options{Cap: 1 << 30})
	return &testBus{
		bus.Bus{Routes: routes, Store: store, Standing: store, Log: eventlog.New(root, nil)}, store,
	}, nil
}

func to(c channels.Channel) bus.Route {
	return bus.Route{Channel: c, Subscribe: []channels.Pattern{"*"}}
}

func event() channels.Event {
	return channels.Event{Type: "job.failed", WorkItem: "local:backup#1", Text: strings.Repeat("no space left on nas ", 5)}
}

// publish publishes one event that is to be kept.
func publish(ctx context.Context, b *testBus) (time.Duration, error) {
	return timed(func() error {
		if res := b.Publish(ctx, event()); !res.Queued || !res.Stored || res.Err != nil {
			return fmt.Errorf("not kept: %+v", res)
		}
		return nil
	})
}

// filled gives a root whose outbox holds n entries, as the program writes them.
func (b *bench) filled(n int) (dir string, size int64, err error) {
	dir, err = b.fresh()
	if err != nil {
		return "", 0, err
	}
	one, err := b.entry()
	if err != nil {
		return "", 0, err
	}
	if err := os.MkdirAll(filepath.Join(dir, "channels"), 0o700); err != nil {
		return "", 0, err
	}
	path := filepath.Join(dir, state.Outbox)
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return "", 0, err
	}
	defer f.Close()
	w := bufio.NewWriter(f)
	sep := `{"version":1,"pending":{`
	for i := range n {
		fmt.Fprintf(w, "%s\n\"01KB3Z%020d\":%s", sep, i, one)
		sep = ","
	}
	fmt.Fprint(w, "\n}}\n")
	if err := w.Flush(); err != nil {
		return "", 0, err
	}
	info, err := f.Stat()
	if err != nil {
		return "", 0, err
	}
	return dir, info.Size(), f.Sync()
}

// entry gives what one event looks like in the outbox.
func (b *bench) entry() (string, error) {
	dir, err := b.fresh()
	if err != nil {
		return "", err
	}
	bs, err := newBus(dir, to(refuser{}))
	if err != nil {
		return "", err
	}
	if _, err := publish(b.ctx, bs); err != nil {
		return "", err
	}
	text, err := os.ReadFile(filepath.Join(dir, state.Outbox))
	if err != nil {
		return "", err
	}
	_, rest, _ := strings.Cut(string(text), "\n")
	_, value, _ := strings.Cut(rest, ":")
	value, _, ok := strings.Cut(value, "\n}}")
	if !ok {
		return "", fmt.Errorf("the outbox is written in another way: %s", text)
	}
	return value, bs.store.Close()
}

func publishRows() []row {
	return []row{
		{
			name: "publish, every channel refusing, beside 200 entries", limit: 1.5,
			what:    "the same bytes written durably, and a small file written durably",
			measure: publishBeside200,
		},
		{
			name: "64 goroutines in one process", limit: 10, least: true,
			what: "events a second by one goroutine", measure: sixtyFourByOne,
		},
		{
			name: "64 goroutines, by the disk", limit: 8, least: true,
			what: "durable writes a second of the same bytes", measure: sixtyFourByFloor,
		},
		{
			name: "32 processes", limit: 0.5, least: true,
			what: "events a second by one process", measure: thirtyTwo,
		},
		{
			name: "the longest commit of 32 processes", limit: 10,
			what: "32 times the median of one process alone", measure: longestOf32,
		},
	}
}

func publishBeside200(b *bench) (figures, error) {
	dir, _, err := b.filled(200)
	if err != nil {
		return figures{}, err
	}
	bs, err := newBus(dir, to(refuser{}))
	if err != nil {
		return figures{}, err
	}
	defer bs.store.Close()
	if _, err := publish(b.ctx, bs); err != nil { // its journal is there from now on
		return figures{}, err
	}
	return inTurn(20,
		func() (time.Duration, error) { return publish(b.ctx, bs) },
		func() (time.Duration, error) {
			same, err := b.sameBytes(dir)
			if err != nil {
				return 0, err
			}
			return timed(func() error {
				if err := durably(b.dir, "floor", same); err != nil {
					return err
				}
				return smallFile(b.dir)
			})
		})
}

// sameBytes gives as many bytes as the outbox has.
func (b *bench) sameBytes(dir string) ([]byte, error) {
	info, err := os.Stat(filepath.Join(dir, state.Outbox))
	if err != nil {
		return nil, err
	}
	return make([]byte, info.Size()), nil
}

// commits are how many events were published in a second, and how many bytes the
// outbox had on average.
type commits struct {
	perSecond float64
	size      int64
}

// rate publishes by so many goroutines, each so often, beside 200 entries.
func (b *bench) rate(goroutines, each int) (c commits, err error) {
	dir, before, err := b.filled(200)
	if err != nil {
		return c, err
	}
	bs, err := newBus(dir, to(refuser{}))
	if err != nil {
		return c, err
	}
	defer bs.store.Close()
	took, err := timed(func() error {
		return together(goroutines, each, func() error { _, err := publish(b.ctx, bs); return err })
	})
	if err != nil {
		return c, err
	}
	after, err := b.sameBytes(dir)
	return commits{float64(goroutines*each) / took.Seconds(), (before + int64(len(after))) / 2}, err
}

func sixtyFourByOne(b *bench) (figures, error) {
	many, err := b.rate(64, 10)
	if err != nil {
		return figures{}, err
	}
	one, err := b.rate(1, 100)
	return figures{perSecond(many.perSecond), perSecond(one.perSecond), many.perSecond / one.perSecond}, err
}

func sixtyFourByFloor(b *bench) (figures, error) {
	many, err := b.rate(64, 10)
	if err != nil {
		return figures{}, err
	}
	same := make([]byte, many.size)
	var all []time.Duration
	for range 20 {
		d, err := timed(func() error { return durably(b.dir, "floor", same) })
		if err != nil {
			return figures{}, err
		}
		all = append(all, d)
	}
	floor := 1 / median(all).Seconds()
	return figures{perSecond(many.perSecond), perSecond(floor), many.perSecond / floor}, nil
}

func perSecond(n float64) string { return fmt.Sprintf("%.0f/s", n) }

// publisherCommand has this program publish events in a process of its own.
const publisherCommand = "publisher"

// publisher publishes N events to the root DIR once its stdin ends, and prints how
// many nanoseconds each took.
func publisher(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	bs, err := newBus(args[0], to(refuser{}))
	if err != nil {
		fmt.Fprintln(stderr, err)
		return 1
	}
	fmt.Fprintln(stdout, "ready")
	_, _ = io.Copy(io.Discard, os.Stdin)
	for range number(args[1]) {
		took, err := publish(ctx, bs)
		if err != nil {
			fmt.Fprintln(stderr, err)
			return 1
		}
		fmt.Fprintln(stdout, took.Nanoseconds())
	}
	if err := bs.store.Close(); err != nil {
		fmt.Fprintln(stderr, err)
		return 1
	}
	return 0
}

// processes publishes n events in each of so many processes at once.
func (b *bench) processes(many, n int) (perSecond float64, took []time.Duration, err error) {
	dir, _, err := b.filled(200)
	if err != nil {
		return 0, nil, err
	}
	var all []*exec.Cmd
	var starts []io.WriteCloser
	var outs []*bufio.Scanner
	for range many {
		cmd := exec.CommandContext(b.ctx, filepath.Join(b.bin, "bench"), publisherCommand, dir, fmt.Sprint(n))
		cmd.Stderr = os.Stderr
		in, err := cmd.StdinPipe()
		if err != nil {
			return 0, nil, err
		}
		out, err := cmd.StdoutPipe()
		if err != nil {
			return 0, nil, err
		}
		if err := cmd.Start(); err != nil {
			return 0, nil, err
		}
		all, starts, outs = append(all, cmd), append(starts, in), append(outs, bufio.NewScanner(out))
	}
	for _, out := range outs {
		out.Scan() // it is ready
	}
	began := time.Now()
	for _, in := range starts {
		_ = in.Close()
	}
	for i, out := range outs {
		for out.Scan() {
			took = append(took, time.Duration(number(out.Text())))
		}
		if err := all[i].Wait(); err != nil {
			return 0, nil, err
		}
	}
	if len(took) != many*n {
		return 0, nil, fmt.Errorf("%d of %d were published", len(took), many*n)
	}
	return float64(many*n) / time.Since(began).Seconds(), took, nil
}

func thirtyTwo(b *bench) (figures, error) {
	one, _, err := b.processes(1, 200)
	if err != nil {
		return figures{}, err
	}
	many, _, err := b.processes(32, 10)
	return figures{perSecond(many), perSecond(one), many / one}, err
}

func longestOf32(b *bench) (figures, error) {
	_, alone, err := b.processes(1, 100)
	if err != nil {
		return figures{}, err
	}
	_, took, err := b.processes(32, 10)
	if err != nil {
		return figures{}, err
	}
	return compared(slices.Max(took), 32*median(alone)), nil
}
