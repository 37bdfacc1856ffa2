package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/urfave/cli/v2"
)

func demoCommand(w world) *cli.Command {
	return &cli.Command{
		Name:        "demo",
		Usage:       "see a room refuse and recover, in a temporary folder",
		Description: example("the-loop demo"),
		Action: func(c *cli.Context) error {
			if err := noArguments(c); err != nil {
				return err
			}
			return demo(c.Context, w)
		},
	}
}

// room is the demo's webhook: it refuses as one does whose token was rotated,
// until it is mended.
type room struct {
	w      world
	mu     sync.Mutex
	mended bool
	got    int
}

func (r *room) ServeHTTP(rw http.ResponseWriter, req *http.Request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	body, err := io.ReadAll(io.LimitReader(req.Body, 1<<20))
	if err != nil || !r.mended {
		rw.WriteHeader(http.StatusUnauthorized)
		return
	}
	var ev struct {
		Text string `json:"text"`
	}
	_ = json.Unmarshal(body, &ev)
	r.got++
	printf(r.w.stdout, "      [the room shows: %q, id %s]\n", ev.Text, req.Header.Get("webhook-id"))
}

func demo(ctx context.Context, w world) error {
	dir, err := os.MkdirTemp("", "the-loop-demo-")
	if err != nil {
		return failed(err)
	}
	defer os.RemoveAll(dir)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return failed(err)
	}
	r := &room{w: w}
	server := &http.Server{Handler: r, ReadHeaderTimeout: 5 * time.Second}
	go func() { _ = server.Serve(l) }()
	defer server.Close()

	cfg := filepath.Join(dir, "config.yaml")
	text := fmt.Sprintf("version: 1\nstate: {root: .}\ndrain: {interval: 1s}\n"+
		"channels:\n  room: {type: webhook, url: \"http://%s/hook\", idempotent: true}\n", l.Addr())
	if err := os.WriteFile(cfg, []byte(text), 0o600); err != nil {
		return failed(err)
	}
	d := &demonstration{ctx: ctx, w: w, config: cfg}
	d.say("1. A room whose token was rotated last night. An agent asks:")
	d.run("ask", "--work-item", "local:release#1", "--question", "Ship it?")
	d.say("2. The record is written, the room refused, and nobody pretends otherwise:")
	d.run("status")
	d.say("3. In the morning somebody mends the room, and that is all. The drainer that\n" +
		"   the daemons run does the rest; here we run one pass of it by hand:")
	r.mu.Lock()
	r.mended = true
	r.mu.Unlock()
	d.run("outbox", "drain")
	d.say("4. Delivered once, and there is nothing left to say:")
	d.run("status")
	if d.failed != "" {
		return failed(fmt.Errorf("the demo did not go as it should: the-loop %s failed", d.failed))
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.got != 1 {
		return failed(fmt.Errorf("the demo did not go as it should: the room got %d messages", r.got))
	}
	printf(w.stdout, "\nThat was real: files, locks and HTTP, in a folder that is gone now.\n"+
		"Next: the-loop init, then the-loop channels test.\n")
	return nil
}

// demonstration runs the program's own commands and shows them as typed.
type demonstration struct {
	ctx    context.Context
	w      world
	config string
	failed string
}

func (d *demonstration) say(text string) { printf(d.w.stdout, "\n%s\n\n", text) }

func (d *demonstration) run(args ...string) {
	shown := strings.Join(args, " ")
	for _, a := range args {
		if strings.ContainsAny(a, " ?") {
			shown = strings.Replace(shown, a, fmt.Sprintf("%q", a), 1)
		}
	}
	printf(d.w.stdout, "    $ the-loop %s\n", shown)
	indented := d.w
	indented.stdout = &indent{w: d.w.stdout}
	indented.stderr = indented.stdout
	if code := run(d.ctx, append([]string{"the-loop", "--config", d.config}, args...), indented); code != 0 {
		d.failed = shown
	}
}

// indent writes every line four columns in.
type indent struct {
	w      io.Writer
	inLine bool
}

func (i *indent) Write(b []byte) (int, error) {
	for line := range strings.Lines(string(b)) {
		if !i.inLine {
			line = "    " + line
		}
		i.inLine = !strings.HasSuffix(line, "\n")
		if _, err := io.WriteString(i.w, line); err != nil {
			return 0, err
		}
	}
	return len(b), nil
}
