package channelstest

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// githubStart is when everything in these tests begins.
var githubStart = time.Date(2026, 9, 22, 10, 0, 0, 0, time.UTC)

// newTestGitHub has a repository o/r, with the pull request 8, and a clock that
// only the returned function moves.
func newTestGitHub(t *testing.T) (g *GitHub, pass func(time.Duration)) {
	g = NewGitHub(t)
	now := githubStart
	g.SetClock(func() time.Time { return now })
	g.AddRepo("o/r", true)
	g.AddPull("o/r", 8)
	return g, func(d time.Duration) {
		g.mu.Lock()
		defer g.mu.Unlock()
		now = now.Add(d)
	}
}

// githubGot is an answer.
type githubGot struct {
	status int
	header http.Header
	body   []byte
}

// call makes a request "METHOD /path". Headers are given by name and value; an
// empty value takes one away.
func (g *GitHub) call(t *testing.T, what, body string, headers ...string) githubGot {
	t.Helper()
	got, err := g.try(t, what, body, headers...)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func (g *GitHub) try(t *testing.T, what, body string, headers ...string) (got githubGot, err error) {
	t.Helper()
	method, path, _ := strings.Cut(what, " ")
	req, err := http.NewRequestWithContext(t.Context(), method, g.URL()+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+GitHubToken)
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(req)
	if err != nil {
		return githubGot{}, err
	}
	defer resp.Body.Close()
	all, err := io.ReadAll(resp.Body)
	return githubGot{resp.StatusCode, resp.Header, all}, err
}

// want checks the status and that the body has all the words.
func (g *GitHub) want(t *testing.T, status int, what, body string, words ...string) githubGot {
	t.Helper()
	got := g.call(t, what, body)
	if got.status != status {
		t.Errorf("%s: status %d %s, want %d", what, got.status, got.body, status)
	}
	for _, word := range words {
		if !strings.Contains(string(got.body), word) {
			t.Errorf("%s: answer %s has no %s", what, got.body, word)
		}
	}
	return got
}

// ids gives those of the list that is answered.
func (g *GitHub) ids(t *testing.T, path string) (ids []int64) {
	t.Helper()
	var list []struct{ ID, Number int64 }
	got := g.want(t, 200, "GET "+path, "")
	if err := json.Unmarshal(got.body, &list); err != nil {
		t.Fatal(err)
	}
	for _, x := range list {
		ids = append(ids, x.ID+x.Number) // a pull request has the one, all else the other
	}
	return ids
}

func githubBody(text string) string {
	b, err := json.Marshal(map[string]string{"body": text})
	if err != nil {
		panic(err)
	}
	return string(b)
}

func TestGitHub_WhoMayAsk(t *testing.T) {
	g, _ := newTestGitHub(t)
	for name, tt := range map[string]struct {
		status  int
		headers []string
	}{
		"bearer":        {200, nil},
		"token":         {200, []string{"Authorization", "token " + GitHubToken}},
		"wrong":         {401, []string{"Authorization", "Bearer x"}},
		"basic":         {401, []string{"Authorization", "Basic " + GitHubToken}},
		"none":          {401, []string{"Authorization", ""}},
		"no user agent": {403, []string{"User-Agent", ""}},
	} {
		if got := g.call(t, "GET /user", "", tt.headers...); got.status != tt.status {
			t.Errorf("%s: status %d %s, want %d", name, got.status, got.body, tt.status)
		}
	}
	g.SetToken("another")
	g.want(t, 401, "GET /api/v3/user", "", "Bad credentials")
}

func TestGitHub_WhoIsWho(t *testing.T) {
	g, _ := newTestGitHub(t)
	g.AddUser("Octo", 7)
	g.AddBot("build[bot]", 8)
	g.want(t, 200, "GET /user", "", `"id":9001`, `"login":"the-loop-us"`)
	g.want(t, 200, "GET /api/v3/users/octo", "", `"id":7,"login":"Octo"`, `"type":"User"`)
	g.want(t, 200, "GET /users/build[bot]", "", `"id":8`, `"type":"Bot"`)
	c := g.Comment("O/R", 7, "octo", "hello")
	g.Rename("octo", "cat")
	g.want(t, 404, "GET /users/octo", "")
	g.AddUser("octo", 9) // the old name is free
	g.want(t, 200, fmt.Sprintf("GET /repos/o/r/issues/comments/%d", c.ID), "", `"id":7,"login":"cat"`)
	g.Comment("o/r", 7, "passer-by", "hello")
	if all := g.Comments("o/r", 7); len(all) != 2 || all[0].Login != "cat" || all[1].UserID <= 9 || all[0].Repo != "o/r" {
		t.Errorf("comments %+v", all)
	}
}

func TestGitHub_WhatIsNotThere(t *testing.T) {
	g, _ := newTestGitHub(t)
	c := g.Comment("o/r", 7, "octo", "x")
	inline := g.Inline("o/r", 8, "octo", "a.go", 3, "x")
	g.AddRepo("o/other", false)
	g.AddPull("o/r", 9)
	for _, what := range []string{
		"GET /users/nobody", "GET /repos/o/nothing", "GET /repos/o/r/issues/0/comments", "GET /repos/o/r/pulls/7",
		"GET /repos/o/r/pulls/7/reviews", "GET /repos/o/r/pulls/7/comments", "GET /repos/o/r/issues/comments/99",
		"POST /repos/o/nothing/issues/7/comments", "PATCH /repos/o/r/issues/comments/99", "GET /elsewhere",
		fmt.Sprintf("PATCH /repos/o/other/issues/comments/%d", c.ID),
		fmt.Sprintf("GET /repos/o/r/issues/comments/%d", inline.ID),
		fmt.Sprintf("GET /repos/o/r/pulls/9/reviews/%d", inline.ReviewID),
		fmt.Sprintf("POST /repos/o/r/pulls/9/comments/%d/replies", inline.ID),
		fmt.Sprintf("POST /repos/o/r/pulls/comments/%d/reactions", c.ID),
	} {
		g.want(t, 404, what, githubBody("x"), `"message":"Not Found"`)
	}
	g.want(t, 200, "GET /repos/O/R", "", `"full_name":"o/r"`, `"private":true`)
	g.want(t, 200, "GET /repos/o/other", "", `"private":false`)
	g.AddRepo("o/other", true)
	g.want(t, 200, "GET /repos/o/other", "", `"private":true`)
	g.want(t, 200, "GET /repos/o/r/pulls/8", "", `"number":8`)
	g.Delete(c.ID)
	g.want(t, 404, fmt.Sprintf("GET /repos/o/r/issues/comments/%d", c.ID), "")
}

func TestGitHub_LimitsOfABody(t *testing.T) {
	g, pass := newTestGitHub(t)
	const create = "POST /api/v3/repos/o/r/issues/7/comments"
	g.want(t, 201, create, githubBody(strings.Repeat("x", 65_536)))
	g.want(t, 201, create, githubBody(strings.Repeat("🌈", 65_536)))
	g.want(t, 422, create, githubBody(strings.Repeat("x", 65_537)), "maximum is 65536 characters", "IssueComment")
	g.want(t, 422, create, githubBody(" \n"), "cannot be blank")
	g.want(t, 422, create, `{}`, "cannot be blank")
	g.want(t, 400, create, `{"body":`, "Problems parsing JSON")

	all := g.Comments("o/r", 7)
	if len(all) != 2 || all[0].ID >= all[1].ID || all[0].Login != GitHubLogin || all[0].UserID != GitHubID {
		t.Fatalf("got %d comments", len(all))
	}
	update := fmt.Sprintf("PATCH /repos/o/r/issues/comments/%d", all[0].ID)
	g.want(t, 422, update, githubBody(strings.Repeat("x", 65_537)))
	g.want(t, 422, update, githubBody(""))
	pass(time.Minute)
	g.want(t, 200, update, githubBody("short"), `"body":"short"`, `"updated_at":"2026-09-22T10:01:00Z"`)
	if c := g.Comments("o/r", 7)[0]; c.Body != "short" || c.Updated.Sub(c.Created) != time.Minute {
		t.Errorf("comment %+v", c)
	}
	other := g.Comment("o/r", 7, "octo", "mine")
	g.want(t, 403, fmt.Sprintf("PATCH /repos/o/r/issues/comments/%d", other.ID), githubBody("x"))
}

func TestGitHub_Pages(t *testing.T) {
	g, _ := newTestGitHub(t)
	for range 205 {
		g.Comment("o/r", 7, "octo", "x")
	}
	const list = "/api/v3/repos/o/r/issues/7/comments"
	for query, want := range map[string]int{
		"": 30, "?per_page=0": 30, "?per_page=100": 100, "?per_page=500": 100, "?per_page=100&page=3": 5,
		"?per_page=100&page=4": 0, "?page=7": 25,
	} {
		if got := len(g.ids(t, list+query)); got != want {
			t.Errorf("%s: %d comments, want %d", query, got, want)
		}
	}
	var ids []int64
	pages := 0
	for next := list + "?per_page=100"; next != ""; pages++ {
		ids = append(ids, g.ids(t, next)...)
		link := g.call(t, "GET "+next, "").header.Get("Link")
		next = ""
		for _, l := range strings.Split(link, ", ") {
			if address, ok := strings.CutSuffix(l, `>; rel="next"`); ok {
				next, ok = strings.CutPrefix(address, "<"+g.URL())
				if !ok || !strings.HasPrefix(next, list) {
					t.Fatalf("link %s", l)
				}
			}
		}
	}
	if pages != 3 || len(ids) != 205 || !slices.IsSorted(ids) {
		t.Errorf("%d comments on %d pages", len(ids), pages)
	}
}

func TestGitHub_SinceAndOrder(t *testing.T) {
	g, pass := newTestGitHub(t)
	first := g.Comment("o/r", 7, "octo", "1")
	second := g.Comment("o/r", 9, "octo", "2")
	pass(10 * time.Second)
	third := g.Comment("o/r", 7, "octo", "3")
	pass(10 * time.Second)
	first = g.Edit(first.ID, "1 again")
	if want := githubStart.Add(20 * time.Second); !first.Updated.Equal(want) || !first.Created.Equal(githubStart) {
		t.Errorf("edited: %+v", first)
	}
	for query, want := range map[string][]int64{
		"issues/comments":                                                    {first.ID, second.ID, third.ID},
		"issues/comments?direction=desc":                                     {first.ID, second.ID, third.ID},
		"issues/comments?sort=updated&direction=asc":                         {second.ID, third.ID, first.ID},
		"issues/comments?sort=updated&direction=desc":                        {first.ID, third.ID, second.ID},
		"issues/comments?sort=created&direction=desc":                        {third.ID, second.ID, first.ID},
		"issues/comments?since=2026-09-22T10:00:10Z":                         {first.ID, third.ID},
		"issues/comments?since=2026-09-22T10:00:10.9Z":                       {first.ID, third.ID},
		"issues/comments?since=2026-09-22T10:00:11Z":                         {first.ID},
		"issues/7/comments?since=2026-09-22T10:00:10Z":                       {first.ID, third.ID},
		"issues/7/comments?sort=updated&direction=desc":                      {first.ID, third.ID},
		"issues/9/comments":                                                  {second.ID},
		"issues/comments?since=2026-09-22T12:00:12%2B02:00&sort=updated":     {first.ID},
		"issues/comments?since=2026-09-22T10:00:21Z&sort=updated&per_page=1": nil,
	} {
		if got := g.ids(t, "/repos/o/r/"+query); !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", query, got, want)
		}
	}
	g.want(t, 422, "GET /repos/o/r/issues/comments?since=yesterday", "")
}

