// Package config finds the config file, reads it, checks it and resolves what
// it says, so that nobody else has to know about defaults, relative paths or
// the environment.
//
// A file that is wrong is never replaced by defaults, and all that is wrong
// with it is said in one go. No finding, error text or excerpt shows a secret
// or the address of a webhook.
package config

import (
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"time"
	"unicode"

	"the-loop/channels"
	"the-loop/state"
)

// Config is a config file with its defaults filled in and its paths made
// absolute. It holds the places of secrets, not the secrets themselves, with
// the one exception of an Address.
type Config struct {
	Path     string // the file, absolute; "" when there is none
	Dir      string // the folder it is in; "" when there is none
	Root     string // the state root, absolute
	Ledger   string // "local" (default), "github" or "none"
	People   []Person
	Channels []Channel // in the file's order
	Outbox   Outbox
	Drain    Drain
	GitHub   GitHub
	Polling  Polling
	Webhook  Webhook
	Metrics  Metrics
	Log      Log
	Limits   Limits
}

// Person may answer. At least one of GitHub and Slack is set.
type Person struct {
	Name   string
	GitHub string // login
	Slack  string // user id
}

// Channel is one configured channel. The fields below Type's are for all
// kinds, those further down for the kind they are named after.
type Channel struct {
	Name string
	Type string // "file", "webhook", "slack" or "github"

	Subscribe []channels.Pattern // defaults to session.awaiting_input
	Verbosity string             // "quiet", "normal" (default) or "verbose"
	Required  bool
	Timeout   time.Duration // of one attempt; defaults to 10s
	Rate      float64       // messages a second, 0 for no limit; slack and github 1, webhook 20, file 0
	SendAgain string        // "auto" (default of the kinds with a look-up: file, slack, github) or "manual"

	Path string // file: absolute

	URL        Address         // webhook: the address, or "" when
	URLFrom    channels.Secret // webhook: it is kept elsewhere
	Secret     channels.Secret // webhook: signs; zero for unsigned
	Idempotent time.Duration   // webhook: how long the receiver drops repeats; 0 for not at all

	Room     string          // slack: the channel's id; the key `channel`
	BotToken channels.Secret // slack: never zero
	AppToken channels.Secret // slack: zero without Socket Mode
	Mention  string          // slack: "<!here>", put before a question
	Read     string          // slack: "auto" (default), "socket" or "poll"
	APIURL   string          // slack: ends in a slash
}

// Address is a web address whose path may be a secret. Printed or encoded, it
// shows no more than its host; string(a) is the whole of it.
type Address string

// String shows the scheme and the host.
func (a Address) String() string {
	u, err := url.Parse(string(a))
	switch {
	case a == "":
		return ""
	case err != nil || u.Host == "":
		return "…"
	}
	return u.Scheme + "://" + u.Host + "/…"
}

// MarshalText gives what String gives.
func (a Address) MarshalText() ([]byte, error) { return []byte(a.String()), nil }

// Outbox says how much is kept, and for how long.
type Outbox struct {
	Cap int                                // entries; defaults to 200
	TTL map[channels.Pattern]time.Duration // time to live; no pattern, no end
}

// Drain says how often and how much is sent again.
type Drain struct {
	Interval time.Duration // between cycles; defaults to 60s
	Budget   int           // sends of a cycle to a channel not known to be healthy; defaults to 20
	Base     time.Duration // first backoff; defaults to 60s
	Max      time.Duration // longest backoff; defaults to 1h
	// EvidenceAfter is how long a provider may take to apply a request: only
	// a look-up begun later can prove that a send was lost. Defaults to 60s.
	EvidenceAfter time.Duration
}

// GitHub is the access to GitHub.
type GitHub struct {
	Token channels.Secret // zero when nothing uses GitHub, or with TokenFromGH
	// TokenFromGH: the gh program is asked for its token ("token: gh").
	TokenFromGH bool
	BaseURL     string   // of an Enterprise server; "" for github.com
	Repos       []string // owner/repo, watched as a whole
	// MirrorAnswers says where an accepted answer is copied to the ticket:
	// "private" (default, private repositories only), "always" or "never".
	MirrorAnswers string
}

