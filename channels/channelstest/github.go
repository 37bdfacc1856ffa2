package channelstest

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// Who the token of a fresh GitHub is. The account is a person's, as with a
// token of one's own.
const (
	GitHubToken = "ghp_channelstest"
	GitHubLogin = "the-loop-us"
	GitHubID    = 9001
)

// GitHub's documented limits: requests in an hour, and requests that create
// content in a minute and in an hour.
const (
	githubPerHour       = 5_000
	githubPerMinute     = 80
	githubCreatesAnHour = 500
)

// GitHub is a fake of the part of GitHub's REST API that has to do with
// comments, reviews and inline comments, at "/" and, as on an Enterprise
// server, under "/api/v3/". It keeps the documented limits. What else may go
// wrong is told to its Server. It is safe for several goroutines.
//
// There is no list of tickets: every number of a repository that was added is
// an issue, or the pull request that AddPull made of it.
type GitHub struct {
	*Server

	mu       sync.Mutex
	token    string
	clock    func() time.Time
	accounts []*githubAccount
	repos    []*githubRepo
	things   []*githubThing // by rising ids
	lastID   int64
	signed   int // deliveries
	refuse   func(method, path string) (status int, message string)

	left      int // of the primary limit
	reset     time.Time
	perMinute int // requests that create content, 0: no limit
	perHour   int
	created   []time.Time
}

type githubAccount struct {
	id    int64
	login string
	kind  string // "User", "Bot"
}

type githubRepo struct {
	name    string // owner/name
	private bool
	pulls   map[int]*githubPull
}

type githubPull struct {
	number           int
	closed           bool
	created, updated time.Time
}

// NewGitHub starts a fake that ends with the test.
func NewGitHub(t testing.TB) *GitHub {
	g := NewGitHubServer()
	t.Cleanup(g.Close)
	return g
}

// NewGitHubServer starts a fake that knows GitHubToken, its account, and no
// repository. It needs a Close.
func NewGitHubServer() *GitHub {
	g := &GitHub{
		token: GitHubToken, clock: time.Now, left: githubPerHour, perMinute: githubPerMinute, perHour: githubCreatesAnHour,
		accounts: []*githubAccount{{GitHubID, GitHubLogin, "User"}},
	}
	g.Server = NewServer(g)
	return g
}

// Direct gives a client whose requests reach the fake without a network, past
// the Server and its faults.
func (g *GitHub) Direct() *http.Client { return &http.Client{Transport: direct{g}} }

// SetToken makes token the only one that is let in, as the same account.
func (g *GitHub) SetToken(token string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.token = token
}

// SetClock sets what GitHub takes the time from: time.Now at first. now must
// not call the fake.
func (g *GitHub) SetClock(now func() time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.clock = now
}

// SetLeft says how many requests are left before the primary limit, until
// reset. An answer 304 costs none.
func (g *GitHub) SetLeft(n int, reset time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.left, g.reset = n, reset
}

// SetCreates says how many comments may be created in a minute and in an hour
// before the secondary limit; 0 is no limit.
func (g *GitHub) SetCreates(perMinute, perHour int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.perMinute, g.perHour = perMinute, perHour
}

// Refuse lets f say no to requests, such as those for which a scope is missing,
// before anything is done. path is without "/api/v3". A status of 0 refuses
// nothing. f must not call the fake.
func (g *GitHub) Refuse(f func(method, path string) (status int, message string)) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.refuse = f
}

// AddRepo adds a repository "owner/name", or sets whether it is private.
func (g *GitHub) AddRepo(name string, private bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if r := g.repo(name); r != nil {
		r.private = private
		return
	}
	g.repos = append(g.repos, &githubRepo{name: name, private: private, pulls: map[int]*githubPull{}})
}

// AddPull makes the ticket an open pull request.
func (g *GitHub) AddPull(repo string, n int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := g.now()
	g.mustRepo(repo).pulls[n] = &githubPull{number: n, created: now, updated: now}
}

// ClosePull closes the pull request.
func (g *GitHub) ClosePull(repo string, n int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	p := g.mustRepo(repo).pulls[n]
	if p == nil {
		panic(fmt.Sprintf("%s#%d is no pull request", repo, n))
	}
	p.closed, p.updated = true, g.now()
}

// AddUser adds a person's account.
func (g *GitHub) AddUser(login string, id int64) { g.addAccount(githubAccount{id, login, "User"}) }

// AddBot adds an app's account. GitHub gives it a login such as "build[bot]".
func (g *GitHub) AddBot(login string, id int64) { g.addAccount(githubAccount{id, login, "Bot"}) }

func (g *GitHub) addAccount(a githubAccount) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.account(a.login) != nil {
		panic(fmt.Sprintf("the login %s is taken", a.login))
	}
	g.accounts = append(g.accounts, &a)
}

// Rename gives the account another login. What it wrote bears the new one from
// now on, and anybody may take the old one.
func (g *GitHub) Rename(login, to string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	a := g.account(login)
	if a == nil || g.account(to) != nil {
		panic(fmt.Sprintf("%s cannot become %s", login, to))
	}
	a.login = to
}

// account finds a login in any case. The caller holds mu, as for all below.
func (g *GitHub) account(login string) *githubAccount {
	for _, a := range g.accounts {
		if strings.EqualFold(a.login, login) {
			return a
		}
	}
	return nil
}