func TestGitHub_PullRequests(t *testing.T) {
	g, pass := newTestGitHub(t)
	pass(time.Second)
	g.AddPull("o/r", 3)
	pass(time.Second)
	g.AddPull("o/r", 5)
	g.ClosePull("o/r", 5)
	pass(time.Second)
	draft := g.Plant(GitHubComment{Kind: GitHubReview, Repo: "o/r", Number: 3, Login: "octo", State: "PENDING", Body: "d"})
	hidden := g.Plant(GitHubComment{Kind: GitHubInline, Repo: "o/r", Number: 3, Login: "octo", ReviewID: draft.ID})
	own := g.Plant(GitHubComment{Kind: GitHubReview, Repo: "o/r", Number: 3, Login: GitHubLogin, State: "PENDING"})
	g.Comment("o/r", 7, "octo", "no pull request")
	review := g.Review("o/r", 8, "octo", "good")
	inline := g.Inline("o/r", 8, "octo", "b.go", 12, "why?")
	for query, want := range map[string][]int64{
		"pulls": {3, 8},
		"pulls?state=all&sort=updated&direction=desc": {8, 5, 3}, // an unsent review is no change
		"pulls?state=all&sort=updated":                {3, 5, 8},
		"pulls?state=closed":                          {5},
		"pulls/8/reviews":                             {review.ID, inline.ReviewID},
		"pulls/3/reviews":                             {own.ID},
		"pulls/8/comments":                            {inline.ID},
		"pulls/3/comments":                            nil,
		"pulls/comments?sort=updated&direction=asc":   {inline.ID},
	} {
		if got := g.ids(t, "/repos/o/r/"+query); !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", query, got, want)
		}
	}
	g.want(t, 404, fmt.Sprintf("GET /repos/o/r/pulls/comments/%d", hidden.ID), "")
	g.want(t, 200, fmt.Sprintf("GET /repos/o/r/pulls/8/reviews/%d", review.ID), "", `"state":"COMMENTED"`,
		`"submitted_at":"2026-09-22T10:00:03Z"`, "/o/r/pull/8#pullrequestreview-")

	reply := fmt.Sprintf("POST /repos/o/r/pulls/8/comments/%d/replies", inline.ID)
	g.want(t, 201, reply, githubBody("because"), `"path":"b.go"`, fmt.Sprintf(`"in_reply_to_id":%d`, inline.ID))
	g.want(t, 201, "POST /repos/o/r/pulls/8/comments", fmt.Sprintf(`{"body":"so","in_reply_to":%d}`, inline.ID))
	g.want(t, 422, reply, githubBody(""))
	all := g.Inlines("o/r", 8)
	if len(all) != 3 || all[1].Body != "because" || all[2].Body != "so" || all[2].InReplyTo != inline.ID {
		t.Fatalf("inline comments %+v", all)
	}
	g.want(t, 422, fmt.Sprintf("POST /repos/o/r/pulls/8/comments/%d/replies", all[1].ID), githubBody("deeper"))
	if got := len(g.Reviews("o/r", 8)); got != 4 {
		t.Errorf("%d reviews, want 4: each reply has one", got)
	}
}

