package github

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"time"

	"the-loop/channels"
	"the-loop/channels/internal/wire"
	"the-loop/internal/lazy"
)

// secondaryWait is for a secondary limit that does not say how long: GitHub
// asks for a minute at least (docs.github.com/rest, "Rate limits for the REST
// API").
const secondaryWait = time.Minute

// call is the transport that go-github sends one request with. It keeps the
// exchange.
type call struct {
	client *http.Client
	token  string
	etag   string
	limit  int
	x      *wire.Exchange
}

// RoundTrip implements http.RoundTripper. A second request is refused.
func (c *call) RoundTrip(req *http.Request) (*http.Response, error) {
	if c.x != nil {
		return nil, errors.New("a call is one request")
	}
	req = req.Clone(req.Context())
	req.Header.Set("Authorization", "Bearer "+c.token)
	if c.etag != "" {
		req.Header.Set("If-None-Match", c.etag)
	}
	c.x = wire.DoLimit(c.client, req, c.limit)
	if c.x.Status == 0 {
		return nil, errors.New("no answer")
	}
	return &http.Response{
		StatusCode: c.x.Status, Header: c.x.Header, Body: io.NopCloser(bytes.NewReader(c.x.Body)), Request: req,
	}, nil
}

// verdict says what the call proves. err is what go-github returned; with a
// complete 2xx it says that the body is not GitHub's.
func (c *call) verdict(err error) error {
	x := c.x
	verdict := x.Verdict()
	var r *channels.Refusal
	switch {
	case verdict == nil && x.Truncated:
		return &channels.Uncertain{Code: "too_long", Detail: x.Host}
	case verdict == nil && x.Status == http.StatusNoContent:
		return nil
	case verdict == nil && (err != nil || len(bytes.TrimSpace(x.Body)) == 0):
		return &channels.Uncertain{Code: "not_json", Detail: x.Host}
	case errors.As(verdict, &r):
		c.explain(r)
		return r
	}
	return verdict
}

// explain adds what GitHub's own words say beyond the status.
func (c *call) explain(r *channels.Refusal) {
	said := strings.ToLower(c.said())
	if said == "" {
		return
	}
	switch status := c.x.Status; {
	case r.Reason == channels.ReasonRate:
		if strings.Contains(said, "secondary") {
			r.Code = "secondary_rate_limit"
		} else if c.x.Header.Get("X-Ratelimit-Remaining") == "0" {
			r.Code = "rate_limit"
		}
	case status == http.StatusForbidden && strings.Contains(said, "abuse detection"): // older Enterprise servers
		r.Reason, r.Code, r.RetryAfter, r.Guessed = channels.ReasonRate, "secondary_rate_limit", secondaryWait, true
	case status == http.StatusUnauthorized && said == "bad credentials":
		r.Code = "bad_credentials"
	case status == http.StatusForbidden && strings.Contains(said, "is locked"):
		// The ticket's own state, which says nothing about the others.
		r.Reason, r.Code = channels.ReasonUnacceptable, "locked"
	case status == http.StatusGone && strings.Contains(said, "was deleted"):
		r.Reason, r.Code = channels.ReasonUnacceptable, "deleted"
	case status == http.StatusForbidden && strings.HasPrefix(said, "resource not accessible"):
		r.Code = "not_accessible"
		if needs := c.x.Header.Get("X-Accepted-Github-Permissions"); permissionPattern().MatchString(needs) {
			r.Detail += " needs " + needs
		}
	}
}

var permissionPattern = lazy.Regexp(`^[a-z_]+=(read|write)([,;] ?[a-z_]+=(read|write)){0,9}$`)

// said is the message in GitHub's own form of an error, "" when the body has
// another one: then it is not GitHub that answered.
func (c *call) said() string {
	var said struct {
		Message string `json:"message"`
	}
	if json.Unmarshal(c.x.Body, &said) != nil {
		return ""
	}
	return said.Message
}
