package github_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"the-loop/channels"
	"the-loop/channels/github"
)

const (
	issues7  = "repos/o/r/issues/7/comments"
	reviews7 = "repos/o/r/pulls/7/reviews"
	inlines7 = "repos/o/r/pulls/7/comments"
	item7    = "github:o/r#7"
)

// l05 is the case's ticket: three replies, an empty approval, a pending review.
func l05() (comments, reviews, inlines []thing) {
	return []thing{commentOn("o/r", 7, 11, 10, "yes")},
		[]thing{
			reviewOn("o/r", 7, 21, 30, "APPROVED", "approved"), reviewOn("o/r", 7, 22, 31, "APPROVED", ""),
			reviewOn("o/r", 7, 23, 0, "PENDING", "draft"),
		},
		[]thing{inlineOn("o/r", 7, 31, 20, "a.go", 12, "not here")}
}

var l05Texts = []string{"yes", "a.go:12: not here", "approved"}

func TestL05_ReviewsAndInlineCommentsOfATicketAreRead(t *testing.T) {
	h := newHub(t)
	comments, reviews, inlines := l05()
	h.add(issues7, comments...)
	h.add(reviews7, reviews...)
	h.add(inlines7, inlines...)
	h.pulls["repos/o/r/pulls/7"] = true
	r := newReader(h, t)
	p := r.only(t, item7)
	first := r.must(t, p)
	if diff := cmp.Diff(l05Texts, texts(first)); diff != "" {
		t.Fatal(diff)
	}
	for range 3 {
		if ms := r.must(t, p); len(ms) > 0 {
			t.Errorf("again: %v", texts(ms))
		}
	}
	// The webhook gives the same three.
	door := newDoor(t, item7)
	var hooked []channels.Message
	open := func(event, action string, things []thing) {
		for _, x := range things {
			body := delivered(t, event, action, "o/r", 7, x)
			a, err := door.Open(signed(event, body), body)
			if err != nil {
				t.Fatal(err)
			}
			hooked = append(hooked, a.Messages...)
		}
	}
	open("issue_comment", "created", comments)
	open("pull_request_review_comment", "created", inlines)
	open("pull_request_review", "submitted", reviews)
	if diff := cmp.Diff(first, hooked); diff != "" {
		t.Error(diff)
	}
}

func TestL05_ReviewsAndInlineCommentsOfARepositoryAreRead(t *testing.T) {
	h := newHub(t)
	comments, reviews, inlines := l05()
	h.add("repos/o/r/issues/comments", comments...)
	h.add("repos/o/r/pulls/comments", inlines...)
	h.add("repos/o/r/pulls", thing{"number": 7, "updated_at": at(31)}, thing{"number": 6, "updated_at": at(-9000)})
	h.add(reviews7, reviews...)
	r := newReader(h, t, "o/r")
	p := r.only(t, item7)
	if p.Repo != "o/r" || p.Key != "github:o/r" || len(p.WorkItems) > 0 {
		t.Fatalf("place %+v", p)
	}
	ms := r.must(t, p)
	if diff := cmp.Diff(l05Texts, texts(ms)); diff != "" {
		t.Fatal(diff)
	}
	for _, m := range ms {
		if m.WorkItem != item7 || m.Place.Conversation != "o/r#7" {
			t.Errorf("work item %s, place %+v", m.WorkItem, m.Place)
		}
	}
	for range 3 {
		if ms := r.must(t, p); len(ms) > 0 {
			t.Errorf("again: %v", texts(ms))
		}
	}
	for _, req := range h.Requests() {
		if strings.Contains(req.URI, "/pulls/6/") {
			t.Errorf("an old pull request was read: %s", req.URI)
		}
	}
	// A review long after, on a pull request that was there before.
	h.mu.Lock()
	h.lists["repos/o/r/pulls"][1]["updated_at"] = at(900)
	h.mu.Unlock()
	h.add("repos/o/r/pulls/6/reviews", reviewOn("o/r", 6, 24, -5000, "COMMENTED", "old"),
		reviewOn("o/r", 6, 25, 900, "COMMENTED", "late"))
	if diff := cmp.Diff([]string{"late"}, texts(r.must(t, p))); diff != "" {
		t.Error(diff)
	}
}

