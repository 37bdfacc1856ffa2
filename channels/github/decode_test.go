package github_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"the-loop/channels"
	"the-loop/channels/github"
)

// The same comment is an equal message by webhook and by polling, the ticket
// alone or its whole repository.
func TestTheSameCommentIsTheSameMessageBothWays(t *testing.T) {
	t.Setenv(hookEnv, hookSecret)
	h := newHub(t)
	client := h.client(t)
	h.pulls["repos/o/r/pulls/7"] = true
	text := rapid.StringOf(rapid.RuneFrom([]rune("ab <!->\r\n`@#\u0000\u202e\uFFFD\U0001F600")))
	marker := rapid.SampledFrom([]string{
		"", "", "<!-- the-loop id=01K sum=01234567 -->\n", "<!-- the-loop id=01K code=7K2 state=closed sum=01234567 -->\r\n",
	})
	account := rapid.SampledFrom([]any{
		user(1), user(999), thing{"id": 5, "login": "x[bot]", "type": "Bot"}, nil,
	})
	app := rapid.SampledFrom([]any{nil, thing{"id": 1}})
	rapid.Check(t, func(rt *rapid.T) {
		body := marker.Draw(rt, "marker") + text.Draw(rt, "text")
		written := rapid.IntRange(0, 1000).Draw(rt, "written")
		edited := rapid.Bool().Draw(rt, "edited")
		kind := rapid.SampledFrom([]string{"comment", "review", "inline"}).Draw(rt, "kind")
		var x thing
		var event, action string
		h.mu.Lock()
		clear(h.lists)
		h.mu.Unlock()
		switch kind {
		case "comment":
			event, action, x = "issue_comment", "created", commentOn("o/r", 7, 17, written, body)
		case "review":
			event, action = "pull_request_review", "submitted"
			state := rapid.SampledFrom([]string{"APPROVED", "COMMENTED", "PENDING"}).Draw(rt, "state")
			x = reviewOn("o/r", 7, 17, written, state, body)
		default:
			event, action = "pull_request_review_comment", "created"
			x = inlineOn("o/r", 7, 17, written, "dir/a b.go", rapid.IntRange(0, 9).Draw(rt, "line"), body)
			sent := written + rapid.IntRange(0, 500).Draw(rt, "drafted for")
			x["updated_at"] = at(sent)
			h.add(reviews7, reviewOn("o/r", 7, 500, sent, "COMMENTED", ""))
		}
		x["user"], x["performed_via_github_app"] = account.Draw(rt, "account"), app.Draw(rt, "app")
		if edited && kind != "review" { // of a review nothing but the webhook tells
			action, x["updated_at"] = "edited", at(2000)
		}
		path := map[string]string{"comment": issues7, "review": reviews7, "inline": inlines7}[kind]
		whole := map[string]string{
			"comment": "repos/o/r/issues/comments", "review": reviews7, "inline": "repos/o/r/pulls/comments",
		}[kind]
		payload := delivered(t, event, action, "O/R", 7, x)
		if kind == "inline" && rapid.Bool().Draw(rt, "outdated") { // read after a push took the line away
			x = with(x, "line", nil)
		}
		h.add(path, x)
		if whole != path {
			h.add(whole, x)
		}
		h.add("repos/o/r/pulls", thing{"number": 7, "updated_at": at(2000)})

		door := github.NewDoor(github.DoorOptions{
			Secret: channels.Secret{Env: hookEnv}, Watched: watching(item7), Self: client.Self,
		})
		a, err := door.Open(signed(event, payload), payload)
		if err != nil {
			rt.Fatal(err)
		}
		for _, repos := range [][]string{nil, {"O/r"}} {
			s := github.NewSource(github.SourceOptions{Client: client, Repos: repos, Watched: watching(item7)})
			p := s.Places([]channels.Watched{{WorkItem: item7, Since: base}})[0]
			ms, _, err := s.Read(t.Context(), p, nil, free)
			if err != nil {
				rt.Fatal(err)
			}
			if diff := cmp.Diff(a.Messages, ms); diff != "" {
				rt.Fatalf("repositories %v: webhook (-), polling (+), dropped as %q:\n%s", repos, a.Dropped, diff)
			}
		}
		if len(a.Messages) == 1 && kind != "review" && a.Messages[0].Edited != edited {
			rt.Fatalf("edited %v", a.Messages[0].Edited)
		}
	})
}

// FuzzDoorHeaders: whatever the headers are, nothing is let in that was not
// signed, and what is not sealed does not verify.
func FuzzDoorHeaders(f *testing.F) {
	body := []byte(`{"zen":"x"}`)
	zeros := "sha256=" + strings.Repeat("0", 64)
	for _, s := range []string{"", "sha256=", mac(hookSecret, body), mac("other", body), zeros} {
		f.Add("X-Hub-Signature-256", s, "", "ping")
		f.Add("x-hub-signature-256", s, s, "issue_comment")
	}
	door := newDoor(f, item7)
	f.Fuzz(func(t *testing.T, name, first, second, event string) {
		h := http.Header{"X-Github-Event": {event}}
		h.Add(name, first)
		if second != "" {
			h.Add("X-Hub-Signature-256", second)
		}
		sealed := door.Sealed(h)
		_, err := door.Open(h, body)
		if !sealed && !errors.Is(err, channels.ErrForged) {
			t.Fatalf("not sealed, and opened: %v", err)
		}
		values := h.Values("X-Hub-Signature-256")
		right := len(values) == 1 && strings.HasPrefix(values[0], "sha256=") &&
			strings.EqualFold(values[0], mac(hookSecret, body))
		if right == errors.Is(err, channels.ErrForged) {
			t.Fatalf("signed %v: %v", right, err)
		}
	})
}

