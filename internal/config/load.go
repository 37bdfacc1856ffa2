package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"unicode/utf8"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"

	"the-loop/internal/lazy"
	"the-loop/state"
)

const (
	maxFile = 1 << 20
	// maxTokens bounds the parser, whose time grows with the square of them.
	maxTokens = 20_000
)

// Load reads the file at path. The error is an *Error with all that is wrong;
// without one, the findings are warnings. Nothing that the file refers to is
// opened, see Check.
//
// A file without any key is an error and not a config without channels: it is
// what a full disk leaves, and every event would go nowhere. So is a file that
// anybody may write, whichever way it was found.
func Load(path string, getenv func(string) string) (*Config, []Finding, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, nil, fileError(path, err.Error(), "")
	}
	text, err := readFile(path)
	if err != nil {
		return nil, nil, err
	}
	r := &reader{dir: filepath.Dir(path), home: getenv("HOME"), lines: strings.Split(text, "\n")}
	c := &Config{}
	body, parsed := r.parse(text)
	if parsed {
		c = value{r: r, node: body}.section().config()
		c.Path, c.Dir = path, r.dir
		if c.Root, err = stateRoot(c.Root, r.dir, getenv); err != nil {
			r.found = append(r.found, Finding{Field: "state.root", Message: err.Error()})
		}
		r.found = append(r.found, c.ownFiles()...)
	}
	warnings, bad := result(path, r.found)
	if bad == nil {
		return c, warnings, nil
	}
	switch isGroup := parsed && !slices.ContainsFunc(r.found, func(f Finding) bool { return f.Field == "" }); {
	case isGroup && !slices.ContainsFunc(r.found, aboutRoot):
		bad.Root = c.Root
	case !isGroup && !namesRoot().MatchString(text):
		bad.Root, _ = stateRoot("", r.dir, getenv)
	}
	return nil, nil, bad
}

// namesRoot matches a file that may name a state root, however broken it is.
var namesRoot = lazy.Regexp(`(?m)^[^#]*\b(root|state)["']?\s*:`)

// aboutRoot reports whether the root may be another than the one that was read.
func aboutRoot(f Finding) bool {
	switch top, _, below := strings.Cut(f.Field, "."); {
	case f.Warning:
		return false
	case top == "state":
		return true
	case below:
		return false
	}
	// Somebody may have meant it by a key that we do not know.
	return f.Message == writeOut || f.Message == unknownKey && (f.Hint == "" || f.Hint == didYouMean("state"))
}

// ownFiles finds file channels that would write into our own state.
func (c *Config) ownFiles() []Finding {
	var found []Finding
	for _, ch := range c.Channels {
		name, err := filepath.Rel(c.Root, ch.Path)
		if ch.Path == "" || err != nil {
			continue
		}
		if name = filepath.ToSlash(name); name != state.RoomFile && state.IsDeclared(name) {
			found = append(found, Finding{
				Field: "channels." + ch.Name + ".path", Message: name + " is a file of the-loop's own: choose another name",
			})
		}
	}
	return found
}

// readFile gives the file as text with plain line ends.
func readFile(path string) (string, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return "", unreadable(path, err)
	}
	defer f.Close()
	fi, err := f.Stat()
	switch {
	case err != nil:
		return "", unreadable(path, err)
	case fi.IsDir():
		return "", fileError(path, "is a folder, not a file", "name the file in it: "+filepath.Join(path, "config.yaml"))
	case !fi.Mode().IsRegular():
		return "", fileError(path, "is not a regular file", "")
	case fi.Mode()&0o002 != 0:
		return "", fileError(path, "anybody may write to it, so that it cannot be trusted", "chmod o-w "+path)
	case fi.Size() > maxFile:
		return "", fileError(path, "is larger than 1 MiB, which no config is", "")
	}
	b, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return "", unreadable(path, err)
	}
	b = bytes.TrimPrefix(b, []byte("\ufeff"))
	if !utf8.Valid(b) || bytes.IndexByte(b, 0) >= 0 {
		return "", fileError(path, "is not text in UTF-8", "")
	}
	return strings.ReplaceAll(string(b), "\r\n", "\n"), nil
}

func unreadable(path string, err error) error {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fileError(path, "is not there", "`the-loop init` writes one")
	case errors.Is(err, fs.ErrPermission):
		return fileError(path, "we may not read it", "")
	}
	var cause *fs.PathError
	if errors.As(err, &cause) {
		err = cause.Err
	}
	return fileError(path, "cannot be read: "+err.Error(), "")
}

// parse gives the file's one document. When it has none, that is reported.
func (r *reader) parse(text string) (body ast.Node, ok bool) {
	fail := func(f Finding) (ast.Node, bool) {
		r.found = append(r.found, f)
		return nil, false
	}
	defer func() { // the parser is not ours, and the file not everybody's friend
		if p := recover(); p != nil {
			body, ok = fail(Finding{Message: "cannot be read as YAML"})
		}
	}()
	words := lexer.Tokenize(text)
	if len(words) > maxTokens {
		return fail(Finding{Message: fmt.Sprintf("holds more than %d words and signs, which no config does", maxTokens)})
	}
	file, err := parser.Parse(words, 0, parser.AllowDuplicateMapKey())
	if err != nil {
		return fail(r.syntax(err))
	}
	var bodies []ast.Node
	for _, doc := range file.Docs {
		if doc.Body != nil && doc.Body.Type() != ast.DirectiveType {
			bodies = append(bodies, doc.Body)
		}
	}
	switch {
	case len(bodies) == 0:
		return fail(Finding{
			Message: "holds no configuration",
			Hint:    "remove it to start without one, or let `the-loop init` write one",
		})
	case len(bodies) > 1:
		return fail(Finding{Line: bodies[1].GetToken().Position.Line, Message: "a second document begins; one is read"})
	}
	return bodies[0], true
}

// syntax makes a finding of the parser's error, whose own text shows lines of
// the file.
func (r *reader) syntax(err error) Finding {
	f := Finding{Message: "cannot be read as YAML"}
	var at interface {
		GetMessage() string
		GetToken() *token.Token
	}
	if errors.As(err, &at) {
		f.Message += ": " + strings.ReplaceAll(at.GetMessage(), "\t", "tab")
		if strings.Contains(f.Message, "tab") {
			f.Hint = "indent with spaces"
		}
		if t := at.GetToken(); t != nil && t.Position != nil {
			f.Line, f.Column = t.Position.Line, t.Position.Column
			f.Excerpt = r.syntaxExcerpt(t.Position)
		}
	}
	return f
}
