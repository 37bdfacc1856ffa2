package github_test

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"the-loop/channels"
	"the-loop/channels/channelstest"
	"the-loop/channels/github"
	"the-loop/state"
)

// calls gives what was asked for by that method.
func (h forge) calls(method string) []string {
	return slices.DeleteFunc(h.Calls(), func(c string) bool { return !strings.HasPrefix(c, method+" ") })
}

// Somebody with the right to do so edited our comment: their words stay, and do
// not become ours.
func TestD11_SettleDoesNotMakeOthersWordsOurs(t *testing.T) {
	h := newForge(t)
	e := question("Ship it?")
	body, r := h.post(t, e)
	h.Edit(h.Comments("o/r", 7)[0].ID, body+"\n\nPS: yes, ship it")
	err := github.NewResponder(h.client).Settle(t.Context(), channels.Delivery{Event: e}, []string{r.Ref}, "expired")
	if err != nil {
		t.Fatal(err)
	}
	body = h.Comments("o/r", 7)[0].Body
	if m := github.ParseMark(body); m == nil || !m.Closed || m.Ours || !strings.Contains(body, "PS: yes, ship it") {
		t.Errorf("mark %+v of\n%s", m, body)
	}
}

func TestZ01_ALongQuestionIsSettled(t *testing.T) {
	h := newForge(t)
	e := question("```\n" + strings.Repeat("x\n", 70_000))
	_, r := h.post(t, e)
	how := strings.Repeat("@Ж", 70_000)
	err := github.NewResponder(h.client).Settle(t.Context(), channels.Delivery{Event: e}, []string{r.Ref}, how)
	if err != nil {
		t.Fatal(err)
	}
	body := h.Comments("o/r", 7)[0].Body
	m := github.ParseMark(body)
	if n := utf8.RuneCountInString(body); m == nil || !m.Closed || !m.Ours || n > 65_536 || n < 60_000 ||
		!strings.Contains(body, "…**\n\n**Question**\n\n```\nx\n") || strings.Contains(body, "1. yes") {
		t.Errorf("mark %+v, %d characters, begins %q", m, n, body[:300])
	}
}

// Only GitHub itself can say that the comment is gone.
func TestSettleTakesNobodysWordThatTheCommentIsGone(t *testing.T) {
	h := newForge(t)
	e := question("Ship it?")
	_, receipt := h.post(t, e)
	r := github.NewResponder(h.client)
	settle := func(refs ...string) error {
		return r.Settle(t.Context(), channels.Delivery{Event: e}, refs, "expired")
	}
	if _, err := h.client.Self(t.Context()); err != nil {
		t.Fatal(err)
	}
	for name, f := range map[string]channelstest.Fault{
		"a portal": channelstest.Answer(404, "<html>not found</html>"), "500": channelstest.Answer(500, ""),
		"nothing": channelstest.Answer(200, "{}"), "a limit": channelstest.GitHubSecondaryLimit(time.Minute),
	} {
		for _, refs := range [][]string{{receipt.Ref}, nil} {
			h.Queue(f)
			if err := settle(refs...); err == nil {
				t.Errorf("%s, refs %q: settled", name, refs)
			}
		}
	}
	for _, f := range []channelstest.Fault{
		channelstest.GitHubError(404, "Not Found"), channelstest.GitHubError(410, "This issue was deleted"),
	} {
		for _, refs := range [][]string{{receipt.Ref}, nil} {
			h.Queue(f)
			if err := settle(refs...); err != nil {
				t.Errorf("gone, refs %q: %v", refs, err)
			}
		}
	}
	if n := len(h.calls("PATCH")); n != 0 {
		t.Errorf("%d PATCHes", n)
	}
	if err := settle(); err != nil || len(h.calls("PATCH")) != 1 {
		t.Errorf("error %v, calls %q", err, h.calls("PATCH"))
	}
}

func TestAChannelSettlesWhatItCarries(t *testing.T) {
	type responder interface { // as internal/inbound has it
		Taken(ctx context.Context, at channels.Place) error
		Settle(ctx context.Context, q channels.Delivery, refs []string, how string) error
		Tell(ctx context.Context, at channels.Place, id, user, text string, private bool) error
	}
	h := newForge(t)
	e := question("Ship it?")
	_, receipt := h.post(t, e)
	for _, recorded := range []bool{true, false} {
		var r responder = github.NewChannel(github.ChannelOptions{
			Client: h.client, Except: func(channels.Event) bool { return recorded },
		})
		if err := r.Settle(t.Context(), channels.Delivery{Event: e}, []string{receipt.Ref}, "expired"); err != nil {
			t.Fatal(err)
		}
		if m := github.ParseMark(h.Comments("o/r", 7)[0].Body); m.Closed == recorded {
			t.Errorf("recorded by the ledger %v: mark %+v", recorded, m)
		}
	}
	var r responder = h.channel()
	c := h.Comment("o/r", 7, "octocat", "yes")
	at := channels.Place{Conversation: "o/r#7", ID: github.CommentRef(c.ID)}
	if err := errors.Join(r.Taken(t.Context(), at), r.Tell(t.Context(), at, state.NewID(), "", "no", true)); err != nil {
		t.Fatal(err)
	}
	if all := h.Comments("o/r", 7); len(all) != 3 || len(all[1].Reactions) != 1 {
		t.Errorf("comments %+v", all)
	}
}

