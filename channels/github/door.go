package github

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"the-loop/channels"
)

const (
	// maxDelivery is the largest payload that GitHub sends (docs.github.com,
	// "Webhook events and payloads").
	maxDelivery = 25 << 20
	// selfWithin is how long a delivery waits for the answer to who we are, and
	// selfAgain how long after a failure it is not asked again.
	selfWithin = 2 * time.Second
	selfAgain  = 30 * time.Second
)

// signatureHeader is HMAC-SHA256 over the body as it came. SHA-1, in
// X-Hub-Signature, is not looked at.
const signatureHeader = "X-Hub-Signature-256"

// DoorOptions say what the door lets in.
type DoorOptions struct {
	// Secret is the webhook's. Any of its lines verifies. It is read anew for
	// each request.
	Secret channels.Secret
	// Repos are the "owner/repo" of which everything is let in.
	Repos []string
	// Watched says whether the work item is watched, whatever its case, and as
	// what it is: in the spelling that people were asked under. nil: none is.
	// It is called for each message, and uses no network.
	Watched func(workItem string) (as string, ok bool)
	// Self says who our token posts as, Client.Self. It is asked when a message
	// comes and it is not known yet. nil: nobody is us.
	Self func(ctx context.Context) (Account, error)
}

// Door is where GitHub's webhook comes in. It verifies and decodes; it stores
// nothing. It is safe for several goroutines.
type Door struct {
	secret channels.Secret
	scope  scope
	self   func(ctx context.Context) (Account, error)

	mu     sync.Mutex
	failed time.Time // when self was last asked in vain
}

// NewDoor gives the door. Neither a file nor the network is touched.
func NewDoor(o DoorOptions) *Door {
	return &Door{secret: o.Secret, scope: scope{o.Repos, o.Watched}, self: o.Self}
}

// Limit is the largest body in bytes.
func (d *Door) Limit() int64 { return maxDelivery }

// Ready is nil when there is a secret that is not blank.
func (d *Door) Ready() error {
	if _, err := d.secret.Lines(); err != nil {
		return fmt.Errorf("the GitHub webhook's secret: %w", err)
	}
	return nil
}

// Sealed reports whether there is exactly one signature, of the form that
// GitHub gives it. It says nothing about whether it holds.
func (d *Door) Sealed(h http.Header) bool {
	_, ok := signature(h)
	return ok
}

func signature(h http.Header) (mac []byte, ok bool) {
	values := h.Values(signatureHeader)
	if len(values) != 1 {
		return nil, false
	}
	digits, ok := strings.CutPrefix(values[0], "sha256=")
	if !ok || len(digits) != 2*sha256.Size {
		return nil, false
	}
	mac, err := hex.DecodeString(digits)
	return mac, err == nil
}

// verify is nil when one of the secret's lines made the signature. All are
// tried, in constant time each.
func (d *Door) verify(h http.Header, body []byte) error {
	mac, ok := signature(h)
	if !ok {
		return channels.ErrForged
	}
	lines, err := d.secret.Lines()
	if err != nil {
		return fmt.Errorf("%w: %w", channels.ErrForged, err)
	}
	holds := false
	for _, line := range lines {
		own := hmac.New(sha256.New, []byte(line))
		own.Write(body)
		if hmac.Equal(mac, own.Sum(nil)) {
			holds = true
		}
	}
	if !holds {
		return channels.ErrForged
	}
	return nil
}

// delivery is what of a payload is looked at. Which event it is stands in a
// header that is not signed, so that each is taken only in its own form.
type delivery struct {
	Action     string          `json:"action"`
	Comment    json.RawMessage `json:"comment"`
	Review     json.RawMessage `json:"review"`
	Issue      *numbered       `json:"issue"`
	Pull       *numbered       `json:"pull_request"`
	Repository *struct {
		FullName string `json:"full_name"`
	} `json:"repository"`
	Changes struct {
		Body json.RawMessage `json:"body"`
	} `json:"changes"`
}

type numbered struct {
	Number int `json:"number"`
}

