package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"strings"

	"github.com/urfave/cli/v2"
)

func manifestCommand(w world) *cli.Command {
	return &cli.Command{
		Name: "manifest", Usage: "print the Slack app to make, to paste", ArgsUsage: "slack",
		Description: example(
			"the-loop channels manifest slack",
			"the-loop channels manifest slack --http https://loop.example",
		),
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "http", Usage: "Slack calls the receiver at `URL`; no Socket Mode"},
		},
		Action: func(c *cli.Context) error { return printManifest(c, w) },
	}
}

// printManifest prints the manifest alone on stdout, so that it may be piped to
// a clipboard, and what is left to do on stderr.
func printManifest(c *cli.Context, w world) error {
	if c.NArg() != 1 || c.Args().First() != "slack" {
		return usage("want the kind of channel, which is slack").withHint("the-loop channels manifest slack")
	}
	base := ""
	if c.IsSet("http") {
		var err error
		if base, err = receiverURL(c.String("http")); err != nil {
			return usage("--http %w", err)
		}
	}
	if err := writeManifest(w.stdout, base); err != nil {
		return failed(err)
	}
	printf(w.stderr, "\n%s\nThen, in the config:\n\n%s\n%s", manifestSteps(base), manifestConfig(base), manifestNext(base))
	return nil
}

// receiverURL gives the address without a slash at its end. Slack calls no
// other than https.
func receiverURL(s string) (string, error) {
	u, err := url.Parse(s)
	switch {
	case err != nil || u.Scheme != "https" || u.Hostname() == "":
		return "", fmt.Errorf("%q: want https://HOST, which is all that Slack calls", s)
	case u.User != nil || u.RawQuery != "" || u.Fragment != "" || u.ForceQuery:
		return "", fmt.Errorf("%q: want an address without a user, a query or a fragment", s)
	}
	return strings.TrimRight(u.String(), "/"), nil
}

// slackScope is a scope that the app asks for.
type slackScope struct {
	name string
	// why and without are what docs/slack.md says of it.
	why, without string
}

// slackBotScopes are what the bot token may do.
func slackBotScopes() []slackScope {
	return []slackScope{
		{
			"chat:write", "posting questions and events, saying in a question's message how it ended, notes to who answered",
			"nothing is posted: the channel is failing (`missing_scope`), and what it is owed is kept",
		},
		{
			"channels:history", "reading replies in a public channel, finding out what became of a send without an answer",
			"replies there are not read, and a send without an answer waits for a person",
		},
		{"groups:history", "the same in a private channel", "the same in a private channel"},
		{
			"reactions:write", "the check mark on a reply that was taken",
			"no check mark; the question's message says who answered all the same",
		},
		{
			"metadata.message:read", "seeing the ids in our own messages, and the questions of other machines in a thread",
			"a send without an answer waits for a person, and a plain reply may be taken for one question " +
				"where another machine has one open too",
		},
	}
}

// slackAppScope is what the app-level token may do. No manifest can ask for it.
func slackAppScope() slackScope {
	return slackScope{
		"connections:write", "Socket Mode, with the app token; not needed for the HTTP variant",
		"replies are not told to us, and buttons do nothing",
	}
}

// The paths that the receiver answers.
const (
	slackEventsPath       = "/slack/events"
	slackInteractionsPath = "/slack/interactions"
)

// slackManifest is an app manifest of Slack, as far as we use it
// (docs.slack.dev/reference/app-manifest). What is off is said, for a manifest
// that is pasted into an app that is there already.
type slackManifest struct {
	Display struct {
		Name        string `json:"name"`
		Description string `json:"description"`
	} `json:"display_information"`
	Features struct {
		Bot struct {
			Name   string `json:"display_name"`
			Online bool   `json:"always_online"`
		} `json:"bot_user"`
	} `json:"features"`
	OAuth struct {
		Scopes struct {
			Bot []string `json:"bot"`
		} `json:"scopes"`
	} `json:"oauth_config"`
	Settings struct {
		Events struct {
			URL string   `json:"request_url,omitempty"`
			Bot []string `json:"bot_events"`
		} `json:"event_subscriptions"`
		Interactivity struct {
			Enabled bool   `json:"is_enabled"`
			URL     string `json:"request_url,omitempty"`
		} `json:"interactivity"`
		OrgDeploy     bool `json:"org_deploy_enabled"`
		SocketMode    bool `json:"socket_mode_enabled"`
		TokenRotation bool `json:"token_rotation_enabled"`
	} `json:"settings"`
}

// newSlackManifest is the one place that says what the app is. base is where
// Slack reaches the receiver, "" for Socket Mode.
func newSlackManifest(base string) (m slackManifest) {
	m.Display.Name = "the-loop"
	m.Display.Description = "Carries messages between work and the people around it"
	m.Features.Bot.Name = "the-loop"
	for _, s := range slackBotScopes() {
		m.OAuth.Scopes.Bot = append(m.OAuth.Scopes.Bot, s.name)
	}
	m.Settings.Events.Bot = []string{"message.channels", "message.groups"}
	m.Settings.Interactivity.Enabled = true
	m.Settings.SocketMode = base == ""
	if base != "" {
		m.Settings.Events.URL = base + slackEventsPath
		m.Settings.Interactivity.URL = base + slackInteractionsPath
	}
	return m
}

// writeManifest writes it as JSON. Slack takes YAML too; JSON is what its
// dialog opens with, and no editor or chat can break its indentation.
func writeManifest(w io.Writer, base string) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(newSlackManifest(base))
}

// manifestSteps are what no manifest can do.
func manifestSteps(base string) string {
	var b strings.Builder
	b.WriteString("Paste it at https://api.slack.com/apps: Create New App, From a manifest.\n" +
		"Three things no manifest can do; each file goes beside the config, for you alone:\n\n" +
		"1. Install App: install it to the workspace. Copy the Bot User OAuth Token (xoxb-):\n" +
		"     install -m 600 /dev/stdin slack.token\n")
	if base == "" {
		b.WriteString("2. Basic Information, App-Level Tokens: generate one with the scope " +
			slackAppScope().name + " (xapp-):\n     install -m 600 /dev/stdin slack-app.token\n")
	} else {
		b.WriteString("2. Basic Information, App Credentials: copy the Signing Secret:\n" +
			"     install -m 600 /dev/stdin slack.secret\n" +
			"   Once the-loop webhook runs, Event Subscriptions: have the Request URL verified.\n")
	}
	b.WriteString("3. In the room: /invite @the-loop. The room's id (C…) stands in its details.\n")
	return b.String()
}

// manifestConfig is what the config needs for that app.
func manifestConfig(base string) string {
	const people = `people:
  - {name: Octo, slack: U012ABCDEF}
channels:
  slack:
    channel: C0123456
    botTokenFile: slack.token
`
	if base == "" {
		return people + "    appTokenFile: slack-app.token\n"
	}
	return people + `webhook:
  enabled: true
  listen: "127.0.0.1:8787"
  slack: {signingSecretFile: slack.secret}
`
}

func manifestNext(base string) string {
	daemon := "the-loop poller"
	if base != "" {
		daemon = "the-loop webhook"
	}
	return "next: the-loop check, then\n" +
		"   the-loop channels test slack --reply 60s\n" +
		"which prints your line for people: who is not listed there cannot answer.\n" +
		"With that in the config: " + daemon + "\n"
}
