package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	slackapi "github.com/slack-go/slack"

	"the-loop/internal/config"
)

// Slack refuses a manifest with a field that it does not know; slack-go has
// all that there are.
func TestManifestHasOnlyFieldsThatSlackKnows(t *testing.T) {
	for _, base := range []string{"", "https://loop.example/x"} {
		var b bytes.Buffer
		if err := writeManifest(&b, base); err != nil {
			t.Fatal(err)
		}
		dec := json.NewDecoder(&b)
		dec.DisallowUnknownFields()
		var m slackapi.Manifest
		if err := dec.Decode(&m); err != nil {
			t.Fatal(err)
		}
		s := m.Settings
		if !s.Interactivity.IsEnabled || s.SocketModeEnabled != (base == "") ||
			s.TokenRotationEnabled || s.OrgDeployEnabled ||
			!slices.Equal(s.EventSubscriptions.BotEvents, []string{"message.channels", "message.groups"}) {
			t.Errorf("%+v", s)
		}
		if got := m.OAuthConfig.Scopes.Bot; !slices.Equal(got, []string{
			"chat:write", "channels:history", "groups:history", "reactions:write", "metadata.message:read",
		}) {
			t.Errorf("%v", got)
		}
		events, presses := s.EventSubscriptions.RequestUrl, s.Interactivity.RequestUrl
		if base == "" && events+presses != "" ||
			base != "" && (events != base+"/slack/events" || presses != base+"/slack/interactions") {
			t.Errorf("%q, %q", events, presses)
		}
		if n := len(m.Display.Name); n == 0 || n > 35 || len(m.Display.Description) > 140 { // Slack's limits
			t.Errorf("%+v", m.Display)
		}
	}
}

func TestConfigLinesOfTheManifestAreAccepted(t *testing.T) {
	for _, base := range []string{"", "https://loop.example"} {
		dir := t.TempDir()
		path := filepath.Join(dir, "config.yaml")
		if err := os.WriteFile(path, []byte("version: 1\n"+manifestConfig(base)), 0o600); err != nil {
			t.Fatal(err)
		}
		cfg, warnings, err := config.Load(path, func(string) string { return "" })
		if err != nil || len(warnings) > 0 {
			t.Fatal(warnings, err)
		}
		if ok, why := cfg.Pressable(cfg.Channels[0]); !ok {
			t.Errorf("%q: %s", base, why)
		}
	}
}

func TestReceiverURL(t *testing.T) {
	for text, want := range map[string]string{
		"https://loop.example":         "https://loop.example",
		"https://loop.example:8443/":   "https://loop.example:8443",
		"https://loop.example/a/b//":   "https://loop.example/a/b",
		"http://loop.example":          "",
		"loop.example":                 "",
		"https://":                     "",
		"https://u:p@loop.example":     "",
		"https://loop.example/?a":      "",
		"https://loop.example/#a":      "",
		"https://loop.example/\x00":    "",
		"https://loop.example?":        "",
		"https://[::1]/hooks/the-loop": "https://[::1]/hooks/the-loop",
	} {
		if got, err := receiverURL(text); got != want || (err == nil) != (want != "") {
			t.Errorf("%q: %q, %v", text, got, err)
		}
	}
}

// docs/slack.md says of each scope what the manifest asks for and why.
func TestScopeTableIsTheManifests(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "slack.md"))
	if err != nil {
		t.Fatal(err)
	}
	var docs, want [][]string
	in := false
	for line := range strings.Lines(string(page)) {
		line = strings.TrimSpace(line)
		switch {
		case strings.HasPrefix(line, "| scope |"):
			in = true
		case !strings.HasPrefix(line, "|"):
			in = false
		case in && !strings.HasPrefix(line, "|---"):
			docs = append(docs, strings.Split(strings.Trim(line, "| "), " | "))
		}
	}
	for _, s := range append(slackBotScopes(), slackAppScope()) {
		want = append(want, []string{"`" + s.name + "`", s.why, s.without})
	}
	if d := cmp.Diff(want, docs); d != "" {
		t.Errorf("docs/slack.md: -code +docs\n%s", d)
	}
}
