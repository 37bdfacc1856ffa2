package channelstest_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"the-loop/channels"
	"the-loop/channels/channelstest"
	"the-loop/channels/github"
)

func secretIn(t *testing.T, text string) channels.Secret {
	file := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return channels.Secret{File: file}
}

// written has one of each kind, edited, on o/r#8 and by the account 7.
func written(g *channelstest.GitHub) (fresh, edited []channelstest.GitHubComment) {
	g.AddRepo("o/r", true)
	g.AddPull("o/r", 8)
	g.AddUser("octo", 7)
	before := time.Now().Add(-5 * time.Minute)
	review := g.Plant(channelstest.GitHubComment{
		Kind: channelstest.GitHubReview, Repo: "o/r", Number: 8, Login: "octo", Body: "a review", Created: before,
	})
	fresh = []channelstest.GitHubComment{
		g.Plant(channelstest.GitHubComment{Repo: "o/r", Number: 8, Login: "octo", Body: "a comment", Created: before}),
		review,
		g.Plant(channelstest.GitHubComment{
			Kind: channelstest.GitHubInline, Repo: "o/r", Number: 8, Login: "octo", Body: "an inline", Path: "a.go", Line: 3,
			Created: before, ReviewID: review.ID,
		}),
	}
	for _, c := range fresh {
		edited = append(edited, g.Edit(c.ID, c.Body+" again"))
	}
	return fresh, edited
}

// TestGitHub_SignedEventsAreLetIn: what the fake signs is what our door takes.
func TestGitHub_SignedEventsAreLetIn(t *testing.T) {
	g := channelstest.NewGitHub(t)
	fresh, edited := written(g)
	door := github.NewDoor(github.DoorOptions{
		Secret: secretIn(t, channelstest.GitHubHookSecret), Repos: []string{"o/r"},
	})
	open := func(p channelstest.GitHubPayload) channels.Arrival {
		t.Helper()
		req, err := g.Signed(channelstest.GitHubHookSecret, p).Request(t.Context(), "http://127.0.0.1:1/")
		if err != nil {
			t.Fatal(err)
		}
		if req.URL.String() != "http://127.0.0.1:1/github" || !door.Sealed(req.Header) {
			t.Errorf("request to %s, headers %v", req.URL, req.Header)
		}
		signed := g.Signed(channelstest.GitHubHookSecret, p)
		a, err := door.Open(signed.Header, signed.Body)
		if err != nil {
			t.Fatalf("%s: %v", p.Event, err)
		}
		if signed.Header.Get("X-GitHub-Delivery") == req.Header.Get("X-GitHub-Delivery") {
			t.Error("two deliveries have one id")
		}
		return a
	}
	if state := g.Said(fresh[1]).Body["review"].(map[string]any)["state"]; state != "commented" {
		t.Errorf("a webhook says the state %v, want small letters", state)
	}
	texts := []string{"a comment", "a review", "an inline"}
	for i, c := range fresh {
		for _, tt := range []struct {
			p      channelstest.GitHubPayload
			text   string
			edited bool
		}{
			{g.Said(c), texts[i], false},
			{g.Edited(edited[i], c.Body), texts[i] + " again", true},
		} {
			a := open(tt.p)
			if len(a.Messages) != 1 {
				t.Fatalf("%s %s: %+v", tt.p.Event, tt.p.Body["action"], a)
			}
			m := a.Messages[0]
			if m.Text != tt.text || m.Edited != tt.edited || m.WorkItem != "github:o/r#8" ||
				m.From != (channels.Author{ID: "7", Login: "octo", Person: true}) {
				t.Errorf("%s %s: %+v", tt.p.Event, tt.p.Body["action"], m)
			}
		}
	}
	for rule, p := range map[string]channelstest.GitHubPayload{"deleted": g.Deleted(fresh[0]), "ping": g.Ping()} {
		if a := open(p); a.Dropped != rule {
			t.Errorf("%s: %+v", rule, a)
		}
	}
	r := g.Signed("another secret", g.Said(fresh[0]))
	if _, err := door.Open(r.Header, r.Body); err == nil {
		t.Error("another secret's signature holds")
	}
}

