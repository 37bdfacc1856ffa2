package github_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"the-loop/channels"
)

// foreign is the body of a comment of another root.
func foreign(id, code, state, text string) string {
	return fmt.Sprintf("<!-- the-loop id=%s code=%s state=%s sum=00000000 -->\n%s", id, code, state, text)
}

// comments7 is where the comments of the ticket are read, and what is to be
// configured for that.
func comments7(whole bool) (path string, repos []string) {
	if whole {
		return "repos/o/r/issues/comments", []string{"o/r"}
	}
	return issues7, nil
}

// bothWays runs a test for a ticket and for a whole repository.
func bothWays(t *testing.T, f func(t *testing.T, path string, repos []string)) {
	for _, whole := range []bool{false, true} {
		t.Run(fmt.Sprintf("whole repository %v", whole), func(t *testing.T) {
			path, repos := comments7(whole)
			f(t, path, repos)
		})
	}
}

const day = 24 * 60 * 60

func TestAnOlderQuestionOfAnotherRootIsSeenOnTheFirstRead(t *testing.T) {
	bothWays(t, func(t *testing.T, path string, repos []string) {
		h := newHub(t)
		h.add(path,
			commentOn("o/r", 7, 1, -8*day, foreign("01OLD", "2AA", "open", "too old")),
			commentOn("o/r", 7, 2, -6*day, foreign("01LONG", "3BB", "open", "six days")),
			commentOn("o/r", 7, 3, -200, "talk"),
			commentOn("o/r", 7, 4, -190, "<!-- the-loop id=01NOTE sum=00000000 -->\na note"),
			commentOn("o/r", 7, 5, -180, foreign("01SHUT", "4CC", "closed", "over")),
			commentOn("o/r", 7, 6, -120, foreign("01OTHER", "7K2", "open", "Ship?")),
			commentOn("o/r", 7, 9, -65, "in the overlap"), commentOn("o/r", 7, 7, -50, "just before"),
			commentOn("o/r", 7, 8, 5, "yes"))
		r := newReader(h, t, repos...)
		p := r.only(t, item7)
		ms := r.must(t, p)
		given := []string{"six days", "over", "Ship?", "in the overlap", "just before", "yes"}
		if diff := cmp.Diff(given, texts(ms)); diff != "" {
			t.Fatal(diff)
		}
		want := &channels.Mark{ID: "01OTHER", Code: "7K2"}
		if diff := cmp.Diff(want, ms[2].Mark); diff != "" {
			t.Error(diff)
		}
		if ms := r.must(t, p); len(ms) > 0 {
			t.Errorf("again: %v", texts(ms))
		}
		// It closes, and somebody edits what was not given.
		h.mu.Lock()
		h.lists[path][2] = with(h.lists[path][2], "updated_at", at(300))
		h.lists[path][5] = with(with(h.lists[path][5], "updated_at", at(301)), "body",
			foreign("01OTHER", "7K2", "closed", "Ship? Yes."))
		h.mu.Unlock()
		ms = r.must(t, p)
		if len(ms) != 2 || ms[1].Text != "talk" && ms[0].Text != "talk" {
			t.Fatalf("got %v", texts(ms))
		}
		for _, m := range ms {
			if m.Text != "talk" && (m.Mark == nil || !m.Mark.Closed) {
				t.Errorf("not closed: %+v", m)
			}
		}
	})
}

// Reviews and inline comments carry no questions.
func TestReviewsAndInlineCommentsFromBeforeTheStartAreNotRead(t *testing.T) {
	for _, repos := range [][]string{nil, {"o/r"}} {
		h := newHub(t)
		h.pulls["repos/o/r/pulls/7"] = true
		h.add("repos/o/r/pulls", thing{"number": 7, "updated_at": at(31)})
		h.add(reviews7, reviewOn("o/r", 7, 21, -200, "COMMENTED", foreign("01A", "2AA", "open", "old")))
		for _, path := range []string{inlines7, "repos/o/r/pulls/comments"} {
			h.add(path, inlineOn("o/r", 7, 31, -200, "a.go", 12, foreign("01B", "2BB", "open", "old")))
		}
		r := newReader(h, t, repos...)
		if ms := r.must(t, r.only(t, item7)); len(ms) > 0 {
			t.Errorf("repositories %v: %v", repos, texts(ms))
		}
	}
}

func TestLookingForOlderQuestionsLeavesTheCursorAsItWas(t *testing.T) {
	bothWays(t, func(t *testing.T, path string, repos []string) {
		var cursors []string
		for _, old := range []bool{false, true} {
			h := newHub(t)
			if old {
				h.add(path, commentOn("o/r", 7, 1, -day, foreign("01OTHER", "7K2", "open", "Ship?")))
			}
			r := newReader(h, t, repos...)
			p := r.only(t, item7)
			r.must(t, p)
			var c map[string]map[string]any // the start moves with the clocks, within a second
			_ = json.Unmarshal(r.cursors[p.Key], &c)
			since, err := time.Parse(time.RFC3339, c["comment"]["since"].(string))
			if d := base.Add(-time.Minute).Sub(since); err != nil || d < 0 || d > 5*time.Second {
				t.Errorf("since %s, %v", since, err)
			}
			delete(c["comment"], "since")
			cursors = append(cursors, fmt.Sprint(c["comment"]))
		}
		if diff := cmp.Diff([]string{"map[]", "map[]"}, cursors); diff != "" {
			t.Error(diff)
		}
	})
}

