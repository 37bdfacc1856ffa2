package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"the-loop/channels/channelstest"
	"the-loop/internal/inbound"
	"the-loop/state"
)

// The receiver under load: the real program, real signatures, a real disk. Here
// it is short and asks only what was stored; LOAD=10s (make load) goes on so
// long, prints how long Slack would have waited, and wants it to be short.

const loadRate = 500 // requests a second

// TestP12_SignedEventsAreStoredUnderLoadAndForgedOnesAreNot sends signed replies
// at a steady rate among forged ones.
func TestP12_SignedEventsAreStoredUnderLoadAndForgedOnesAreNot(t *testing.T) {
	length, forged, asked, measured := time.Second, 1_000, 100, false
	if v := os.Getenv("LOAD"); v != "" {
		d, err := time.ParseDuration(v)
		if err != nil {
			t.Fatal(err)
		}
		length, forged, asked, measured = d, 10_000, 10_000, true
	}
	l := newLoad(t)
	l.asked(asked)
	l.ask()
	address := l.start()
	before := l.files()
	for n := range forged {
		l.send(address, l.event("another secret", fmt.Sprintf("forged %d", n)), http.StatusUnauthorized)
	}
	if after := l.files(); !slices.Equal(before, after) {
		t.Errorf("forged requests changed files:\n%s\n%s", before, after)
	}
	count := int(length.Seconds() * loadRate)
	took := l.burst(address, count)
	l.stop()
	lines, err := inbound.Unread(l.root, loadItem)
	if err != nil || len(lines) != count {
		t.Errorf("%d of %d are stored (%v)", len(lines), count, err)
	}
	slices.Sort(took)
	if measured {
		p50, p99 := took[len(took)/2], took[len(took)*99/100]
		fmt.Printf("%d signed events at %d a second, all stored; answered after %.1f ms (median), %.1f ms (p99); "+
			"%d forged ones changed nothing; %d questions were asked before\n", count, loadRate, ms(p50), ms(p99), forged, asked)
		if p99 > 50*time.Millisecond {
			t.Errorf("p99 %v, want at most 50 ms", p99)
		}
	}
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

const (
	loadItem   = "local:load#1"
	loadPerson = "U012ABCDEF"
)

// load is a receiver, its Slack, and who sends.
type load struct {
	t      *testing.T
	dir    string
	root   *state.Root
	slack  *channelstest.Slack
	thread string
	client *http.Client
	daemon *exec.Cmd
	errs   string
}

func newLoad(t *testing.T) *load {
	l := &load{t: t, dir: t.TempDir(), slack: channelstest.NewSlackServer()}
	t.Cleanup(l.slack.Close)
	l.slack.SetPace(0)
	transport := &http.Transport{MaxIdleConnsPerHost: 32}
	t.Cleanup(transport.CloseIdleConnections)
	l.client = &http.Client{Timeout: patience, Transport: transport}
	root, err := state.Open(filepath.Join(l.dir, "root"))
	if err != nil {
		t.Fatal(err)
	}
	l.root = root
	l.write("slack.secret", channelstest.SlackSigningSecret)
	l.write("slack.token", channelstest.SlackToken)
	l.write("c.yaml", fmt.Sprintf(`version: 1
state: {root: root}
people: [{name: Octo, slack: %s}]
webhook: {enabled: true, listen: "127.0.0.1:0", slack: {signingSecretFile: slack.secret}}
channels:
  slack: {type: slack, channel: %s, apiURL: %q, botTokenFile: slack.token, rate: 0}
`, loadPerson, channelstest.SlackRoom, l.slack.APIURL()))
	return l
}

func (l *load) write(name, text string) {
	if err := os.WriteFile(filepath.Join(l.dir, name), []byte(text), 0o600); err != nil {
		l.t.Fatal(err)
	}
}

func (l *load) command(args ...string) *exec.Cmd {
	cmd := exec.Command("the-loop", args...)
	cmd.Dir = l.dir
	cmd.Env = append(os.Environ(), "THE_LOOP_CONFIG="+filepath.Join(l.dir, "c.yaml"), "HOME="+l.dir)
	return cmd
}

// asked leaves that many questions that were answered before.
func (l *load) asked(n int) {
	if err := os.MkdirAll(l.root.Path("questions"), 0o700); err != nil {
		l.t.Fatal(err)
	}
	for i := range n {
		text := `{"version":1,"workItem":"` + loadItem + `","text":"How was it?","state":"answered",` +
			`"askedAt":"2026-01-01T00:00:00Z","closedAt":"2026-01-02T00:00:00Z",` +
			`"answer":{"text":"good","via":"slack","at":"2026-01-01T00:00:00Z"}}`
		path := l.root.Path(state.Question(fmt.Sprintf("old-%d", i)))
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			l.t.Fatal(err)
		}
	}
}

