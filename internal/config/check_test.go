package config

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

func TestG03_CheckNamesWhatIsMissing(t *testing.T) {
	dir := t.TempDir()
	write(t, dir+"/full", "SECRET123\n")
	write(t, dir+"/empty", " \n")
	must(t, os.Chmod(write(t, dir+"/open", "SECRET123"), 0o640))
	must(t, os.Mkdir(dir+"/folder", 0o700))
	file := write(t, dir+"/config.yaml", `
channels:
  slack: {channel: C1, appTokenFile: full}
  named: {type: slack, channel: C1, botTokenEnv: SET, appTokenEnv: EMPTY}
  a: {type: webhook, urlFile: full, secretFile: gone}
  b: {type: webhook, urlEnv: URL, secretFile: open}
github: {tokenFile: empty}
webhook: {github: {secretFile: folder}, slack: {signingSecretEnv: SET}}
`)
	getenv := env("SET=SECRET123", "EMPTY=", "URL= https://ops.example/SECRET123 ")
	c, _, err := Load(file, getenv)
	must(t, err)
	got := describe(Check(c, getenv, nil))
	want := strings.ReplaceAll(`error 0:0 channels.slack.botTokenEnv: the variable THE_LOOP_SLACK_BOT_TOKEN is not set
  hint: set it for the daemons too, or keep the secret in a file
error 0:0 channels.named.appTokenEnv: the variable EMPTY is not set
  hint: set it for the daemons too, or keep the secret in a file
error 0:0 channels.a.urlFile: what the file DIR/full holds must begin with http:// or https://
error 0:0 channels.a.secretFile: the file DIR/gone is not there
error 0:0 channels.b.secretFile: the file DIR/open can be read by others
  hint: chmod 600 DIR/open
error 0:0 github.tokenFile: the file DIR/empty is empty
error 0:0 webhook.github.secretFile: the file DIR/folder is a folder
warning 0:0 state.root: DIR can be entered by others (mode 0755)
  hint: chmod 700 DIR
`, "DIR", dir)
	if got != want {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
}

func TestCheckRoot(t *testing.T) {
	dir := t.TempDir()
	private, open := dir+"/private", dir+"/open"
	must(t, os.Mkdir(private, 0o700))
	must(t, os.Mkdir(open, 0o700))
	must(t, os.Chmod(open, 0o770))
	file := write(t, dir+"/file", "")
	for root, want := range map[string]string{
		private:              "",
		private + "/not/yet": "",
		open:                 "can be written to by others",
		file:                 "is not a folder",
		file + "/below":      "cannot be looked at",
	} {
		got := describe(Check(&Config{Root: root}, env(), nil))
		if want == "" && got != "" || !strings.Contains(got, want) {
			t.Errorf("%s: %q, want %q", root, got, want)
		}
	}
	c := &Config{Root: private, Path: file}
	if got := describe(Check(c, env("THE_LOOP_STATE=/elsewhere"), nil)); !strings.Contains(got, "state.root wins") {
		t.Error(got)
	}
	if os.Geteuid() != 0 { // root may write everywhere
		must(t, os.Chmod(private, 0o500))
		if got := describe(Check(c, env(), nil)); !strings.Contains(got, "we cannot write") {
			t.Error(got)
		}
	} else {
		must(t, os.Chown(private, 4711, -1))
		if got := describe(Check(c, env(), nil)); !strings.Contains(got, "belongs to another user") {
			t.Error(got)
		}
	}
}

func TestCheckNamesWhatGitTracks(t *testing.T) {
	dir := t.TempDir()
	git := func(args ...string) {
		cmd := exec.Command("git", append([]string{"-C", dir, "-c", "core.excludesFile="}, args...)...)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("git %v: %v\n%s", args, err, out)
		}
	}
	root := dir + "/.the-loop"
	for _, name := range []string{
		"channels/undelivered.json", "channels/slack.json", "channels/deep/er.json", "logs/events.jsonl",
		"ledger/a.jsonl", "slack.token", "[s]",
	} {
		write(t, root+"/"+name, "x")
	}
	git("init", "-q")
	git("add", ".")
	c := &Config{Root: root, Channels: []Channel{{Name: "s"}}}
	c.Channels[0].BotToken.File, c.Channels[0].Secret.File = root+"/slack.token", root+"/[s]"
	var tracked []string
	for _, f := range Check(c, env(), []string{"channels/*.json", "logs", "run/"}) {
		if rest, ok := strings.CutPrefix(f.Message, "git tracks "+root+"/"); ok {
			tracked = append(tracked, f.Field+" "+strings.TrimSuffix(rest, ", which is for this machine alone"))
		}
	}
	want := "state.root channels/slack.json, state.root channels/undelivered.json, state.root logs/events.jsonl, " +
		"channels.s.secretFile [s], channels.s.botTokenFile slack.token"
	if got := strings.Join(tracked, ", "); got != want {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}

	t.Setenv("PATH", "")
	if got := describe(checkTracked(c, []string{"logs"})); got != "" {
		t.Errorf("without git: %s", got)
	}
	t.Setenv("PATH", dir)
	must(t, os.Chmod(write(t, dir+"/git", "#!/bin/sh\nexit 1\n"), 0o700))
	if got := describe(checkTracked(c, []string{"logs"})); !strings.Contains(got, "state.root: git could not") {
		t.Errorf("with a broken git: %s", got)
	}
}
