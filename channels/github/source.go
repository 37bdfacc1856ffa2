package github

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"the-loop/channels"
)

const (
	// startBefore is how far before it was first asked about a ticket is read
	// from.
	startBefore = time.Minute
	// startRepo is how far back a whole repository is read the first time. Who
	// asked longer ago on a ticket of it is heard too, see Places. What is older
	// is nobody's answer, and would fill an inbox that did not exist then.
	startRepo = time.Hour
	// startMarks is how far before that we look for questions of others that may
	// still be open: as long as questions live by default.
	startMarks = 7 * 24 * time.Hour
)

// SourceOptions say what is read.
type SourceOptions struct {
	Client *Client
	// Repos are the "owner/repo" that are read as a whole.
	Repos []string
	// Watched is as in DoorOptions: a message from a repository in Repos has
	// the spelling that it gives.
	Watched func(workItem string) (as string, ok bool)
}

// Source reads what people write on GitHub: comments, the texts of reviews, and
// inline comments. Read is called by one goroutine at a time.
type Source struct {
	client *Client
	scope  scope

	mu    sync.Mutex
	since map[string]time.Time // of each place, when it was first asked about

	// Read's alone.
	known bool          // who we are was asked
	clock bool          // GitHub was asked what time it is
	ahead time.Duration // of GitHub's clock is ours, by its last answer
}

// NewSource gives the source. Nothing is read.
func NewSource(o SourceOptions) *Source {
	return &Source{client: o.Client, scope: scope{o.Repos, o.Watched}, since: map[string]time.Time{}}
}

// Name is "github".
func (s *Source) Name() string { return "github" }

