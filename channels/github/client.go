// Package github is GitHub with all its faces: the ledger that writes a
// question on its own ticket, the channel kind that does the same beside
// another ledger, and what comes in from there.
package github

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	gh "github.com/google/go-github/v92/github"

	"the-loop/channels"
	"the-loop/channels/internal/wire"
)

// DefaultBaseURL is the address of GitHub's own API.
const DefaultBaseURL = "https://api.github.com/"

// PageSize is what we ask for at a time: the most that GitHub gives
// (docs.github.com/rest, "Using pagination in the REST API").
const PageSize = 100

const (
	// maxAnswer is how much of an ordinary answer is read. A comment comes back
	// whole with the answer to its creation: 65,536 characters of up to six
	// bytes each in JSON, and its author.
	maxAnswer = 1 << 20
	// maxPage is the same for a page of PageSize such comments.
	maxPage = 48 << 20
	// visibleFor is how long it counts what was heard about a repository.
	visibleFor = 10 * time.Minute
)

// Options says how GitHub is reached.
type Options struct {
	// Name is the name of the channel or surface. Defaults to "github".
	Name string
	// Token is read anew at every request.
	Token channels.Secret
	// TokenFromGH asks `gh auth token` in place of Token, at most once a
	// minute. Nothing is run without it.
	TokenFromGH bool
	// BaseURL is where the API is. Defaults to DefaultBaseURL. An address
	// without a path is a GitHub Enterprise server, whose API is under api/v3/,
	// unless its host begins with "api.". A trailing slash is added when it is
	// missing.
	BaseURL string
	// Client sends the requests. Defaults to wire.NewClient().
	Client *http.Client
	// Log hears of what was let be. nil discards.
	Log *slog.Logger
}

// Client makes requests to GitHub, one at a time each, and says of each what
// is known afterwards. It is safe for several goroutines. All faces of one
// GitHub share one.
type Client struct {
	o    Options
	base string
	gh   ghToken

	mu    sync.Mutex
	token string // that me belongs to
	me    Account
	repos map[string]visibility
}

type visibility struct {
	public bool
	asked  time.Time
}