func TestL08_AllPagesAreRead(t *testing.T) {
	for _, whole := range []bool{false, true} {
		t.Run(fmt.Sprintf("whole repository %v", whole), func(t *testing.T) {
			h := newHub(t)
			path, repos := issues7, []string(nil)
			if whole {
				path, repos = "repos/o/r/issues/comments", []string{"o/r"}
			}
			var want []string
			for i := range 250 {
				h.add(path, commentOn("o/r", 7, 1000+i, i, fmt.Sprintf("comment %d", i+1)))
				want = append(want, fmt.Sprintf("comment %d", i+1))
			}
			r := newReader(h, t, repos...)
			p := r.only(t, item7)
			if diff := cmp.Diff(want, texts(r.must(t, p))); diff != "" {
				t.Fatal(diff)
			}
			h.add(path, commentOn("o/r", 7, 2000, 300, "the answer"))
			if diff := cmp.Diff([]string{"the answer"}, texts(r.must(t, p))); diff != "" {
				t.Error(diff)
			}
			if n := len(r.cursors[p.Key]); n > 1000 {
				t.Errorf("the cursor has %d bytes", n)
			}
		})
	}
}

func TestL08_TheAnswerIsComment101OrReview101(t *testing.T) {
	h := newHub(t)
	h.pulls["repos/o/r/pulls/7"] = true
	for i := range 100 {
		h.add(issues7, commentOn("o/r", 7, 1000+i, 10, "talk"))
		h.add(reviews7, reviewOn("o/r", 7, 3000+i, 10, "COMMENTED", "talk"))
		h.add(inlines7, inlineOn("o/r", 7, 4000+i, 10, "a.go", 1, "talk"))
	}
	r := newReader(h, t)
	p := r.only(t, item7)
	if n := len(r.must(t, p)); n != 300 {
		t.Fatalf("%d messages", n)
	}
	r.must(t, p) // whatever may be kept of an answer is kept now
	h.add(issues7, commentOn("o/r", 7, 2000, 10, "comment 101"))
	h.add(reviews7, reviewOn("o/r", 7, 3500, 10, "COMMENTED", "review 101"))
	h.add(inlines7, inlineOn("o/r", 7, 4500, 10, "a.go", 1, "inline 101"))
	got := texts(r.must(t, p))
	slices.Sort(got)
	if diff := cmp.Diff([]string{"a.go:1: inline 101", "comment 101", "review 101"}, got); diff != "" {
		t.Error(diff)
	}
}

// A page that is being read moves when somebody deletes or edits: whatever
// would slip from the second page to the first is seen all the same.
func TestL08_NothingSlipsBetweenTwoPages(t *testing.T) {
	for _, whole := range []bool{false, true} {
		t.Run(fmt.Sprintf("whole repository %v", whole), func(t *testing.T) {
			h := newHub(t)
			path, repos := issues7, []string(nil)
			if whole {
				path, repos = "repos/o/r/issues/comments", []string{"o/r"}
			}
			for i := range 150 {
				h.add(path, commentOn("o/r", 7, 1000+i, i, fmt.Sprintf("comment %d", i+1)))
			}
			pages := 0
			h.seen = func(r *http.Request) {
				if strings.HasSuffix(r.URL.Path, path) {
					if pages++; pages == 2 { // the first page is on its way
						h.lists[path] = h.lists[path][5:]
					}
				}
			}
			r := newReader(h, t, repos...)
			if got := r.must(t, r.only(t, item7)); len(got) != 150 {
				t.Errorf("%d messages, want 150", len(got))
			}
		})
	}
}