func TestOlderQuestionsAreFoundOnAllPagesAlsoAfterAFailure(t *testing.T) {
	bothWays(t, func(t *testing.T, path string, repos []string) {
		h := newHub(t)
		var want []string
		for i := range 350 { // twenty minutes each, up to 100 minutes after the start
			second, text := (i-344)*1200, "talk"
			if i%100 == 50 {
				text = foreign(fmt.Sprintf("01Q%d", i), "7K2", "open", fmt.Sprintf("question %d", i))
				want = append(want, fmt.Sprintf("question %d", i))
			}
			h.add(path, commentOn("o/r", 7, 1000+i, second, text))
		}
		want = append(want, "talk", "talk", "talk", "talk", "talk", "talk")
		calls := 0
		h.fail = func(r *http.Request) int {
			if strings.HasSuffix(r.URL.Path, path) {
				if calls++; calls == 3 {
					return http.StatusBadGateway
				}
			}
			return 0
		}
		r := newReader(h, t, repos...)
		p := r.only(t, item7)
		got, err := r.read(t, p)
		if err == nil {
			t.Error("no error")
		}
		got = append(got, r.must(t, p)...)
		got = append(got, r.must(t, p)...)
		if diff := cmp.Diff(want, texts(got)); diff != "" {
			t.Error(diff)
		}
		if n := len(r.cursors[p.Key]); n > 400 {
			t.Errorf("the cursor has %d bytes: %s", n, r.cursors[p.Key])
		}
	})
}

// What was first asked about at base by our clock was asked then by GitHub's:
// ten minutes before, ten minutes later, or ten days before.
func TestTheStartGoesByGitHubsClock(t *testing.T) {
	for _, ahead := range []int{600, -600, 10 * day} {
		for _, known := range []bool{false, true} {
			t.Run(fmt.Sprintf("ahead %d s, who we are is known %v", ahead, known), func(t *testing.T) {
				bothWays(t, func(t *testing.T, path string, repos []string) {
					h := newHub(t)
					h.ahead = time.Duration(ahead) * time.Second
					h.pulls["repos/o/r/pulls/7"] = true
					h.add("repos/o/r/pulls", thing{"number": 7, "updated_at": at(31 - ahead)})
					h.add(path, commentOn("o/r", 7, 1, -120-ahead, "long before"), commentOn("o/r", 7, 2, -40-ahead, "just before"),
						commentOn("o/r", 7, 3, -6*day-ahead, foreign("01OTHER", "7K2", "open", "Ship?")))
					h.add(reviews7, reviewOn("o/r", 7, 21, -120-ahead, "COMMENTED", "old review"),
						reviewOn("o/r", 7, 22, 30-ahead, "COMMENTED", "review"))
					r := newReader(h, t, repos...)
					if known {
						if _, err := r.client.Self(t.Context()); err != nil {
							t.Fatal(err)
						}
					}
					if diff := cmp.Diff([]string{"Ship?", "just before", "review"}, texts(r.must(t, r.only(t, item7)))); diff != "" {
						t.Error(diff)
					}
				})
			})
		}
	}
}

func TestTheStartGoesByWhatGitHubsClockSaidLast(t *testing.T) {
	h := newHub(t)
	r := newReader(h, t)
	r.must(t, r.only(t, "github:o/r#8"))
	h.mu.Lock()
	h.ahead = 10 * time.Minute
	h.mu.Unlock()
	r.must(t, r.only(t, "github:o/r#8"))
	h.add(issues7, commentOn("o/r", 7, 1, -800, "long before"), commentOn("o/r", 7, 2, -640, "just before"))
	n := len(h.Requests())
	if diff := cmp.Diff([]string{"just before"}, texts(r.must(t, r.only(t, item7)))); diff != "" {
		t.Error(diff)
	}
	if asked := h.asked(&n); strings.Contains(strings.Join(asked, " "), "user") {
		t.Errorf("asked again who we are: %v", asked)
	}
}

// A server that does not say what time it is goes by ours, and is asked once.
func TestWithoutGitHubsClockTheStartGoesByOurs(t *testing.T) {
	h := newHub(t)
	h.mute = true
	h.add(issues7, commentOn("o/r", 7, 1, -120, "long before"), commentOn("o/r", 7, 2, -40, "just before"))
	r := newReader(h, t)
	for i, item := range []string{item7, "github:o/r#8"} {
		n, asked := len(h.Requests()), 0
		p := r.only(t, item)
		ms, _, err := r.Read(t.Context(), p, nil, func(context.Context, string) error { asked++; return nil })
		if err != nil || len(h.Requests())-n != asked {
			t.Errorf("%d requests, counted %d, %v", len(h.Requests())-n, asked, err)
		}
		if diff := cmp.Diff([][]string{{"just before"}, nil}[i], texts(ms)); diff != "" {
			t.Error(diff)
		}
		users := strings.Count(strings.Join(h.asked(&n), "\n")+"\n", "user\n")
		if users != []int{2, 0}[i] {
			t.Errorf("asked %d times who we are", users)
		}
	}
}

// What was read is not asked for again.
func TestTheNextReadBeginsAtTheLastChange(t *testing.T) {
	bothWays(t, func(t *testing.T, path string, repos []string) {
		h := newHub(t)
		h.add(path, commentOn("o/r", 7, 1, 100, "yes"))
		r := newReader(h, t, repos...)
		p := r.only(t, item7)
		r.must(t, p)
		n := len(h.Requests())
		r.must(t, p)
		since := url.Values{"since": {at(90)}}.Encode()
		if asked := h.asked(&n); !strings.HasPrefix(asked[0], path) || !strings.Contains(asked[0], since) {
			t.Errorf("asked %v, want %s", asked, since)
		}
	})
}
