package config

import (
	"errors"
	"fmt"
	"math"
	"net"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/goccy/go-yaml/ast"

	"the-loop/channels"
	"the-loop/internal/lazy"
)

// The methods below read the value of one key, and give the default when it is
// absent or wrong. What is wrong is reported.

func (s *section) text(key, def, want string) string {
	v, ok := s.get(key)
	if !ok {
		return def
	}
	text, ok := v.text(want)
	if !ok {
		return def
	}
	return text
}

// matching is text of a form; want describes it.
func (s *section) matching(key, def string, form *regexp.Regexp, want string) string {
	text := s.text(key, def, want)
	if text != def && !form.MatchString(text) {
		s.pair(key).report(Finding{Message: "want " + want})
		return def
	}
	return text
}

func (s *section) oneOf(key, def string, allowed ...string) string {
	text := s.text(key, def, "one of "+strings.Join(allowed, ", "))
	if text != def && !slices.Contains(allowed, text) {
		s.pair(key).report(Finding{Message: "want one of " + strings.Join(allowed, ", "), Allowed: allowed})
		return def
	}
	return text
}

func (s *section) flag(key string) bool {
	v, ok := s.get(key)
	if !ok {
		return false
	}
	b, ok := v.node.(*ast.BoolNode)
	if !ok {
		v.wrongType("true or false")
		return false
	}
	return b.Value
}

// count is a whole number from 1.
func (s *section) count(key string, def int) int {
	v, ok := s.get(key)
	if !ok {
		return def
	}
	if _, whole := v.node.(*ast.IntegerNode); !whole {
		v.wrongType("a whole number")
		return def
	}
	switch n, _ := number(v.node); {
	case n < 1:
		v.report(Finding{Message: "must be at least 1"})
	case n > math.MaxInt32:
		v.report(Finding{Message: "is too large"})
	default:
		return int(n)
	}
	return def
}

// rate is a number from 0.
func (s *section) rate(key string, def float64) float64 {
	v, ok := s.get(key)
	if !ok {
		return def
	}
	n, ok := number(v.node)
	switch {
	case !ok:
		v.wrongType("a number")
	case n < 0:
		v.report(Finding{Message: "must not be negative", Hint: "0 is for no limit"})
	default:
		return n
	}
	return def
}

func number(n ast.Node) (float64, bool) {
	switch n := n.(type) {
	case *ast.IntegerNode:
		switch i := n.Value.(type) {
		case int64:
			return float64(i), true
		case uint64:
			return float64(i), true
		}
	case *ast.FloatNode:
		return n.Value, true
	}
	return 0, false
}

// duration is more than zero.
func (s *section) duration(key string, def time.Duration) time.Duration {
	if v, ok := s.get(key); ok {
		if d, ok := v.duration(); ok {
			return d
		}
	}
	return def
}

func (v value) duration() (time.Duration, bool) {
	text, ok := v.text("a duration like 30s, 5m or 7d")
	if !ok {
		return 0, false
	}
	d, err := ParseDuration(text)
	if err != nil {
		v.report(Finding{Message: err.Error()})
		return 0, false
	}
	if d <= 0 {
		v.report(Finding{Message: "must be more than zero"})
		return 0, false
	}
	return d, true
}

// repeats is false, true for a day, or a duration.
func (s *section) repeats(key string) time.Duration {
	if v := s.pair(key); v != nil {
		if _, ok := v.node.(*ast.BoolNode); !ok {
			return s.duration(key, 0)
		}
	}
	if s.flag(key) {
		return 24 * time.Hour
	}
	return 0
}

// size is a number of bytes, 1 to most.
func (s *section) size(key string, def, most int) int {
	v, ok := s.get(key)
	if !ok {
		return def
	}
	n, isNumber := number(v.node)
	if !isNumber {
		text, ok := v.text("a size like 1MiB")
		if !ok {
			return def
		}
		bytes, _ := humanize.ParseBytes(text)
		n = float64(bytes)
	}
	if n < 1 || n > float64(most) {
		v.report(Finding{Message: "want a size like 64KiB or 1MiB, at most " + humanize.IBytes(uint64(most))})
		return def
	}
	return int(n)
}

// path is absolute, "" when absent.
func (s *section) path(key string) string {
	text := s.text(key, "", "a path")
	v := s.pair(key)
	if v == nil || text == "" {
		return ""
	}
	path, err := absolute(text, s.r.dir, s.r.home)
	if err != nil {
		v.report(Finding{Message: err.Error()})
	}
	return path
}

// url is an address of http or https, def when absent.
func (s *section) url(key, def string) string {
	text := s.text(key, def, "a web address")
	if text == def {
		return def
	}
	if err := CheckURL(text); err != nil {
		s.pair(key).report(Finding{Message: err.Error()})
		return def
	}
	return text
}

// listen is host:port.
func (s *section) listen(key, def string) string {
	text := s.text(key, def, "host:port")
	if text == def || text == "" {
		return text
	}
	_, port, err := net.SplitHostPort(text)
	if err == nil {
		_, err = strconv.ParseUint(port, 10, 16)
	}
	switch {
	case errors.Is(err, strconv.ErrRange):
		s.pair(key).report(Finding{Message: "the port is too large: want at most 65535"})
	case err != nil:
		s.pair(key).report(Finding{Message: "want host:port, like 127.0.0.1:8787"})
	default:
		return text
	}
	return def
}

var envName = lazy.Regexp(`^[A-Z_][A-Z0-9_]*$`)

// secret reads the twins <key>File and <key>Env, of which one may be given.
// Variables are upper case, so that a pasted secret is not taken for a name.
func (s *section) secret(key string) channels.Secret {
	file := s.path(key + "File")
	if tokenShaped(file) {
		s.pair(key + "File").reportKey(Finding{
			Message: "want the name of a file that holds the secret, not the secret itself",
		})
		return channels.Secret{}
	}
	env := s.text(key+"Env", "", "the name of a variable")
	switch {
	case env == "":
	case !envName().MatchString(env) || tokenShaped(env):
		s.pair(key + "Env").reportKey(Finding{
			Message: "want the name of a variable, in capitals, that holds the secret; not the secret itself",
		})
		return channels.Secret{}
	case file != "":
		s.pair(key + "Env").reportKey(Finding{
			Message: fmt.Sprintf("give %sFile or %[1]sEnv, not both", key),
		})
	}
	if file != "" {
		return channels.Secret{File: file}
	}
	return channels.Secret{Env: env}
}

// patterns are subscriptions.
func (s *section) patterns(key string, def ...channels.Pattern) []channels.Pattern {
	const want = `a list like ["*"] or [session.awaiting_input, work_item.*]`
	v, ok := s.get(key)
	if !ok {
		return def
	}
	var out []channels.Pattern
	for _, item := range v.items(want) {
		text, ok := item.text("an event type")
		if !ok {
			continue
		}
		if p, ok := pattern(text, item.report); ok {
			out = append(out, p)
		}
	}
	return out
}

// pattern checks the form of a subscription; one that can match nothing we
// know is a warning.
func pattern(text string, report func(Finding)) (channels.Pattern, bool) {
	p, known, err := channels.ParsePattern(text)
	switch {
	case err != nil:
		report(Finding{Message: "want an event type, a prefix like work_item.*, or *"})
		return "", false
	case !known:
		report(Finding{Message: echo(text) + " matches no event type that we know", Warning: true})
	}
	return p, true
}
