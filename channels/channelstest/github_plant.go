package channelstest

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// GitHubKind is a kind of thing that people write on a ticket.
type GitHubKind string

// The kinds.
const (
	GitHubIssueComment GitHubKind = "comment" // below an issue or a pull request
	GitHubReview       GitHubKind = "review"  // the text that a review was sent with
	GitHubInline       GitHubKind = "inline"  // at a line of a pull request
)

const (
	githubWeb = "https://github.com"
	githubAPI = "https://api.github.com"
)

// GitHubComment is a comment, a review or an inline comment as GitHub keeps it.
type GitHubComment struct {
	Kind   GitHubKind // "" is GitHubIssueComment
	ID     int64      // rising over all kinds
	Repo   string     // owner/name
	Number int        // of the ticket
	// Login is its author's, "" of one whose account is gone. UserID is their
	// account's.
	Login  string
	UserID int64
	Body   string
	// Created is when it was written or, of a review, sent. Updated is when it
	// was written or edited; of a review, GitHub tells nobody.
	Created, Updated time.Time
	// ViaApp is the app that wrote in the author's name, "" for none.
	ViaApp string
	// State is that of a review: COMMENTED, APPROVED, CHANGES_REQUESTED,
	// DISMISSED, or PENDING while it was not sent.
	State string
	// Path and Line are those of an inline comment, ReviewID the review that it
	// belongs to, and InReplyTo the inline comment that it replies to.
	Path      string
	Line      int
	ReviewID  int64
	InReplyTo int64
	Reactions []GitHubReaction
}

// GitHubReaction is somebody's reaction to a comment, such as "+1".
type GitHubReaction struct {
	UserID  int64
	Content string
}

// githubThing is something that stands on a ticket.
type githubThing struct {
	GitHubComment
	account *githubAccount // nil when it is gone
	repo    *githubRepo
	review  *githubThing // that an inline comment belongs to, nil when it is gone
}

func (x *githubThing) of(r *githubRepo, k GitHubKind) bool { return x.repo == r && x.Kind == k }

// value is what stands there now. The caller holds mu.
func (x *githubThing) value() GitHubComment {
	c := x.GitHubComment
	c.Reactions = slices.Clone(c.Reactions)
	if x.account != nil {
		c.Login, c.UserID = x.account.login, x.account.id
	}
	return c
}

// Comment puts a comment of that login, now, on the ticket.
func (g *GitHub) Comment(repo string, n int, login, body string) GitHubComment {
	return g.Plant(GitHubComment{Repo: repo, Number: n, Login: login, Body: body})
}

// Review sends a review of that login, now, on the pull request.
func (g *GitHub) Review(repo string, n int, login, body string) GitHubComment {
	return g.Plant(GitHubComment{Kind: GitHubReview, Repo: repo, Number: n, Login: login, Body: body})
}

// Inline puts an inline comment of that login, now, on the pull request.
func (g *GitHub) Inline(repo string, n int, login, path string, line int, body string) GitHubComment {
	return g.Plant(GitHubComment{
		Kind: GitHubInline, Repo: repo, Number: n, Login: login, Body: body, Path: path, Line: line,
	})
}

// Plant puts c on its ticket as it is: what is not set is as a person would
// make it now. A login that nobody has becomes a person's account. An inline
// comment without a review gets one of its own, without text, as on GitHub. An
// ID that is set must be beyond all others. It panics without the repository or
// the pull request.
func (g *GitHub) Plant(c GitHubComment) GitHubComment {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.plant(c).value()
}

func (g *GitHub) plant(c GitHubComment) *githubThing {
	x := &githubThing{GitHubComment: c, repo: g.mustRepo(c.Repo)}
	x.Kind = cmp.Or(x.Kind, GitHubIssueComment)
	if x.Kind != GitHubIssueComment && x.repo.pulls[x.Number] == nil {
		panic(fmt.Sprintf("%s#%d is no pull request", c.Repo, c.Number))
	}
	x.Repo = x.repo.name
	if x.Created.IsZero() {
		x.Created = g.now()
	}
	x.Created = x.Created.UTC().Truncate(time.Second)
	if x.Updated.Before(x.Created) {
		x.Updated = x.Created
	}
	x.Updated = x.Updated.UTC().Truncate(time.Second)
	if x.Login != "" {
		if x.account = g.account(x.Login); x.account == nil {
			x.account = &githubAccount{GitHubID + 10_000 + int64(len(g.accounts)), x.Login, "User"}
			g.accounts = append(g.accounts, x.account)
		}
	}
	switch x.Kind {
	case GitHubReview:
		x.State = cmp.Or(x.State, "COMMENTED")
	case GitHubInline:
		x.Path, x.Line = cmp.Or(x.Path, "a.go"), cmp.Or(x.Line, 1)
		if x.ReviewID == 0 {
			x.ReviewID = g.plant(GitHubComment{
				Kind: GitHubReview, Repo: c.Repo, Number: c.Number, Login: c.Login, Created: x.Updated,
			}).ID
		}
		if x.review = g.byID(x.ReviewID); x.review != nil && x.review.Kind != GitHubReview {
			panic(fmt.Sprintf("%d is no review", x.ReviewID))
		}
	}
	if x.ID == 0 {
		x.ID = g.lastID + 1
	}
	if x.ID <= g.lastID {
		panic(fmt.Sprintf("the id %d is behind %d", x.ID, g.lastID))
	}
	g.lastID = x.ID
	g.things = append(g.things, x)
	x.touch()
	return x
}

