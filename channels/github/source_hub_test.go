package github_test

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"the-loop/channels"
	"the-loop/channels/channelstest"
	"the-loop/channels/github"
)

// base is when everything in these tests begins, by GitHub's clock.
var base = time.Date(2026, 9, 22, 10, 0, 0, 0, time.UTC)

func at(seconds int) string {
	return base.Add(time.Duration(seconds) * time.Second).Format(time.RFC3339)
}

// thing is one of GitHub's JSON objects.
type thing map[string]any

// hub serves lists in GitHub's way: per_page, page, since, sort, direction,
// Link, ETag and Date.
type hub struct {
	*channelstest.Server
	mu    sync.Mutex
	lists map[string][]thing // by path
	pulls map[string]bool    // paths of pull requests
	fail  func(r *http.Request) int
	seen  func(r *http.Request)
	ahead time.Duration // of the hub's clock is the test's
	mute  bool          // it does not say what time it is
}

func newHub(t *testing.T) *hub {
	h := &hub{lists: map[string][]thing{}, pulls: map[string]bool{}}
	h.Server = channelstest.NewServer(h)
	t.Cleanup(h.Close)
	return h
}

func (h *hub) add(path string, things ...thing) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lists[path] = append(h.lists[path], things...)
}

// asked gives the requests since the last call, without the base's path.
func (h *hub) asked(from *int) (uris []string) {
	all := h.Requests()
	for _, r := range all[*from:] {
		uris = append(uris, strings.TrimPrefix(r.URI, "/api/v3/"))
	}
	*from = len(all)
	return uris
}

func (h *hub) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h.mu.Lock()
	defer h.mu.Unlock()
	path := strings.ToLower(strings.TrimPrefix(r.URL.Path, "/api/v3/")) // GitHub takes any case
	if !h.mute {
		w.Header().Set("Date", time.Now().Add(-h.ahead).UTC().Format(http.TimeFormat))
	}
	if h.seen != nil {
		h.seen(r)
	}
	if h.fail != nil {
		if status := h.fail(r); status != 0 {
			if status == http.StatusTooManyRequests {
				w.Header().Set("Retry-After", "17")
			}
			w.WriteHeader(status)
			_, _ = w.Write([]byte(`{"message":"no"}`))
			return
		}
	}
	folder, last := filepath.Split(path)
	id, _ := strconv.Atoi(last)
	one := slices.IndexFunc(h.lists[strings.TrimSuffix(folder, "/")], func(x thing) bool { return x["id"] == id })
	list, isList := h.lists[path]
	switch {
	case path == "user":
		h.answer(w, r, thing{"id": 999, "login": "loop-bot", "type": "User"})
	case h.pulls[path]:
		h.answer(w, r, thing{"number": id})
	case isList, last == "comments", last == "reviews", last == "pulls":
		h.answer(w, r, page(w, r, list))
	case one >= 0:
		h.answer(w, r, h.lists[strings.TrimSuffix(folder, "/")][one])
	default:
		w.WriteHeader(http.StatusNotFound)
		_, _ = w.Write([]byte(`{"message":"Not Found"}`))
	}
}

func page(w http.ResponseWriter, r *http.Request, list []thing) []thing {
	q := r.URL.Query()
	updated := func(x thing) string { s, _ := x["updated_at"].(string); return s }
	list = slices.DeleteFunc(slices.Clone(list), func(x thing) bool { return updated(x) < q.Get("since") })
	if q.Get("sort") == "updated" {
		slices.SortStableFunc(list, func(a, b thing) int { return strings.Compare(updated(a), updated(b)) })
	}
	if q.Get("direction") == "desc" {
		slices.Reverse(list)
	}
	size, number := 30, 1
	if n, err := strconv.Atoi(q.Get("per_page")); err == nil {
		size = n
	}
	if n, err := strconv.Atoi(q.Get("page")); err == nil {
		number = n
	}
	start, end := min((number-1)*size, len(list)), min(number*size, len(list))
	if end < len(list) {
		q.Set("page", strconv.Itoa(number+1))
		// Another host, as a proxy would give: the address is not to be followed.
		w.Header().Set("Link", fmt.Sprintf(`<https://x.example/>; rel="prev", <https://x.example%s?%s>; rel="next"`,
			r.URL.Path, q.Encode()))
	}
	return append([]thing{}, list[start:end]...)
}

