package github_test

import (
	"context"
	"crypto/hmac"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"the-loop/channels"
	"the-loop/channels/github"
)

const hookSecret = "hook-secret-1"

func secretFile(t testing.TB, text string) channels.Secret {
	file := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return channels.Secret{File: file}
}

func mac(secret string, body []byte) string {
	m := hmac.New(sha256.New, []byte(secret))
	m.Write(body)
	return "sha256=" + hex.EncodeToString(m.Sum(nil))
}

func signed(event string, body []byte) http.Header {
	return http.Header{"X-Github-Event": {event}, "X-Hub-Signature-256": {mac(hookSecret, body)}}
}

func newDoor(t testing.TB, items ...string) *github.Door {
	return github.NewDoor(github.DoorOptions{Secret: secretFile(t, hookSecret), Watched: watching(items...)})
}

// watching knows the work items in any case, each in its own spelling.
func watching(items ...string) func(string) (string, bool) {
	return func(workItem string) (string, bool) {
		for _, w := range items {
			if strings.EqualFold(w, workItem) {
				return w, true
			}
		}
		return "", false
	}
}

// delivered is the payload of a webhook that tells of x.
func delivered(t testing.TB, event, action, repo string, n int, x thing) []byte {
	t.Helper()
	p := thing{"action": action, "repository": thing{"full_name": repo, "private": true}, "sender": user(1)}
	switch event {
	case "issue_comment":
		p["comment"], p["issue"] = x, thing{"number": n}
	case "pull_request_review":
		p["review"], p["pull_request"] = x, thing{"number": n}
		if state, ok := x["state"].(string); ok {
			p["review"] = with(x, "state", strings.ToLower(state))
		}
	default:
		p["comment"], p["pull_request"] = x, thing{"number": n}
	}
	if action == "edited" {
		p["changes"] = thing{"body": thing{"from": "before"}}
	}
	body, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	return body
}

func TestW02_WhatIsNotSealedIsNotRead(t *testing.T) {
	door := newDoor(t)
	good := strings.Repeat("0a", 32)
	sha := sha1.Sum(nil)
	tests := []struct {
		name   string
		header http.Header
		want   bool
	}{
		{"missing", http.Header{}, false},
		{"nil", nil, false},
		{"empty", http.Header{"X-Hub-Signature-256": {""}}, false},
		{"no values", http.Header{"X-Hub-Signature-256": {}}, false},
		{"prefix alone", http.Header{"X-Hub-Signature-256": {"sha256="}}, false},
		{"half", http.Header{"X-Hub-Signature-256": {"sha256=" + good[:32]}}, false},
		{"one digit short", http.Header{"X-Hub-Signature-256": {"sha256=" + good[:63]}}, false},
		{"one byte long", http.Header{"X-Hub-Signature-256": {"sha256=" + good + "00"}}, false},
		{"no hex", http.Header{"X-Hub-Signature-256": {"sha256=" + strings.Repeat("g", 64)}}, false},
		{"without prefix", http.Header{"X-Hub-Signature-256": {good}}, false},
		{"blank before", http.Header{"X-Hub-Signature-256": {" sha256=" + good}}, false},
		{"two headers", http.Header{"X-Hub-Signature-256": {"sha256=" + good, "sha256=" + good}}, false},
		{"two in one", http.Header{"X-Hub-Signature-256": {"sha256=" + good + ",sha256=" + good}}, false},
		{"SHA-1 only", http.Header{"X-Hub-Signature": {"sha1=" + hex.EncodeToString(sha[:])}}, false},
		{"SHA-1 in its place", http.Header{"X-Hub-Signature-256": {"sha1=" + hex.EncodeToString(sha[:])}}, false},
		{"small letters", http.Header{"X-Hub-Signature-256": {"sha256=" + good}}, true},
		{"capitals", http.Header{"X-Hub-Signature-256": {"sha256=" + strings.ToUpper(good)}}, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := door.Sealed(tt.header); got != tt.want {
				t.Errorf("sealed %v, want %v", got, tt.want)
			}
			if _, err := door.Open(tt.header, []byte("{}")); !errors.Is(err, channels.ErrForged) {
				t.Errorf("open: %v, want %v", err, channels.ErrForged)
			}
		})
	}
}

