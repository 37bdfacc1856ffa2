package config

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"the-loop/channels"
)

// Reference is a file or variable with a secret that the config names.
type Reference struct {
	Field  string // "channels.slack.botTokenFile"
	Secret channels.Secret
}

// Secrets lists all places of secrets, in the file's order.
func (c *Config) Secrets() []Reference {
	var out []Reference
	add := func(field string, s channels.Secret) {
		switch {
		case s.File != "":
			out = append(out, Reference{field + "File", s})
		case s.Env != "":
			out = append(out, Reference{field + "Env", s})
		}
	}
	for _, ch := range c.Channels {
		at := "channels." + ch.Name + "."
		add(at+"url", ch.URLFrom)
		add(at+"secret", ch.Secret)
		add(at+"botToken", ch.BotToken)
		add(at+"appToken", ch.AppToken)
	}
	add("github.token", c.GitHub.Token)
	add("webhook.github.secret", c.Webhook.GitHubSecret)
	add("webhook.slack.signingSecret", c.Webhook.SlackSigningSecret)
	return out
}

// Check looks at what lies outside of the file: the variables and files that
// the config names, the state root, and whether git tracks what belongs to this
// machine alone. local lists the state's local paths and folders, below the
// root and separated by slashes; "*" stands for any run of letters in a name.
// Check writes nothing, and no finding shows a secret.
func Check(c *Config, getenv func(string) string, local []string) []Finding {
	var found []Finding
	for _, ref := range c.Secrets() {
		found = append(found, checkSecret(ref, getenv)...)
	}
	found = append(found, checkRoot(c, getenv)...)
	return append(found, checkTracked(c, local)...)
}

func checkSecret(ref Reference, getenv func(string) string) []Finding {
	var found []Finding
	add := func(message, hint string) {
		found = append(found, Finding{Field: ref.Field, Message: message, Hint: hint})
	}
	text := getenv(ref.Secret.Env)
	what := "the variable " + ref.Secret.Env
	if file := ref.Secret.File; file != "" {
		what = "the file " + file
		fi, err := os.Stat(file)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			add(what+" is not there", "")
			return found
		case err == nil && fi.IsDir():
			add(what+" is a folder", "")
			return found
		case err == nil && fi.Mode().IsRegular() && fi.Mode()&0o077 != 0:
			add(what+" can be read by others", "chmod 600 "+file)
		}
		b, err := os.ReadFile(file)
		if err != nil {
			add(what+" cannot be read by us", "")
			return found
		}
		text = string(b)
	}
	text = strings.TrimSpace(text)
	switch {
	case text == "" && ref.Secret.File != "":
		add(what+" is empty", "")
	case text == "":
		add(what+" is not set", "set it for the daemons too, or keep the secret in a file")
	case strings.HasSuffix(ref.Field, ".urlFile") || strings.HasSuffix(ref.Field, ".urlEnv"):
		address, _, _ := strings.Cut(text, "\n")
		if err := CheckURL(strings.TrimSpace(address)); err != nil {
			add("what "+what+" holds "+err.Error(), "")
		}
	}
	return found
}

// checkRoot looks at the root, or at the nearest folder above it that exists,
// in which it is going to be made.
func checkRoot(c *Config, getenv func(string) string) []Finding {
	var found []Finding
	add := func(warning bool, message, hint string) {
		found = append(found, Finding{Field: "state.root", Message: message, Hint: hint, Warning: warning})
	}
	if env, _ := envRoot(getenv); env != "" && env != c.Root {
		add(true, "THE_LOOP_STATE is set to another folder, and the config file's state.root wins", "")
	}
	dir := c.Root
	fi, err := os.Stat(dir)
	for errors.Is(err, fs.ErrNotExist) && dir != filepath.Dir(dir) {
		dir = filepath.Dir(dir)
		fi, err = os.Stat(dir)
	}
	const writeAndEnter = 0o3
	switch {
	case err != nil:
		add(false, dir+" cannot be looked at", "")
		return found
	case !fi.IsDir():
		add(false, dir+" is not a folder", "")
		return found
	case syscall.Access(dir, writeAndEnter) != nil:
		add(false, "we cannot write to "+dir, "")
	}
	if dir != c.Root {
		return found
	}
	if st, ok := fi.Sys().(*syscall.Stat_t); ok && int(st.Uid) != os.Geteuid() {
		add(false, dir+" belongs to another user", "")
	}
	switch mode := fi.Mode().Perm(); {
	case mode&0o022 != 0:
		add(false, dir+" can be written to by others", "chmod 700 "+dir)
	case mode&0o077 != 0:
		add(true, fmt.Sprintf("%s can be entered by others (mode %04o)", dir, mode), "chmod 700 "+dir)
	}
	return found
}

// checkTracked asks git about the local paths of the root and about the files
// with secrets. Without git, or outside of a work tree, there is nothing to say.
func checkTracked(c *Config, local []string) []Finding {
	var found []Finding
	ask := func(field, dir string, pathspecs ...string) {
		files, err := tracked(dir, pathspecs)
		if err != nil {
			found = append(found, Finding{Field: field, Message: "git could not be asked what it tracks", Warning: true})
		}
		for _, file := range files {
			found = append(found, Finding{
				Field:   field,
				Message: "git tracks " + filepath.Join(dir, file) + ", which is for this machine alone",
				Hint:    "git rm --cached, and add it to .gitignore",
			})
		}
	}
	var globs []string
	for _, path := range local {
		globs = append(globs, ":(glob)"+path)
	}
	ask("state.root", c.Root, globs...)
	for _, ref := range c.Secrets() {
		if ref.Secret.File != "" {
			dir, name := filepath.Split(ref.Secret.File)
			ask(ref.Field, filepath.Clean(dir), ":(literal)"+name)
		}
	}
	return found
}

// tracked gives those files below dir that git tracks and that are, or lie
// below, what git's pathspecs name.
func tracked(dir string, pathspecs []string) ([]string, error) {
	if len(pathspecs) == 0 || !inWorkTree(dir) {
		return nil, nil
	}
	git, err := exec.LookPath("git")
	if err != nil {
		return nil, nil
	}
	ctx, cancel := context.WithTimeoutCause(context.Background(), 5*time.Second, errors.New("git took longer than 5s"))
	defer cancel()
	// The repository may be a stranger's: its config must not make git run
	// anything.
	args := []string{"-C", dir, "-c", "core.fsmonitor=false", "ls-files", "-z", "--"}
	cmd := exec.CommandContext(ctx, git, append(args, pathspecs...)...)
	cmd.Env = slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "GIT_") })
	out, err := cmd.Output()
	if err != nil {
		return nil, err
	}
	return strings.FieldsFunc(string(out), func(c rune) bool { return c == 0 }), nil
}

// inWorkTree reports whether dir exists and has a .git beside or above it.
func inWorkTree(dir string) bool {
	if _, err := os.Stat(dir); err != nil {
		return false
	}
	for ; ; dir = filepath.Dir(dir) {
		if _, err := os.Lstat(filepath.Join(dir, ".git")); err == nil {
			return true
		}
		if dir == filepath.Dir(dir) {
			return false
		}
	}
}