func (h *hub) answer(w http.ResponseWriter, r *http.Request, v any) {
	body, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	etag := fmt.Sprintf(`W/"%x"`, sha256.Sum256(body))
	w.Header().Set("ETag", etag)
	if r.Header.Get("If-None-Match") == etag {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	_, _ = w.Write(body)
}

func (h *hub) client(t *testing.T) *github.Client {
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte("ghp_test\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return github.New(github.Options{Token: channels.Secret{File: file}, BaseURL: h.URL()})
}

// user is account number n, a person.
func user(n int) thing { return thing{"id": n, "login": "user" + strconv.Itoa(n), "type": "User"} }

func commentOn(repo string, n, id, second int, body string) thing {
	return thing{
		"id": id, "body": body, "user": user(1), "created_at": at(second), "updated_at": at(second),
		"performed_via_github_app": nil,
		"html_url":                 fmt.Sprintf("https://github.com/%s/issues/%d#issuecomment-%d", repo, n, id),
		"issue_url":                fmt.Sprintf("https://api.github.com/repos/%s/issues/%d", repo, n),
	}
}

func reviewOn(repo string, n, id, second int, state, body string) thing {
	x := thing{
		"id": id, "body": body, "user": user(1), "state": state, "submitted_at": at(second),
		"html_url":         fmt.Sprintf("https://github.com/%s/pull/%d#pullrequestreview-%d", repo, n, id),
		"pull_request_url": fmt.Sprintf("https://api.github.com/repos/%s/pulls/%d", repo, n),
	}
	if state == "PENDING" {
		x["submitted_at"] = nil
	}
	return x
}

func inlineOn(repo string, n, id, second int, path string, line int, body string) thing {
	return thing{
		"id": id, "body": body, "user": user(1), "created_at": at(second), "updated_at": at(second),
		"path": path, "line": line, "original_line": line, "pull_request_review_id": 500,
		"html_url":         fmt.Sprintf("https://github.com/%s/pull/%d#discussion_r%d", repo, n, id),
		"pull_request_url": fmt.Sprintf("https://api.github.com/repos/%s/pulls/%d", repo, n),
	}
}

func with(x thing, key string, value any) thing {
	x = maps.Clone(x)
	x[key] = value
	return x
}

func free(context.Context, string) error { return nil }

// reader is a source with the cursors that whoever reads it keeps.
type reader struct {
	*github.Source
	client  *github.Client
	cursors map[string]json.RawMessage
}

func newReader(h *hub, t *testing.T, repos ...string) *reader {
	c := h.client(t)
	return &reader{github.NewSource(github.SourceOptions{Client: c, Repos: repos}), c, map[string]json.RawMessage{}}
}

// read reads the place and keeps its cursor.
func (r *reader) read(t *testing.T, p channels.ReadPlace) ([]channels.Message, error) {
	t.Helper()
	ms, next, err := r.Read(t.Context(), p, r.cursors[p.Key], free)
	r.cursors[p.Key] = next
	return ms, err
}

// only gives the one place there is for the work items.
func (r *reader) only(t *testing.T, items ...string) channels.ReadPlace {
	t.Helper()
	var watched []channels.Watched
	for _, w := range items {
		watched = append(watched, channels.Watched{WorkItem: w, Open: true, Since: base})
	}
	places := r.Places(watched)
	if len(places) != 1 {
		t.Fatalf("got %d places, want 1: %v", len(places), places)
	}
	return places[0]
}

func (r *reader) must(t *testing.T, p channels.ReadPlace) []channels.Message {
	t.Helper()
	ms, err := r.read(t, p)
	if err != nil {
		t.Fatal(err)
	}
	return ms
}

func texts(ms []channels.Message) (out []string) {
	for _, m := range ms {
		out = append(out, said(m))
	}
	return out
}

// said is a message's text, with the place that an inline comment is about.
func said(m channels.Message) string { return strings.TrimPrefix(m.Where+": "+m.Text, ": ") }
