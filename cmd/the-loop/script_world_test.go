package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"strings"

	"github.com/rogpeppe/go-internal/testscript"

	"the-loop/channels/channelstest"
)

// stage is the world around the processes of one script: the servers they
// speak to, and the daemons that run.
type stage struct {
	hooks   map[string]*channelstest.Server
	slacks  map[string]*channelstest.Slack
	githubs map[string]*channelstest.GitHub
	daemons map[string]*daemonProcess
}

type stageKey struct{}

func newStage() *stage {
	return &stage{
		hooks: map[string]*channelstest.Server{}, slacks: map[string]*channelstest.Slack{},
		githubs: map[string]*channelstest.GitHub{}, daemons: map[string]*daemonProcess{},
	}
}

func stageOf(ts *testscript.TestScript) *stage { return ts.Value(stageKey{}).(*stage) }

func (s *stage) close() {
	for _, d := range s.daemons {
		_ = d.cmd.Process.Kill()
		<-d.done
	}
	for _, h := range s.hooks {
		h.Close()
	}
	for _, sl := range s.slacks {
		sl.Close()
	}
	for _, g := range s.githubs {
		g.Close()
	}
}

func (s *stage) server(ts *testscript.TestScript, name string) *channelstest.Server {
	if sl := s.slacks[name]; sl != nil {
		return sl.Server
	}
	if g := s.githubs[name]; g != nil {
		return g.Server
	}
	h := s.hooks[name]
	if h == nil {
		ts.Fatalf("there is no server %s", name)
	}
	return h
}

// want stops a script that uses a command wrongly.
func want(ts *testscript.TestScript, ok bool, usage string) {
	if !ok {
		ts.Fatalf("usage: %s", usage)
	}
}

// webhookd NAME: a receiver that answers 200; $NAME is its URL, $NAME_ADDR its
// host and port.
func webhookd(ts *testscript.TestScript, _ bool, args []string) {
	want(ts, len(args) == 1, "webhookd NAME")
	s := channelstest.NewServer(nil)
	stageOf(ts).hooks[args[0]] = s
	ts.Setenv(args[0], s.URL())
	ts.Setenv(args[0]+"_ADDR", strings.TrimPrefix(s.URL(), "http://"))
}

// slackd NAME: a Slack; $NAME is its API's address, $NAME_TOKEN its token.
func slackd(ts *testscript.TestScript, _ bool, args []string) {
	want(ts, len(args) == 1, "slackd NAME")
	s := channelstest.NewSlackServer()
	s.SetPace(0)
	stageOf(ts).slacks[args[0]] = s
	ts.Setenv(args[0], s.APIURL())
	ts.Setenv(args[0]+"_TOKEN", channelstest.SlackToken)
	ts.Setenv(args[0]+"_SECRET", channelstest.SlackSigningSecret)
	ts.Setenv(args[0]+"_APP", channelstest.SlackAppToken)
}

// fault NAME down|up|heal, fault NAME token TOKEN, fault NAME unreadable SCOPE:
// what the server is from now on.
// fault NAME [once|to PATH] drop|hang, answer STATUS [HEADER…], says CODE, or,
// for a Slack, store-then-drop: what it does with every request, with the next
// one, or with the next one to a path that ends so.
func fault(ts *testscript.TestScript, _ bool, args []string) {
	want(ts, len(args) >= 2, "fault NAME WHAT [ARG…]")
	w := stageOf(ts)
	s := w.server(ts, args[0])
	switch what, rest := args[1], args[2:]; {
	case what == "down":
		s.Down()
	case what == "up":
		s.Up()
	case what == "heal":
		s.Heal()
	case what == "token" && len(rest) == 1:
		w.slacks[args[0]].SetToken(rest[0])
	case what == "unreadable" && len(rest) == 1:
		w.slacks[args[0]].DenyReading(rest[0])
	case what == "once" && len(rest) > 0:
		s.Queue(w.fault(ts, args[0], rest))
	case what == "to" && len(rest) > 1:
		s.Queue(w.fault(ts, args[0], rest[1:]).To(rest[0]))
	default:
		s.Always(w.fault(ts, args[0], args[1:]))
	}
}

func (s *stage) fault(ts *testscript.TestScript, name string, words []string) channelstest.Fault {
	switch what, rest := words[0], words[1:]; {
	case what == "drop":
		return channelstest.DropRead()
	case what == "hang":
		return channelstest.Hang()
	case what == "answer" && len(rest) > 0:
		status, err := strconv.Atoi(rest[0])
		ts.Check(err)
		return channelstest.Answer(status, "", rest[1:]...)
	case what == "says" && len(rest) == 1:
		return channelstest.SlackError(rest[0])
	case what == "store-then-drop" && s.slacks[name] != nil:
		return s.slacks[name].StoreThen(channelstest.DropRead())
	case what == "store-then-500" && s.githubs[name] != nil:
		return s.githubs[name].StoreThen(channelstest.Answer(http.StatusInternalServerError, ""))
	}
	ts.Fatalf("no such fault: %s %s", name, strings.Join(words, " "))
	return channelstest.Fault{}
}

