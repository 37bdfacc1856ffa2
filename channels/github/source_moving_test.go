package github_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func pullAt(number, second int) thing {
	return thing{"id": number, "number": number, "updated_at": at(second)}
}

// reads reads the place some times and gives all texts.
func (r *reader) reads(t *testing.T, times int) (out []string) {
	t.Helper()
	p := r.only(t, item7)
	for range times {
		out = append(out, texts(r.must(t, p))...)
	}
	return out
}

// on does something once, before the nth request for a path is answered.
func (h *hub) on(nth int, path string, f func()) {
	before, n := h.seen, 0
	h.seen = func(r *http.Request) {
		if before != nil {
			before(r)
		}
		if strings.HasSuffix(r.URL.Path, path) {
			if n++; n == nth {
				f()
			}
		}
	}
}

// Reading the reviews of many pull requests takes a while. One that is sent on
// a pull request that was read already is not passed over for one that is sent
// later on one that was not.
func TestAReviewThatIsSentWhileOthersAreReadIsNotPassedOver(t *testing.T) {
	h := newHub(t)
	h.add("repos/o/r/pulls", pullAt(7, 0), pullAt(8, 1))
	h.add(reviews7)
	h.on(1, "/pulls/8/reviews", func() { // 7 was read
		h.lists[reviews7] = []thing{reviewOn("o/r", 7, 51, 40, "COMMENTED", "the answer")}
		h.lists["repos/o/r/pulls/8/reviews"] = []thing{reviewOn("o/r", 8, 52, 80, "COMMENTED", "another")}
		h.lists["repos/o/r/pulls"] = []thing{pullAt(7, 40), pullAt(8, 80)}
	})
	if diff := cmp.Diff([]string{"another", "the answer"}, newReader(h, t, "o/r").reads(t, 4)); diff != "" {
		t.Error(diff)
	}
}

// A pull request that changes while the list is read moves to its first page,
// which was read. The review that it was listed for is older than the others.
func TestAPullRequestThatMovesUpInTheListIsReadNevertheless(t *testing.T) {
	h := newHub(t)
	var pulls []thing
	for i := range 40 { // 107 is on the second page
		pulls = append(pulls, pullAt(100+i, i*20))
	}
	h.add("repos/o/r/pulls", pulls...)
	h.add("repos/o/r/pulls/107/reviews", reviewOn("o/r", 107, 51, 140, "COMMENTED", "the answer"))
	h.on(2, "o/r/pulls", func() { h.lists["repos/o/r/pulls"][7] = pullAt(107, 900) })
	if diff := cmp.Diff([]string{"the answer"}, newReader(h, t, "o/r").reads(t, 3)); diff != "" {
		t.Error(diff)
	}
}

// While it moves at every reading, nothing is called read.
func TestAListOfPullRequestsThatNeverRestsIsNotPassed(t *testing.T) {
	h := newHub(t)
	var pulls []thing
	for i := range 80 {
		pulls = append(pulls, pullAt(100+i, i*20))
	}
	h.add("repos/o/r/pulls", pulls...)
	h.add("repos/o/r/pulls/107/reviews", reviewOn("o/r", 107, 51, 140, "COMMENTED", "the answer"))
	second := 2000
	moving := true
	h.seen = func(r *http.Request) {
		q := r.URL.Query()
		if !strings.HasSuffix(r.URL.Path, "o/r/pulls") || !moving {
			return
		}
		list := h.lists["repos/o/r/pulls"]
		switch q.Get("page") {
		case "": // thirty new ones fill the first page
			for range 30 {
				second++
				list = append(list, pullAt(second, second))
			}
		case "2": // and 107, which is on a later one, goes behind them
			second++
			list[7] = pullAt(107, second)
		}
		h.lists["repos/o/r/pulls"] = list
	}
	r := newReader(h, t, "o/r")
	got := r.reads(t, 1)
	h.mu.Lock()
	moving = false
	h.mu.Unlock()
	if got = append(got, r.reads(t, 2)...); len(got) != 1 {
		t.Errorf("got %v", got)
	}
}

// The list says nothing of a second change within one second.
func TestASecondReviewInOneSecondIsRead(t *testing.T) {
	h := newHub(t)
	h.ahead = time.Since(base.Add(time.Second)) // the hub's clock says at(1) or little more
	h.add("repos/o/r/pulls", pullAt(7, 1))
	h.add(reviews7, reviewOn("o/r", 7, 51, 1, "COMMENTED", "one"))
	r := newReader(h, t, "o/r")
	got := r.reads(t, 1)
	h.add(reviews7, reviewOn("o/r", 7, 52, 1, "COMMENTED", "two"))
	got = append(got, r.reads(t, 1)...)
	if diff := cmp.Diff([]string{"one", "two"}, got); diff != "" {
		t.Error(diff)
	}
	// Later nothing more can come in that second.
	h.mu.Lock()
	h.ahead -= time.Minute
	h.mu.Unlock()
	r.reads(t, 1)
	n := len(h.Requests())
	r.reads(t, 1)
	if quiet := h.asked(&n); len(quiet) != 3 {
		t.Errorf("asked %v", quiet)
	}
}

// What is edited on a page that was read is not seen, while what is written
// later comes on the last page: up to the last reading of all of them.
func TestAnEditBehindTheReadingOfATicketIsNotPassedOver(t *testing.T) {
	for _, reading := range []int{1, 2, 3} {
		t.Run(fmt.Sprintf("reading %d", reading), func(t *testing.T) {
			h := newHub(t)
			for i := range 150 {
				h.add(issues7, commentOn("o/r", 7, 1000+i, 10, "talk"))
			}
			for i := 1; i <= 3; i++ {
				h.on(2*i, issues7, func() { // the first page is on its way
					list := append(slices.Clone(h.lists[issues7]), commentOn("o/r", 7, 2000+i, 100*i+50, "more"))
					if i == reading {
						list[5] = with(with(list[5], "updated_at", at(100*i)), "body", "the edit")
					}
					h.lists[issues7] = list
				})
			}
			got := newReader(h, t).reads(t, 3)
			got = slices.DeleteFunc(got, func(s string) bool { return s == "talk" })
			slices.Sort(got)
			if diff := cmp.Diff([]string{"more", "more", "more", "the edit"}, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// What was written first may be visible second, also between two pages.
func TestWhatIsVisibleLateIsSeenBetweenTwoPages(t *testing.T) {
	h := newHub(t)
	path, repos := comments7(true)
	for i := range 100 {
		h.add(path, commentOn("o/r", 7, 1000+i, i, "talk"))
	}
	h.add(path, commentOn("o/r", 7, 2000, 99, "talk"))
	h.on(2, path, func() {
		h.lists[path] = append(h.lists[path], commentOn("o/r", 7, 3000, 97, "late"), commentOn("o/r", 7, 3001, 160, "more"))
	})
	got := newReader(h, t, repos...).reads(t, 3)
	got = slices.DeleteFunc(got, func(s string) bool { return s == "talk" })
	if diff := cmp.Diff([]string{"late", "more"}, got); diff != "" {
		t.Error(diff)
	}
}
