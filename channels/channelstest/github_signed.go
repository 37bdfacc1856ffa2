package channelstest

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
)

// GitHubHookPath is where GitHub's webhooks go, by our receiver's routes.
const GitHubHookPath = "/github"

// GitHubHookSecret is what a fresh GitHub's webhook signs with, as a rule: the
// fake signs with whatever secret it is given.
const GitHubHookSecret = "hook-secret-channelstest"

// GitHubPayload is what a webhook tells.
type GitHubPayload struct {
	Event string // X-GitHub-Event
	Body  map[string]any
}

// GitHubRequest is one that GitHub makes to a webhook's address.
type GitHubRequest struct {
	Path   string
	Header http.Header
	Body   []byte
}

// Request gives the request as it would be made to the server at base, such as
// "http://127.0.0.1:8787".
func (r GitHubRequest) Request(ctx context.Context, base string) (*http.Request, error) {
	address := strings.TrimSuffix(base, "/") + r.Path
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, address, bytes.NewReader(r.Body))
	if err != nil {
		return nil, err
	}
	req.Header = r.Header.Clone()
	return req, nil
}

// Signed gives the request for the payload. Each has a delivery id of its own,
// even for the same payload, as when somebody has it sent again.
func (g *GitHub) Signed(secret string, payload GitHubPayload) GitHubRequest {
	body, err := json.Marshal(payload.Body)
	if err != nil {
		panic(fmt.Sprintf("encode payload: %v", err))
	}
	r := SignGitHub(secret, payload.Event, body)
	g.mu.Lock()
	defer g.mu.Unlock()
	g.signed++
	r.Header.Set("X-GitHub-Delivery", fmt.Sprintf("72d3162e-cc78-11e3-81ab-%012d", g.signed))
	return r
}

// SignGitHub signs any body.
func SignGitHub(secret, event string, body []byte) GitHubRequest {
	old := hmac.New(sha1.New, []byte(secret))
	old.Write(body)
	h := http.Header{}
	h.Set("Content-Type", "application/json")
	h.Set("User-Agent", "GitHub-Hookshot/044aadd")
	h.Set("X-GitHub-Event", event)
	h.Set("X-GitHub-Delivery", "72d3162e-cc78-11e3-81ab-4c9367dc0958")
	h.Set("X-GitHub-Hook-ID", "292430182")
	h.Set("X-GitHub-Hook-Installation-Target-Type", "repository")
	h.Set("X-Hub-Signature", "sha1="+hex.EncodeToString(old.Sum(nil)))
	h.Set("X-Hub-Signature-256", GitHubSignature(secret, body))
	return GitHubRequest{Path: GitHubHookPath, Header: h, Body: body}
}

// GitHubSignature is the value of X-Hub-Signature-256.
func GitHubSignature(secret string, body []byte) string {
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write(body)
	return "sha256=" + hex.EncodeToString(mac.Sum(nil))
}

// Ping is what GitHub sends when a webhook was made.
func (g *GitHub) Ping() GitHubPayload {
	return GitHubPayload{"ping", githubJSON{"zen": "Keep it logically awesome.", "hook_id": 292430182}}
}

// Said is the event for what was written: created, or of a review submitted.
func (g *GitHub) Said(c GitHubComment) GitHubPayload {
	if c.Kind == GitHubReview {
		return g.event("submitted", c)
	}
	return g.event("created", c)
}

// Edited is the event for c, as Edit gives it, having had another text before.
func (g *GitHub) Edited(c GitHubComment, before string) GitHubPayload {
	p := g.event("edited", c)
	p.Body["changes"] = githubJSON{"body": githubJSON{"from": before}}
	return p
}

// Deleted is the event for c having been deleted. Of a review there is none.
func (g *GitHub) Deleted(c GitHubComment) GitHubPayload { return g.event("deleted", c) }

// event tells of c as it was given by the fake, whatever stands there now.
func (g *GitHub) event(action string, c GitHubComment) GitHubPayload {
	g.mu.Lock()
	defer g.mu.Unlock()
	x := &githubThing{GitHubComment: c, repo: g.mustRepo(c.Repo)}
	for _, a := range g.accounts {
		if a.id == c.UserID {
			x.account = a
		}
	}
	what := x.json()
	body := githubJSON{"action": action, "repository": x.repo.json(), "sender": x.account.user()}
	if c.Kind == GitHubIssueComment {
		issue := githubJSON{"number": c.Number, "title": fmt.Sprintf("Issue %d", c.Number), "state": "open"}
		if x.repo.pulls[c.Number] != nil {
			issue["pull_request"] = githubJSON{"url": fmt.Sprintf("%s/repos/%s/pulls/%d", githubAPI, x.repo.name, c.Number)}
		}
		body["issue"], body["comment"] = issue, what
		return GitHubPayload{"issue_comment", body}
	}
	body["pull_request"] = x.repo.pulls[c.Number].json(x.repo)
	if c.Kind == GitHubReview {
		what["state"] = strings.ToLower(c.State)
		body["review"] = what
		return GitHubPayload{"pull_request_review", body}
	}
	body["comment"] = what
	return GitHubPayload{"pull_request_review_comment", body}
}
