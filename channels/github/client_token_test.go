package github_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"the-loop/channels"
	"the-loop/channels/channelstest"
	"the-loop/channels/github"
)

// ghIs puts a program called gh in front of all others. It notes that it ran.
func ghIs(t *testing.T, script string) (ran func() string) {
	dir := t.TempDir()
	note := filepath.Join(dir, "ran")
	script = "#!/bin/sh\necho \"$*\" >>" + note + "\n" + script + "\n"
	if err := os.WriteFile(filepath.Join(dir, "gh"), []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":/usr/bin:/bin")
	return func() string {
		b, _ := os.ReadFile(note)
		return string(b)
	}
}

func TestTheGhProgramIsAskedOnlyWhenTheConfigSaysSo(t *testing.T) {
	h := newForge(t)
	ran := ghIs(t, "echo "+channelstest.GitHubToken)
	if _, err := h.client.Self(t.Context()); err != nil || ran() != "" {
		t.Fatalf("error %v, gh ran: %q", err, ran())
	}
	asks := github.New(github.Options{TokenFromGH: true, BaseURL: h.URL()})
	for range 3 {
		me, err := asks.Self(t.Context())
		if err != nil || me.Login != channelstest.GitHubLogin {
			t.Fatalf("%+v, %v", me, err)
		}
	}
	if got := ran(); strings.Count(got, "\n") != 1 || !strings.HasPrefix(got, "auth token") {
		t.Errorf("gh ran with %q", got)
	}
}

func TestAGhThatFailsIsARefusalWithoutItsWords(t *testing.T) {
	h := newForge(t)
	for name, script := range map[string]string{
		"not logged in": "echo SECRET-WORDS >&2; exit 1", "nothing": "exit 0", "rubbish": "printf 'a b\\nSECRET-WORDS'",
	} {
		ghIs(t, script)
		_, err := github.New(github.Options{TokenFromGH: true, BaseURL: h.URL()}).Self(t.Context())
		var r *channels.Refusal
		if !errors.As(err, &r) || r.Reason != channels.ReasonAuth || strings.Contains(err.Error(), "SECRET") {
			t.Errorf("%s: error %v", name, err)
		}
	}
	t.Setenv("PATH", t.TempDir())
	if _, err := github.New(github.Options{TokenFromGH: true, BaseURL: h.URL()}).Self(t.Context()); err == nil {
		t.Error("there is no gh, and no error")
	}
}

func TestEnterpriseAddresses(t *testing.T) {
	h := newForge(t)
	for _, base := range []string{h.URL(), h.URL() + "/", h.URL() + "/api/v3", h.URL() + "/api/v3/"} {
		c := github.New(github.Options{Token: channels.Secret{Env: "GITHUB_TEST_TOKEN"}, BaseURL: base})
		if _, err := c.Self(t.Context()); err != nil {
			t.Errorf("%s: %v", base, err)
		}
	}
}