func TestW02_AnEmptySecretIsNotReadyAndOpensToNobody(t *testing.T) {
	body := []byte(`{"zen":"."}`)
	header := http.Header{"X-Github-Event": {"ping"}, "X-Hub-Signature-256": {mac("", body)}}
	for name, secret := range map[string]channels.Secret{
		"none": {}, "empty": secretFile(t, ""), "blank": secretFile(t, " \n\t\r\n"),
		"missing": {File: filepath.Join(t.TempDir(), "no")}, "unset": {Env: "THE_LOOP_TEST_NOT_SET"},
	} {
		t.Run(name, func(t *testing.T) {
			door := github.NewDoor(github.DoorOptions{Secret: secret})
			if err := door.Ready(); err == nil {
				t.Error("it is ready")
			}
			if _, err := door.Open(header, body); !errors.Is(err, channels.ErrForged) {
				t.Errorf("open: %v", err)
			}
		})
	}
	if err := newDoor(t).Ready(); err != nil {
		t.Error(err)
	}
}

func TestAnyLineOfTheSecretVerifiesAndNothingElse(t *testing.T) {
	door := github.NewDoor(github.DoorOptions{Secret: secretFile(t, "new\n\n  old  \r\n")})
	body := []byte(`{"zen":"Keep it logically awesome."}`)
	for secret, want := range map[string]bool{"new": true, "old": true, "": false, "new\n\n  old": false, "other": false} {
		for _, upper := range []bool{false, true} {
			value := mac(secret, body)
			if upper {
				value = "sha256=" + strings.ToUpper(strings.TrimPrefix(value, "sha256="))
			}
			a, err := door.Open(http.Header{"X-Github-Event": {"ping"}, "X-Hub-Signature-256": {value}}, body)
			if want && (err != nil || a.Dropped != "ping") || !want && !errors.Is(err, channels.ErrForged) {
				t.Errorf("secret %q, capitals %v: %+v, %v", secret, upper, a, err)
			}
		}
	}
	if _, err := door.Open(http.Header{"X-Github-Event": {"ping"}, "X-Hub-Signature-256": {mac("new", body)}},
		append(body, ' ')); !errors.Is(err, channels.ErrForged) {
		t.Errorf("a byte more: %v", err)
	}
	if door.Limit() != 25<<20 {
		t.Errorf("limit %d", door.Limit())
	}
}

