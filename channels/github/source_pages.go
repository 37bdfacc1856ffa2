package github

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	gh "github.com/google/go-github/v92/github"

	"the-loop/channels"
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
// anew from the last change on, and for the next page only when that would be
// the same question: whatever is edited or deleted meanwhile moves the pages,
// and something would slip through between two of them. Each page that was
// read counts.
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
		moved := t.advance(t.Since, seen)
		t.ETag, etag = "", ""
		if next == nil {
			if pages == 0 && !moved && len(raws) < PageSize {
				t.ETag = a.ETag
			}
			return nil
		}
		if q = next; t.Since.After(since) {
			since = t.Since
			q = ask()
		}
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
	moved := t.advance(t.Since, w.seen)
	if t.ETag = w.etag; moved && l.since {
		t.ETag = "" // the next question is another one
	}
	return nil
}

// wholeList is what one reading of a list gave, beyond what was seen before.
type wholeList struct {
	messages  []channels.Message
	seen      []sighting
	etag      string // "" when there is more than one page, or the page is full
	unchanged bool
}

// whole reads a list to its end. One of several pages is read again until
// nothing new turns up: what is deleted meanwhile moves the pages.
func (r *reading) whole(ctx context.Context, t track, l list, etag string) (w wholeList, err error) {
	t.Seen = slices.Clone(t.Seen)
	for range maxPasses {
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
			break
		}
	}
	return w, nil
}

// reviewsOf reads the reviews of the pull requests that changed. There is no
// list of all reviews, and a review that is sent changes its pull request. One
// whose reviews cannot be read does not hold up the others', but it holds Since.
func (r *reading) reviewsOf(
	ctx context.Context, path string, t *track, on func(number int) (ticket, bool),
) error {
	changed, a, err := r.changedPulls(ctx, path, *t)
	if err != nil || a.Unchanged {
		return err
	}
	var seen []sighting
	var steps []func() error
	to := t.Since
	for _, p := range slices.Backward(changed) {
		steps = append(steps, func() error {
			w, err := r.whole(ctx, *t, list{
				kind: review, method: "pulls/reviews", path: path + "/" + strconv.Itoa(p.Number) + "/reviews",
				of: func(written) (ticket, bool) { return on(p.Number) },
			}, "")
			if err != nil {
				return err
			}
			r.out, seen = append(r.out, w.messages...), append(seen, w.seen...)
			if p.UpdatedAt.After(to) {
				to = p.UpdatedAt
			}
			return nil
		})
	}
	if err := each(ctx, steps...); err != nil {
		t.note(seen)
		t.ETag = ""
		return err
	}
	t.advance(to, seen)
	t.ETag = a.ETag
	return nil
}

// pull is what of a pull request is looked at in a list.
type pull struct {
	Number    int       `json:"number"`
	UpdatedAt time.Time `json:"updated_at"`
}

// changedPulls gives the pull requests that changed since the track's floor,
// the latest change first, and the answer to the first page: any change shows
// there.
func (r *reading) changedPulls(ctx context.Context, path string, t track) (out []pull, first Answer, err error) {
	q := url.Values{
		"state": {"all"}, "sort": {"updated"}, "direction": {"desc"}, "per_page": {strconv.Itoa(pullsPage)},
	}
	etag, known := t.ETag, map[int]bool{}
	for pages := 0; q != nil && pages < maxPages; pages++ {
		var page []pull
		a, next, err := r.get(ctx, request{"pulls", path, q, etag}, &page)
		if err != nil || a.Unchanged {
			return nil, a, err
		}
		if pages == 0 {
			first = a
		}
		for _, p := range page {
			if p.UpdatedAt.Before(t.floor()) {
				return out, first, nil
			}
			if p.Number > 0 && !known[p.Number] { // one that moved up meanwhile shows twice
				known[p.Number] = true
				out = append(out, p)
			}
		}
		q, etag = next, ""
	}
	return out, first, nil
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
		if m, rule := w.message(l.kind, on, r.us, edited); rule == "" {
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
	return a, next, err
}

var nextLink = regexp.MustCompile(`<([^<>]*)>\s*;[^,<]*\brel="?next"?`)

// nextPage reads the Link header. Only the query is taken: the address stays
// ours, whatever host it names.
func nextPage(h http.Header) url.Values {
	m := nextLink.FindStringSubmatch(strings.Join(h.Values("Link"), ", "))
	if m == nil {
		return nil
	}
	u, err := url.Parse(m[1])
	if err != nil || u.RawQuery == "" {
		return nil
	}
	return u.Query()
}
