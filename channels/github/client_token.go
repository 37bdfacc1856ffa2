package github

import (
	"bytes"
	"context"
	"errors"
	"net/url"
	"os/exec"
	"strings"
	"sync"
	"time"

	"the-loop/channels"
	"the-loop/internal/lazy"
)

const (
	ghFor     = time.Minute      // how long gh's answer is kept
	ghTimeout = 10 * time.Second // how long gh may take
)

// ghToken is what `gh auth token` said last. An error is not kept.
type ghToken struct {
	mu    sync.Mutex
	value string
	asked time.Time
}

// tokenValue gives the token, or a *channels.Refusal with ReasonAuth.
func (c *Client) tokenValue(ctx context.Context) (string, error) {
	if !c.o.TokenFromGH {
		return c.o.Token.Value()
	}
	c.gh.mu.Lock()
	defer c.gh.mu.Unlock()
	if c.gh.value != "" && time.Since(c.gh.asked) < ghFor {
		return c.gh.value, nil
	}
	value, err := askGH(ctx, webHost(c.base))
	if err != nil {
		return "", err
	}
	c.gh.value, c.gh.asked = value, time.Now()
	return value, nil
}

var tokenPattern = lazy.Regexp(`^[!-~]{8,1000}$`)

// askGH runs gh, without a shell and without a terminal.
func askGH(ctx context.Context, host string) (string, error) {
	refuse := func(what string, err error) (string, error) {
		return "", &channels.Refusal{Reason: channels.ReasonAuth, Code: "no_secret", Detail: what, Err: err}
	}
	path, err := exec.LookPath("gh")
	if err != nil {
		return refuse("gh is not there", err)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, ghTimeout, errors.New("gh auth token took too long"))
	defer cancel()
	cmd := exec.CommandContext(ctx, path, "auth", "token", "--hostname", host)
	cmd.WaitDelay = time.Second
	var out bytes.Buffer
	cmd.Stdout = &out
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			err = ctx.Err()
		}
		return refuse("gh auth token failed: gh auth login mends it", err)
	}
	token := strings.TrimSpace(out.String())
	if !tokenPattern().MatchString(token) {
		return refuse("gh auth token gave none", nil)
	}
	return token, nil
}

// webHost is the host that gh knows the API's address by: github.com for
// api.github.com, the tenant's for api.TENANT.ghe.com, else the server's own.
func webHost(base string) string {
	u, err := url.Parse(base)
	if err != nil {
		return "github.com"
	}
	return strings.TrimPrefix(u.Hostname(), "api.")
}
