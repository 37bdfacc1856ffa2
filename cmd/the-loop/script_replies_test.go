package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"the-loop/channels/channelstest"
)

// What people do, and what the providers send of it.

// reply SLACK USER TEXT: that person replies in the thread that was opened last.
func replyCommand(ts *testscript.TestScript, _ bool, args []string) {
	want(ts, len(args) == 3, "reply SLACK USER TEXT")
	s := stageOf(ts).slack(ts, args[0])
	s.Reply(channelstest.SlackRoom, lastRoot(ts, s), args[1], args[2])
}

// event SLACK DAEMON [forged|old|TIMES] USER TEXT: the same, and Slack tells the
// daemon's /slack/events of it, signed with $SLACK_SECRET: so many times.
func eventCommand(ts *testscript.TestScript, _ bool, args []string) {
	w := stageOf(ts)
	want(ts, len(args) == 5, "event SLACK DAEMON HOW USER TEXT")
	s := w.slack(ts, args[0])
	m := s.Reply(channelstest.SlackRoom, lastRoot(ts, s), args[3], args[4])
	if args[2] == "forged" || args[2] == "old" {
		s.Delete(channelstest.SlackRoom, m.TS) // nobody wrote it
	}
	w.deliver(ts, args[1], args[2], s.Said(channelstest.SlackRoom, m), s)
}

// press SLACK DAEMON HOW USER N: that person presses the Nth button, from 1, of
// the last message with buttons, and Slack tells /slack/interactions of it.
func pressCommand(ts *testscript.TestScript, _ bool, args []string) {
	w := stageOf(ts)
	want(ts, len(args) == 5, "press SLACK DAEMON HOW USER N")
	s := w.slack(ts, args[0])
	payload := s.Pressed(channelstest.SlackRoom, withButtons(ts, s), args[3], number(ts, args[4])-1)
	w.deliver(ts, args[1], args[2], payload, s)
}

// deliver sends a payload as Slack would: HOW is "forged", "old", or how many
// times; every answer must fit. For the daemon "socket" it goes down the socket.
func (s *stage) deliver(
	ts *testscript.TestScript, daemon, how string, payload channelstest.SlackPayload, sl *channelstest.Slack,
) {
	if daemon == "socket" {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		for range number(ts, how) {
			ts.Check(sl.Socket().Await(ctx, sl.Socket().Send(payload)))
		}
		return
	}
	secret, at, times, status := channelstest.SlackSigningSecret, time.Now(), 1, http.StatusOK
	switch how {
	case "forged":
		secret, status = "another secret", http.StatusUnauthorized
	case "old":
		at, status = at.Add(-6*time.Minute), http.StatusUnauthorized
	default:
		times = number(ts, how)
	}
	signed := sl.Signed(secret, at, payload)
	for n := range times {
		req, err := signed.Request(context.Background(), "http://"+listens(ts, daemon))
		ts.Check(err)
		if n > 0 {
			req.Header.Set("X-Slack-Retry-Num", strconv.Itoa(n))
		}
		send(ts, req, status)
	}
}

func send(ts *testscript.TestScript, req *http.Request, status int) {
	client := &http.Client{Timeout: patience, Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	ts.Check(err)
	body, err := io.ReadAll(resp.Body)
	ts.Check(errors.Join(err, resp.Body.Close()))
	if resp.StatusCode != status {
		ts.Fatalf("%s: %d %q, want %d", req.URL.Path, resp.StatusCode, body, status)
	}
}

// listens waits for the daemon to say where it listens.
func listens(ts *testscript.TestScript, daemon string) string {
	said := `"address":"([^"]+)"`
	waitfor(ts, false, []string{"grep", said, daemon + ".err"})
	return regexp.MustCompile(said).FindStringSubmatch(ts.ReadFile(daemon + ".err"))[1]
}

// listeners SLACK N: so many others listen to the app's socket.
func listeners(ts *testscript.TestScript, _ bool, args []string) {
	want(ts, len(args) == 2, "listeners SLACK N")
	stageOf(ts).slack(ts, args[0]).Socket().SetOthers(number(ts, args[1]))
}

func number(ts *testscript.TestScript, s string) int {
	n, err := strconv.Atoi(s)
	ts.Check(err)
	return n
}

func (s *stage) slack(ts *testscript.TestScript, name string) *channelstest.Slack {
	want(ts, s.slacks[name] != nil, "there is no Slack "+name)
	return s.slacks[name]
}

// lastRoot is the ts of the newest message that is no reply.
func lastRoot(ts *testscript.TestScript, s *channelstest.Slack) string {
	root := ""
	for _, m := range s.Messages(channelstest.SlackRoom) {
		if m.ThreadTS == "" || m.ThreadTS == m.TS {
			root = m.TS
		}
	}
	want(ts, root != "", "nothing was posted yet")
	return root
}

func withButtons(ts *testscript.TestScript, s *channelstest.Slack) (found channelstest.SlackMessage) {
	for _, m := range s.Messages(channelstest.SlackRoom) {
		if strings.Contains(string(m.Blocks), `"actions"`) {
			found = m
		}
	}
	want(ts, found.TS != "", "no message has buttons")
	return found
}

// room SLACK FILE: writes what people see in the room: texts, reactions, and
// what was shown to one user alone.
func inRoom(ts *testscript.TestScript, _ bool, args []string) {
	want(ts, len(args) == 2, "room SLACK FILE")
	s := stageOf(ts).slack(ts, args[0])
	var b strings.Builder
	for _, m := range s.Messages(channelstest.SlackRoom) {
		buttons := ""
		if strings.Contains(string(m.Blocks), `"actions"`) {
			buttons = " [buttons]"
		}
		reactions := ""
		for _, r := range m.Reactions {
			reactions += " :" + r.Name + ":"
		}
		fmt.Fprintf(&b, "%s: %s%s%s\n", m.User, strings.ReplaceAll(m.Text, "\n", " / "), buttons, reactions)
	}
	for _, e := range s.Ephemeral() {
		fmt.Fprintf(&b, "only %s: %s\n", e.User, strings.ReplaceAll(e.Text, "\n", " / "))
	}
	ts.Check(os.WriteFile(ts.MkAbs(args[1]), []byte(b.String()), 0o600))
}
