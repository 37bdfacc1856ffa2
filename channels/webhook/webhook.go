// Package webhook is the channel kind that posts an event as JSON to an
// address, signed as Standard Webhooks (https://www.standardwebhooks.com) v1.
package webhook

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"the-loop/channels"
	"the-loop/channels/internal/wire"
)

// Options says where a webhook goes.
type Options struct {
	Name string
	// URL is the whole address, http or https. It counts as a secret.
	URL string
	// URLFrom is where the address is kept when URL is empty; read anew at
	// every Post.
	URLFrom channels.Secret
	// Secret signs what is sent; zero leaves it unsigned. Each line is one
	// secret as Standard Webhooks writes it: base64, with or without the prefix
	// "whsec_". While one is rotated the old and the new one stand in the same
	// place, and a receiver that knows either is content.
	Secret channels.Secret
	// Idempotent is how long the receiver promised to drop a repeated
	// webhook-id. 0 means that it did not.
	Idempotent time.Duration
	// Client sends. Defaults to wire.NewClient().
	Client *http.Client
}

// Channel posts to one address. Its requests differ from attempt to attempt in
// webhook-timestamp and the signature over it; id and body never change.
type Channel struct {
	o Options
}

// New gives the channel. What is wrong with the options is said by Post, as a
// refusal: a missing secret stops nothing else.
func New(o Options) *Channel {
	if o.Client == nil {
		o.Client = wire.NewClient()
	}
	return &Channel{o}
}

// Name is the channel's name in the config.
func (c *Channel) Name() string { return c.o.Name }

// DropsRepeats is how long the receiver remembers an id.
func (c *Channel) DropsRepeats() time.Duration { return c.o.Idempotent }

// Credential changes with the address and with the secrets.
func (c *Channel) Credential() string {
	address, _ := c.address()
	secrets, _ := c.secrets()
	return strings.Join(append([]string{address}, secrets...), "\n")
}

// Post sends the event; any complete 2xx is an acceptance. The receipt's Ref is
// the webhook-id, for that is what the receiver knows the event by.
func (c *Channel) Post(ctx context.Context, d channels.Delivery) (channels.Receipt, error) {
	req, err := c.request(ctx, d.Event, time.Now())
	if err != nil {
		return channels.Receipt{}, err
	}
	if err := wire.Do(c.o.Client, req).Verdict(); err != nil {
		return channels.Receipt{}, err
	}
	return channels.Receipt{Ref: d.Event.ID}, nil
}

func (c *Channel) request(ctx context.Context, e channels.Event, now time.Time) (*http.Request, error) {
	body, err := e.Encode()
	if err != nil || e.ID == "" {
		return nil, &channels.Refusal{Reason: channels.ReasonUnacceptable, Code: "bad_event", Err: err}
	}
	address, err := c.address()
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, address, bytes.NewReader(body))
	if err != nil || req.URL.Hostname() == "" || req.URL.Scheme != "http" && req.URL.Scheme != "https" {
		return nil, &channels.Refusal{ // without the error, which names the address
			Reason: channels.ReasonConfig, Code: "bad_url", Detail: "want an http or https address",
		}
	}
	timestamp := strconv.FormatInt(now.Unix(), 10)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("User-Agent", "the-loop")
	req.Header.Set("webhook-id", e.ID)
	req.Header.Set("webhook-timestamp", timestamp)
	secrets, err := c.secrets()
	if err != nil || len(secrets) == 0 {
		return req, err
	}
	signatures, err := sign(secrets, e.ID+"."+timestamp+".", body)
	if err != nil {
		return nil, &channels.Refusal{
			Reason: channels.ReasonAuth, Code: "bad_secret", Detail: c.o.Secret.Source() + ": " + err.Error(),
		}
	}
	req.Header.Set("webhook-signature", signatures)
	return req, nil
}

// address gives the address as it is now.
func (c *Channel) address() (string, error) {
	if c.o.URL != "" || c.o.URLFrom.IsZero() {
		return c.o.URL, nil
	}
	return c.o.URLFrom.Value()
}

// secrets gives the secrets as they are now, none when the hook is unsigned.
func (c *Channel) secrets() ([]string, error) {
	if c.o.Secret.IsZero() {
		return nil, nil
	}
	return c.o.Secret.Lines()
}

// sign gives one signature per secret, with blanks between. Its errors say
// which secret is malformed and hold nothing of it.
func sign(secrets []string, prefix string, body []byte) (string, error) {
	var out []string
	for i, s := range secrets {
		key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(s, "whsec_"))
		if err == nil && len(key) == 0 {
			err = errors.New("empty")
		}
		if err != nil {
			return "", fmt.Errorf("secret %d of %d is not whsec_ and base64", i+1, len(secrets))
		}
		mac := hmac.New(sha256.New, key)
		mac.Write([]byte(prefix))
		mac.Write(body)
		out = append(out, "v1,"+base64.StdEncoding.EncodeToString(mac.Sum(nil)))
	}
	return strings.Join(out, " "), nil
}
