package slack

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"time"

	"the-loop/channels"
	"the-loop/channels/internal/wire"
	"the-loop/internal/lazy"
)

// defaultWait is for a "ratelimited" that does not say how long.
const defaultWait = 30 * time.Second

// call is the HTTP client that slack-go sends one request with. It keeps the
// exchange, for slack-go's own errors lose the Retry-After of a 503, take an
// HTML page for bad JSON and may hold addresses: the verdict is taken from
// here and from nowhere else.
type call struct {
	client   *http.Client
	limit    int // of the answer's body; 0 is wire.MaxBody
	exchange *wire.Exchange
}

// Do implements slack-go's client interface.
func (c *call) Do(req *http.Request) (*http.Response, error) {
	c.exchange = wire.DoLimit(c.client, req, cmp.Or(c.limit, wire.MaxBody))
	x := c.exchange
	if x.Status == 0 {
		return nil, errors.New("no answer")
	}
	return &http.Response{
		StatusCode: x.Status, Header: x.Header, Body: io.NopCloser(bytes.NewReader(x.Body)), Request: req,
	}, nil
}

// answer is what of Slack's answers is looked at.
type answer struct {
	OK         *bool       `json:"ok"`
	Error      string      `json:"error"`
	Needed     string      `json:"needed"`      // with missing_scope
	RetryAfter json.Number `json:"retry_after"` // with ratelimited, in seconds
	TS         string      `json:"ts"`          // of chat.postMessage
	Message    *struct {
		ThreadTS string `json:"thread_ts"`
	} `json:"message"`

	UserID string `json:"user_id"` // of auth.test
	BotID  string `json:"bot_id"`  // likewise, for a bot token

	// Of a page of messages. nil is no page: an empty one is a list too.
	Messages  []message `json:"messages"`
	HasMore   bool      `json:"has_more"`
	IsLimited bool      `json:"is_limited"` // the plan hides messages that are older
	Next      struct {
		Cursor string `json:"next_cursor"`
	} `json:"response_metadata"`
}

// message is what of a message that was read is looked at.
type message struct {
	TS       string          `json:"ts"`
	Subtype  string          `json:"subtype"`
	User     string          `json:"user"`
	BotID    string          `json:"bot_id"`
	Metadata json.RawMessage `json:"metadata"` // anybody's, of any form
}

// verdict says what the call proves: an answer with "ok": true, or a
// *channels.Refusal, or a *channels.Uncertain. err is what slack-go returned.
func (c *call) verdict(err error) (answer, error) {
	x := c.exchange
	if x == nil { // no request could be made of it
		return answer{}, &channels.Refusal{Reason: channels.ReasonConfig, Code: "bad_address", Err: err}
	}
	var a answer
	isSlack := json.Unmarshal(x.Body, &a) == nil && a.OK != nil
	verdict := x.Verdict()
	var refusal *channels.Refusal
	switch {
	case errors.As(verdict, &refusal) && isSlack && !*a.OK:
		refusal.Code = a.code() // says more than the status
		if refusal.Reason == channels.ReasonRate {
			refusal.RetryAfter, refusal.Guessed = a.wait(x.Header)
		}
		return answer{}, refusal
	case verdict != nil:
		return answer{}, verdict
	case !isSlack:
		return answer{}, &channels.Uncertain{Code: "not_json", Detail: x.Host}
	case !*a.OK:
		return answer{}, a.refusal(x.Header)
	}
	return a, nil
}

// refusal is the verdict on an answer with "ok": false.
func (a answer) refusal(h http.Header) error {
	code := a.code()
	r := &channels.Refusal{Reason: channels.ReasonOther, Code: code}
	switch code {
	case "internal_error", "fatal_error": // Slack's own: it may have been posted
		return &channels.Uncertain{Code: code}
	case "ratelimited", "rate_limited":
		r.Reason = channels.ReasonRate
		r.RetryAfter, r.Guessed = a.wait(h)
	case "missing_scope":
		r.Reason = channels.ReasonAuth
		if scopePattern().MatchString(a.Needed) {
			r.Detail = "needs " + a.Needed
		}
	case "invalid_auth", "not_authed", "account_inactive", "token_revoked", "token_expired",
		"not_allowed_token_type", "no_permission", "restricted_action":
		r.Reason = channels.ReasonAuth
	case "channel_not_found", "not_in_channel", "is_archived":
		r.Reason = channels.ReasonConfig
	case "invalid_blocks", "invalid_blocks_format", "msg_too_long", "msg_blocks_too_long",
		"no_text", "metadata_too_large", "user_not_in_channel":
		r.Reason = channels.ReasonUnacceptable
	}
	return r
}

// Neither a code nor a scope of Slack's has a hyphen, and every token has.
var (
	codePattern  = lazy.Regexp(`^[a-z0-9_.]+$`)
	scopePattern = lazy.Regexp(`^[a-z0-9_:.,]{1,100}$`)
)

func (a answer) code() string {
	if !codePattern().MatchString(a.Error) {
		return "other"
	}
	return channels.SafeCode(a.Error)
}

// wait is how long a rate limit tells us to wait: by its header, else by its
// body, else a default, which is guessed.
func (a answer) wait(h http.Header) (d time.Duration, guessed bool) {
	for _, seconds := range []string{h.Get("Retry-After"), a.RetryAfter.String()} {
		if d, ok := wire.RetryAfter(http.Header{"Retry-After": {seconds}}, time.Now()); ok {
			return d, false
		}
	}
	return defaultWait, true
}
