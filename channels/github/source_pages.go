package github

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	gh "github.com/google/go-github/v92/github"

	"the-loop/channels"
	"the-loop/internal/lazy"
)

const (
	// maxPages bounds one list in one Read.
	maxPages = 100
	// pullsPage is how many pull requests are asked for at a time: they are
	// long, and the latest few are enough as a rule.
	pullsPage = 30
	// maxPasses is how often a list of several pages is read, see all.
	maxPasses = 3
)

func (t ticket) digits() string { return strconv.Itoa(t.number) }

// list is one of GitHub's lists of things that people wrote.
type list struct {
	kind   kind
	method string // that it counts under
	path   string
	since  bool // it can be asked for what changed since a time
	of     func(w written) (ticket, bool)
}

func (l list) query(since time.Time) url.Values {
	q := url.Values{"per_page": {strconv.Itoa(PageSize)}}
	if l.since {
		q.Set("since", since.UTC().Format(time.RFC3339))
	}
	return q
}

// byUpdate reads a list in the order of changes. After a full page it is asked
// anew from the last change on, with the overlap when that leads on, and for the
// next page only when it would be the same question: whatever is edited or
// deleted meanwhile moves the pages, and something would slip through between
// two of them. Each page that was read counts.
func (r *reading) byUpdate(ctx context.Context, t *track, l list) error {
	since := t.floor()
	ask := func() url.Values {
		q := l.query(since)
		q.Set("sort", "updated")
		q.Set("direction", "asc")
		return q
	}
	q, etag := ask(), t.ETag
	for pages := range maxPages {
		var raws []json.RawMessage
		a, next, err := r.get(ctx, request{l.method, l.path, q, etag}, &raws)
		if err != nil || a.Unchanged {
			return err
		}
		ms, seen, err := r.take(ctx, *t, l, raws)
		if err != nil {
			return err
		}
		r.out = append(r.out, ms...)
		moved := t.advance(latest(seen), seen)
		t.ETag, etag = "", ""
		if next == nil {
			moved = t.advance(t.Start, nil) || moved
			if pages == 0 && !moved && len(raws) < PageSize {
				t.ETag = a.ETag
			}
			return nil
		}
		switch {
		case t.floor().After(since):
			since = t.floor()
		case t.Since.After(since):
			since = t.Since
		default:
			q = next
			continue
		}
		q = ask()
	}
	return nil // the next Read goes on
}

// all reads a list that has an order of its own. Nothing of it counts until it
// was read to its end.
func (r *reading) all(ctx context.Context, t *track, l list) error {
	w, err := r.whole(ctx, *t, l, t.ETag)
	if err != nil || w.unchanged {
		return err
	}
	r.out = append(r.out, w.messages...)
	moved := t.advance(w.to, w.seen)
	moved = t.advance(t.Start, nil) || moved
	if t.ETag = w.etag; moved && l.since {
		t.ETag = "" // the next question is another one
	}
	return nil
}

// wholeList is what one reading of a list gave, beyond what was seen before.
type wholeList struct {
	messages  []channels.Message
	seen      []sighting
	to        time.Time // nothing that changed until then was missed
	etag      string    // "" when there is more than one page, or the page is full
	unchanged bool
}

// whole reads a list to its end. One of several pages is read again until
// nothing new turns up: what is deleted meanwhile moves the pages, and what is
// edited on a page that was read is not seen. Hence what the last reading found
// first does not say that all before it was seen.
func (r *reading) whole(ctx context.Context, t track, l list, etag string) (w wholeList, err error) {
	t.Seen = slices.Clone(t.Seen)
	for range maxPasses {
		w.to = latest(w.seen)
		pages, fresh := 0, 0
		for q := l.query(t.floor()); q != nil; pages++ {
			if pages == maxPages {
				return wholeList{}, &channels.Refusal{Reason: channels.ReasonOther, Code: "too_many_pages"}
			}
			var raws []json.RawMessage
			a, next, err := r.get(ctx, request{l.method, l.path, q, etag}, &raws)
			if err != nil || a.Unchanged {
				return wholeList{unchanged: a.Unchanged}, err
			}
			ms, seen, err := r.take(ctx, t, l, raws)
			if err != nil {
				return wholeList{}, err
			}
			t.note(seen)
			w.messages, w.seen, fresh = append(w.messages, ms...), append(w.seen, seen...), fresh+len(seen)
			if pages == 0 && next == nil && len(raws) < PageSize {
				w.etag = a.ETag
			}
			q, etag = next, ""
		}
		if pages == 1 || fresh == 0 {
			w.to = latest(w.seen)
			break
		}
	}
	return w, nil
}

