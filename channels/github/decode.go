package github

import (
	"bytes"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"time"

	"the-loop/channels"
	"the-loop/internal/lazy"
)

// kind is a kind of thing that a person writes on a ticket.
type kind string

const (
	comment kind = "comment" // below an issue or a pull request
	review  kind = "review"  // the text that a review was sent with
	inline  kind = "inline"  // at a line of a pull request
)

// Rules by which something holds no message, in one word.
const (
	ruleEmpty     = "empty"     // no text: an approval without a word
	rulePending   = "pending"   // a review that was not sent yet
	ruleUnwatched = "unwatched" // on a ticket that nobody was asked on
)

// settling is by how much GitHub's updated_at may be later than the creation
// of what nobody edited: it writes the two a moment apart, so that one second
// may end between them. Its own example of an inline comment that was just
// created has them so.
const settling = time.Second

// written is what GitHub says of a comment or a review, in the same words in a
// webhook and in an answer of its API.
type written struct {
	ID   int64   `json:"id"`
	Body string  `json:"body"`
	User *author `json:"user"` // null when the account is gone
	// ViaApp is the app that wrote in the user's name, null without one.
	ViaApp    json.RawMessage `json:"performed_via_github_app"`
	CreatedAt time.Time       `json:"created_at"`
	UpdatedAt time.Time       `json:"updated_at"`
	HTMLURL   string          `json:"html_url"`
	IssueURL  string          `json:"issue_url"`        // of a comment
	PullURL   string          `json:"pull_request_url"` // of the others

	// Of a review. It has no updated_at.
	SubmittedAt time.Time `json:"submitted_at"` // null while it is pending
	State       string    `json:"state"`        // "PENDING", in webhooks in small letters

	// Of an inline comment. Line moves with the pull request and goes when the
	// line does; OriginalLine stays.
	Path         string `json:"path"`
	Line         int    `json:"line"`
	OriginalLine int    `json:"original_line"`
	ReviewID     int64  `json:"pull_request_review_id"`
}

type author struct {
	ID    int64  `json:"id"`
	Login string `json:"login"`
	Type  string `json:"type"`
}

// decodeWritten reads one. ok is false for what is none.
func decodeWritten(raw []byte, k kind) (w written, ok bool) {
	if json.Unmarshal(raw, &w) != nil || w.ID <= 0 {
		return written{}, false
	}
	if k == review {
		return w, true // a pending one has no time
	}
	return w, !w.CreatedAt.IsZero() && !w.UpdatedAt.IsZero()
}

// at is when it came to be as it is now, as its key says it.
func (w written) at(k kind) time.Time {
	if k == review {
		return w.SubmittedAt
	}
	return w.UpdatedAt
}

// ticketNumber is the number at the end of its ticket's address, 0 when there
// is none.
func (w written) ticketNumber(k kind) int {
	address := w.PullURL
	if k == comment {
		address = w.IssueURL
	}
	n, err := strconv.Atoi(address[strings.LastIndexByte(address, '/')+1:])
	if err != nil || n <= 0 || n > 999_999_999 {
		return 0
	}
	return n
}

// touched reports whether it was changed after since, which is when others
// could first see it. An edit within the very second cannot be told: its key is
// the same too.
func (w written) touched(since time.Time) bool { return w.UpdatedAt.Sub(since) > settling }

// message makes the message of it, or says by which rule it is none.
// t is in the spelling that counts. us is our account's number, 0 for unknown.
func (w written) message(k kind, t ticket, us int64, edited bool) (m channels.Message, rule string) {
	if k == review && (w.SubmittedAt.IsZero() || strings.EqualFold(w.State, "pending")) {
		return channels.Message{}, rulePending
	}
	mark, _, rest := readMark(w.Body)
	text := plainText(rest)
	if text == "" && mark == nil {
		return channels.Message{}, ruleEmpty
	}
	id := string(k) + ":" + strconv.FormatInt(w.ID, 10)
	m = channels.Message{
		Key:     "github:" + strings.ToLower(t.owner+"/"+t.repo) + ":" + id + ":" + w.at(k).UTC().Format(time.RFC3339),
		Surface: "github", WorkItem: t.item(),
		Place: channels.Place{Conversation: strings.TrimPrefix(t.item(), "github:"), ID: id},
		From:  w.from(us), At: w.CreatedAt.UTC(), Text: text, Link: w.HTMLURL, Edited: edited, Mark: mark,
	}
	switch k {
	case review:
		m.At = w.SubmittedAt.UTC()
	case inline:
		m.Where = w.where()
	}
	return m, ""
}

func (t ticket) item() string {
	return channels.WorkItem{Kind: "github", Owner: t.owner, Name: t.repo, Number: t.number}.String()
}

// from says who wrote it. What an app wrote in a person's name is no person's.
func (w written) from(us int64) channels.Author {
	if w.User == nil || w.User.ID <= 0 {
		return channels.Author{}
	}
	a := channels.Author{
		ID:     strconv.FormatInt(w.User.ID, 10),
		Person: w.User.Type == "User" && !isThere(w.ViaApp),
		Us:     us > 0 && w.User.ID == us,
	}
	if loginPattern().MatchString(w.User.Login) {
		a.Login = w.User.Login
	}
	return a
}

func isThere(raw json.RawMessage) bool {
	raw = bytes.TrimSpace(raw)
	return len(raw) > 0 && string(raw) != "null"
}

// where is the place in the code: "a.go:12: ", or "a.go: " for a whole file.
func (w written) where() string {
	path, _ := channels.CleanText(channels.OneLine(w.Path))
	line := w.OriginalLine
	if line <= 0 {
		line = w.Line
	}
	if line <= 0 {
		return path
	}
	return path + ":" + strconv.Itoa(line)
}

// openComment begins an HTML comment that nothing ends. GitHub shows nothing
// after it when it begins a line.
var openComment = lazy.Regexp(`(?m)^[ \t]{0,3}<!--`)

// plainText is what people see of a body without our marker: no HTML comments,
// line breaks of one kind, no blanks around. It stays Markdown.
func plainText(body string) string {
	var b strings.Builder
	body = strings.ReplaceAll(body, "\r\n", "\n")
	for {
		start := strings.Index(body, "<!--")
		if start < 0 {
			break
		}
		// "<!-->" and "<!--->" are whole.
		length := strings.Index(body[start+2:], "-->")
		if length < 0 {
			if at := openComment().FindStringIndex(body); at != nil {
				body = body[:at[0]]
			}
			break
		}
		b.WriteString(body[:start])
		body = body[start+2+length+len("-->"):]
	}
	b.WriteString(body)
	text, _ := channels.CleanText(b.String())
	return strings.TrimSpace(text)
}

// scope says which tickets are ours, and how they are spelled: GitHub takes
// owner/repo in any case, and a work item is one string.
type scope struct {
	repos   []string
	watched func(workItem string) (as string, ok bool)
}

// own gives the ticket in the spelling that counts: the watched work item's,
// else the configured repository's. ok is false when it is neither's.
func (s scope) own(t ticket) (own ticket, ok bool) {
	if s.watched != nil {
		if as, ok := s.watched(t.item()); ok {
			if own, ok = ticketOf(as); ok && strings.EqualFold(as, t.item()) {
				return own, true
			}
			return t, true
		}
	}
	at := slices.IndexFunc(s.repos, func(r string) bool { return strings.EqualFold(r, t.owner+"/"+t.repo) })
	if at < 0 {
		return t, false
	}
	t.owner, t.repo, _ = strings.Cut(s.repos[at], "/")
	return t, true
}