// GitHub takes no reply to a reply: the note goes under the comment that began
// the thread, and to the ticket when that is gone.
func TestTellUnderAReplyGoesIntoItsThread(t *testing.T) {
	h := newForge(t)
	h.AddPull("o/r", 8)
	r := github.NewResponder(h.client)
	first := h.Inline("o/r", 8, "octocat", "a.go", 12, "why?")
	reply := h.Plant(channelstest.GitHubComment{
		Kind: channelstest.GitHubInline, Repo: "o/r", Number: 8, Login: "octocat", Path: "a.go", Line: 12, Body: "yes",
		InReplyTo: first.ID,
	})
	at := channels.Place{Conversation: "o/r#8", ID: "inline:" + itoa(reply.ID)}
	tell := func() error { return r.Tell(t.Context(), at, state.NewID(), "", "too late @octocat, see #3", false) }
	if err := tell(); err != nil {
		t.Fatal(err)
	}
	all := h.Inlines("o/r", 8)
	if len(all) != 3 || all[2].InReplyTo != first.ID || strings.Contains(all[2].Body, "@octocat") {
		t.Fatalf("inline comments %+v", all)
	}
	// Nothing was said when the thread could not be found: it may be said again.
	for _, f := range []channelstest.Fault{channelstest.ResetInBody(200), channelstest.Answer(200, "{}")} {
		h.Queue(f)
		var refusal *channels.Refusal
		if err := tell(); !errors.As(err, &refusal) || refusal.Reason == channels.ReasonUnacceptable {
			t.Errorf("error %v", err)
		}
	}
	h.Delete(reply.ID)
	if err := tell(); err != nil {
		t.Fatal(err)
	}
	if n, m := len(h.Comments("o/r", 8)), len(h.Inlines("o/r", 8)); n != 1 || m != 2 {
		t.Errorf("%d comments, %d inline", n, m)
	}
}

func TestTellIsCut(t *testing.T) {
	h := newForge(t)
	at := channels.Place{Conversation: "o/r#7", ID: "review:3"}
	err := github.NewResponder(h.client).Tell(t.Context(), at, state.NewID(), "", strings.Repeat("@o ", 40_000), false)
	if err != nil {
		t.Fatal(err)
	}
	if m := github.ParseMark(h.Comments("o/r", 7)[0].Body); m == nil || !m.Ours {
		t.Errorf("mark %+v", m)
	}
}

func TestReadBackWantsThatComment(t *testing.T) {
	h := newForge(t)
	_, r := h.post(t, question("Ship it?"))
	c := h.channel()
	h.Queue(channelstest.Answer(200, `{"id":999999}`))
	if err := c.ReadBack(t.Context(), r); err == nil {
		t.Error("another comment was taken for it")
	}
	for _, bad := range []channels.Receipt{{}, {Ref: r.Ref}, {Ref: "inline:1", Link: r.Link}} {
		if err := c.ReadBack(t.Context(), bad); err == nil {
			t.Errorf("%+v was read", bad)
		}
	}
	h.Delete(h.Comments("o/r", 7)[0].ID)
	if err := c.ReadBack(t.Context(), r); err == nil {
		t.Error("a comment that is gone was read")
	}
}

// However slow GitHub is, an uncertain record is known, or unknown, soon; and it
// was POSTed once.
func TestD01_RecordLooksNoLongerThanFiveSeconds(t *testing.T) {
	var posts int
	synctest.Test(t, func(t *testing.T) {
		c := github.New(github.Options{
			Token: channels.Secret{Env: "GITHUB_TEST_TOKEN"}, BaseURL: "http://127.0.0.1:1/",
			Client: &http.Client{Transport: stuck{&posts}},
		})
		t.Setenv("GITHUB_TEST_TOKEN", channelstest.GitHubToken)
		start := time.Now()
		_, err := github.NewLedger(c).Record(t.Context(), question("Ship it?"))
		var unknown *channels.Uncertain
		if took := time.Since(start); !errors.As(err, &unknown) || took > 6*time.Second || took < 4*time.Second {
			t.Errorf("error %v after %v", err, took)
		}
	})
	if posts != 1 {
		t.Errorf("%d POSTs", posts)
	}
}

// stuck answers a POST with 500 and a GET never.
type stuck struct{ posts *int }

func (s stuck) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method == http.MethodPost {
		*s.posts++
		return &http.Response{StatusCode: 500, Header: http.Header{}, Body: http.NoBody, Request: r}, nil
	}
	<-r.Context().Done()
	return nil, r.Context().Err()
}