// sent is false for what nobody but its author sees yet: a review, with its
// inline comments, that is being written.
func (x *githubThing) sent() bool {
	return x.State != "PENDING" && (x.review == nil || x.review.State != "PENDING")
}

// touch says of the pull request that it was changed with x.
func (x *githubThing) touch() {
	if pull := x.repo.pulls[x.Number]; pull != nil && x.sent() && x.Updated.After(pull.updated) {
		pull.updated = x.Updated
	}
}

// Edit gives a comment, review or inline comment another text, now. GitHub's
// time has whole seconds: within the one in which it was written, nobody can
// tell from the time.
func (g *GitHub) Edit(id int64, body string) GitHubComment {
	g.mu.Lock()
	defer g.mu.Unlock()
	x := g.must(id)
	g.edit(x, body)
	return x.value()
}

func (g *GitHub) edit(x *githubThing, body string) {
	if x.Body == body {
		return
	}
	x.Body = body
	if now := g.now(); now.After(x.Updated) {
		x.Updated = now
	}
	x.touch()
}

// Delete takes a comment, review or inline comment away.
func (g *GitHub) Delete(id int64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.must(id)
	g.things = slices.DeleteFunc(g.things, func(x *githubThing) bool { return x.ID == id })
}

func (g *GitHub) must(id int64) *githubThing {
	x := g.byID(id)
	if x == nil {
		panic(fmt.Sprintf("there is nothing with the id %d", id))
	}
	return x
}

// byID gives what has that id, nil for nothing.
func (g *GitHub) byID(id int64) *githubThing {
	for _, x := range g.things {
		if x.ID == id {
			return x
		}
	}
	return nil
}

// Comments gives the ticket's comments, by rising ids.
func (g *GitHub) Comments(repo string, n int) []GitHubComment {
	return g.on(repo, n, GitHubIssueComment)
}

// Reviews gives the pull request's reviews, by rising ids.
func (g *GitHub) Reviews(repo string, n int) []GitHubComment { return g.on(repo, n, GitHubReview) }

// Inlines gives the pull request's inline comments, by rising ids.
func (g *GitHub) Inlines(repo string, n int) []GitHubComment { return g.on(repo, n, GitHubInline) }

func (g *GitHub) on(repo string, n int, k GitHubKind) (all []GitHubComment) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, x := range g.things {
		if x.Kind == k && x.Number == n && strings.EqualFold(x.Repo, repo) {
			all = append(all, x.value())
		}
	}
	return all
}

// json is the thing as the API and the webhooks give it.
func (x *githubThing) json() githubJSON {
	where := "issues"
	if x.repo.pulls[x.Number] != nil {
		where = "pull"
	}
	page := fmt.Sprintf("%s/%s/%s/%d", githubWeb, x.repo.name, where, x.Number)
	api := githubAPI + "/repos/" + x.repo.name
	pull := fmt.Sprintf("%s/pulls/%d", api, x.Number)
	j := githubJSON{"id": x.ID, "body": x.Body, "user": x.account.user(), "author_association": "NONE"}
	if x.Kind == GitHubReview {
		j["state"], j["pull_request_url"] = x.State, pull
		j["html_url"] = fmt.Sprintf("%s#pullrequestreview-%d", page, x.ID)
		if x.State != "PENDING" {
			j["submitted_at"] = githubTime(x.Created)
		}
		return j
	}
	j["created_at"], j["updated_at"] = githubTime(x.Created), githubTime(x.Updated)
	j["reactions"] = x.counts()
	j["performed_via_github_app"] = nil
	if x.ViaApp != "" {
		j["performed_via_github_app"] = githubJSON{"id": 1, "slug": x.ViaApp, "name": x.ViaApp}
	}
	if x.Kind == GitHubIssueComment {
		j["issue_url"] = fmt.Sprintf("%s/issues/%d", api, x.Number)
		j["url"] = fmt.Sprintf("%s/issues/comments/%d", api, x.ID)
		j["html_url"] = fmt.Sprintf("%s#issuecomment-%d", page, x.ID)
		return j
	}
	delete(j, "performed_via_github_app") // GitHub does not say it of these
	j["path"], j["line"], j["original_line"], j["pull_request_review_id"] = x.Path, x.Line, x.Line, x.ReviewID
	j["pull_request_url"], j["url"] = pull, fmt.Sprintf("%s/pulls/comments/%d", api, x.ID)
	j["html_url"] = fmt.Sprintf("%s#discussion_r%d", page, x.ID)
	if x.InReplyTo != 0 {
		j["in_reply_to_id"] = x.InReplyTo
	}
	return j
}

// counts is how often there is each reaction.
func (x *githubThing) counts() githubJSON {
	j := githubJSON{"total_count": len(x.Reactions)}
	for _, r := range x.Reactions {
		n, _ := j[r.Content].(int)
		j[r.Content] = n + 1
	}
	return j
}
