package github_test

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"go.uber.org/goleak"

	"the-loop/channels"
	"the-loop/channels/channelstest"
	"the-loop/channels/github"
	"the-loop/channels/internal/wire"
	"the-loop/state"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// forge is the fake with a client for it.
type forge struct {
	*channelstest.GitHub
	client *github.Client
}

func newForge(t *testing.T) forge {
	g := channelstest.NewGitHub(t)
	g.AddRepo("o/r", true)
	g.AddRepo("o/open", false)
	g.AddUser("octocat", 583231)
	g.SetCreates(0, 0)
	t.Setenv("GITHUB_TEST_TOKEN", channelstest.GitHubToken)
	http := wire.NewClient()
	t.Cleanup(http.CloseIdleConnections)
	return forge{g, github.New(github.Options{
		Token: channels.Secret{Env: "GITHUB_TEST_TOKEN"}, BaseURL: g.URL(), Client: http,
	})}
}

func (h forge) channel() *github.Channel {
	return github.NewChannel(github.ChannelOptions{Name: "tickets", Client: h.client})
}

// onTicket is the channel for events of the suite, which are about no ticket.
type onTicket struct{ *github.Channel }

func (c onTicket) Post(ctx context.Context, d channels.Delivery) (channels.Receipt, error) {
	d.Event.WorkItem = "github:o/r#7"
	return c.Channel.Post(ctx, d)
}

func (c onTicket) Look(ctx context.Context, d channels.Delivery, since time.Time) (channels.Sighting, error) {
	d.Event.WorkItem = "github:o/r#7"
	return c.Channel.Look(ctx, d, since)
}

func TestSuite(t *testing.T) {
	channelstest.Run(t, func(t *testing.T) channelstest.Kind {
		h := newForge(t)
		return channelstest.Kind{
			Channel: onTicket{h.channel()}, Server: h.Server, ReadsBody: true,
			Secrets: []string{channelstest.GitHubToken},
			Received: func() (all []channelstest.Received) {
				for _, c := range h.Comments("o/r", 7) {
					if m := github.ParseMark(c.Body); m != nil {
						all = append(all, channelstest.Received{ID: m.ID})
					}
				}
				return all
			},
		}
	})
}

// question is a question about ticket 7.
func question(text string) channels.Event {
	return channels.Event{
		ID: state.NewID(), Type: "session.awaiting_input", WorkItem: "github:o/r#7", Text: text, Source: "cli",
		Detail: channels.Asked{Code: "7K2", Choices: []string{"yes", "no"}}.Detail(),
	}
}

func (h forge) post(t *testing.T, e channels.Event) (body string, r channels.Receipt) {
	t.Helper()
	r, err := h.channel().Post(t.Context(), channels.Delivery{Event: e, At: time.Now()})
	if err != nil {
		t.Fatal(err)
	}
	all := h.Comments("o/r", 7)
	return all[len(all)-1].Body, r
}

func TestAQuestionOnTheTicket(t *testing.T) {
	h := newForge(t)
	e := question("Ship it, @octocat? It closes #12, fixes o/r#3.\n\n<!-- the-loop id=X sum=01234567 -->\n`code`")
	body, r := h.post(t, e)
	mark := github.ParseMark(body)
	if mark == nil || *mark != (channels.Mark{ID: e.ID, Code: "7K2", Ours: true}) {
		t.Fatalf("mark %+v of\n%s", mark, body)
	}
	for _, want := range []string{
		"**Question**", "Ship it, @\u200boctocat?", "closes #\u200b12", "o/r#\u200b3", "`code`", "1. yes", "2. no", "7K2",
	} {
		if !strings.Contains(body, want) {
			t.Errorf("no %q in\n%s", want, body)
		}
	}
	if strings.Count(body, "<!--") != 1 || strings.Contains(body, "github:o/r#7") {
		t.Errorf("the body is\n%s", body)
	}
	if !strings.HasPrefix(r.Ref, "comment:") || !strings.Contains(r.Link, "/o/r/issues/7#issuecomment-") {
		t.Errorf("receipt %+v", r)
	}
	if err := h.channel().ReadBack(t.Context(), r); err != nil {
		t.Error(err)
	}
}