func TestWhatIsDroppedIsCountedUnderItsRule(t *testing.T) {
	door := newDoor(t, "github:o/r#7")
	comment := commentOn("o/r", 7, 1, 0, "yes")
	unchanged := with(thing{"action": "edited"}, "review", reviewOn("o/r", 7, 2, 0, "commented", "yes"))
	unchanged["pull_request"], unchanged["repository"] = thing{"number": 7}, thing{"full_name": "o/r"}
	unchanged["changes"] = thing{}
	asJSON, err := json.Marshal(unchanged)
	if err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name, event string
		body        []byte
		want        string
	}{
		{"a ping", "ping", []byte(`{"zen":"x","hook":{}}`), "ping"},
		{"another event", "push", []byte(`{"ref":"x"}`), "event"},
		{"a deletion", "issue_comment", delivered(t, "issue_comment", "deleted", "o/r", 7, comment), "deleted"},
		{"another action", "issue_comment", delivered(t, "issue_comment", "pinned", "o/r", 7, comment), "action"},
		{"no action", "issue_comment", delivered(t, "issue_comment", "", "o/r", 7, comment), "action"},
		{"a dismissal", "pull_request_review", delivered(t, "pull_request_review", "dismissed", "o/r", 7,
			reviewOn("o/r", 7, 2, 0, "dismissed", "yes")), "action"},
		{"the edit that comes with a submission", "pull_request_review", asJSON, "unchanged"},
		{"an empty approval", "pull_request_review", delivered(t, "pull_request_review", "submitted", "o/r", 7,
			reviewOn("o/r", 7, 2, 0, "approved", "")), "empty"},
		{"an approval with null", "pull_request_review", delivered(t, "pull_request_review", "submitted", "o/r", 7,
			with(reviewOn("o/r", 7, 2, 0, "approved", ""), "body", nil)), "empty"},
		{"a pending review", "pull_request_review", delivered(t, "pull_request_review", "submitted", "o/r", 7,
			reviewOn("o/r", 7, 2, 0, "PENDING", "draft")), "pending"},
		{"only a hidden comment", "issue_comment", delivered(t, "issue_comment", "created", "o/r", 7,
			commentOn("o/r", 7, 1, 0, "<!-- x -->\r\n")), "empty"},
		{"another ticket", "issue_comment", delivered(t, "issue_comment", "created", "o/r", 8, comment), "unwatched"},
		{"another repository", "issue_comment", delivered(t, "issue_comment", "created", "o/r2", 7, comment), "unwatched"},
		{
			"no repository that we can name", "issue_comment",
			delivered(t, "issue_comment", "created", "o_x/r", 7, comment), "unwatched",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			a, err := door.Open(signed(tt.event, tt.body), tt.body)
			if err != nil || a.Dropped != tt.want || len(a.Messages) > 0 {
				t.Errorf("got %+v, %v, want %q", a, err, tt.want)
			}
		})
	}
}

func TestWhatIsSignedAndMakesNoSenseIsAnErrorAndNotForged(t *testing.T) {
	door := newDoor(t, "github:o/r#7")
	inline := delivered(t, "pull_request_review_comment", "created", "o/r", 7, inlineOn("o/r", 7, 1, 0, "a.go", 12, "yes"))
	bare := delivered(t, "issue_comment", "created", "o/r", 7, thing{"body": "yes"})
	for name, tt := range map[string]struct{ event, body string }{
		"no event":                   {"", "{}"},
		"no JSON":                    {"issue_comment", "hello"},
		"empty":                      {"issue_comment", ""},
		"null":                       {"issue_comment", "null"},
		"no comment":                 {"issue_comment", `{"action":"created","issue":{"number":7}}`},
		"a comment without an id":    {"issue_comment", string(bare)},
		"another event's header":     {"issue_comment", string(inline)},
		"another event's header too": {"pull_request_review", string(inline)},
		"a bad form":                 {"issue_comment", "payload=%zz"},
	} {
		t.Run(name, func(t *testing.T) {
			a, err := door.Open(signed(tt.event, []byte(tt.body)), []byte(tt.body))
			if err == nil || errors.Is(err, channels.ErrForged) {
				t.Errorf("got %+v, %v", a, err)
			}
		})
	}
}

