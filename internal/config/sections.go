package config

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/goccy/go-yaml/ast"

	"the-loop/channels"
	"the-loop/internal/lazy"
)

// DefaultSlackEnv is the variable that holds Slack's bot token when the config
// names neither a file nor a variable.
const DefaultSlackEnv = "THE_LOOP_SLACK_BOT_TOKEN"

// DefaultGitHubEnv is the like for GitHub's, where anything uses GitHub.
const DefaultGitHubEnv = "THE_LOOP_GITHUB_TOKEN"

// config reads the whole file. Root is as it stands there, "" when absent.
func (s *section) config() *Config {
	c := &Config{}
	s.version()
	c.Root = s.sub("state").state()
	c.Ledger = s.ledger()
	c.People = s.people()
	c.Channels = s.sub("channels").channels()
	c.Outbox = s.sub("outbox").outbox()
	c.Drain = s.sub("drain").drain()
	c.GitHub = s.sub("github").github()
	c.Polling = s.sub("polling").polling()
	c.Webhook = s.sub("webhook").webhook()
	c.Metrics = s.sub("metrics").metrics()
	c.Log = s.sub("log").log()
	c.Limits = s.sub("limits").limits()
	s.done()
	if c.GitHub.Token.IsZero() && !c.GitHub.TokenFromGH && c.UsesGitHub() {
		c.GitHub.Token.Env = DefaultGitHubEnv
	}
	// Where the ledger is the ticket, people see there what they are asked.
	if len(c.Channels) == 0 && c.Ledger != "github" && !anyError(s.r.found) {
		where := "events reach the ledger and nobody else"
		if c.Ledger == "none" {
			where = "events go nowhere"
		}
		s.r.found = append(s.r.found, Finding{Field: "channels", Message: "there are none: " + where, Warning: true})
	}
	return c
}

func (s *section) version() {
	if n := s.count("version", 1); n > 1 {
		s.pair("version").report(Finding{
			Message: fmt.Sprintf("this file is for a newer the-loop: version %d, and we know 1", n),
		})
	}
}

func (s *section) state() string {
	defer s.done()
	return s.path("root")
}

func (s *section) ledger() string {
	return s.oneOf("ledger", "local", "local", "none", "github")
}

var (
	slackUser = lazy.Regexp(`^[UW][A-Z0-9]+$`)
	slackRoom = lazy.Regexp(`^[CGD][A-Z0-9]+$`)
	login     = lazy.Regexp(`^[A-Za-z0-9](-?[A-Za-z0-9]){0,38}$`)
	mentions  = lazy.Regexp(`^<(!here|!channel|!everyone|!subteam\^S[A-Z0-9]+|@[UW][A-Z0-9]+)>$`)
)

func (s *section) people() []Person {
	v, ok := s.get("people")
	if !ok {
		return nil
	}
	var people []Person
	taken := map[string]bool{}
	for _, item := range v.items("a list of people") {
		p := item.section()
		person := Person{
			Name:   p.text("name", "", "a name"),
			GitHub: p.matching("github", "", login(), "a GitHub login, without @"),
			Slack:  p.matching("slack", "", slackUser(), "a Slack user id, like U012ABCDEF"),
		}
		p.done()
		if _, isGroup := item.node.(ast.MapNode); isGroup && !p.has("github", "slack") {
			item.report(Finding{Message: "has no identity: give github, slack or both"})
		}
		for key, id := range map[string]string{"github": strings.ToLower(person.GitHub), "slack": person.Slack} {
			if id != "" && taken[key+id] {
				p.pair(key).report(Finding{Message: "stands for somebody else already"})
			}
			taken[key+id] = true
		}
		people = append(people, person)
	}
	return people
}

func (s *section) channels() []Channel {
	var out []Channel
	for _, v := range s.all() {
		name := v.key.Value
		if !channels.ValidName(name) {
			f := Finding{Message: "a channel's name is 1 to 64 of a-z 0-9 . _ - and begins with a-z or 0-9"}
			if name == "undelivered" {
				f.Message = "this name is taken: it is the outbox's own file"
			}
			v.reportKey(f)
		}
		if c, ok := v.section().channel(name); ok {
			out = append(out, c)
		}
	}
	return out
}

// channel reads one channel; ok is false when its type is none of ours, and
// its other keys then mean nothing.
func (s *section) channel(name string) (c Channel, ok bool) {
	kinds := []string{"file", "webhook", "slack", "github"}
	c.Name, c.Type = name, s.text("type", name, "one of "+strings.Join(kinds, ", "))
	read := map[string]func(*Channel){
		"file": s.file, "webhook": s.hook, "slack": s.slack, "github": s.ticket,
	}[c.Type]
	if read == nil {
		f := Finding{Message: "want one of " + strings.Join(kinds, ", "), Allowed: kinds}
		if at := s.pair("type"); at != nil {
			at.report(f)
		} else if _, isGroup := s.node.(ast.MapNode); isGroup {
			f.Hint = "the type is the channel's name when none is given"
			at := s.value
			at.field += ".type"
			at.reportKey(f)
		}
		return c, false
	}
	c.Subscribe = s.patterns("subscribe", "session.awaiting_input")
	c.Verbosity = s.oneOf("verbosity", "normal", "quiet", "normal", "verbose")
	c.Required = s.flag("required")
	c.Timeout = s.duration("timeout", 10*time.Second)
	read(&c)
	s.done()
	return c, true
}