// TestGitHub_IsReadByOurSource: a repository and a ticket, as they stand there.
func TestGitHub_IsReadByOurSource(t *testing.T) {
	g := channelstest.NewGitHub(t)
	written(g)
	ours := g.Comment("o/r", 8, channelstest.GitHubLogin, "ours")
	app := g.Plant(channelstest.GitHubComment{Repo: "o/r", Number: 8, Login: "octo", Body: "an app's", ViaApp: "some-app"})
	g.AddBot("build[bot]", 70)
	g.Comment("o/r", 8, "build[bot]", "a bot's")
	g.Plant(channelstest.GitHubComment{Repo: "o/r", Number: 8, Body: "nobody's"})
	g.Plant(channelstest.GitHubComment{
		Kind: channelstest.GitHubReview, Repo: "o/r", Number: 8, Login: channelstest.GitHubLogin, Body: "unsent",
		State: "PENDING",
	})
	g.Comment("o/r", 9, "octo", "elsewhere")
	for name, repos := range map[string][]string{"repository": {"o/r"}, "ticket": nil} {
		client := github.New(github.Options{
			Token: secretIn(t, channelstest.GitHubToken), BaseURL: g.URL(), Client: g.Direct(),
		})
		source := github.NewSource(github.SourceOptions{Client: client, Repos: repos})
		places := source.Places([]channels.Watched{
			{WorkItem: "github:o/r#8", Open: true, Since: time.Now().Add(-10 * time.Minute)},
		})
		if len(places) != 1 {
			t.Fatalf("%s: places %v", name, places)
		}
		ms, cursor, err := source.Read(t.Context(), places[0], nil, unlimited)
		if err != nil {
			t.Fatal(err)
		}
		want := []string{
			"a comment again edited person", "a review again person", "an inline again edited person", "a bot's",
			"an app's", "nobody's", "ours person us",
		}
		if repos != nil {
			want = append(want, "elsewhere person")
		}
		slices.Sort(want)
		if got := told(ms); !slices.Equal(got, want) {
			t.Errorf("%s: read\n%q, want\n%q", name, got, want)
		}
		if ms, _, err = source.Read(t.Context(), places[0], cursor, unlimited); err != nil || len(ms) > 0 {
			t.Errorf("%s: read again %v, error %v", name, ms, err)
		}
	}
	if calls := g.Calls(); len(calls) > 0 {
		t.Errorf("a direct client went through the server: %v", calls)
	}
	if ours.UserID != channelstest.GitHubID || app.UserID != 7 {
		t.Errorf("accounts %d and %d", ours.UserID, app.UserID)
	}
}

func told(ms []channels.Message) (out []string) {
	for _, m := range ms {
		text := m.Text
		if m.Edited {
			text += " edited"
		}
		if m.From.Person {
			text += " person"
		}
		if m.From.Us {
			text += " us"
		}
		out = append(out, text)
	}
	slices.Sort(out)
	return out
}

func unlimited(context.Context, string) error { return nil }

// TestGitHub_LimitsAreUnderstood: our client sees each limit as what it is.
func TestGitHub_LimitsAreUnderstood(t *testing.T) {
	g := channelstest.NewGitHub(t)
	client := github.New(github.Options{Token: secretIn(t, channelstest.GitHubToken), BaseURL: g.URL()})
	for _, tt := range []struct {
		fault channelstest.Fault
		code  string
		wait  time.Duration
	}{
		{channelstest.GitHubPrimaryLimit(time.Now().Add(10 * time.Minute)), "rate_limit", 10 * time.Minute},
		{channelstest.GitHubSecondaryLimit(30 * time.Second), "secondary_rate_limit", 30 * time.Second},
		{channelstest.GitHubSecondaryLimit(0), "secondary_rate_limit", time.Minute},
	} {
		g.Queue(tt.fault)
		_, err := client.Self(t.Context())
		var r *channels.Refusal
		if !errors.As(err, &r) || r.Reason != channels.ReasonRate || r.Code != tt.code ||
			(tt.wait-r.RetryAfter).Abs() > 10*time.Second {
			t.Errorf("got %#v, want %s and to wait %v", err, tt.code, tt.wait)
		}
	}
	if me, err := client.Self(t.Context()); err != nil || me.Login != channelstest.GitHubLogin {
		t.Errorf("account %+v, error %v", me, err)
	}
}