func TestAMessageOfEachKind(t *testing.T) {
	door := newDoor(t, "github:o/r#7")
	body := delivered(t, "issue_comment", "created", "o/r", 7,
		commentOn("o/r", 7, 17, 5, "> A or B?\r\n\r\nyes <!-- hidden\r\n-->\r\n"))
	a, err := door.Open(signed("issue_comment", body), body)
	want := channels.Arrival{Messages: []channels.Message{{
		Key: "github:o/r:comment:17:2026-09-22T10:00:05Z", Surface: "github", WorkItem: "github:o/r#7",
		Place: channels.Place{Conversation: "o/r#7", ID: "comment:17"},
		From:  channels.Author{ID: "1", Login: "user1", Person: true}, At: base.Add(5e9),
		Text: "> A or B?\n\nyes", Link: "https://github.com/o/r/issues/7#issuecomment-17",
	}}}
	if diff := cmp.Diff(want, a); diff != "" || err != nil {
		t.Errorf("comment: %v\n%s", err, diff)
	}
	form := []byte("payload=" + url.QueryEscape(string(body)))
	if a, err = door.Open(signed("issue_comment", form), form); cmp.Diff(want, a) != "" || err != nil {
		t.Errorf("as a form: %v\n%s", err, cmp.Diff(want, a))
	}
	body = delivered(t, "pull_request_review", "submitted", "o/r", 7, reviewOn("o/r", 7, 18, 6, "APPROVED", "approved"))
	if a, err = door.Open(signed("pull_request_review", body), body); err != nil || len(a.Messages) != 1 ||
		a.Messages[0].Key != "github:o/r:review:18:2026-09-22T10:00:06Z" || a.Messages[0].Place.ID != "review:18" {
		t.Errorf("review: %+v, %v", a, err)
	}
	body = delivered(t, "pull_request_review_comment", "created", "o/r", 7, inlineOn("o/r", 7, 19, 7, "a.go", 12, "no"))
	if a, err = door.Open(signed("pull_request_review_comment", body), body); err != nil || len(a.Messages) != 1 ||
		said(a.Messages[0]) != "a.go:12: no" || a.Messages[0].Key != "github:o/r:inline:19:2026-09-22T10:00:07Z" {
		t.Errorf("inline: %+v, %v", a, err)
	}
}

func TestWhoIsAPersonAndWhatWasEdited(t *testing.T) {
	door := github.NewDoor(github.DoorOptions{
		Secret: secretFile(t, hookSecret), Watched: watching("github:o/r#7"),
		Self: func(context.Context) (github.Account, error) { return github.Account{ID: 2}, nil },
	})
	plain := commentOn("o/r", 7, 17, 5, "yes")
	tests := []struct {
		name, action string
		comment      thing
		from         channels.Author
		edited       bool
	}{
		{"a person", "created", plain, channels.Author{ID: "1", Login: "user1", Person: true}, false},
		{
			"ours", "created", with(plain, "user", user(2)),
			channels.Author{ID: "2", Login: "user2", Person: true, Us: true},
			false,
		},
		{
			"a bot", "created", with(plain, "user", thing{"id": 3, "login": "x[bot]", "type": "Bot"}),
			channels.Author{ID: "3", Login: "x[bot]"},
			false,
		},
		{
			"an app in a person's name", "created", with(plain, "performed_via_github_app", thing{"id": 5}),
			channels.Author{ID: "1", Login: "user1"},
			false,
		},
		{"nobody", "created", with(plain, "user", nil), channels.Author{}, false},
		{
			"no login at all", "created", with(plain, "user", thing{"id": 4, "login": "a\nb", "type": "User"}),
			channels.Author{ID: "4", Person: true},
			false,
		},
		{"edited", "edited", with(plain, "updated_at", at(50)), channels.Author{ID: "1", Login: "user1", Person: true}, true},
		{
			"edited before it was sent to us", "created", with(plain, "updated_at", at(50)),
			channels.Author{ID: "1", Login: "user1", Person: true},
			true,
		},
		{
			"a second ended while it was created", "created", with(plain, "updated_at", at(6)),
			channels.Author{ID: "1", Login: "user1", Person: true},
			false,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			body := delivered(t, "issue_comment", tt.action, "o/r", 7, tt.comment)
			a, err := door.Open(signed("issue_comment", body), body)
			if err != nil || len(a.Messages) != 1 {
				t.Fatalf("%+v, %v", a, err)
			}
			if m := a.Messages[0]; m.From != tt.from || m.Edited != tt.edited {
				t.Errorf("from %+v, edited %v", m.From, m.Edited)
			}
		})
	}
}