func (g *GitHub) repo(name string) *githubRepo {
	for _, r := range g.repos {
		if strings.EqualFold(r.name, name) {
			return r
		}
	}
	return nil
}

func (g *GitHub) mustRepo(name string) *githubRepo {
	r := g.repo(name)
	if r == nil {
		panic(fmt.Sprintf("there is no repository %s", name))
	}
	return r
}

// now is GitHub's time, which has whole seconds.
func (g *GitHub) now() time.Time { return g.clock().UTC().Truncate(time.Second) }

// Calls gives what was asked for, in order and whatever was answered, such as
// "GET /repos/o/r/issues/7/comments?per_page=100", without "/api/v3".
func (g *GitHub) Calls() (calls []string) {
	for _, r := range g.Requests() {
		calls = append(calls, r.Method+" "+strings.TrimPrefix(r.URI, "/api/v3"))
	}
	return calls
}

// StoreThen is a Fault: what the request asked for is done, and then the other
// fault is met: Answer(500, "") denies it, DropRead() loses the answer.
func (g *GitHub) StoreThen(f Fault) Fault {
	return Fault{act: func(c net.Conn, r Request) {
		g.ServeHTTP(httptest.NewRecorder(), r.again())
		f.act(c, r)
	}}
}

// GitHubError is a Fault: GitHub says no in its own form of an error.
func GitHubError(status int, message string, headers ...string) Fault {
	headers = append(headers, "Content-Type: application/json; charset=utf-8")
	return Answer(status, string(githubError(status, message).encode()), headers...)
}

// GitHubPrimaryLimit is a Fault: all requests of the hour were made.
func GitHubPrimaryLimit(reset time.Time) Fault {
	return GitHubError(http.StatusForbidden, githubPrimary, fmt.Sprintf("X-RateLimit-Limit: %d", githubPerHour),
		"X-RateLimit-Remaining: 0", fmt.Sprintf("X-RateLimit-Reset: %d", reset.Unix()))
}

// GitHubSecondaryLimit is a Fault: GitHub finds that it is too much at a time.
// It does not say how long to wait when that is 0, as it may.
func GitHubSecondaryLimit(wait time.Duration) Fault {
	headers := []string{"X-RateLimit-Limit: 5000", "X-RateLimit-Remaining: 4900"}
	if wait > 0 {
		headers = append(headers, fmt.Sprintf("Retry-After: %d", int(wait.Seconds())))
	}
	return GitHubError(http.StatusForbidden, githubSecondary, headers...)
}

const (
	githubPrimary   = "API rate limit exceeded for user ID 9001."
	githubSecondary = "You have exceeded a secondary rate limit. Please wait a few minutes before you try again."
)

// githubCall is a request that was understood.
type githubCall struct {
	method string
	path   string // without /api/v3
	prefix string // "" or "/api/v3"
	query  url.Values
	body   []byte
	repo   *githubRepo
	ids    []int64 // the numbers in the path, in order
	now    time.Time
}

// ServeHTTP implements http.Handler.
func (g *GitHub) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var body []byte
	if r.Body != nil { // a client's request without one, see Direct
		var err error
		if body, err = io.ReadAll(r.Body); err != nil {
			http.Error(w, "bad body", http.StatusBadRequest)
			return
		}
	}
	c := &githubCall{method: r.Method, path: r.URL.Path, query: r.URL.Query(), body: body}
	if path, ok := strings.CutPrefix(c.path, "/api/v3/"); ok {
		c.path, c.prefix = "/"+path, "/api/v3"
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	c.now = g.now()
	a := g.admit(c, r.Header)
	if a.status == 0 {
		a = g.do(c)
		a.etag(r)
		if a.status != http.StatusNotModified {
			g.left--
		}
	}
	h := w.Header()
	for name, value := range a.headers {
		h.Set(name, value)
	}
	h.Set("Content-Type", "application/json; charset=utf-8")
	h.Set("Date", g.clock().UTC().Format(http.TimeFormat))
	h.Set("X-RateLimit-Limit", strconv.Itoa(githubPerHour))
	h.Set("X-RateLimit-Remaining", strconv.Itoa(max(g.left, 0)))
	h.Set("X-RateLimit-Reset", strconv.FormatInt(g.reset.Unix(), 10))
	w.WriteHeader(a.status)
	if a.status != http.StatusNotModified {
		_, _ = w.Write(a.encode())
	}
}

// admit says no to who may not ask at all. The status is 0 for the others.
func (g *GitHub) admit(c *githubCall, h http.Header) githubAnswer {
	scheme, token, _ := strings.Cut(h.Get("Authorization"), " ")
	switch {
	case h.Get("User-Agent") == "":
		return githubError(http.StatusForbidden, "Request forbidden by administrative rules.")
	case token == "":
		return githubError(http.StatusUnauthorized, "Requires authentication")
	case token != g.token, !strings.EqualFold(scheme, "bearer") && !strings.EqualFold(scheme, "token"):
		return githubError(http.StatusUnauthorized, "Bad credentials")
	}
	if !c.now.Before(g.reset) {
		if !g.reset.IsZero() {
			g.left = githubPerHour
		}
		g.reset = c.now.Add(time.Hour)
	}
	if g.left <= 0 {
		return githubError(http.StatusForbidden, githubPrimary)
	}
	if g.refuse != nil {
		if status, message := g.refuse(c.method, c.path); status != 0 {
			return githubError(status, message)
		}
	}
	return githubAnswer{}
}