func (s *section) file(c *Channel) {
	c.Rate = s.rate("rate", 0)
	c.SendAgain = s.oneOf("sendAgain", "auto", "auto", "manual")
	c.Path = s.path("path")
	s.require("path")
}

func (s *section) hook(c *Channel) {
	c.Rate = s.rate("rate", 20)
	c.SendAgain = s.oneOf("sendAgain", "manual", "auto", "manual")
	c.URL = Address(s.url("url", ""))
	c.URLFrom = s.secret("url")
	c.Secret = s.secret("secret")
	c.Idempotent = s.repeats("idempotent")
	if s.require("url", "urlFile", "urlEnv") && s.has("url") && !c.URLFrom.IsZero() {
		s.pair("url").reportKey(Finding{Message: "give url, urlFile or urlEnv, not two of them"})
	}
}

func (s *section) slack(c *Channel) {
	c.Rate = s.rate("rate", 1)
	c.SendAgain = s.oneOf("sendAgain", "auto", "auto", "manual")
	c.Room = s.matching("channel", "", slackRoom(), "a channel's id, like C0123456; it stands in the channel's details")
	c.BotToken = s.secret("botToken")
	if c.BotToken.IsZero() {
		c.BotToken.Env = DefaultSlackEnv
	}
	c.AppToken = s.secret("appToken")
	c.Mention = s.matching("mention", "", mentions(), "<!here>, <!channel>, <@U…> or <!subteam^S…>")
	read := s.sub("read")
	c.Read = read.oneOf("mode", "auto", "auto", "socket", "poll")
	read.done()
	c.APIURL = strings.TrimSuffix(s.url("apiURL", "https://slack.com/api/"), "/") + "/"
	s.require("channel")
}

// ticket is a channel of the type github; how GitHub is reached stands in the
// file's own section of that name.
func (s *section) ticket(c *Channel) {
	c.Rate = s.rate("rate", 1)
	c.SendAgain = s.oneOf("sendAgain", "auto", "auto", "manual")
}

// require reports whether one of the keys is there, and says so when none is.
func (s *section) require(keys ...string) bool {
	ok := s.has(keys...)
	if !ok {
		s.reportKey(Finding{Message: strings.Join(keys, " or ") + " is missing"})
	}
	return ok
}

// has reports whether one of the keys is there with a value that is not empty.
func (s *section) has(keys ...string) bool {
	return slices.ContainsFunc(keys, func(key string) bool {
		p := s.pair(key)
		return p != nil && p.node.Type() != ast.NullType && p.node.GetToken().Value != ""
	})
}

func (s *section) outbox() Outbox {
	o := Outbox{Cap: s.count("cap", 200), TTL: map[channels.Pattern]time.Duration{}}
	ttl := s.sub("ttl")
	for _, v := range ttl.all() {
		p, okPattern := pattern(v.key.Value, v.reportKey)
		if d, ok := v.duration(); ok && okPattern {
			o.TTL[p] = d
		}
	}
	s.done()
	return o
}

func (s *section) drain() Drain {
	d := Drain{
		Interval: s.duration("interval", time.Minute),
		Budget:   s.count("budget", 20),
		Base:     s.duration("base", time.Minute),
		Max:      s.duration("max", time.Hour),

		EvidenceAfter: s.duration("evidenceAfter", time.Minute),
	}
	s.done()
	if d.Max < d.Base {
		at := s.pair("max")
		if at == nil {
			at = s.pair("base")
		}
		at.report(Finding{Message: fmt.Sprintf("max is less than base (%v is less than %v)", d.Max, d.Base)})
	}
	return d
}

func (s *section) github() GitHub {
	defer s.done()
	g := GitHub{
		Token: s.secret("token"), BaseURL: s.url("baseURL", ""),
		MirrorAnswers: s.oneOf("mirrorAnswers", "private", "private", "always", "never"),
	}
	at := s.pair("token")
	switch {
	case at == nil || at.node.GetToken().Value == "gh": // else it is taken for a secret that was written inline
		_, g.TokenFromGH = s.get("token")
	}
	if g.TokenFromGH && !g.Token.IsZero() {
		at.reportKey(Finding{Message: "give token: gh, tokenFile or tokenEnv, not two of them"})
	}
	v, ok := s.get("repos")
	if !ok {
		return g
	}
	for _, item := range v.items("a list of repositories") {
		repo, ok := item.text("owner/repo")
		if !ok {
			continue
		}
		if _, err := channels.ParseWorkItem("github:" + repo + "#1"); err != nil {
			item.report(Finding{Message: "want owner/repo"})
		}
		g.Repos = append(g.Repos, repo)
	}
	return g
}

func (s *section) polling() Polling {
	defer s.done()
	return Polling{Enabled: s.flag("enabled"), Interval: s.duration("interval", time.Minute)}
}

func (s *section) webhook() Webhook {
	github, slack := s.sub("github"), s.sub("slack")
	w := Webhook{
		Enabled:            s.flag("enabled"),
		Listen:             s.listen("listen", "127.0.0.1:8787"),
		GitHubSecret:       github.secret("secret"),
		SlackSigningSecret: slack.secret("signingSecret"),
	}
	github.done()
	slack.done()
	s.done()
	return w
}

func (s *section) metrics() Metrics {
	defer s.done()
	return Metrics{Listen: s.listen("listen", "")}
}

func (s *section) log() Log {
	defer s.done()
	return Log{Level: s.oneOf("level", "info", "debug", "info", "warn", "error")}
}

func (s *section) limits() Limits {
	defer s.done()
	return Limits{Text: s.size("text", 1<<20, 64<<20)}
}