// Places are the repositories, and the tickets that are watched and in none of
// them. Read starts a new place at what the last call said of it.
func (s *Source) Places(items []channels.Watched) []channels.ReadPlace {
	var places []channels.ReadPlace
	at := map[string]int{} // by key
	add := func(key string) *channels.ReadPlace {
		i, ok := at[key]
		if !ok {
			i = len(places)
			places, at[key] = append(places, channels.ReadPlace{Key: key}), i
		}
		return &places[i]
	}
	for _, repo := range s.scope.repos {
		if p := add("github:" + strings.ToLower(repo)); p.Repo == "" {
			p.Repo = repo
		}
	}
	since := map[string]time.Time{}
	for _, w := range items {
		t, ok := ticketOf(w.WorkItem)
		if !ok {
			continue
		}
		key := strings.ToLower("github:" + t.owner + "/" + t.repo)
		if _, whole := at[key]; !whole {
			key = strings.ToLower(t.item())
			p := add(key)
			p.WorkItems = append(p.WorkItems, w.WorkItem)
		}
		if first, ok := since[key]; !w.Since.IsZero() && (!ok || w.Since.Before(first)) {
			since[key] = w.Since
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.since = since
	return places
}

// start is where a place without a cursor is read from, by GitHub's clock.
func (s *Source) start(p channels.ReadPlace) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	from := time.Now().Add(-startRepo)
	if first, ok := s.since[p.Key]; ok {
		first = first.Add(-startBefore)
		if p.Repo == "" || first.Before(from) {
			from = first
		}
	}
	return from.Add(-s.ahead).UTC().Truncate(time.Second)
}

// hear takes GitHub's clock from an answer.
func (s *Source) hear(a Answer) {
	if !a.Date.IsZero() {
		s.clock, s.ahead = true, time.Since(a.Date)
	}
}

// Read gives what was written or edited since the cursor, in the order of time,
// and the cursor behind it. A kind that fails does not hold up the others: its
// part of the cursor stays, so that it is read again, and the error is
// returned beside the others' messages. A limit of GitHub's ends the reading,
// with a *channels.Refusal that says how long to wait.
//
// Without a cursor it begins a minute before the place was first asked about,
// and of what is older in the seven days before, it gives the comments with the
// marker of a question: a question of another root may be open there.
//
// before is asked under the names "user", "issues/comments", "pulls",
// "pulls/comments" and "pulls/reviews".
func (s *Source) Read(
	ctx context.Context, p channels.ReadPlace, from json.RawMessage, before func(ctx context.Context, method string) error,
) ([]channels.Message, json.RawMessage, error) {
	r := &reading{s: s, before: before, reviews: map[int64]time.Time{}}
	c := decodeCursor(from)
	if err := r.whoAmI(ctx, c.fresh()); err != nil {
		return nil, from, bare(err)
	}
	c.begin(s.start(p))
	var err error
	switch {
	case p.Repo != "":
		err = r.repository(ctx, p.Repo, &c)
	case len(p.WorkItems) > 0:
		err = r.item(ctx, p.WorkItems[0], &c)
	default:
		err = noTicket()
	}
	next, encodeErr := json.Marshal(c)
	if encodeErr != nil {
		return nil, from, encodeErr
	}
	slices.SortStableFunc(r.out, func(a, b channels.Message) int {
		return cmp.Or(a.At.Compare(b.At), cmp.Compare(a.Key, b.Key))
	})
	return r.out, next, bare(err)
}

// reading is one Read.
type reading struct {
	s       *Source
	before  func(ctx context.Context, method string) error
	us      int64
	reviews map[int64]time.Time // when each that we met was sent; zero: it was not
	out     []channels.Message
}

// whoAmI asks who we are and, for a start, what time it is at GitHub: nothing
// tells that when the client knew already who we are.
func (r *reading) whoAmI(ctx context.Context, start bool) error {
	if !r.s.known {
		if err := r.before(ctx, "user"); err != nil {
			return err
		}
	}
	me, a, err := r.s.client.self(ctx)
	if r.us, r.s.known = me.ID, err == nil; err != nil {
		return err
	}
	r.s.hear(a)
	if !start || r.s.clock {
		return nil
	}
	var again json.RawMessage
	_, _, err = r.get(ctx, request{method: "user", path: "user"}, &again)
	r.s.clock = err == nil // it may not say
	return err
}

// each runs the steps, each of which may fail alone. It gives the first error,
// or the one after which nothing more is asked.
func each(ctx context.Context, steps ...func() error) error {
	var first error
	for _, step := range steps {
		err := step()
		if final(ctx, err) {
			return err
		}
		if first == nil {
			first = err
		}
	}
	return first
}

// final reports whether the error goes for whatever would be asked next.
func final(ctx context.Context, err error) bool {
	var r *channels.Refusal
	var held *heldError
	switch {
	case err == nil:
		return false
	case ctx.Err() != nil, errors.As(err, &held):
		return true
	}
	return errors.As(err, &r) && (r.Reason == channels.ReasonRate || r.Reason == channels.ReasonDown)
}

// heldError is what before returned.
type heldError struct{ err error }

func (e *heldError) Error() string { return e.err.Error() }
func (e *heldError) Unwrap() error { return e.err }

// bare gives what before returned as it was, and any other error too.
func bare(err error) error {
	var held *heldError
	if errors.As(err, &held) {
		return held.err
	}
	return err
}

// item reads a ticket. Whether it is a pull request is asked once.
func (r *reading) item(ctx context.Context, workItem string, c *cursor) error {
	t, ok := ticketOf(workItem)
	if !ok {
		return noTicket()
	}
	repo := "repos/" + t.owner + "/" + t.repo
	of := func(written) (ticket, bool) { return t, true }
	issue := func() error {
		return r.all(ctx, &c.Comment, list{
			kind: comment, method: "issues/comments", path: repo + "/issues/" + t.digits() + "/comments", of: of, since: true,
		})
	}
	pull := repo + "/pulls/" + t.digits()
	kindOf := func() error { return r.whatItIs(ctx, pull, c) }
	reviews := func() error {
		if c.Is != isPull {
			return nil
		}
		return r.all(ctx, &c.Review, list{kind: review, method: "pulls/reviews", path: pull + "/reviews", of: of})
	}
	inlines := func() error {
		if c.Is != isPull {
			return nil
		}
		return r.byUpdate(ctx, &c.Inline, list{
			kind: inline, method: "pulls/comments", path: pull + "/comments", of: of, since: true,
		})
	}
	return each(ctx, issue, kindOf, reviews, inlines)
}

// whatItIs asks for the pull request. There is none: it is an issue, and stays
// one.
func (r *reading) whatItIs(ctx context.Context, pull string, c *cursor) error {
	if c.Is != "" {
		return nil
	}
	var pr json.RawMessage
	_, _, err := r.get(ctx, request{method: "pulls", path: pull}, &pr)
	switch {
	case err == nil:
		c.Is = isPull
	case notFound(err):
		c.Is = isIssue
	default:
		return err
	}
	return nil
}

// repository reads all tickets of one.
func (r *reading) repository(ctx context.Context, name string, c *cursor) error {
	owner, repo, _ := strings.Cut(name, "/")
	base := "repos/" + owner + "/" + repo
	on := func(number int) (ticket, bool) {
		t, ok := ticketOf(ticket{owner, repo, number}.item())
		if ok {
			t, ok = r.s.scope.own(t)
		}
		return t, ok
	}
	of := func(k kind) func(w written) (ticket, bool) {
		return func(w written) (ticket, bool) { return on(w.ticketNumber(k)) }
	}
	comments := func() error {
		return r.byUpdate(ctx, &c.Comment, list{
			kind: comment, method: "issues/comments", path: base + "/issues/comments", of: of(comment), since: true,
		})
	}
	reviews := func() error { return r.reviewsOf(ctx, base+"/pulls", &c.Review, on) }
	inlines := func() error {
		return r.byUpdate(ctx, &c.Inline, list{
			kind: inline, method: "pulls/comments", path: base + "/pulls/comments", of: of(inline), since: true,
		})
	}
	return each(ctx, comments, reviews, inlines)
}
