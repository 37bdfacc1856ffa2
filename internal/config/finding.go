package config

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/goccy/go-yaml/token"

	"the-loop/internal/lazy"
)

// Finding is one thing that is wrong, or worth a warning.
type Finding struct {
	Line    int      `json:"line"` // from 1; 0 when it is about no line
	Column  int      `json:"column"`
	Field   string   `json:"field"`             // "channels.ops.timeout"; "" for the file itself
	Message string   `json:"message"`           // what is wrong, lower case, without a full stop
	Hint    string   `json:"hint,omitempty"`    // what to do about it, if there is more to say
	Allowed []string `json:"allowed,omitempty"` // the values or keys there are, when that is a short list
	Excerpt string   `json:"excerpt,omitempty"` // the place in the file with a caret below it, two lines
	Warning bool     `json:"warning"`           // the config can be used all the same
}

func (f Finding) String() string {
	var b strings.Builder
	if f.Line > 0 {
		fmt.Fprintf(&b, "%d: ", f.Line)
	}
	if f.Field != "" {
		b.WriteString(f.Field + ": ")
	}
	return b.String() + f.Message
}

// Error is a config file that cannot be used, with all that was found.
type Error struct {
	Path     string
	Findings []Finding // in the order of the file, warnings included; at least one is not
	// Root is the state root, absolute, "" where only a config that is right
	// could tell which it is.
	Root string
}

// Summary is the first thing that is wrong, without the path, and how much else
// there is.
func (e *Error) Summary() string {
	first, more := "", -1
	for _, f := range e.Findings {
		if f.Warning {
			continue
		}
		if more++; more == 0 {
			first = f.String()
			if f.Line > 0 {
				first = "line " + first
			}
		}
	}
	if more > 0 {
		first += fmt.Sprintf(" (and %d more)", more)
	}
	return first
}

// Error gives one short line for each finding that is not a warning.
func (e *Error) Error() string {
	var lines []string
	for _, f := range e.Findings {
		if f.Warning {
			continue
		}
		sep := ": "
		if f.Line > 0 {
			sep = ":"
		}
		lines = append(lines, e.Path+sep+f.String())
	}
	return strings.Join(lines, "\n")
}

func fileError(path, message, hint string) *Error {
	return &Error{Path: path, Findings: []Finding{{Message: message, Hint: hint}}}
}

// result sorts what was found, and makes an error of it when there is any.
func result(path string, found []Finding) ([]Finding, *Error) {
	slices.SortStableFunc(found, func(a, b Finding) int {
		return cmp.Or(a.Line-b.Line, a.Column-b.Column)
	})
	if anyError(found) {
		return nil, &Error{Path: path, Findings: found}
	}
	return found, nil
}

func anyError(found []Finding) bool {
	return slices.ContainsFunc(found, func(f Finding) bool { return !f.Warning })
}

// excerpt shows text at its place in the file, with a caret below its
// caret-th character. Text is all that it shows: whatever else stands on the
// line is left out, for it may be a secret.
func (r *reader) excerpt(pos *token.Position, text string, caret int) string {
	if pos.Line < 1 || pos.Line > len(r.lines) {
		return ""
	}
	before := []rune(r.lines[pos.Line-1])
	before = before[:min(max(pos.Column-1, 0), len(before))]
	if strings.Trim(string(before), " -") != "" {
		before = []rune("… ")
	}
	start := fmt.Sprintf("%4d | %s", pos.Line, string(before))
	return start + text + "\n" + strings.Repeat(" ", utf8.RuneCountInString(start)+caret) + "^"
}

var keyStart = lazy.Regexp(`^[ -]*[A-Za-z][A-Za-z0-9]{0,31}:`)

// syntaxExcerpt is the excerpt for a file that is no YAML. What is a key and
// what a value is not known then, so that only a leading key is shown.
func (r *reader) syntaxExcerpt(pos *token.Position) string {
	if pos.Line < 1 || pos.Line > len(r.lines) {
		return ""
	}
	line := r.lines[pos.Line-1]
	start := keyStart().FindString(line)
	if start == "" || echo(start) != start {
		return ""
	}
	text := start
	if strings.TrimSpace(line[len(start):]) != "" {
		text += " …"
	}
	caret := min(max(pos.Column-1, 0), utf8.RuneCountInString(text)-1)
	return r.excerpt(&token.Position{Line: pos.Line, Column: 1}, text, caret)
}

// echo makes a value from the file fit to be shown: short, printable, and left
// out when it could be a secret after all.
func echo(s string) string {
	const most = 60
	switch {
	case secretShaped(s), strings.ContainsAny(s, "{}\n"), strings.Contains(s, ": "):
		return "…" // the latter two: a missing quote made a value of other lines
	case strings.Contains(s, "://"):
		return Address(s).String()
	case s == "":
		return `""`
	}
	if runes := []rune(s); len(runes) > most {
		s = string(runes[:most-1]) + "…"
	}
	if strings.ContainsFunc(s, func(c rune) bool { return !unicode.IsPrint(c) }) {
		return fmt.Sprintf("%+q", s)
	}
	return s
}

var (
	tokens = lazy.Regexp(
		`(?i)\b(xox[a-z][.-]|xapp-|gh[opsur]_|github_pat_|glpat-|whsec_|sk-|eyJ|bearer )`)
	longRuns = lazy.Regexp(`[A-Za-z0-9+=_]{32,}`)
)

// tokenShaped reports whether s holds what begins like a provider's token.
func tokenShaped(s string) bool { return tokens().MatchString(s) }

// secretShaped reports whether s may be a secret, whatever key it is under.
func secretShaped(s string) bool { return tokenShaped(s) || longRuns().MatchString(s) }

var secretKeys = lazy.Regexp(`(?i)(token|secret|password|passwd|credentials?|api_?key|url)$`)

// secretKey reports whether what is written under the key may be a secret.
func secretKey(key string) bool { return secretKeys().MatchString(key) }