func TestTwoCommentsInOneSecondAreBothSeenOnce(t *testing.T) {
	for _, whole := range []bool{false, true} {
		t.Run(fmt.Sprintf("whole repository %v", whole), func(t *testing.T) {
			h := newHub(t)
			path, repos := issues7, []string(nil)
			if whole {
				path, repos = "repos/o/r/issues/comments", []string{"o/r"}
			}
			r := newReader(h, t, repos...)
			p := r.only(t, item7)
			h.add(path, commentOn("o/r", 7, 1, 10, "first"))
			got := texts(r.must(t, p))
			h.add(path, commentOn("o/r", 7, 2, 10, "second"), commentOn("o/r", 7, 3, 8, "written before, seen after"))
			got = append(got, texts(r.must(t, p))...)
			got = append(got, texts(r.must(t, p))...)
			if diff := cmp.Diff([]string{"first", "written before, seen after", "second"}, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestAnEditIsSeenAndIsNoAnswer(t *testing.T) {
	h := newHub(t)
	h.add(issues7, commentOn("o/r", 7, 1, 10, "yes"))
	r := newReader(h, t)
	p := r.only(t, item7)
	first := r.must(t, p)
	h.mu.Lock()
	h.lists[issues7][0] = with(with(h.lists[issues7][0], "updated_at", at(400)), "body", "no")
	h.mu.Unlock()
	second := r.must(t, p)
	if len(first) != 1 || first[0].Edited || len(second) != 1 || !second[0].Edited || second[0].Text != "no" ||
		first[0].Key == second[0].Key {
		t.Errorf("first %+v, then %+v", first, second)
	}
}

// GitHub counts the sending of a review as a change of the comments that were
// drafted for it.
func TestADraftedInlineCommentIsNotEdited(t *testing.T) {
	h := newHub(t)
	h.pulls["repos/o/r/pulls/7"] = true
	h.add(reviews7, reviewOn("o/r", 7, 500, 300, "COMMENTED", ""), reviewOn("o/r", 7, 501, 300, "COMMENTED", ""))
	h.add(inlines7,
		with(inlineOn("o/r", 7, 1, 10, "a.go", 1, "drafted"), "updated_at", at(301)),
		with(inlineOn("o/r", 7, 2, 20, "a.go", 2, "edited later"), "updated_at", at(302)),
		with(with(inlineOn("o/r", 7, 3, 30, "a.go", 3, "its review is gone"), "updated_at", at(40)),
			"pull_request_review_id", 999))
	check := func(t *testing.T, ms []channels.Message) {
		t.Helper()
		got := map[string]bool{}
		for _, m := range ms {
			got[said(m)] = m.Edited
		}
		want := map[string]bool{"a.go:1: drafted": false, "a.go:2: edited later": true, "a.go:3: its review is gone": true}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
	}
	r := newReader(h, t)
	p := r.only(t, item7)
	check(t, r.must(t, p))
	// The reviews are known to be unchanged, and an inline comment comes.
	h.add(inlines7, with(inlineOn("o/r", 7, 4, 50, "a.go", 4, "drafted too"), "updated_at", at(303)))
	h.mu.Lock()
	h.lists[reviews7][1]["submitted_at"] = at(303)
	h.lists[inlines7][3]["pull_request_review_id"] = 501
	h.mu.Unlock()
	h.fail = func(r *http.Request) int { // the list of reviews fails: the one is asked for
		if strings.HasSuffix(r.URL.Path, "/reviews") {
			return http.StatusBadGateway
		}
		return 0
	}
	ms, err := r.read(t, p)
	if err == nil || len(ms) != 1 || ms[0].Edited {
		t.Errorf("got %+v, %v", ms, err)
	}
}

func TestAQuietPlaceCostsNothing(t *testing.T) {
	for _, whole := range []bool{false, true} {
		t.Run(fmt.Sprintf("whole repository %v", whole), func(t *testing.T) {
			h := newHub(t)
			comments, reviews, inlines := l05()
			h.pulls["repos/o/r/pulls/7"] = true
			h.add(issues7, comments...)
			h.add(reviews7, reviews...)
			h.add(inlines7, inlines...)
			h.add("repos/o/r/issues/comments", comments...)
			h.add("repos/o/r/pulls/comments", inlines...)
			h.add("repos/o/r/pulls", thing{"number": 7, "updated_at": at(31)})
			var repos []string
			if whole {
				repos = []string{"o/r"}
			}
			r := newReader(h, t, repos...)
			p := r.only(t, item7)
			r.must(t, p)
			r.must(t, p)
			before := string(r.cursors[p.Key])
			n := len(h.Requests())
			r.must(t, p)
			if after := string(r.cursors[p.Key]); after != before {
				t.Errorf("the cursor moved:\n%s\n%s", before, after)
			}
			quiet := h.Requests()[n:]
			if len(quiet) != 3 {
				t.Errorf("%d requests, want 3", len(quiet))
			}
			for _, req := range quiet {
				if req.Header.Get("If-None-Match") == "" {
					t.Errorf("no ETag with %s", req.URI)
				}
			}
			h.add("repos/o/r/issues/comments", commentOn("o/r", 7, 90, 600, "more"))
			h.add(issues7, commentOn("o/r", 7, 90, 600, "more"))
			if diff := cmp.Diff([]string{"more"}, texts(r.must(t, p))); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestAnIssueIsAskedOnceWhetherItIsAPullRequest(t *testing.T) {
	h := newHub(t)
	r := newReader(h, t)
	p := r.only(t, item7)
	r.must(t, p)
	n := 0
	h.asked(&n)
	r.must(t, p)
	got := h.asked(&n)
	if len(got) != 1 || !strings.HasPrefix(got[0], issues7+"?") {
		t.Errorf("asked %v", got)
	}
}

func TestWhatTheBudgetSaysIsReturned(t *testing.T) {
	h := newHub(t)
	r := newReader(h, t)
	p := r.only(t, item7)
	enough := errors.New("enough")
	for _, at := range []string{"user", "issues/comments", "pulls"} {
		var asked []string
		_, next, err := r.Read(t.Context(), p, nil, func(_ context.Context, method string) error {
			asked = append(asked, method)
			if method == at {
				return enough
			}
			return nil
		})
		if err != enough || asked[len(asked)-1] != at {
			t.Errorf("%s: %v after %v, %s", at, err, asked, next)
		}
	}
	if n := len(h.Requests()); n != 2 { // who we are, and the comments of the third
		t.Errorf("%d requests, want 2", n)
	}
}

func TestEveryRequestIsCountedBefore(t *testing.T) {
	h := newHub(t)
	h.pulls["repos/o/r/pulls/7"] = true
	comments, reviews, inlines := l05()
	h.add(issues7, comments...)
	h.add(reviews7, reviews...)
	h.add(inlines7, with(inlines[0], "updated_at", at(400)))
	r := newReader(h, t)
	p := r.only(t, item7)
	for range 2 {
		n, asked := len(h.Requests()), 0
		_, next, err := r.Read(t.Context(), p, r.cursors[p.Key], func(context.Context, string) error { asked++; return nil })
		if r.cursors[p.Key] = next; err != nil || len(h.Requests())-n != asked {
			t.Errorf("%d requests, counted %d, %v", len(h.Requests())-n, asked, err)
		}
	}
}

func TestPlacesAreTheRepositoriesAndTheTicketsInNone(t *testing.T) {
	s := github.NewSource(github.SourceOptions{Repos: []string{"Own/Repo", "own/repo", "o/s"}})
	got := s.Places([]channels.Watched{
		{WorkItem: "github:own/REPO#3"},
		{WorkItem: "local:x#1"},
		{WorkItem: "github:O/r#7"},
		{WorkItem: "github:o/R#7"},
		{WorkItem: "slack"},
		{WorkItem: "github:o/r#8"},
		{WorkItem: "github:o/..#8"},
	})
	want := []channels.ReadPlace{
		{Key: "github:own/repo", Repo: "Own/Repo"},
		{Key: "github:o/s", Repo: "o/s"},
		{Key: "github:o/r#7", WorkItems: []string{"github:O/r#7", "github:o/R#7"}},
		{Key: "github:o/r#8", WorkItems: []string{"github:o/r#8"}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if s.Name() != "github" {
		t.Errorf("name %q", s.Name())
	}
}

func TestANewPlaceBeginsAMinuteBeforeItWasAskedAbout(t *testing.T) {
	h := newHub(t)
	h.add(issues7, commentOn("o/r", 7, 1, -3600, "long before"), commentOn("o/r", 7, 2, -20, "just before"))
	h.add("repos/o/r/issues/comments", h.lists[issues7]...)
	for _, repos := range [][]string{nil, {"o/r"}} {
		r := newReader(h, t, repos...)
		if diff := cmp.Diff([]string{"just before"}, texts(r.must(t, r.only(t, item7)))); diff != "" {
			t.Errorf("repositories %v: %s", repos, diff)
		}
	}
	// A whole repository on which nobody asked: an hour back, by our clock.
	now := time.Now().UTC()
	recent := func(id int, ago time.Duration, text string) thing {
		stamp := now.Add(-ago).Format(time.RFC3339)
		return with(with(commentOn("o/r", 7, id, 0, text), "created_at", stamp), "updated_at", stamp)
	}
	h.add("repos/o/r/issues/comments", recent(3, 2*time.Hour, "two hours"), recent(4, 30*time.Minute, "half an hour"))
	r := newReader(h, t, "o/r")
	if diff := cmp.Diff([]string{"half an hour"}, texts(r.must(t, r.only(t)))); diff != "" {
		t.Error(diff)
	}
}

func TestACursorThatCannotBeReadBeginsAnew(t *testing.T) {
	h := newHub(t)
	h.add(issues7, commentOn("o/r", 7, 1, 10, "yes"))
	for _, cursor := range []string{`null`, `{}`, `[]`, `"x"`, `{"comment":{"since":"x"}}`, `{"comment":7}`, `{`} {
		r := newReader(h, t)
		p := r.only(t, item7)
		r.cursors[p.Key] = json.RawMessage(cursor)
		if diff := cmp.Diff([]string{"yes"}, texts(r.must(t, p))); diff != "" {
			t.Errorf("%s: %s", cursor, diff)
		}
	}
}

func TestWhatIsNoCommentIsPassedOver(t *testing.T) {
	h := newHub(t)
	h.add(issues7, thing{"body": "no id"}, thing{"id": 5}, thing{"id": "x", "updated_at": at(9)},
		commentOn("o/r", 7, 1, 10, "yes"))
	r := newReader(h, t)
	if diff := cmp.Diff([]string{"yes"}, texts(r.must(t, r.only(t, item7)))); diff != "" {
		t.Error(diff)
	}
}
