package config

import (
	"strconv"
	"strings"
)

// Template is the config that `init` writes. It has one channel: a webhook when
// an address is given (which CheckURL accepts), else a file. Not both: one
// acceptance is enough for an event, and a file accepts everything, so that
// what the webhook refused would not be sent again.
func Template(webhookURL string) []byte {
	file, webhook := "", "# "
	address := `"https://ops.example/hook"`
	if webhookURL != "" {
		file, webhook, address = "# ", "", strconv.QuoteToASCII(webhookURL)
	}
	return []byte(strings.NewReplacer(
		"{file}", file, "{webhook}", webhook, "{address}", address,
	).Replace(template))
}

const template = `# The config of the-loop. "the-loop check" says whether it is right.
# Paths are relative to this file's folder. Secrets stand in files of their own,
# which only you can read (chmod 600); a changed one is taken up at once.
version: 1

# Who may answer. An empty list denies everyone.
people: []
#   - {name: Octo, github: octocat, slack: U012ABCDEF}

# Where events go. One acceptance is enough for an event, unless a channel is
# "required: true". Choose events with "subscribe", by type, prefix.* or "*";
# without it, a channel gets the questions (session.awaiting_input).
channels:
  # One line of JSON per event. It accepts everything: take it out when you add
  # a room that must not miss anything, or make that room required.
  {file}room:
  {file}  type: file
  {file}  path: room.jsonl
  {file}  subscribe: ["*"]

  # A POST of the event as JSON. With secretFile it is signed (Standard Webhooks).
  {webhook}webhook:
  {webhook}  url: {address}
  {webhook}  subscribe: ["*"]
  {webhook}  # secretFile: webhook.secret

  # Slack: the channel's id stands in its details, the bot token begins with xoxb-.
  # slack:
  #   channel: C0123456
  #   botTokenFile: slack.token

# What no channel took is kept and sent again while "the-loop poller" runs.
outbox: {cap: 200}
drain: {interval: 60s}
`