// New gives the client. It reads and sends nothing.
func New(o Options) *Client {
	if o.Name == "" {
		o.Name = "github"
	}
	if o.Client == nil {
		o.Client = wire.NewClient()
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return &Client{o: o, base: baseURL(o.BaseURL), repos: map[string]visibility{}}
}

// Name is the surface's name.
func (c *Client) Name() string { return c.o.Name }

func baseURL(raw string) string {
	if raw == "" {
		return DefaultBaseURL
	}
	u, err := url.Parse(raw)
	if err != nil {
		return raw // the first request says what is wrong with it
	}
	if strings.Trim(u.Path, "/") == "" && !strings.HasPrefix(u.Hostname(), "api.") {
		u.Path = "/api/v3/"
	}
	if !strings.HasSuffix(u.Path, "/") {
		u.Path += "/"
	}
	return u.String()
}

// Answer is what is known of an answer beside its content.
type Answer struct {
	// ETag names what was answered; given to CallIf, the same again is
	// Unchanged and costs nothing of the rate limit.
	ETag      string
	Unchanged bool
	// Next is the number of the next page, 0 when this was the last.
	Next int
	// Date is GitHub's clock, zero when it did not say.
	Date time.Time

	own bool // an error in GitHub's own form: nobody in between answered
}

// Call makes one request: f makes exactly one with api, and returns what it
// got. The error is a *channels.Refusal or a *channels.Uncertain that is taken
// from the exchange itself; what the library makes of it is not looked at, for
// it does without the request when a limit was hit, loses the Retry-After of a
// 503, and puts addresses into its errors.
func (c *Client) Call(ctx context.Context, f func(api *gh.Client) (*gh.Response, error)) (Answer, error) {
	return c.call(ctx, "", maxAnswer, f)
}

// CallIf is Call for reading a page. With an ETag of an earlier answer, GitHub
// answers Unchanged when it is still the same.
func (c *Client) CallIf(
	ctx context.Context, etag string, f func(api *gh.Client) (*gh.Response, error),
) (Answer, error) {
	return c.call(ctx, etag, maxPage, f)
}

func (c *Client) call(ctx context.Context, etag string, limit int, f func(*gh.Client) (*gh.Response, error)) (
	Answer, error,
) {
	token, err := c.tokenValue(ctx)
	if err != nil {
		return Answer{}, err
	}
	one := &call{client: c.o.Client, token: token, etag: etag, limit: limit}
	api, err := gh.NewClient(gh.WithURLs(&c.base, &c.base), gh.WithDisableRateLimitCheck(), gh.WithUserAgent("the-loop"),
		gh.WithHTTPClient(&http.Client{
			Transport: one, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		}))
	if err != nil {
		return Answer{}, badAddress(err)
	}
	resp, err := f(api)
	if one.x == nil {
		if ctx.Err() != nil {
			return Answer{}, &channels.Refusal{Reason: channels.ReasonDown, Code: "canceled", Err: ctx.Err()}
		}
		return Answer{}, badAddress(err)
	}
	a := Answer{ETag: one.x.Header.Get("Etag"), own: one.said() != ""}
	if at, err := http.ParseTime(one.x.Header.Get("Date")); err == nil {
		a.Date = at
	}
	if a.Unchanged = etag != "" && one.x.Status == http.StatusNotModified; a.Unchanged {
		return a, nil
	}
	if resp != nil {
		a.Next = resp.NextPage
	}
	return a, one.verdict(err)
}

func badAddress(err error) error {
	return &channels.Refusal{Reason: channels.ReasonConfig, Code: "bad_address", Err: err}
}

// Account is who a login or a token is.
type Account struct {
	ID    int64 // never changes, and is never given to another
	Login string
}

// Self asks, once for each token, who the token posts as.
func (c *Client) Self(ctx context.Context) (Account, error) {
	me, _, err := c.self(ctx)
	return me, err
}

func (c *Client) self(ctx context.Context) (Account, Answer, error) {
	token, err := c.tokenValue(ctx)
	if err != nil {
		return Account{}, Answer{}, err
	}
	c.mu.Lock()
	known, me := c.token == token, c.me
	c.mu.Unlock()
	if known {
		return me, Answer{}, nil
	}
	me, a, err := c.account(ctx, "")
	if err != nil {
		return Account{}, a, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.token, c.me = token, me
	return me, a, nil
}

// User asks whose login that is now. It is a *channels.Refusal with
// ReasonConfig when it is nobody's.
func (c *Client) User(ctx context.Context, login string) (Account, error) {
	if !loginPattern().MatchString(login) {
		return Account{}, &channels.Refusal{Reason: channels.ReasonConfig, Code: "bad_login"}
	}
	who, _, err := c.account(ctx, login)
	return who, err
}

func (c *Client) account(ctx context.Context, login string) (Account, Answer, error) {
	var user *gh.User
	a, err := c.Call(ctx, func(api *gh.Client) (resp *gh.Response, err error) {
		user, resp, err = api.Users.Get(ctx, login)
		return resp, err
	})
	switch {
	case err != nil:
		return Account{}, a, err
	case user.GetID() <= 0 || user.GetLogin() == "":
		return Account{}, a, &channels.Uncertain{Code: "no_account"}
	}
	return Account{ID: user.GetID(), Login: user.GetLogin()}, a, nil
}

// Public says whether everybody can read the repository "owner/name". What was
// heard counts for ten minutes.
func (c *Client) Public(ctx context.Context, repo string) (bool, error) {
	owner, name, _ := strings.Cut(repo, "/")
	if !ownerPattern().MatchString(owner) || !repoPattern().MatchString(name) {
		return false, &channels.Refusal{Reason: channels.ReasonConfig, Code: "bad_repo"}
	}
	key := strings.ToLower(repo)
	c.mu.Lock()
	known, ok := c.repos[key]
	c.mu.Unlock()
	if ok && time.Since(known.asked) < visibleFor {
		return known.public, nil
	}
	var r *gh.Repository
	_, err := c.Call(ctx, func(api *gh.Client) (resp *gh.Response, err error) {
		r, resp, err = api.Repositories.Get(ctx, owner, name)
		return resp, err
	})
	switch {
	case err != nil:
		return false, err
	case r == nil || r.Private == nil:
		return false, &channels.Uncertain{Code: "no_repository"}
	}
	// An internal one, of an enterprise, says that it is private.
	known = visibility{public: !r.GetPrivate(), asked: time.Now()}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.repos[key] = known
	return known.public, nil
}

// credential gives bytes that change with the token and the address.
func (c *Client) credential() string {
	ctx, cancel := context.WithTimeoutCause(context.Background(), ghTimeout, errors.New("gh auth token took too long"))
	defer cancel()
	token, _ := c.tokenValue(ctx)
	return token + "\x00" + c.base
}