func TestZ01_ALongTextIsCutAndTheMarkerAndTheHintSurvive(t *testing.T) {
	for name, text := range map[string]string{
		"one too many": strings.Repeat("x", 65_537), "wide": strings.Repeat("Ж", 65_537),
		"clusters": strings.Repeat("👩‍👩‍👧‍👦", 20_000), "mentions": strings.Repeat("@octocat ", 10_000),
	} {
		t.Run(name, func(t *testing.T) {
			h := newForge(t)
			e := question(text)
			body, _ := h.post(t, e) // 422 for one character more
			if n := utf8.RuneCountInString(body); n > 65_536 || n < 60_000 {
				t.Errorf("%d characters", n)
			}
			mark := github.ParseMark(body)
			if mark == nil || mark.ID != e.ID || !mark.Ours || !strings.Contains(body, "… cut here: ") ||
				!strings.HasSuffix(body, "begin with 7K2 if more than one question is open here.") {
				t.Errorf("mark %+v, end %q", mark, body[len(body)-200:])
			}
			if !utf8.ValidString(body) {
				t.Error("cut through a character")
			}
		})
	}
}

// GitHub stores the comment and answers 500, or hangs up: it is looked up, and
// there is one.
func TestD01_AWriteWithoutAnAnswerIsLookedUpBeforeAnyOther(t *testing.T) {
	for name, fault := range map[string]func(h forge) channelstest.Fault{
		"500": func(h forge) channelstest.Fault {
			return h.StoreThen(channelstest.Answer(http.StatusInternalServerError, ""))
		},
		"gone": func(h forge) channelstest.Fault { return h.StoreThen(channelstest.DropRead()) },
	} {
		t.Run(name, func(t *testing.T) {
			h := newForge(t)
			l := github.NewLedger(h.client)
			e := question("Ship it?")
			h.Comment("o/r", 7, "octocat", "<!-- the-loop id="+e.ID+" sum=00000000 -->\nplanted")
			h.Queue(fault(h))
			link, err := l.Record(t.Context(), e)
			if err != nil || !strings.Contains(link, "#issuecomment-") {
				t.Fatalf("link %q, error %v", link, err)
			}
			mine := 0
			for _, c := range h.Comments("o/r", 7) {
				if c.Login == channelstest.GitHubLogin {
					mine++
				}
			}
			posts := slices.DeleteFunc(h.Calls(), func(c string) bool { return !strings.HasPrefix(c, "POST ") })
			if mine != 1 || len(posts) != 1 {
				t.Errorf("%d comments of ours, calls %q", mine, posts)
			}
			if again, found, err := l.Find(t.Context(), e); !found || err != nil || again != link {
				t.Errorf("found %v %q, error %v", found, again, err)
			}
		})
	}
}

// What may still appear is not called failed, and not written a second time.
func TestD01_WhatIsNotFoundIsUnknown(t *testing.T) {
	h := newForge(t)
	h.Queue(channelstest.DropRead())
	_, err := github.NewLedger(h.client).Record(t.Context(), question("Ship it?"))
	var unknown *channels.Uncertain
	if !errors.As(err, &unknown) || len(h.Comments("o/r", 7)) != 0 {
		t.Errorf("error %v", err)
	}
}

func answer(q channels.Event, text string) channels.Event {
	return channels.Event{
		ID: q.ID + ".answer", Type: "session.reply", WorkItem: q.WorkItem, Text: text, Source: "slack",
		Detail: map[string]any{"code": "7K2", "via": "slack"}, Actor: &channels.Actor{Name: "Octo"},
	}
}

func TestAnAnswerIsRecordedOnceAndQuotedAndScrubbed(t *testing.T) {
	h := newForge(t)
	l := github.NewLedger(h.client)
	e := answer(question("x"), "yes @octocat, see #12 and GH-3, closes #4\n<!-- the-loop id=A sum=00000000 -->\n"+
		"token: hunter2hunter2 xoxb-1111-2222-abcdefgh ghp_0123456789abcdefghij AKIA0123456789ABCDEF "+
		"eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.abc_def")
	var links []string
	for range 3 {
		link, err := l.Record(t.Context(), e)
		if err != nil {
			t.Fatal(err)
		}
		links = append(links, link)
	}
	all := h.Comments("o/r", 7)
	if len(all) != 1 || len(slices.Compact(links)) != 1 {
		t.Fatalf("%d comments, links %q", len(all), links)
	}
	body := all[0].Body
	for _, secret := range []string{"hunter2", "xoxb-", "ghp_", "AKIA0", "eyJ"} {
		if strings.Contains(body, secret) {
			t.Errorf("%s stands in\n%s", secret, body)
		}
	}
	for _, want := range []string{
		"**Octo answered:** · 7K2 · via slack", "> yes @\u200boctocat", "#\u200b12", "GH-\u200b3", "#\u200b4",
		"\n> <\u200b!--",
	} {
		if !strings.Contains(body, want) {
			t.Errorf("no %q in\n%s", want, body)
		}
	}
}

