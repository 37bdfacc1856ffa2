package channelstest

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// githubMaxBody is in characters. GitHub says "maximum is 65536 characters" and
// documents nothing more. By others' measurements that is code points, and for
// comments rather 262,144 bytes, which is as many code points of the longest
// kind: nothing that keeps to this is refused.
const githubMaxBody = 65_536

// bodyOf reads the body of what is to be written. The answer's status is 0 when
// it keeps GitHub's limits.
func (c *githubCall) bodyOf(resource string, into any, body *string) githubAnswer {
	if json.Unmarshal(c.body, into) != nil {
		return githubError(http.StatusBadRequest, "Problems parsing JSON")
	}
	switch {
	case strings.TrimSpace(*body) == "":
		return githubInvalid(resource, "unprocessable", "data", "Body cannot be blank")
	case utf8.RuneCountInString(*body) > githubMaxBody:
		return githubInvalid(resource, "unprocessable", "data", "Body is too long (maximum is 65536 characters)")
	}
	return githubAnswer{}
}

// tooMuch is the secondary limit for what creates content.
func (g *GitHub) tooMuch(now time.Time) (a githubAnswer) {
	g.created = slices.DeleteFunc(g.created, func(t time.Time) bool { return now.Sub(t) >= time.Hour })
	lastMinute := 0
	for _, t := range g.created {
		if now.Sub(t) < time.Minute {
			lastMinute++
		}
	}
	if g.perMinute > 0 && lastMinute >= g.perMinute || g.perHour > 0 && len(g.created) >= g.perHour {
		a = githubError(http.StatusForbidden, githubSecondary)
		a.set("Retry-After", "60")
		return a
	}
	g.created = append(g.created, now)
	return githubAnswer{}
}

// createComment is POST /repos/{o}/{r}/issues/{n}/comments.
func (g *GitHub) createComment(c *githubCall) githubAnswer {
	if !c.hasTicket(GitHubIssueComment) {
		return githubNotFound()
	}
	var form struct{ Body string }
	if a := c.bodyOf("IssueComment", &form, &form.Body); a.status != 0 {
		return a
	}
	if a := g.tooMuch(c.now); a.status != 0 {
		return a
	}
	x := g.plant(GitHubComment{
		Kind: GitHubIssueComment, Repo: c.repo.name, Number: int(c.ids[0]), Login: g.me().login, Body: form.Body,
	})
	return githubAnswer{status: http.StatusCreated, body: x.json()}
}

// updateComment is PATCH /repos/{o}/{r}/issues/comments/{id}. Whoever may write
// to the repository may edit anybody's; this account may not.
func (g *GitHub) updateComment(c *githubCall) githubAnswer {
	x := g.find(c, GitHubIssueComment)
	if x == nil {
		return githubNotFound()
	}
	if x.account != g.me() {
		return githubError(http.StatusForbidden, "Must have admin rights to Repository.")
	}
	var form struct{ Body string }
	if a := c.bodyOf("IssueComment", &form, &form.Body); a.status != 0 {
		return a
	}
	g.edit(x, form.Body)
	return githubOK(x.json())
}

// createReply is POST /repos/{o}/{r}/pulls/{n}/comments/{id}/replies, and
// .../pulls/{n}/comments with in_reply_to. What it replies to must be no reply.
func (g *GitHub) createReply(c *githubCall) githubAnswer {
	if !c.hasTicket(GitHubInline) {
		return githubNotFound()
	}
	var form struct {
		Body      string
		InReplyTo int64 `json:"in_reply_to"`
	}
	if a := c.bodyOf("PullRequestReviewComment", &form, &form.Body); a.status != 0 {
		return a
	}
	if len(c.ids) == 1 {
		c.ids = append(c.ids, form.InReplyTo)
	}
	to := g.find(c, GitHubInline)
	switch {
	case to == nil:
		return githubNotFound()
	case to.InReplyTo != 0:
		return githubInvalid("PullRequestReviewComment", "invalid", "in_reply_to", "in_reply_to is invalid")
	}
	if a := g.tooMuch(c.now); a.status != 0 {
		return a
	}
	x := g.plant(GitHubComment{
		Kind: GitHubInline, Repo: c.repo.name, Number: to.Number, Login: g.me().login, Body: form.Body,
		Path: to.Path, Line: to.Line, InReplyTo: to.ID,
	})
	return githubAnswer{status: http.StatusCreated, body: x.json()}
}

// react creates a reaction, or finds that it is there.
func (g *GitHub) react(c *githubCall, k GitHubKind) githubAnswer {
	x := g.find(c, k)
	if x == nil {
		return githubNotFound()
	}
	var form struct{ Content string }
	if json.Unmarshal(c.body, &form) != nil {
		return githubError(http.StatusBadRequest, "Problems parsing JSON")
	}
	known := []string{"+1", "-1", "laugh", "confused", "heart", "hooray", "rocket", "eyes"}
	if !slices.Contains(known, form.Content) {
		return githubInvalid("Reaction", "invalid", "content", "content is none of GitHub's reactions")
	}
	status := http.StatusOK
	mine := GitHubReaction{UserID: g.me().id, Content: form.Content}
	at := slices.Index(x.Reactions, mine)
	if at < 0 {
		status, at = http.StatusCreated, len(x.Reactions)
		x.Reactions = append(x.Reactions, mine)
	}
	return githubAnswer{status: status, body: githubJSON{
		"id": x.ID*1000 + int64(at), "content": form.Content, "user": g.me().user(), "created_at": githubTime(c.now),
	}}
}
