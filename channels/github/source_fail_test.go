package github_test

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"the-loop/channels"
)

// L-06, its reading half: what fails is not passed over, and what works is not
// held up.
func TestL06_AKindThatFailsIsReadAgainAndHoldsUpNoOther(t *testing.T) {
	for _, whole := range []bool{false, true} {
		for _, broken := range []string{"issues", "reviews", "pulls/7/comments", "pulls/comments", "pulls"} {
			t.Run(fmt.Sprintf("%s, whole repository %v", broken, whole), func(t *testing.T) {
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
				failed := false
				h.fail = func(r *http.Request) int {
					path := r.URL.Path
					if strings.HasSuffix(path, broken) || broken == "issues" && strings.Contains(path, "/issues/") {
						failed = true
						return http.StatusBadGateway
					}
					return 0
				}
				r := newReader(h, t, repos...)
				p := r.only(t, item7)
				got, err := r.read(t, p)
				if failed != (err != nil) || failed && len(got) >= 3 || len(got) == 0 {
					t.Errorf("failed %v: %v, %v", failed, texts(got), err)
				}
				var unknown *channels.Uncertain
				if failed && !errors.As(err, &unknown) {
					t.Errorf("%v", err)
				}
				h.mu.Lock()
				h.fail = nil
				h.mu.Unlock()
				got = append(got, r.must(t, p)...)
				got = append(got, r.must(t, p)...)
				slices.SortFunc(got, func(a, b channels.Message) int { return a.At.Compare(b.At) })
				if diff := cmp.Diff(l05Texts, texts(got)); diff != "" {
					t.Error(diff)
				}
			})
		}
	}
}

func TestL06_APageThatFailsIsNotPassedOver(t *testing.T) {
	for _, whole := range []bool{false, true} {
		t.Run(fmt.Sprintf("whole repository %v", whole), func(t *testing.T) {
			h := newHub(t)
			path, repos := issues7, []string(nil)
			if whole {
				path, repos = "repos/o/r/issues/comments", []string{"o/r"}
			}
			for i := range 250 {
				h.add(path, commentOn("o/r", 7, 1000+i, i, "comment"))
			}
			calls := 0
			h.fail = func(r *http.Request) int {
				if strings.HasSuffix(r.URL.Path, path) {
					if calls++; calls == 2 {
						return http.StatusInternalServerError
					}
				}
				return 0
			}
			r := newReader(h, t, repos...)
			p := r.only(t, item7)
			ms, err := r.read(t, p)
			if err == nil {
				t.Error("no error")
			}
			known := map[string]bool{}
			for _, m := range append(ms, r.must(t, p)...) {
				if known[m.Key] {
					t.Errorf("%s twice", m.Key)
				}
				known[m.Key] = true
			}
			if len(known) != 250 {
				t.Errorf("%d messages", len(known))
			}
		})
	}
}

// One pull request whose reviews cannot be read does not hold up the others'.
func TestL06_OnePullRequestThatFailsHoldsUpNoOther(t *testing.T) {
	h := newHub(t)
	h.add("repos/o/r/pulls", thing{"number": 5, "updated_at": at(10)}, thing{"number": 7, "updated_at": at(500)})
	h.add("repos/o/r/pulls/5/reviews", reviewOn("o/r", 5, 1, 10, "COMMENTED", "early"))
	h.add(reviews7, reviewOn("o/r", 7, 2, 20, "COMMENTED", "late"))
	bad := true
	h.fail = func(r *http.Request) int {
		if bad && strings.Contains(r.URL.Path, "/pulls/5/") {
			return http.StatusBadGateway
		}
		return 0
	}
	r := newReader(h, t, "o/r")
	p := r.only(t, item7)
	for i, want := range [][]string{{"late"}, nil} {
		ms, err := r.read(t, p)
		if diff := cmp.Diff(want, texts(ms)); diff != "" || err == nil {
			t.Errorf("cycle %d: %v\n%s", i+1, err, diff)
		}
	}
	h.mu.Lock()
	bad = false
	h.mu.Unlock()
	if diff := cmp.Diff([]string{"early"}, texts(r.must(t, p))); diff != "" {
		t.Error(diff)
	}
}

func TestP5_ALimitEndsTheReadingAndSaysHowLong(t *testing.T) {
	h := newHub(t)
	h.pulls["repos/o/r/pulls/7"] = true
	h.add(issues7, commentOn("o/r", 7, 1, 10, "yes"))
	h.fail = func(r *http.Request) int {
		if strings.Contains(r.URL.Path, "/reviews") {
			return http.StatusTooManyRequests
		}
		return 0
	}
	r := newReader(h, t)
	ms, err := r.read(t, r.only(t, item7))
	var told *channels.Refusal
	if !errors.As(err, &told) || told.Reason != channels.ReasonRate || told.RetryAfter != 17*time.Second {
		t.Errorf("%v", err)
	}
	if diff := cmp.Diff([]string{"yes"}, texts(ms)); diff != "" {
		t.Error(diff)
	}
	all := h.Requests()
	if last := all[len(all)-1].URI; !strings.Contains(last, "/reviews") {
		t.Errorf("something was asked after it: %s", last)
	}
}