// ask opens the thread that the replies stand in, and closes the question, so
// that each of them goes to the inbox.
func (l *load) ask() {
	for _, args := range [][]string{
		{"ask", "--id", "load-1", "--work-item", loadItem, "--question", "How is it?"},
		{"questions", "withdraw", "load-1"},
	} {
		if out, err := l.command(args...).CombinedOutput(); err != nil {
			l.t.Fatalf("%v: %v\n%s", args, err, out)
		}
	}
	l.thread = l.slack.Messages(channelstest.SlackRoom)[0].TS
}

// start starts the receiver and gives its address.
func (l *load) start() string {
	l.errs = filepath.Join(l.dir, "webhook.err")
	errs, err := os.Create(l.errs)
	if err != nil {
		l.t.Fatal(err)
	}
	defer errs.Close()
	l.daemon = l.command("webhook")
	l.daemon.Stderr = errs
	if err := l.daemon.Start(); err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(func() { _ = l.daemon.Process.Kill() })
	address := regexp.MustCompile(`"address":"([^"]+)"`)
	heartbeat := l.root.Path(state.Heartbeat("webhook"))
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for giveUp := time.After(patience); ; {
		b, _ := os.ReadFile(l.errs)
		_, err := os.Stat(heartbeat)
		_, errRead := os.Stat(l.root.Path(state.Cursors)) // it has caught up
		if m := address.FindSubmatch(b); m != nil && err == nil && errRead == nil {
			return string(m[1])
		}
		select {
		case <-tick.C:
		case <-giveUp:
			l.t.Fatalf("the receiver does not start: %s", b)
		}
	}
}

func (l *load) stop() {
	if err := l.daemon.Process.Signal(syscall.SIGTERM); err != nil {
		l.t.Fatal(err)
	}
	_ = l.daemon.Wait()
}

// event is a reply of the listed person, as Slack sends it.
func (l *load) event(secret, text string) channelstest.SlackRequest {
	m := l.slack.Reply(channelstest.SlackRoom, l.thread, loadPerson, text)
	return l.slack.Signed(secret, time.Now(), l.slack.Said(channelstest.SlackRoom, m))
}

func (l *load) send(address string, r channelstest.SlackRequest, want int) time.Duration {
	req, err := r.Request(context.Background(), "http://"+address)
	if err != nil {
		l.t.Error(err)
		return 0
	}
	began := time.Now()
	resp, err := l.client.Do(req)
	took := time.Since(began)
	if err != nil {
		l.t.Error(err)
		return took
	}
	defer resp.Body.Close()
	if body, _ := io.ReadAll(resp.Body); resp.StatusCode != want {
		l.t.Errorf("%d %q, want %d", resp.StatusCode, body, want)
	}
	return took
}

// burst sends count events at the rate, each when its time has come, and gives
// how long each took. They are signed before that.
func (l *load) burst(address string, count int) []time.Duration {
	events := make([]channelstest.SlackRequest, count)
	for n := range events {
		events[n] = l.event(channelstest.SlackSigningSecret, fmt.Sprintf("event %d: %s", n, strings.Repeat("word ", 20)))
	}
	took := make([]time.Duration, count)
	var wg sync.WaitGroup
	tick := time.NewTicker(time.Second / loadRate)
	defer tick.Stop()
	for n, e := range events {
		<-tick.C
		wg.Go(func() { took[n] = l.send(address, e, http.StatusOK) })
	}
	wg.Wait()
	return took
}

// files are the root's files and their sizes, but for the heartbeat.
func (l *load) files() (names []string) {
	_ = filepath.Walk(l.root.Dir(), func(path string, fi os.FileInfo, err error) error {
		if err == nil && fi.Mode().IsRegular() && filepath.Base(filepath.Dir(path)) != "run" {
			names = append(names, fmt.Sprintf("%s %d %s", path, fi.Size(), fi.ModTime()))
		}
		return nil
	})
	return names
}