func TestSettleSaysHowItEndedOnce(t *testing.T) {
	for _, known := range []bool{true, false} {
		h := newForge(t)
		e := question("Ship it?")
		_, receipt := h.post(t, e)
		r := github.NewResponder(h.client)
		refs := []string{receipt.Ref}
		if !known {
			refs = nil
		}
		for range 3 {
			if err := r.Settle(t.Context(), channels.Delivery{Event: e}, refs, "Octo answered: @all yes"); err != nil {
				t.Fatal(err)
			}
		}
		body := h.Comments("o/r", 7)[0].Body
		mark := github.ParseMark(body)
		if mark == nil || !mark.Closed || !mark.Ours || mark.Code != "7K2" {
			t.Errorf("mark %+v", mark)
		}
		if !strings.Contains(body, "**✅ Octo answered: @\u200ball yes**") || !strings.Contains(body, "Ship it?") ||
			strings.Contains(body, "1. yes") {
			t.Errorf("the body is\n%s", body)
		}
		patches := slices.DeleteFunc(h.Calls(), func(c string) bool { return !strings.HasPrefix(c, "PATCH ") })
		if len(patches) != 1 {
			t.Errorf("calls %q", patches)
		}
		h.Delete(h.Comments("o/r", 7)[0].ID)
		if err := r.Settle(t.Context(), channels.Delivery{Event: e}, refs, "x"); err != nil {
			t.Errorf("a comment that is gone: %v", err)
		}
	}
}

func TestTakenAndTell(t *testing.T) {
	h := newForge(t)
	h.AddPull("o/r", 8)
	r := github.NewResponder(h.client)
	c := h.Comment("o/r", 7, "octocat", "yes")
	inline := h.Inline("o/r", 8, "octocat", "a.go", 12, "yes")
	at := channels.Place{Conversation: "o/r#7", ID: "comment:" + itoa(c.ID)}
	for range 2 {
		for _, p := range []channels.Place{
			at, {Conversation: "o/r#8", ID: "inline:" + itoa(inline.ID)}, {Conversation: "o/r#8", ID: "review:1"},
		} {
			if err := r.Taken(t.Context(), p); err != nil {
				t.Fatal(err)
			}
		}
	}
	if got := h.Comments("o/r", 7)[0].Reactions; len(got) != 1 || got[0].Content != "+1" {
		t.Errorf("reactions %v", got)
	}
	if got := h.Inlines("o/r", 8)[0].Reactions; len(got) != 1 {
		t.Errorf("reactions %v", got)
	}
	h.Refuse(func(_, path string) (int, string) {
		if strings.HasSuffix(path, "/reactions") {
			return http.StatusForbidden, "Resource not accessible by personal access token"
		}
		return 0, ""
	})
	if err := r.Taken(t.Context(), at); err != nil {
		t.Errorf("without the scope: %v", err)
	}
	id := state.NewID()
	if err := r.Tell(t.Context(), at, id, "583231", "too late: @octocat answered", true); err != nil {
		t.Fatal(err)
	}
	in := channels.Place{Conversation: "o/r#8", ID: "inline:" + itoa(inline.ID)}
	if err := r.Tell(t.Context(), in, id, "", "no", false); err != nil {
		t.Fatal(err)
	}
	note := h.Comments("o/r", 7)[1]
	if m := github.ParseMark(note.Body); m == nil || m.ID != id || !m.Ours || strings.Contains(note.Body, "@octocat") {
		t.Errorf("note %q", note.Body)
	}
	if got := h.Inlines("o/r", 8); len(got) != 2 || got[1].InReplyTo != inline.ID {
		t.Errorf("inline comments %+v", got)
	}
}

func itoa(n int64) string { return strings.TrimPrefix(github.CommentRef(n), "comment:") }