func TestGitHub_Reactions(t *testing.T) {
	g, _ := newTestGitHub(t)
	c, inline := g.Comment("o/r", 7, "octo", "yes"), g.Inline("o/r", 8, "octo", "a.go", 1, "no")
	on := fmt.Sprintf("POST /repos/o/r/issues/comments/%d/reactions", c.ID)
	g.want(t, 201, on, `{"content":"+1"}`)
	g.want(t, 200, on, `{"content":"+1"}`)
	g.want(t, 422, on, `{"content":"white_check_mark"}`)
	g.want(t, 201, fmt.Sprintf("POST /repos/o/r/pulls/comments/%d/reactions", inline.ID), `{"content":"+1"}`)
	want := []GitHubReaction{{GitHubID, "+1"}}
	for _, got := range [][]GitHubReaction{g.Comments("o/r", 7)[0].Reactions, g.Inlines("o/r", 8)[0].Reactions} {
		if !reflect.DeepEqual(got, want) {
			t.Errorf("reactions %v, want %v", got, want)
		}
	}
	g.want(t, 200, "GET /repos/o/r/issues/7/comments", "", `"+1":1`)
}

func TestGitHub_UnchangedIsAnsweredShort(t *testing.T) {
	g, _ := newTestGitHub(t)
	g.SetLeft(3, githubStart.Add(time.Hour))
	const list = "GET /repos/o/r/issues/7/comments"
	first := g.call(t, list, "")
	tag := first.header.Get("ETag")
	for range 5 { // costs nothing
		if got := g.call(t, list, "", "If-None-Match", tag); got.status != 304 || len(got.body) > 0 {
			t.Fatalf("status %d %s, want 304", got.status, got.body)
		}
	}
	c := g.Comment("o/r", 7, "octo", "x")
	second := g.call(t, list, "", "If-None-Match", tag)
	if second.status != 200 || second.header.Get("ETag") == tag {
		t.Errorf("after a comment: status %d", second.status)
	}
	g.Edit(c.ID, "y")
	third := g.call(t, list, "", "If-None-Match", second.header.Get("ETag"))
	if third.status != 200 || third.header.Get("X-RateLimit-Remaining") != "0" {
		t.Errorf("after an edit: status %d, headers %v", third.status, third.header)
	}
}

