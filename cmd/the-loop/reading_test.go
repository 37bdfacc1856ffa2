package main

import (
	"log/slog"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"the-loop/bus"
	"the-loop/channels"
	"the-loop/channels/github"
	"the-loop/channels/slack"
	"the-loop/internal/config"
	"the-loop/internal/reader"
	"the-loop/state"
)

func readingDeployment(t *testing.T) *deployment {
	t.Helper()
	root, err := state.Open(filepath.Join(t.TempDir(), "root"))
	if err != nil {
		t.Fatal(err)
	}
	rooms := []config.Channel{{Name: "asked", Type: "slack", Room: "C1"}, {Name: "listens", Type: "slack", Room: "C2"}}
	rooms[1].AppToken = channels.Secret{Env: "APP"}
	d := &deployment{
		root: root, logger: slog.New(slog.DiscardHandler), config: &config.Config{Channels: rooms},
		github: &github.Client{},
	}
	for _, ch := range rooms {
		d.routes = append(d.routes, bus.Route{Channel: slack.New(slack.Options{Name: ch.Name, Channel: ch.Room, Root: root})})
	}
	return d
}

func TestWhatADoorOrASocketTellsOfIsOnlyCaughtUpWith(t *testing.T) {
	secret := channels.Secret{Env: "SECRET"}
	for _, c := range []struct {
		told          bool
		slack, github channels.Secret
		want          string
	}{
		{false, secret, secret, "slack, slack paced, github"}, // another process may have the doors, or none
		{true, channels.Secret{}, channels.Secret{}, "slack, slack paced, github"},
		{true, secret, channels.Secret{}, "slack paced, github"},
		{true, channels.Secret{}, secret, "slack, slack paced, github paced"},
	} {
		d := readingDeployment(t)
		d.config.Webhook = config.Webhook{SlackSigningSecret: c.slack, GitHubSecret: c.github}
		var got []string
		for _, s := range newReplies(d, "test", c.told).sources() {
			name := s.Name()
			if p, ok := s.(reader.Paced); ok && p.Every() == catchUpEvery {
				name += " paced"
			}
			got = append(got, name)
		}
		if got := strings.Join(got, ", "); got != c.want {
			t.Errorf("%+v: %s", c, got)
		}
	}
}

func TestASetupThatIsNotRunLeavesNothing(t *testing.T) {
	before := goleak.IgnoreCurrent()
	for _, service := range []string{"poller", "webhook"} {
		d := readingDeployment(t)
		d.routes = nil
		d.config.Webhook.SlackSigningSecret = channels.Secret{Env: "NOT_SET_ANYWHERE"}
		if _, err := daemonSetup(d, service); (err != nil) != (service == "webhook") {
			t.Errorf("%s without its secret: %v", service, err)
		}
		d.config.Webhook.SlackSigningSecret = channels.Secret{}
		s, err := daemonSetup(d, service)
		if err != nil || len(s.Runs) == 0 {
			t.Errorf("%s: %v", service, err)
		}
	}
	goleak.VerifyNone(t, before)
}
