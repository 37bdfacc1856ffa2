package config

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// Find gives the config file to use, "" for none: the first of explicit (the
// flag), THE_LOOP_CONFIG, .the-loop/config.yaml in wd or a folder above it, and
// UserPath.
//
// A file that was named must exist. The way up ends at the home folder, or at
// the root of the file system when wd is not below the home folder; what is
// found on it must belong to us or root and be writable by nobody else, and so
// must its folder and the links to them, for a stranger could have put it there.
func Find(explicit string, getenv func(string) string, wd string) (string, error) {
	home := getenv("HOME")
	for _, named := range []struct{ path, by string }{
		{explicit, "--config"},
		{getenv("THE_LOOP_CONFIG"), "THE_LOOP_CONFIG"},
	} {
		if named.path == "" {
			continue
		}
		path, err := absolute(named.path, wd, home)
		if err != nil {
			return "", fileError(named.path, err.Error(), "")
		}
		if _, err := os.Stat(path); err != nil {
			return "", fmt.Errorf("%s: %w", named.by, unreadable(path, err))
		}
		return path, nil
	}
	if path, err := findUp(wd, home); path != "" || err != nil {
		return path, err
	}
	path, err := UserPath(getenv)
	if err != nil {
		return "", nil // without a home folder there is no such file
	}
	if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	return path, nil // a link to nowhere is a file that is wrong, and no fresh start
}

func findUp(dir, home string) (string, error) {
	last, _ := os.Stat(home)
	for {
		path := filepath.Join(dir, ".the-loop", "config.yaml")
		if _, err := os.Lstat(path); err == nil {
			return path, trusted(filepath.Dir(path), path)
		} else if !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ENOTDIR) {
			return "", unreadable(path, err)
		}
		here, err := os.Stat(dir)
		if dir == filepath.Dir(dir) || err == nil && last != nil && os.SameFile(here, last) {
			return "", nil
		}
		dir = filepath.Dir(dir)
	}
}

// trusted reports the first of the paths that somebody else could have made or
// could change.
func trusted(paths ...string) error {
	for _, path := range paths {
		const hint = "look at it, and name it with --config if you trust it"
		for _, stat := range []func(string) (fs.FileInfo, error){os.Lstat, os.Stat} {
			fi, err := stat(path)
			if err != nil {
				return unreadable(path, err)
			}
			if st, ok := fi.Sys().(*syscall.Stat_t); ok && st.Uid != 0 && int(st.Uid) != os.Geteuid() {
				return fileError(path, "belongs to somebody else, so that it is not used", hint)
			}
			if fi.Mode()&fs.ModeSymlink == 0 && fi.Mode()&0o022 != 0 {
				return fileError(path, "others may write to it, so that it is not used", "chmod go-w "+path)
			}
		}
	}
	return nil
}

// stateRoot gives the folder of the state: the first of what the file says,
// THE_LOOP_STATE, the folder of the config file, and StateHome.
//
// The file comes before the environment here, against the usual order: a script
// and a daemon that read one config must share one root, whatever environment
// each was started in, or events wait where nobody looks for them.
func stateRoot(configured, dir string, getenv func(string) string) (string, error) {
	if configured != "" {
		return configured, nil
	}
	if env, err := envRoot(getenv); env != "" || err != nil {
		return env, err
	}
	if dir != "" {
		return dir, nil
	}
	return StateHome(getenv)
}

// envRoot is THE_LOOP_STATE, relative to the working folder; "" when not set.
func envRoot(getenv func(string) string) (string, error) {
	env := getenv("THE_LOOP_STATE")
	if env == "" {
		return "", nil
	}
	wd, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("THE_LOOP_STATE: %w", err)
	}
	return absolute(env, wd, getenv("HOME"))
}

// StateHome is $XDG_STATE_HOME/the-loop, by default ~/.local/state/the-loop:
// the root without a config, and where the other roots are noted.
func StateHome(getenv func(string) string) (string, error) {
	return xdg(getenv, "XDG_STATE_HOME", ".local/state", "the-loop")
}

// UserPath is the user's own config: $XDG_CONFIG_HOME/the-loop/config.yaml, by
// default in ~/.config. It need not exist.
func UserPath(getenv func(string) string) (string, error) {
	return xdg(getenv, "XDG_CONFIG_HOME", ".config", "the-loop", "config.yaml")
}

// ErrNoHome is returned where the environment names no place at all.
var ErrNoHome = errors.New("HOME is not set")

func xdg(getenv func(string) string, variable, fallback string, below ...string) (string, error) {
	base := getenv(variable)
	if !filepath.IsAbs(base) { // a relative one is to be ignored, says the standard
		home := getenv("HOME")
		if home == "" {
			return "", fmt.Errorf("%w, and neither is %s", ErrNoHome, variable)
		}
		base = filepath.Join(home, fallback)
	}
	return filepath.Join(append([]string{base}, below...)...), nil
}