func TestGitHub_PrimaryLimit(t *testing.T) {
	g, pass := newTestGitHub(t)
	reset := githubStart.Add(10 * time.Minute)
	g.SetLeft(1, reset)
	g.want(t, 200, "GET /user", "")
	limited := g.want(t, 403, "GET /user", "", "API rate limit exceeded")
	want := fmt.Sprint(reset.Unix())
	if h := limited.header; h.Get("X-RateLimit-Remaining") != "0" || h.Get("X-RateLimit-Reset") != want {
		t.Errorf("headers %v, want reset %s", h, want)
	}
	pass(10 * time.Minute)
	g.want(t, 200, "GET /user", "")

	g.Queue(GitHubPrimaryLimit(reset))
	h := g.want(t, 403, "GET /user", "", "API rate limit exceeded").header
	if h.Get("X-RateLimit-Remaining") != "0" || h.Get("X-RateLimit-Reset") != want {
		t.Errorf("headers %v, want reset %s", h, want)
	}
}

func TestGitHub_SecondaryLimit(t *testing.T) {
	g, pass := newTestGitHub(t)
	const create = "POST /repos/o/r/issues/7/comments"
	for range 80 {
		g.want(t, 201, create, githubBody("x"))
	}
	if h := g.want(t, 403, create, githubBody("x"), "secondary rate limit").header; h.Get("Retry-After") != "60" {
		t.Errorf("headers %v", h)
	}
	g.want(t, 200, "GET /user", "") // reading goes on
	pass(time.Minute)
	g.want(t, 201, create, githubBody("x"))
	g.SetCreates(0, 82)
	g.want(t, 201, create, githubBody("x"))
	g.want(t, 403, create, githubBody("x"), "secondary rate limit")
	pass(time.Hour)
	g.want(t, 201, create, githubBody("x"))

	g.Queue(GitHubSecondaryLimit(30*time.Second), GitHubSecondaryLimit(0))
	for _, want := range []string{"30", ""} {
		h := g.want(t, 403, "GET /user", "", "You have exceeded a secondary rate limit").header
		if h.Get("Retry-After") != want || h.Get("X-RateLimit-Remaining") == "0" {
			t.Errorf("headers %v, want Retry-After %q", h, want)
		}
	}
}

