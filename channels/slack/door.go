package slack

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"the-loop/channels"
	"the-loop/internal/lazy"
)

const (
	// doorLimit is the largest body that Slack is let send us.
	doorLimit = 1 << 20
	// freshness is how far a request's timestamp may be from now, both ways.
	freshness = 5 * time.Minute

	signatureHeader = "X-Slack-Signature"
	timestampHeader = "X-Slack-Request-Timestamp"
)

var (
	signaturePattern = lazy.Regexp(`^v0=[0-9a-f]{64}$`)
	timestampPattern = lazy.Regexp(`^[0-9]{1,12}$`)
)

// DoorOptions says who is let in.
type DoorOptions struct {
	// Secret is the app's signing secret, read anew for each request. It may
	// hold several lines: what any of them signed is let in.
	Secret channels.Secret
	// Rooms are the channels that replies may come in for.
	Rooms []*Channel
}

// EventsDoor takes the requests of Slack's Events API: replies in threads that
// are ours. It is safe for several goroutines, and keeps nothing: a request
// that is sent twice gives the same message twice, under the same key.
type EventsDoor struct{ door }

// NewEventsDoor gives the door for the app's request URL of event subscriptions.
func NewEventsDoor(o DoorOptions) *EventsDoor { return &EventsDoor{door{o.Secret, o.Rooms}} }

// Open gives what is in a signed request. The error is channels.ErrForged when
// it is not signed by the secret, or not now; any other one says that the body
// is not what Slack sends.
func (d *EventsDoor) Open(h http.Header, body []byte) (channels.Arrival, error) {
	if err := d.verify(h, body, time.Now()); err != nil {
		return channels.Arrival{}, err
	}
	return d.rooms.decodeEvents(body)
}

// InteractionsDoor takes the requests that Slack makes when somebody presses a
// button of ours. Otherwise it is as EventsDoor.
type InteractionsDoor struct{ door }

// NewInteractionsDoor gives the door for the app's request URL of interactivity.
func NewInteractionsDoor(o DoorOptions) *InteractionsDoor {
	return &InteractionsDoor{door{o.Secret, o.Rooms}}
}

// Open is as EventsDoor.Open, for a form with the field payload.
func (d *InteractionsDoor) Open(h http.Header, body []byte) (channels.Arrival, error) {
	if err := d.verify(h, body, time.Now()); err != nil {
		return channels.Arrival{}, err
	}
	form, err := url.ParseQuery(string(body))
	if err != nil || len(form["payload"]) != 1 {
		return channels.Arrival{}, fmt.Errorf("interaction: %w", errMalformed)
	}
	return d.rooms.decodeInteraction([]byte(form.Get("payload")))
}

// door is what both have in common.
type door struct {
	secret channels.Secret
	rooms  rooms
}

// Limit is the largest body, in bytes.
func (d *door) Limit() int64 { return doorLimit }

// Ready is nil when the signing secret is there and not blank.
func (d *door) Ready() error {
	if _, err := d.secret.Lines(); err != nil {
		return fmt.Errorf("slack signing secret: %s", place(err))
	}
	return nil
}

// place is what is wrong with a secret, for people.
func place(err error) string {
	var refusal *channels.Refusal
	if errors.As(err, &refusal) && refusal.Detail != "" {
		return refusal.Detail
	}
	return "cannot be read"
}

// Sealed reports whether the headers bear one signature and one timestamp of
// the right form. It proves nothing; without it there is nothing to prove.
func (d *door) Sealed(h http.Header) bool {
	_, _, ok := seal(h)
	return ok
}

// seal gives the two headers when each is there once and well formed.
func seal(h http.Header) (signature, timestamp string, ok bool) {
	signatures, timestamps := h.Values(signatureHeader), h.Values(timestampHeader)
	if len(signatures) != 1 || len(timestamps) != 1 {
		return "", "", false
	}
	signature, timestamp = signatures[0], timestamps[0]
	return signature, timestamp, signaturePattern().MatchString(signature) && timestampPattern().MatchString(timestamp)
}

// verify proves that Slack signed body now, by its scheme v0: an HMAC-SHA256
// over the scheme, the timestamp and the raw body. Every line of the secret is
// tried, in a time that does not tell how much of the signature was right.
func (d *door) verify(h http.Header, body []byte, now time.Time) error {
	signature, timestamp, ok := seal(h)
	if !ok {
		return channels.ErrForged
	}
	seconds, err := strconv.ParseInt(timestamp, 10, 64)
	if err != nil {
		return channels.ErrForged
	}
	if age := now.Unix() - seconds; max(age, -age) > int64(freshness/time.Second) {
		return channels.ErrForged
	}
	lines, err := d.secret.Lines()
	if err != nil {
		return fmt.Errorf("%w: slack signing secret: %s", channels.ErrForged, place(err))
	}
	given, err := hex.DecodeString(signature[len("v0="):])
	if err != nil {
		return channels.ErrForged
	}
	holds := false
	for _, line := range lines {
		mac := hmac.New(sha256.New, []byte(line))
		_, _ = mac.Write([]byte("v0:" + timestamp + ":"))
		_, _ = mac.Write(body)
		holds = hmac.Equal(mac.Sum(nil), given) || holds
	}
	if !holds {
		return channels.ErrForged
	}
	return nil
}