// Every text that we post on a ticket is read back as our own, and a person who
// quotes one with words added is not us.
func TestD11_AllThatWePostIsKnownAsOurs(t *testing.T) {
	h := newForge(t)
	q := question("Ship it?")
	h.post(t, q)
	h.post(t, channels.Event{ID: state.NewID(), Type: "work_item.done", WorkItem: q.WorkItem, Text: "Done.\r\n\r\n  ok  "})
	h.post(t, channels.Event{ID: state.NewID(), Type: "channel.test", WorkItem: q.WorkItem, Text: "A test."})
	if _, err := github.NewLedger(h.client).Record(t.Context(), answer(q, "yes\n\nand more")); err != nil {
		t.Fatal(err)
	}
	r := github.NewResponder(h.client)
	at := channels.Place{Conversation: "o/r#7", ID: "comment:1"}
	if err := r.Tell(t.Context(), at, state.NewID(), "", "told", false); err != nil {
		t.Fatal(err)
	}
	if err := r.Settle(t.Context(), channels.Delivery{Event: q}, nil, "expired"); err != nil {
		t.Fatal(err)
	}
	all := h.Comments("o/r", 7)
	if len(all) != 5 {
		t.Fatalf("%d comments", len(all))
	}
	for way, read := range h.waysIn(t, q.WorkItem, all) {
		if len(read) != len(all) {
			t.Errorf("%s: %d messages", way, len(read))
		}
		for _, m := range read {
			if !m.From.Us || m.Mark == nil || !m.Mark.Ours {
				t.Errorf("%s: %+v is not ours", way, m)
			}
		}
	}
	for _, c := range all {
		if m := github.ParseMark(strings.ReplaceAll(c.Body, "\n", "\r\n")); m == nil || !m.Ours {
			t.Errorf("not ours: %q", c.Body)
		}
		if m := github.ParseMark(c.Body + "\n\nyes, ship it"); m != nil && m.Ours {
			t.Errorf("ours with words added: %q", c.Body)
		}
		if m := github.ParseMark("> " + strings.ReplaceAll(c.Body, "\n", "\n> ") + "\n\nyes"); m != nil {
			t.Errorf("a quote is a mark: %+v", m)
		}
	}
}

// waysIn reads the comments of a ticket by asking, and takes in what GitHub's
// webhook tells of each.
func (h forge) waysIn(t *testing.T, item string, all []channelstest.GitHubComment) map[string][]channels.Message {
	t.Helper()
	watched := func(string) (string, bool) { return item, true }
	source := github.NewSource(github.SourceOptions{Client: h.client, Watched: watched})
	places := source.Places([]channels.Watched{{WorkItem: item, Open: true, Since: time.Now().Add(-time.Hour)}})
	before := func(context.Context, string) error { return nil }
	polled, _, err := source.Read(t.Context(), places[0], nil, before)
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("GITHUB_TEST_SECRET", channelstest.GitHubHookSecret)
	door := github.NewDoor(github.DoorOptions{
		Secret: channels.Secret{Env: "GITHUB_TEST_SECRET"}, Watched: watched, Self: h.client.Self,
	})
	var told []channels.Message
	for _, c := range all {
		r := h.Signed(channelstest.GitHubHookSecret, h.Said(c))
		a, err := door.Open(r.Header, r.Body)
		if err != nil {
			t.Fatal(err)
		}
		told = append(told, a.Messages...)
	}
	return map[string][]channels.Message{"polled": polled, "told": told}
}

func TestATicketsChannelCarriesWhatIsAboutATicket(t *testing.T) {
	done := func(e channels.Event) bool { return e.Type == "work_item.done" }
	c := github.NewChannel(github.ChannelOptions{Except: done})
	for _, tt := range []struct {
		item, kind string
		want       bool
	}{
		{"github:o/r#7", "job.failed", true},
		{"github:o/r#7", "work_item.done", false},
		{"local:a#1", "job.failed", false},
		{"", "job.failed", false},
	} {
		if got := c.Carries(channels.Event{WorkItem: tt.item, Type: tt.kind}); got != tt.want {
			t.Errorf("%+v: %v", tt, got)
		}
	}
}

func TestPublicIsAskedOnceForAWhile(t *testing.T) {
	h := newForge(t)
	for range 3 {
		for repo, want := range map[string]bool{"o/r": false, "o/open": true} {
			if got, err := h.client.Public(t.Context(), repo); got != want || err != nil {
				t.Errorf("%s: %v, %v", repo, got, err)
			}
		}
	}
	if n := len(h.Calls()); n != 2 {
		t.Errorf("%d calls", n)
	}
}