// Open verifies the body and decodes it: comments, reviews and inline comments
// that are new or whose text was edited. Anything else is Dropped, in one word.
// channels.ErrForged is for what none of our secrets signed; any other error
// for what is signed and is not GitHub's.
//
// Two forms of body are GitHub's: JSON, and a form with the JSON in "payload".
func (d *Door) Open(h http.Header, body []byte) (channels.Arrival, error) {
	if err := d.verify(h, body); err != nil {
		return channels.Arrival{}, err
	}
	payload, err := payloadOf(body)
	if err != nil {
		return channels.Arrival{}, err
	}
	var k kind
	switch h.Get("X-GitHub-Event") {
	case "issue_comment":
		k = comment
	case "pull_request_review":
		k = review
	case "pull_request_review_comment":
		k = inline
	case "ping":
		return dropped("ping")
	case "":
		return channels.Arrival{}, errors.New("the header X-GitHub-Event is missing")
	default:
		return dropped("event")
	}
	var p delivery
	if err := json.Unmarshal(payload, &p); err != nil {
		return channels.Arrival{}, errNotGitHub
	}
	return d.open(k, p)
}

var errNotGitHub = errors.New("the body is not what GitHub sends with this event")

func payloadOf(body []byte) ([]byte, error) {
	if !bytes.HasPrefix(body, []byte("payload=")) {
		return body, nil
	}
	form, err := url.ParseQuery(string(body))
	if err != nil {
		return nil, errNotGitHub
	}
	return []byte(form.Get("payload")), nil
}

func (d *Door) open(k kind, p delivery) (channels.Arrival, error) {
	name, raw, ok := p.subject(k)
	if !ok {
		return channels.Arrival{}, errNotGitHub
	}
	edited := p.Action == "edited"
	switch {
	case p.Action == "deleted":
		return dropped("deleted")
	case edited && !isThere(p.Changes.Body):
		// GitHub sends one along with a review's submission.
		return dropped("unchanged")
	case !edited && p.Action != map[kind]string{comment: "created", review: "submitted", inline: "created"}[k]:
		return dropped("action")
	}
	w, ok := decodeWritten(raw, k)
	if !ok {
		return channels.Arrival{}, errNotGitHub
	}
	t, ok := ticketOf(name)
	if ok {
		t, ok = d.scope.own(t)
	}
	if !ok {
		return dropped(ruleUnwatched)
	}
	us, err := d.us()
	if err != nil && ParseMark(w.Body) != nil {
		// It may be our own, and nobody can tell. The poller will.
		return channels.Arrival{}, fmt.Errorf("who our token posts as is not known: %w", err)
	}
	// A new inline comment may have been drafted long before: its action tells.
	edited = edited || k == comment && w.touched(w.CreatedAt)
	m, rule := w.message(k, t, us, edited)
	if rule != "" {
		return dropped(rule)
	}
	return channels.Arrival{Messages: []channels.Message{m}}, nil
}

// subject gives the ticket's name and what was written there. ok is false when
// the payload has not the form that belongs to the kind.
func (p delivery) subject(k kind) (workItem string, raw json.RawMessage, ok bool) {
	at, raw := p.Pull, p.Comment
	switch k {
	case comment:
		at = p.Issue
	case review:
		raw = p.Review
	}
	if at == nil || at.Number <= 0 || !isThere(raw) || p.Repository == nil {
		return "", nil, false
	}
	return fmt.Sprintf("github:%s#%d", p.Repository.FullName, at.Number), raw, true
}

func dropped(word string) (channels.Arrival, error) { return channels.Arrival{Dropped: word}, nil }

// us is our account's number. Client.Self keeps it; only while it cannot be had
// is it asked again, and then seldom.
func (d *Door) us() (int64, error) {
	if d.self == nil {
		return 0, nil
	}
	d.mu.Lock()
	failed := d.failed
	d.mu.Unlock()
	if time.Since(failed) < selfAgain {
		return 0, errors.New("it could not be asked a moment ago")
	}
	ctx, cancel := context.WithTimeoutCause(context.Background(), selfWithin,
		errors.New("GitHub took too long to say who we are"))
	defer cancel()
	me, err := d.self(ctx)
	if err != nil {
		d.mu.Lock()
		d.failed = time.Now()
		d.mu.Unlock()
		return 0, err
	}
	return me.ID, nil
}
