package config

import (
	"fmt"
	"strconv"
	"strings"
)

// Template is the config that `init` writes. It has one channel: a webhook when
// an address is given (which CheckURL accepts), else a file. Not both: one
// acceptance is enough for an event, and a file accepts everything, so that
// what the webhook refused would not be sent again.
func Template(webhookURL string) []byte {
	if webhookURL == "" {
		return fill("file", "", "")
	}
	return fill("webhook", webhookURL, "")
}

// SlackTemplate is the config that `init --slack` writes: Slack is the one
// channel, for the same reason. room is the channel's id; without one there is
// a placeholder, which Slack will not know.
func SlackTemplate(room string) []byte { return fill("slack", "", room) }

// CheckRoom says what is wrong with a Slack channel's id.
func CheckRoom(id string) error {
	if !slackRoom().MatchString(id) {
		return fmt.Errorf("%q: want a channel's id, like C0123456; it stands in the channel's details", id)
	}
	return nil
}

// fill leaves the live channel's lines in force, and the others as comments.
func fill(live, address, room string) []byte {
	if address == "" {
		address = "https://ops.example/hook"
	}
	if room == "" {
		room = "C0123456"
	}
	values := []string{"{address}", strconv.QuoteToASCII(address), "{id}", room}
	for _, kind := range []string{"file", "webhook", "slack"} {
		mark := "# "
		if kind == live {
			mark = ""
		}
		values = append(values, "{"+kind+"}", mark)
	}
	return []byte(strings.NewReplacer(values...).Replace(template))
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

  # Slack: the channel's id stands in its details, the bot token begins with xoxb-,
  # the app token, by which replies and buttons come back, with xapp-.
  # "the-loop channels manifest slack" prints the app to make.
  {slack}slack:
  {slack}  channel: {id}
  {slack}  botTokenFile: slack.token
  {slack}  appTokenFile: slack-app.token

# What no channel took is kept and sent again while "the-loop poller" runs.
outbox: {cap: 200}
drain: {interval: 60s}
`
