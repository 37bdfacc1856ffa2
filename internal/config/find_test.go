package config

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestFindTakesTheFirst(t *testing.T) {
	top := t.TempDir()
	home, outside := top+"/home", top+"/srv/work"
	explicit := write(t, top+"/explicit.yaml", "")
	named := write(t, top+"/named.yaml", "")
	upper := write(t, home+"/code/.the-loop/config.yaml", "")
	atHome := write(t, home+"/.the-loop/config.yaml", "")
	user := write(t, home+"/.config/the-loop/config.yaml", "")
	other := write(t, top+"/xdg/the-loop/config.yaml", "")
	above := write(t, top+"/.the-loop/config.yaml", "")
	inner := home + "/code/a/b"
	for _, dir := range []string{inner, outside, top + "/empty"} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	in, xdg := "HOME="+home, "XDG_CONFIG_HOME="+top+"/xdg"
	for name, c := range map[string]struct {
		explicit string
		env      []string
		wd       string
		want     string
		remove   string // before the case; the cases without it come first
	}{
		"flag":                     {explicit, []string{in, "THE_LOOP_CONFIG=" + named}, inner, explicit, ""},
		"relative flag":            {"../explicit.yaml", []string{in}, home, explicit, ""},
		"environment":              {"", []string{in, "THE_LOOP_CONFIG=" + named}, inner, named, ""},
		"with a tilde":             {"", []string{in, "THE_LOOP_CONFIG=~/.the-loop/config.yaml"}, inner, atHome, ""},
		"folder above":             {"", []string{in, xdg}, inner, upper, ""},
		"home is the last":         {"", []string{in, xdg}, home + "/x", atHome, ""},
		"outside of home":          {"", []string{in, xdg}, outside, above, ""},
		"not above home":           {"", []string{in, xdg}, home, other, atHome},
		"the user's":               {"", []string{in}, home, user, atHome},
		"relative XDG is no XDG":   {"", []string{in, "XDG_CONFIG_HOME=xdg"}, home, user, atHome},
		"none at all":              {"", []string{"HOME=" + top + "/empty"}, top + "/empty", "", ""},
		"none without home either": {"", nil, top + "/empty", above, ""},
	} {
		t.Run(name, func(t *testing.T) {
			if c.remove != "" {
				hidden := c.remove + ".hidden"
				if err := os.Rename(c.remove, hidden); err != nil {
					t.Fatal(err)
				}
				defer func() { _ = os.Rename(hidden, c.remove) }()
			}
			if got, err := Find(c.explicit, env(c.env...), c.wd); got != c.want || err != nil {
				t.Errorf("%q, %v, want %q", got, err, c.want)
			}
		})
	}
}

func TestFindWantsWhatWasNamed(t *testing.T) {
	dir := t.TempDir()
	write(t, dir+"/.the-loop/config.yaml", "")
	for want, find := range map[string]func() (string, error){
		"--config: ":        func() (string, error) { return Find("none.yaml", env(), dir) },
		"THE_LOOP_CONFIG: ": func() (string, error) { return Find("", env("THE_LOOP_CONFIG=none.yaml"), dir) },
		"HOME is not set":   func() (string, error) { return Find("~/none.yaml", env(), dir) },
	} {
		if path, err := find(); path != "" || err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q, %v, want %s", path, err, want)
		}
	}
}