// received NAME N: that many requests were read whole; for a Slack, that many
// messages stand in its room.
func received(ts *testscript.TestScript, neg bool, args []string) {
	want(ts, len(args) == 2, "received NAME N")
	n, err := strconv.Atoi(args[1])
	ts.Check(err)
	if got := stageOf(ts).count(ts, args[0]); (got == n) == neg {
		ts.Fatalf("%s received %d, want %s", args[0], got, args[1])
	}
}

func (s *stage) count(ts *testscript.TestScript, name string) int {
	if sl := s.slacks[name]; sl != nil {
		return len(sl.Messages(channelstest.SlackRoom))
	}
	return len(s.server(ts, name).Requests())
}

// requests NAME FILE: writes what was received as lines of JSON with
// webhook-id and body.
func requests(ts *testscript.TestScript, _ bool, args []string) {
	want(ts, len(args) == 2, "requests NAME FILE")
	var b bytes.Buffer
	for _, r := range stageOf(ts).server(ts, args[0]).Requests() {
		line, err := json.Marshal(map[string]string{
			"uri": r.URI, "id": r.Header.Get("webhook-id"), "signature": r.Header.Get("webhook-signature"),
			"body": string(r.Body),
		})
		ts.Check(err)
		b.Write(append(line, '\n'))
	}
	ts.Check(os.WriteFile(ts.MkAbs(args[1]), b.Bytes(), 0o600))
}

// distinct NAME N: N requests came, with N different ids.
func distinct(ts *testscript.TestScript, _ bool, args []string) {
	want(ts, len(args) == 2, "distinct NAME N")
	ids := map[string]bool{}
	all := stageOf(ts).server(ts, args[0]).Requests()
	n := 0
	for _, r := range all {
		if id := r.Header.Get("webhook-id"); !ids[id] && id != "" {
			ids[id], n = true, n+1
		}
	}
	if fmt.Sprint(n) != args[1] {
		ts.Fatalf("%d requests with %d ids, want %s", len(all), n, args[1])
	}
}

// alike NAME N: at least N requests came, all of one event: the same id, the
// same body, and a timestamp of their own.
func alike(ts *testscript.TestScript, _ bool, args []string) {
	want(ts, len(args) == 2, "alike NAME N")
	all := stageOf(ts).server(ts, args[0]).Requests()
	least, err := strconv.Atoi(args[1])
	ts.Check(err)
	if len(all) < least {
		ts.Fatalf("only %d requests", len(all))
	}
	for _, r := range all {
		id, first := r.Header.Get("webhook-id"), all[0].Header.Get("webhook-id")
		if id == "" || id != first || !bytes.Equal(r.Body, all[0].Body) || r.Header.Get("webhook-timestamp") == "" {
			ts.Fatalf("%s %s\n%s\ndiffers from\n%s\n%s", id, r.Header, r.Body, first, all[0].Body)
		}
	}
}

// healthz FILE: asks /healthz at the address that a daemon logged there.
func healthz(ts *testscript.TestScript, _ bool, args []string) {
	want(ts, len(args) == 1, "healthz FILE")
	m := regexp.MustCompile(`"address":"([^"]+)"`).FindStringSubmatch(ts.ReadFile(args[0]))
	want(ts, m != nil, "the daemon has not said where it listens")
	client := &http.Client{Timeout: patience, Transport: &http.Transport{DisableKeepAlives: true}}
	for path, status := range map[string]int{"/healthz": http.StatusOK, "/": http.StatusNotFound} {
		resp, err := client.Get("http://" + m[1] + path)
		ts.Check(err)
		body, err := io.ReadAll(resp.Body)
		ts.Check(errors.Join(err, resp.Body.Close()))
		if resp.StatusCode != status || status == http.StatusOK && string(body) != "ok\n" {
			ts.Fatalf("GET %s: %d %q", path, resp.StatusCode, body)
		}
	}
}

// texts NAME FILE: writes the texts of a Slack's messages, one a line.
func texts(ts *testscript.TestScript, _ bool, args []string) {
	want(ts, len(args) == 2, "texts NAME FILE")
	var b bytes.Buffer
	for _, m := range stageOf(ts).slacks[args[0]].Messages(channelstest.SlackRoom) {
		b.WriteString(strings.ReplaceAll(m.Text, "\n", " ") + "\n")
	}
	ts.Check(os.WriteFile(ts.MkAbs(args[1]), b.Bytes(), 0o600))
}

// expand FILE…: puts the environment's values into the files, and makes them
// ours alone, as configs and secrets should be.
func expand(ts *testscript.TestScript, _ bool, args []string) {
	for _, name := range args {
		text := os.Expand(ts.ReadFile(name), ts.Getenv)
		ts.Check(os.WriteFile(ts.MkAbs(name), []byte(text), 0o600))
		ts.Check(os.Chmod(ts.MkAbs(name), 0o600))
	}
}
