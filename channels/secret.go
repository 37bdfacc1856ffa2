package channels

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// Secret says where a secret is kept. It is read anew at every use, so that a
// rotated token is taken up without a restart. File wins over Env.
type Secret struct {
	File string // path of a file; surrounding blanks are trimmed
	Env  string // name of an environment variable
}

// IsZero reports whether no place is named.
func (s Secret) IsZero() bool { return s.File == "" && s.Env == "" }

// Source names the place for people, without the folder it is in.
func (s Secret) Source() string {
	if s.File != "" {
		return "file " + filepath.Base(s.File)
	}
	return "variable " + s.Env
}

// Value gives the secret's first line. A secret that is not there, or empty,
// is a *Refusal with ReasonAuth that names the place.
func (s Secret) Value() (string, error) {
	lines, err := s.Lines()
	if err != nil {
		return "", err
	}
	return lines[0], nil
}

// Lines gives all lines that are not blank, at least one: while a key is being
// rotated, the old and the new one stand in the same file. Errors as Value.
func (s Secret) Lines() ([]string, error) {
	if s.IsZero() {
		return nil, &Refusal{Reason: ReasonAuth, Code: "no_secret", Detail: "no file or variable is configured"}
	}
	text := os.Getenv(s.Env)
	if s.File != "" {
		b, err := os.ReadFile(s.File)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil, s.refuse("is not there", err)
		case err != nil:
			return nil, s.refuse("cannot be read", err)
		}
		text = string(b)
	}
	var lines []string
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" {
			lines = append(lines, line)
		}
	}
	switch {
	case len(lines) > 0:
		return lines, nil
	case s.File != "":
		return nil, s.refuse("is empty", nil)
	default:
		return nil, s.refuse("is not set", nil)
	}
}

func (s Secret) refuse(what string, err error) error {
	return &Refusal{Reason: ReasonAuth, Code: "no_secret", Detail: s.Source() + " " + what, Err: err}
}
