package channelstest

import (
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// githubAnswer is a status, headers and the JSON of a body.
type githubAnswer struct {
	status  int
	headers map[string]string
	body    any
}

// githubJSON is one of GitHub's JSON objects.
type githubJSON = map[string]any

func githubOK(body any) githubAnswer { return githubAnswer{status: http.StatusOK, body: body} }

func githubError(status int, message string) githubAnswer {
	return githubAnswer{status: status, body: githubJSON{
		"message": message, "documentation_url": "https://docs.github.com/rest", "status": strconv.Itoa(status),
	}}
}

func githubNotFound() githubAnswer { return githubError(http.StatusNotFound, "Not Found") }

// githubInvalid is for what breaks a rule of GitHub's.
func githubInvalid(resource, code, field, message string) githubAnswer {
	a := githubError(http.StatusUnprocessableEntity, "Validation Failed")
	a.body.(githubJSON)["errors"] = []githubJSON{
		{"resource": resource, "code": code, "field": field, "message": message},
	}
	return a
}

func (a githubAnswer) encode() []byte {
	b, err := json.Marshal(a.body)
	if err != nil {
		panic(fmt.Sprintf("encode answer: %v", err))
	}
	return b
}

func (a *githubAnswer) set(header, value string) {
	if a.headers == nil {
		a.headers = map[string]string{}
	}
	a.headers[header] = value
}

// etag names what is answered to a GET, and makes a 304 of what the client has.
func (a *githubAnswer) etag(r *http.Request) {
	if r.Method != http.MethodGet || a.status != http.StatusOK {
		return
	}
	sum := sha256.Sum256(append(a.encode(), a.headers["Link"]...))
	tag := fmt.Sprintf(`W/"%x"`, sum)
	a.set("ETag", tag)
	for _, has := range strings.Split(r.Header.Get("If-None-Match"), ",") {
		if strings.TrimPrefix(strings.TrimSpace(has), "W/") == strings.TrimPrefix(tag, "W/") {
			a.status = http.StatusNotModified
		}
	}
}

// do finds what is asked for. The caller holds mu.
func (g *GitHub) do(c *githubCall) githubAnswer {
	parts := strings.Split(strings.Trim(c.path, "/"), "/")
	switch {
	case c.method == http.MethodGet && c.path == "/user":
		return githubOK(g.me().user())
	case c.method == http.MethodGet && len(parts) == 2 && parts[0] == "users":
		if a := g.account(parts[1]); a != nil {
			return githubOK(a.user())
		}
		return githubNotFound()
	case len(parts) < 3 || parts[0] != "repos":
		return githubNotFound()
	}
	if c.repo = g.repo(parts[1] + "/" + parts[2]); c.repo == nil {
		return githubNotFound()
	}
	shape := []string{c.method}
	for _, part := range parts[3:] {
		if id, err := strconv.ParseInt(part, 10, 64); err == nil {
			c.ids, part = append(c.ids, id), "#"
		}
		shape = append(shape, part)
	}
	return g.route(strings.Join(shape, "/"), c)
}

// route answers a request for something of a repository. In shape, "#" stands
// for the numbers.
func (g *GitHub) route(shape string, c *githubCall) githubAnswer {
	switch shape {
	case "GET":
		return githubOK(c.repo.json())
	case "GET/issues/#/comments":
		return g.list(c, githubList{kind: GitHubIssueComment, since: true})
	case "GET/issues/comments":
		return g.list(c, githubList{kind: GitHubIssueComment, since: true, sort: true})
	case "GET/issues/comments/#":
		return g.one(c, GitHubIssueComment)
	case "GET/pulls":
		return c.pulls(g.URL())
	case "GET/pulls/#":
		if p := c.repo.pulls[int(c.ids[0])]; p != nil {
			return githubOK(p.json(c.repo))
		}
		return githubNotFound()
	case "GET/pulls/#/reviews":
		return g.list(c, githubList{kind: GitHubReview})
	case "GET/pulls/#/reviews/#":
		return g.one(c, GitHubReview)
	case "GET/pulls/#/comments":
		return g.list(c, githubList{kind: GitHubInline, since: true, sort: true})
	case "GET/pulls/comments":
		return g.list(c, githubList{kind: GitHubInline, since: true, sort: true})
	case "GET/pulls/comments/#":
		return g.one(c, GitHubInline)
	case "POST/issues/#/comments":
		return g.createComment(c)
	case "PATCH/issues/comments/#":
		return g.updateComment(c)
	case "POST/issues/comments/#/reactions":
		return g.react(c, GitHubIssueComment)
	case "POST/pulls/comments/#/reactions":
		return g.react(c, GitHubInline)
	case "POST/pulls/#/comments/#/replies", "POST/pulls/#/comments":
		return g.createReply(c)
	}
	return githubNotFound()
}

// githubList says what a list takes.
type githubList struct {
	kind        GitHubKind
	since, sort bool
}

// list answers with the things of a ticket, when the path names one, or of the
// repository, by rising ids as long as no other order is asked for.
func (g *GitHub) list(c *githubCall, l githubList) githubAnswer {
	if len(c.ids) > 0 && !c.hasTicket(l.kind) {
		return githubNotFound()
	}
	var since time.Time
	if s := c.query.Get("since"); s != "" && l.since {
		var err error
		if since, err = time.Parse(time.RFC3339, s); err != nil {
			return githubInvalid("Search", "invalid", "since", "since is no time of ISO 8601")
		}
		since = since.Truncate(time.Second)
	}
	var all []*githubThing
	for _, x := range g.things {
		if x.of(c.repo, l.kind) && (len(c.ids) == 0 || x.Number == int(c.ids[0])) &&
			!x.Updated.Before(since) && g.visible(x) {
			all = append(all, x)
		}
	}
	if sort := c.query.Get("sort"); l.sort && sort != "" {
		slices.SortStableFunc(all, func(a, b *githubThing) int {
			if sort == "updated" {
				return a.Updated.Compare(b.Updated)
			}
			return a.Created.Compare(b.Created)
		})
		if c.query.Get("direction") == "desc" {
			slices.Reverse(all)
		}
	}
	return githubPage(c, g.URL(), all, func(x *githubThing) githubJSON { return x.json() })
}

func (c *githubCall) hasTicket(k GitHubKind) bool {
	n := int(c.ids[0])
	return n > 0 && (k == GitHubIssueComment || c.repo.pulls[n] != nil)
}

// visible reports whether our account sees it.
func (g *GitHub) visible(x *githubThing) bool { return x.sent() || x.account == g.me() }

func (g *GitHub) me() *githubAccount { return g.accounts[0] }

// one answers with the thing that the last number in the path names.
func (g *GitHub) one(c *githubCall, k GitHubKind) githubAnswer {
	x := g.find(c, k)
	if x == nil {
		return githubNotFound()
	}
	return githubOK(x.json())
}

// find gives the thing that the last number in the path names, nil for none.
func (g *GitHub) find(c *githubCall, k GitHubKind) *githubThing {
	for _, x := range g.things {
		if x.ID == c.ids[len(c.ids)-1] && x.of(c.repo, k) && g.visible(x) &&
			(len(c.ids) == 1 || x.Number == int(c.ids[0])) {
			return x
		}
	}
	return nil
}

// pulls answers with the repository's pull requests.
func (c *githubCall) pulls(server string) githubAnswer {
	state := cmp.Or(c.query.Get("state"), "open")
	sort := cmp.Or(c.query.Get("sort"), "created")
	direction := c.query.Get("direction")
	if direction == "" && sort == "created" {
		direction = "desc"
	}
	var all []*githubPull
	for _, p := range c.repo.pulls {
		if state == "all" || p.closed == (state == "closed") {
			all = append(all, p)
		}
	}
	slices.SortFunc(all, func(a, b *githubPull) int {
		byTime := a.created.Compare(b.created)
		if sort == "updated" {
			byTime = a.updated.Compare(b.updated)
		}
		return cmp.Or(byTime, cmp.Compare(a.number, b.number))
	})
	if direction == "desc" {
		slices.Reverse(all)
	}
	return githubPage(c, server, all, func(p *githubPull) githubJSON { return p.json(c.repo) })
}

// githubPage answers with the page that is asked for, and links to the others.
func githubPage[T any](c *githubCall, server string, all []T, encode func(T) githubJSON) githubAnswer {
	number := func(key string, otherwise int) int {
		if n, err := strconv.Atoi(c.query.Get(key)); err == nil && n > 0 {
			return n
		}
		return otherwise
	}
	size, page := min(number("per_page", 30), 100), number("page", 1)
	start, end := min((page-1)*size, len(all)), min(page*size, len(all))
	items := []githubJSON{}
	for _, x := range all[start:end] {
		items = append(items, encode(x))
	}
	var links []string
	link := func(rel string, n int) {
		q := url.Values{}
		for key, values := range c.query {
			q[key] = values
		}
		q.Set("page", strconv.Itoa(n))
		links = append(links, fmt.Sprintf(`<%s%s%s?%s>; rel="%s"`, server, c.prefix, c.path, q.Encode(), rel))
	}
	last := max((len(all)+size-1)/size, 1)
	if page > 1 {
		link("prev", page-1)
		link("first", 1)
	}
	if page < last {
		link("next", page+1)
		link("last", last)
	}
	a := githubOK(items)
	if len(links) > 0 {
		a.set("Link", strings.Join(links, ", "))
	}
	return a
}

func (a *githubAccount) user() githubJSON {
	if a == nil {
		return nil
	}
	return githubJSON{
		"login": a.login, "id": a.id, "type": a.kind, "site_admin": false,
		"url": githubAPI + "/users/" + a.login, "html_url": githubWeb + "/" + a.login,
	}
}

func (r *githubRepo) json() githubJSON {
	owner, name, _ := strings.Cut(r.name, "/")
	visibility := "public"
	if r.private {
		visibility = "private"
	}
	return githubJSON{
		"name": name, "full_name": r.name, "private": r.private, "visibility": visibility,
		"owner": githubJSON{"login": owner}, "html_url": githubWeb + "/" + r.name, "url": githubAPI + "/repos/" + r.name,
	}
}

func (p *githubPull) json(r *githubRepo) githubJSON {
	state := "open"
	if p.closed {
		state = "closed"
	}
	return githubJSON{
		"number": p.number, "state": state, "title": fmt.Sprintf("Pull request %d", p.number),
		"created_at": githubTime(p.created), "updated_at": githubTime(p.updated),
		"html_url": fmt.Sprintf("%s/%s/pull/%d", githubWeb, r.name, p.number),
		"url":      fmt.Sprintf("%s/repos/%s/pulls/%d", githubAPI, r.name, p.number),
	}
}

func githubTime(t time.Time) string { return t.UTC().Format(time.RFC3339) }