// GitHub takes owner/repo in any case, and the work item is the one that people
// were asked under. The key is the same for all.
func TestTheWatchedSpellingCounts(t *testing.T) {
	for name, o := range map[string]github.DoorOptions{
		"watched":    {Watched: watching("github:Owner/Repo#7")},
		"repository": {Repos: []string{"other/x", "Owner/Repo"}},
		"both":       {Watched: watching("github:Owner/Repo#7"), Repos: []string{"OWNER/repo"}},
	} {
		t.Run(name, func(t *testing.T) {
			o.Secret = secretFile(t, hookSecret)
			body := delivered(t, "issue_comment", "created", "oWNER/rEPO", 7, commentOn("oWNER/rEPO", 7, 17, 5, "yes"))
			a, err := github.NewDoor(o).Open(signed("issue_comment", body), body)
			if err != nil || len(a.Messages) != 1 {
				t.Fatalf("%+v, %v", a, err)
			}
			m := a.Messages[0]
			if m.WorkItem != "github:Owner/Repo#7" || m.Place.Conversation != "Owner/Repo#7" ||
				m.Key != "github:owner/repo:comment:17:2026-09-22T10:00:05Z" {
				t.Errorf("%+v", m)
			}
		})
	}
}

// Whether what bears our marker is ours, only who we are tells.
func TestD11_AMarkedCommentWaitsUntilWeKnowWhoWeAre(t *testing.T) {
	asked := 0
	door := github.NewDoor(github.DoorOptions{
		Secret: secretFile(t, hookSecret), Watched: watching("github:o/r#7"),
		Self: func(context.Context) (github.Account, error) { asked++; return github.Account{}, errors.New("away") },
	})
	open := func(text string) (channels.Arrival, error) {
		body := delivered(t, "issue_comment", "created", "o/r", 7, commentOn("o/r", 7, 17, 5, text))
		return door.Open(signed("issue_comment", body), body)
	}
	if a, err := open("yes"); err != nil || len(a.Messages) != 1 {
		t.Errorf("without a marker: %+v, %v", a, err)
	}
	if a, err := open("<!-- the-loop id=01K sum=01234567 -->\nA or B?"); err == nil || errors.Is(err, channels.ErrForged) {
		t.Errorf("with a marker: %+v, %v", a, err)
	}
	if asked != 1 {
		t.Errorf("asked %d times within a moment", asked)
	}
}

func TestD11_TheMarkerIsReadAndNotPartOfTheText(t *testing.T) {
	door := newDoor(t, "github:o/r#7")
	body := delivered(t, "issue_comment", "created", "o/r", 7,
		commentOn("o/r", 7, 17, 5, "<!-- the-loop id=01K code=7K2 state=open sum=01234567 -->\r\nA or B?\r\n"))
	a, err := door.Open(signed("issue_comment", body), body)
	if err != nil || len(a.Messages) != 1 {
		t.Fatalf("%+v, %v", a, err)
	}
	m := a.Messages[0]
	if diff := cmp.Diff(&channels.Mark{ID: "01K", Code: "7K2"}, m.Mark); diff != "" || m.Text != "A or B?" {
		t.Errorf("text %q\n%s", m.Text, diff)
	}
}

func TestHiddenCommentsAreNoText(t *testing.T) {
	door := newDoor(t, "github:o/r#7")
	for body, want := range map[string]string{
		"a <!-- x --> b":               "a  b",
		"<!-->a<!--->b":                "ab",
		"a\n<!-- never ends\nhidden":   "a",
		"a <!-- shown as it is":        "a <!-- shown as it is",
		"a <!-- b\n  <!-- hidden":      "a <!-- b",
		"> quoted\r\n\r\n`code` *b*":   "> quoted\n\n`code` *b*",
		" \n yes \r\n ":                "yes",
		"nul \u0000 here":              "nul \uFFFD here",
		"<!-- a --><!-- b -->yes<!--c": "yes<!--c",
	} {
		payload := delivered(t, "issue_comment", "created", "o/r", 7, commentOn("o/r", 7, 17, 5, body))
		a, err := door.Open(signed("issue_comment", payload), payload)
		if err != nil || len(a.Messages) != 1 || a.Messages[0].Text != want {
			t.Errorf("%q: got %+v, %v, want %q", body, a.Messages, err, want)
		}
	}
}