func TestFindDistrustsWhatOthersCouldChange(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Log("not root: the cases with other owners are left out")
	}
	const theirs, open = "belongs to somebody", "others may write"
	for name, c := range map[string]struct {
		prepare func(t *testing.T, dir, file string)
		want    string
		root    bool
	}{
		"ours":            {func(*testing.T, string, string) {}, "", false},
		"group writes":    {func(t *testing.T, _, file string) { must(t, os.Chmod(file, 0o620)) }, open, false},
		"anybody writes":  {func(t *testing.T, _, file string) { must(t, os.Chmod(file, 0o602)) }, open, false},
		"folder is open":  {func(t *testing.T, dir, _ string) { must(t, os.Chmod(dir, 0o777)) }, open, false},
		"another's":       {func(t *testing.T, _, file string) { must(t, os.Chown(file, 4711, -1)) }, theirs, true},
		"another's place": {func(t *testing.T, dir, _ string) { must(t, os.Chown(dir, 4711, -1)) }, theirs, true},
		"another's link": {func(t *testing.T, dir, file string) {
			must(t, os.Rename(file, dir+"/ours"))
			must(t, os.Symlink("ours", file))
			must(t, os.Lchown(file, 4711, -1))
		}, theirs, true},
		"our link": {func(t *testing.T, dir, file string) {
			must(t, os.Rename(file, dir+"/ours"))
			must(t, os.Symlink("ours", file))
		}, "", false},
		"our link to another's": {func(t *testing.T, dir, file string) {
			must(t, os.Rename(file, dir+"/theirs"))
			must(t, os.Chown(dir+"/theirs", 4711, -1))
			must(t, os.Symlink("theirs", file))
		}, theirs, true},
		"dangling link": {func(t *testing.T, dir, file string) {
			must(t, os.Remove(file))
			must(t, os.Symlink("nothing", file))
		}, "is not there", false},
	} {
		t.Run(name, func(t *testing.T) {
			if c.root && os.Geteuid() != 0 {
				return
			}
			wd := t.TempDir()
			file := write(t, wd+"/.the-loop/config.yaml", "")
			c.prepare(t, filepath.Dir(file), file)
			_, err := Find("", env(), wd)
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("%v, want %q", err, c.want)
			}
			// Whoever names it answers for it.
			if _, err := Find(file, env(), wd); err != nil && name != "dangling link" {
				t.Error(err)
			}
		})
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestRootPrecedence(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	home, state := "HOME=/home/octo", "THE_LOOP_STATE=/var/lib/loop"
	for name, c := range map[string]struct {
		config string
		env    []string
		want   string
	}{
		"the file's word":   {"state: {root: state}", []string{home, state}, dir + "/state"},
		"absolute":          {"state: {root: /srv/loop/}", []string{home, state}, "/srv/loop"},
		"at home":           {"state: {root: ~/loop}", []string{home, state}, "/home/octo/loop"},
		"environment":       {"ledger: local", []string{home, state}, "/var/lib/loop"},
		"relative to wd":    {"ledger: local", []string{"THE_LOOP_STATE=here"}, dir + "/here"},
		"the file's folder": {"ledger: local", []string{home}, dir},
		"no file, variable": {"", []string{home, state}, "/var/lib/loop"},
		"no file":           {"", []string{home}, "/home/octo/.local/state/the-loop"},
		"no file, XDG":      {"", []string{home, "XDG_STATE_HOME=/xdg"}, "/xdg/the-loop"},
	} {
		t.Run(name, func(t *testing.T) {
			get := func() (*Config, error) { return Default(env(c.env...)) }
			if c.config != "" {
				file := write(t, dir+"/config.yaml", c.config)
				get = func() (*Config, error) { c, _, err := Load(file, env(c.env...)); return c, err }
			}
			if got, err := get(); err != nil || got.Root != c.want {
				t.Errorf("%v %v, want %s", got, err, c.want)
			}
		})
	}
}

// Whoever looks at the root of a config that is wrong must not look at another.
func TestRootOfAConfigThatIsWrongIsKnownOrNotSaid(t *testing.T) {
	const named = "state: {root: /named}\n"
	for text, want := range map[string]string{
		named + "drain: {interval: soon}":      "/named",
		"drain: {interval: soon}":              "DIR",
		named + "chanels: {}":                  "/named",
		"state: {root: below}\ncap: [1]":       "",
		"stat: {root: /named}":                 "",
		"root: /named":                         "",
		"<<: {state: {root: /named}}":          "",
		"state: {root: 7}":                     "",
		"state: {rot: /named}":                 "",
		"state: [/named]":                      "",
		named + named:                          "",
		named + "ledger: [":                    "",
		"\"state\" : {root: /named\nledger: [": "",
		"channels: [":                          "DIR",
		"# state: {root: .}\nchannels: [":      "DIR",
		"garbage":                              "DIR",
		"":                                     "DIR",
		"ledger: local\n---\nledger: none":     "DIR",
		"name: \xe9":                           "",
	} {
		dir := t.TempDir()
		path := write(t, filepath.Join(dir, "config.yaml"), text)
		for by, want := range map[string]string{"": want, "/by/env": strings.Replace(want, "DIR", "/by/env", 1)} {
			_, _, err := Load(path, env("HOME=/home/octo", "THE_LOOP_STATE="+by))
			var bad *Error
			if !errors.As(err, &bad) {
				t.Errorf("%q: %v", text, err)
				continue
			}
			if got := strings.Replace(bad.Root, dir, "DIR", 1); got != want {
				t.Errorf("%q: %q, want %q (%v)", text, got, want, err)
			}
		}
	}
}

func TestSummaryIsOneLine(t *testing.T) {
	_, _, err := load(t, "outbox: {cap: 0}\nledger: none\ndrain: {interval: soon, x: 1}\n")
	var bad *Error
	if !errors.As(err, &bad) {
		t.Fatal(err)
	}
	if want := "line 1: outbox.cap: must be at least 1 (and 2 more)"; bad.Summary() != want {
		t.Errorf("%q, want %q", bad.Summary(), want)
	}
	if _, _, err = load(t, ""); !errors.As(err, &bad) || bad.Summary() != "holds no configuration" {
		t.Errorf("%v: %q", err, bad.Summary())
	}
}
