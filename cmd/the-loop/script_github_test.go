package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"strings"

	"github.com/rogpeppe/go-internal/testscript"

	"the-loop/channels/channelstest"
)

// A GitHub with one private repository, o/r, and a public one, o/open.

// githubd NAME: $NAME is its address, $NAME_TOKEN its token, $NAME_SECRET the
// webhook's secret.
func githubd(ts *testscript.TestScript, _ bool, args []string) {
	want(ts, len(args) == 1, "githubd NAME")
	g := channelstest.NewGitHubServer()
	g.AddRepo("o/r", true)
	g.AddRepo("o/open", false)
	g.AddUser("octocat", 583231)
	stageOf(ts).githubs[args[0]] = g
	ts.Setenv(args[0], g.URL())
	ts.Setenv(args[0]+"_TOKEN", channelstest.GitHubToken)
	ts.Setenv(args[0]+"_SECRET", channelstest.GitHubHookSecret)
}

func (s *stage) github(ts *testscript.TestScript, name string) *channelstest.GitHub {
	want(ts, s.githubs[name] != nil, "there is no GitHub "+name)
	return s.githubs[name]
}

// ticket splits o/r#7.
func ticket(ts *testscript.TestScript, ref string) (repo string, n int) {
	repo, digits, ok := strings.Cut(ref, "#")
	want(ts, ok, "a ticket like o/r#7")
	return repo, number(ts, digits)
}

// comment GITHUB TICKET LOGIN TEXT: that person comments on the ticket.
func comment(ts *testscript.TestScript, _ bool, args []string) {
	want(ts, len(args) == 4, "comment GITHUB TICKET LOGIN TEXT")
	repo, n := ticket(ts, args[1])
	stageOf(ts).github(ts, args[0]).Comment(repo, n, args[2], args[3])
}

// hook GITHUB DAEMON HOW TICKET LOGIN TEXT: the same, and GitHub tells the
// daemon's /github of it: "forged", or so many times.
func hook(ts *testscript.TestScript, _ bool, args []string) {
	want(ts, len(args) == 6, "hook GITHUB DAEMON HOW TICKET LOGIN TEXT")
	g := stageOf(ts).github(ts, args[0])
	repo, n := ticket(ts, args[3])
	c := g.Comment(repo, n, args[4], args[5])
	payload := g.Said(c)
	secret, times, status := channelstest.GitHubHookSecret, 1, http.StatusOK
	if args[2] == "forged" {
		secret, status = "another secret", http.StatusUnauthorized
		g.Delete(c.ID) // nobody wrote it
	} else {
		times = number(ts, args[2])
	}
	for range times {
		req, err := g.Signed(secret, payload).Request(context.Background(), "http://"+listens(ts, args[1]))
		ts.Check(err)
		send(ts, req, status)
	}
}

// comments GITHUB TICKET FILE: writes the ticket's comments, one a line.
func comments(ts *testscript.TestScript, _ bool, args []string) {
	want(ts, len(args) == 3, "comments GITHUB TICKET FILE")
	repo, n := ticket(ts, args[1])
	var b strings.Builder
	for _, c := range stageOf(ts).github(ts, args[0]).Comments(repo, n) {
		fmt.Fprintf(&b, "%s: %s%s\n", c.Login, strings.ReplaceAll(strings.ReplaceAll(c.Body, "\r", ""), "\n", " / "),
			reactionsOf(c))
	}
	ts.Check(os.WriteFile(ts.MkAbs(args[2]), []byte(b.String()), 0o600))
}

func reactionsOf(c channelstest.GitHubComment) string {
	if len(c.Reactions) == 0 {
		return ""
	}
	return fmt.Sprintf(" %v", c.Reactions)
}