func TestD01_GitHubStoresAndDeniesIt(t *testing.T) {
	g, _ := newTestGitHub(t)
	const create = "POST /repos/o/r/issues/7/comments"
	g.Queue(g.StoreThen(Answer(500, "")), g.StoreThen(DropRead()))
	g.want(t, 500, create, githubBody("one"))
	if got, err := g.try(t, create, githubBody("two")); err == nil {
		t.Errorf("status %d, want no answer", got.status)
	}
	g.want(t, 201, create, githubBody("three"))
	var bodies []string
	for _, c := range g.Comments("o/r", 7) {
		bodies = append(bodies, c.Body)
	}
	if want := []string{"one", "two", "three"}; !slices.Equal(bodies, want) {
		t.Errorf("comments %v, want %v", bodies, want)
	}
}

func TestGitHub_RefusesWhatItIsTold(t *testing.T) {
	g, _ := newTestGitHub(t)
	c := g.Comment("o/r", 7, "octo", "yes")
	g.Refuse(func(_, path string) (int, string) {
		if strings.HasSuffix(path, "/reactions") {
			return 403, "Resource not accessible by personal access token"
		}
		return 0, ""
	})
	on := fmt.Sprintf("POST /api/v3/repos/o/r/issues/comments/%d/reactions", c.ID)
	g.want(t, 403, on, `{"content":"+1"}`, "not accessible")
	g.want(t, 200, "GET /user", "")
	if got := g.Comments("o/r", 7)[0].Reactions; len(got) > 0 {
		t.Errorf("reactions %v", got)
	}
	want := []string{strings.Replace(on, "/api/v3", "", 1), "GET /user"}
	if got := g.Calls(); !slices.Equal(got, want) {
		t.Errorf("calls %v, want %v", got, want)
	}
}

func TestGitHub_ManyAtOnce(t *testing.T) {
	g, _ := newTestGitHub(t)
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			if got, err := g.try(t, "POST /repos/o/r/issues/7/comments", githubBody("x")); err != nil || got.status != 201 {
				t.Errorf("status %d, error %v", got.status, err)
			}
			g.Review("o/r", 8, "octo", "x")
		})
	}
	wg.Wait()
	known := map[int64]bool{}
	for _, c := range slices.Concat(g.Comments("o/r", 7), g.Reviews("o/r", 8)) {
		known[c.ID] = true
	}
	if len(known) != 40 {
		t.Errorf("%d ids, want 40", len(known))
	}
}