// reviewsOf reads the reviews of the pull requests that changed. There is no
// list of all reviews, and a review that is sent changes its pull request. One
// whose reviews cannot be read does not hold up the others', but it holds Since.
// While they are read, one after the other, a review may be sent on one that was
// read already: Since moves to the last change that was listed before, whatever
// was seen.
func (r *reading) reviewsOf(
	ctx context.Context, path string, t *track, on func(number int) (ticket, bool),
) error {
	changed, err := r.changedPulls(ctx, path, *t)
	if err != nil || changed.first.Unchanged {
		return err
	}
	var seen []sighting
	var steps []func() error
	for _, number := range slices.Backward(changed.numbers) {
		steps = append(steps, func() error {
			w, err := r.whole(ctx, *t, list{
				kind: review, method: "pulls/reviews", path: path + "/" + strconv.Itoa(number) + "/reviews",
				of: func(written) (ticket, bool) { return on(number) },
			}, "")
			r.out, seen = append(r.out, w.messages...), append(seen, w.seen...)
			return err
		})
	}
	if err := each(ctx, steps...); err != nil {
		t.note(seen)
		t.ETag = ""
		return err
	}
	t.advance(changed.to, seen)
	// A second change within one second changes nothing in the list: it must have
	// been read well after that.
	if t.ETag = ""; changed.first.Date.After(changed.to.Add(overlap)) {
		t.ETag = changed.first.ETag
	}
	return nil
}

// pull is what of a pull request is looked at in a list.
type pull struct {
	Number    int       `json:"number"`
	UpdatedAt time.Time `json:"updated_at"`
}

// pullList is which pull requests changed since the track's floor.
type pullList struct {
	numbers []int     // the latest change first
	to      time.Time // of the latest change on the first page: those before it are all here
	first   Answer    // to the first page: any change shows there
	pages   int
}

// changedPulls reads the list of pull requests. One that changes meanwhile moves
// to the first page, past the one that is read next: when there are several, the
// list is read again until none is new.
func (r *reading) changedPulls(ctx context.Context, path string, t track) (pullList, error) {
	all, err := r.listPulls(ctx, path, t.floor(), t.ETag)
	if err != nil || all.pages <= 1 {
		return all, err
	}
	etag := all.first.ETag
	for range maxPasses - 1 {
		again, err := r.listPulls(ctx, path, t.floor(), etag)
		if err != nil {
			return pullList{}, err
		}
		n := len(all.numbers)
		for _, number := range again.numbers {
			if !slices.Contains(all.numbers, number) {
				all.numbers = append(all.numbers, number)
			}
		}
		if len(all.numbers) == n {
			return all, nil
		}
		etag = again.first.ETag
	}
	all.to, all.first = time.Time{}, Answer{} // one may be missing still: nothing is behind us
	return all, nil
}

// listPulls reads the list once.
func (r *reading) listPulls(ctx context.Context, path string, since time.Time, etag string) (l pullList, err error) {
	q := url.Values{
		"state": {"all"}, "sort": {"updated"}, "direction": {"desc"}, "per_page": {strconv.Itoa(pullsPage)},
	}
	for ; q != nil && l.pages < maxPages; l.pages++ {
		var page []pull
		a, next, err := r.get(ctx, request{"pulls", path, q, etag}, &page)
		if err != nil {
			return pullList{}, err
		}
		if l.pages == 0 {
			if l.first = a; len(page) > 0 {
				l.to = page[0].UpdatedAt
			}
		}
		for _, p := range page {
			if p.UpdatedAt.Before(since) {
				next = nil
				break
			}
			if p.Number > 0 && !slices.Contains(l.numbers, p.Number) { // one that moved up meanwhile shows twice
				l.numbers = append(l.numbers, p.Number)
			}
		}
		q, etag = next, ""
	}
	return l, nil
}