// FuzzDoorBody: whatever GitHub signs, there is no panic, and a message has
// what everything behind rests on.
func FuzzDoorBody(f *testing.F) {
	for _, e := range []struct {
		event, action string
		x             thing
	}{
		{"issue_comment", "created", commentOn("o/r", 7, 1, 0, "<!-- the-loop id=01K sum=01234567 -->\nyes")},
		{"issue_comment", "edited", commentOn("o/r", 7, 1, 0, "yes <!-- a")},
		{"pull_request_review", "submitted", reviewOn("o/r", 7, 2, 0, "APPROVED", "ok")},
		{"pull_request_review_comment", "created", inlineOn("o/r", 7, 3, 0, "a.go", 12, "no")},
	} {
		f.Add(e.event, delivered(f, e.event, e.action, "o/r", 7, e.x))
	}
	f.Add("ping", []byte(`{"zen":"x"}`))
	f.Add("issue_comment", []byte("payload=%7B%7D"))
	f.Add("issue_comment", []byte(`{"comment":{"id":1e99},"issue":{"number":-1}}`))
	door := newDoor(f, item7)
	f.Fuzz(func(t *testing.T, event string, body []byte) {
		a, err := door.Open(signed(event, body), body)
		switch {
		case errors.Is(err, channels.ErrForged):
			t.Fatal("signed, and forged")
		case err != nil && (len(a.Messages) > 0 || a.Dropped != ""):
			t.Fatalf("%+v, %v", a, err)
		case err == nil && (len(a.Messages) == 1) == (a.Dropped != ""):
			t.Fatalf("%+v", a)
		}
		for _, m := range a.Messages {
			if m.WorkItem != item7 || m.Key == "" || m.Place.ID == "" || m.At.IsZero() ||
				!utf8.ValidString(m.Text) || strings.ContainsRune(m.Text, 0) || strings.ContainsAny(m.Key, "\r\n ") {
				t.Fatalf("%+v", m)
			}
			encoded, err := json.Marshal(m)
			if err != nil {
				t.Fatal(err)
			}
			var back channels.Message
			if err := json.Unmarshal(encoded, &back); err != nil || cmp.Diff(m, back) != "" {
				t.Fatalf("%v\n%s", err, cmp.Diff(m, back))
			}
		}
	})
}

// FuzzPage: whatever a page holds, reading does not panic, and what was read
// is not read again.
func FuzzPage(f *testing.F) {
	for _, x := range []thing{commentOn("o/r", 7, 1, 0, "yes"), {"id": 1}, reviewOn("o/r", 7, 2, 0, "APPROVED", "ok")} {
		b, err := json.Marshal([]thing{x})
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b, "")
	}
	f.Setenv(hookEnv, hookSecret)
	f.Add([]byte("null"), `<?page=2>; rel="next"`)
	f.Add([]byte("{}"), `<https://api.github.com/x?page=2>; rel="next", <x>; rel="last"`)
	f.Fuzz(func(t *testing.T, page []byte, link string) {
		client := &http.Client{Transport: served(func(r *http.Request) (int, http.Header, string) {
			switch {
			case strings.HasSuffix(r.URL.Path, "/user"):
				return 200, nil, `{"id":999,"login":"loop-bot"}`
			case strings.HasSuffix(r.URL.Path, "/pulls/7"):
				return 404, nil, `{}`
			case r.URL.Query().Get("per_page") != "100" || r.URL.Query().Get("page") != "":
				return 200, nil, `[]`
			}
			return 200, http.Header{"Link": {strings.Map(func(c rune) rune {
				if c < ' ' {
					return -1
				}
				return c
			}, link)}}, string(page)
		})}
		c := github.New(github.Options{Token: channels.Secret{Env: hookEnv}, Client: client})
		s := github.NewSource(github.SourceOptions{Client: c})
		p := s.Places([]channels.Watched{{WorkItem: item7, Since: base}})[0]
		first, cursor, err := s.Read(t.Context(), p, nil, free)
		if err != nil {
			return
		}
		again, _, err := s.Read(t.Context(), p, cursor, free)
		if err != nil || len(again) > 0 {
			t.Fatalf("read %d, then again %v, %v", len(first), again, err)
		}
	})
}

// hookEnv holds hookSecret for what is made anew too often for a file.
const hookEnv = "THE_LOOP_TEST_HOOK_SECRET"

// served is a transport that answers without a network.
type served func(r *http.Request) (status int, h http.Header, body string)

func (s served) RoundTrip(r *http.Request) (*http.Response, error) {
	status, h, body := s(r)
	if h == nil {
		h = http.Header{}
	}
	h.Set("Date", base.Format(time.RFC1123))
	return &http.Response{
		StatusCode: status, Status: fmt.Sprint(status), Header: h, Request: r, Body: io.NopCloser(strings.NewReader(body)),
		ContentLength: int64(len(body)), ProtoMajor: 1, ProtoMinor: 1,
	}, nil
}