// UsesGitHub reports whether anything of the config needs an account there.
func (c *Config) UsesGitHub() bool {
	return c.Ledger == "github" || len(c.GitHub.Repos) > 0 || !c.Webhook.GitHubSecret.IsZero() ||
		slices.ContainsFunc(c.Channels, func(ch Channel) bool { return ch.Type == "github" })
}

// SocketMode reports whether replies come to a channel over Slack's socket.
func (ch Channel) SocketMode() bool {
	return ch.Type == "slack" && ch.Read != "poll" && !ch.AppToken.IsZero()
}

// Pressable says whether a button that is pressed in the channel comes back to
// us, and if not, why.
func (c *Config) Pressable(ch Channel) (ok bool, why string) {
	switch {
	case ch.Type != "slack":
		return false, "channels of the type " + ch.Type + " have no buttons"
	case ch.SocketMode():
		return true, ""
	case c.Webhook.Enabled && !c.Webhook.SlackSigningSecret.IsZero():
		return true, ""
	case !ch.AppToken.IsZero():
		return false, "read.mode is poll"
	case !c.Webhook.SlackSigningSecret.IsZero():
		return false, "webhook.enabled is false, and there is no app token for Socket Mode"
	}
	return false, "there is neither an app token (appTokenFile) nor a receiver with Slack's signing secret"
}

// Polling is the poller's part.
type Polling struct {
	Enabled  bool
	Interval time.Duration // defaults to 60s
}

// Webhook is the receiver's part.
type Webhook struct {
	Enabled            bool
	Listen             string          // defaults to 127.0.0.1:8787
	GitHubSecret       channels.Secret // zero when /github is not served
	SlackSigningSecret channels.Secret // zero when /slack is not served
}

// Metrics is the listener for monitoring.
type Metrics struct {
	Listen string // "" for none
}

// Log is what is logged.
type Log struct {
	Level string // "debug", "info" (default), "warn" or "error"
}

// Limits bound what is taken in.
type Limits struct {
	Text int // bytes of an event's text; defaults to 1 MiB
}

// Default gives the config for when there is no file, a legitimate fresh
// start: the local ledger, and one file channel that takes every event. It
// fails when the environment names no place for the state.
func Default(getenv func(string) string) (*Config, error) {
	root, err := stateRoot("", "", getenv)
	if err != nil {
		return nil, err
	}
	r := &reader{home: getenv("HOME")}
	c := (&section{value: value{r: r}}).config()
	c.Root = root
	c.Channels = []Channel{{
		Name: "file", Type: "file", Path: filepath.Join(root, state.RoomFile),
		Subscribe: []channels.Pattern{"*"}, Verbosity: "normal", Timeout: 10 * time.Second, SendAgain: "auto",
	}}
	return c, nil
}

// CheckURL says what is wrong with the address of a webhook or an API, in
// words that do not repeat it.
func CheckURL(s string) error {
	u, err := url.Parse(s)
	switch {
	case err != nil || strings.ContainsFunc(s, unicode.IsSpace):
		return errors.New("is not a web address")
	case u.Scheme != "http" && u.Scheme != "https":
		return errors.New("must begin with http:// or https://")
	case u.Hostname() == "":
		return errors.New("has no host")
	}
	return nil
}

// ParseDuration reads a duration as Go writes it, with days before the rest:
// "90s", "1h30m", "7d", "1d12h". It may be negative or zero.
func ParseDuration(s string) (time.Duration, error) {
	bad := fmt.Errorf("%s is not a duration: want 30s, 5m, 1h30m or 7d", echo(s))
	days, rest, found := strings.Cut(s, "d")
	if !found {
		d, err := time.ParseDuration(s)
		if err != nil {
			return 0, bad
		}
		return d, nil
	}
	const century = 100 * 365 * 24 * time.Hour
	number, negative := strings.CutPrefix(days, "-")
	whole, err := time.ParseDuration(number + "h")
	if err != nil || strings.Trim(number, "0123456789.") != "" || whole > century/24 {
		return 0, bad
	}
	d := 24 * whole
	if rest != "" {
		more, err := time.ParseDuration(rest)
		if err != nil || strings.ContainsAny(rest, "+-") || more > century {
			return 0, bad
		}
		d += more
	}
	if negative {
		return -d, nil
	}
	return d, nil
}