// take makes messages of what the track has not seen, and says what that was,
// whether or not there is a message in it.
func (r *reading) take(ctx context.Context, t track, l list, raws []json.RawMessage) (
	ms []channels.Message, seen []sighting, err error,
) {
	for _, raw := range raws {
		w, ok := decodeWritten(raw, l.kind)
		if !ok {
			continue
		}
		if l.kind == review {
			r.reviews[w.ID] = w.SubmittedAt
		}
		s := sighting{w.ID, w.at(l.kind)}
		if s.at.IsZero() || t.has(s) {
			continue
		}
		on, ok := l.of(w)
		if !ok {
			continue
		}
		edited, err := r.edited(ctx, l.kind, w, on)
		if err != nil {
			return nil, nil, err
		}
		seen = append(seen, s)
		m, rule := w.message(l.kind, on, r.us, edited)
		question := m.Mark != nil && m.Mark.Code != ""
		if rule == "" && (question || !t.early(s)) {
			ms = append(ms, m)
		}
	}
	return ms, seen, nil
}

// edited reports whether it was edited before we saw it. Of a review nothing
// tells. An inline comment may be drafted long before its review is sent, and
// GitHub counts the sending as a change: only what came after is an edit.
func (r *reading) edited(ctx context.Context, k kind, w written, on ticket) (bool, error) {
	if k == review || !w.touched(w.CreatedAt) {
		return false, nil
	}
	if k == comment || w.ReviewID <= 0 {
		return true, nil
	}
	sent, ok := r.reviews[w.ReviewID]
	if !ok {
		var raw json.RawMessage
		_, _, err := r.get(ctx, request{
			method: "pulls/reviews",
			path: "repos/" + on.owner + "/" + on.repo + "/pulls/" + on.digits() + "/reviews/" +
				strconv.FormatInt(w.ReviewID, 10),
		}, &raw)
		if err != nil && !notFound(err) {
			return false, err
		}
		if of, ok := decodeWritten(raw, review); err == nil && ok {
			sent = of.SubmittedAt
		}
		r.reviews[w.ReviewID] = sent
	}
	return w.touched(sent), nil
}

func notFound(err error) bool {
	var r *channels.Refusal
	return errors.As(err, &r) && r.Code == "http_404"
}

// request is one GET.
type request struct {
	method string // that it counts under
	path   string
	query  url.Values
	etag   string
}

// get makes one request, and gives the query of the next page, nil for none.
func (r *reading) get(ctx context.Context, q request, into any) (a Answer, next url.Values, err error) {
	if err := r.before(ctx, q.method); err != nil {
		return Answer{}, nil, &heldError{err}
	}
	a, err = r.s.client.CallIf(ctx, q.etag, func(api *gh.Client) (*gh.Response, error) {
		address := q.path
		if len(q.query) > 0 {
			address += "?" + q.query.Encode()
		}
		req, err := api.NewRequest(ctx, http.MethodGet, address, nil)
		if err != nil {
			return nil, err
		}
		resp, err := api.Do(req, into)
		if resp != nil && resp.Response != nil {
			next = nextPage(resp.Header)
		}
		return resp, err
	})
	if err == nil {
		r.s.hear(a)
	}
	return a, next, err
}

var nextLink = lazy.Regexp(`<([^<>]*)>\s*;[^,<]*\brel="?next"?`)

// nextPage reads the Link header. Only the query is taken: the address stays
// ours, whatever host it names.
func nextPage(h http.Header) url.Values {
	m := nextLink().FindStringSubmatch(strings.Join(h.Values("Link"), ", "))
	if m == nil {
		return nil
	}
	u, err := url.Parse(m[1])
	if err != nil || u.RawQuery == "" {
		return nil
	}
	return u.Query()
}
