package config

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/token"
	"github.com/xrash/smetrics"
)

// reader walks over the parsed file once. Whatever it is asked for it answers
// with the value or the default, and keeps what it found to be wrong.
type reader struct {
	lines     []string
	dir, home string // for relative paths and ~
	found     []Finding
}

// value is one node of the file, and what findings call it.
type value struct {
	r     *reader
	field string
	key   *token.Token // nil for the whole file and for an item of a list
	node  ast.Node     // nil in an absent section
}

// report adds a finding about the value, with its place.
func (v value) report(f Finding) {
	f.Field = v.field
	if v.node != nil {
		pos := v.node.GetToken().Position
		f.Line, f.Column = pos.Line, pos.Column
		switch {
		case v.key == nil:
			f.Excerpt = v.r.excerpt(pos, v.shown(), 0)
		case v.key.Position.Line == pos.Line:
			f.Excerpt = v.r.keyExcerpt(v.key, v.shown(), utf8.RuneCountInString(echo(v.key.Value))+2)
		default: // the value stands on lines of its own
			f.Line, f.Column = v.key.Position.Line, v.key.Position.Column
			f.Excerpt = v.r.keyExcerpt(v.key, "", 0)
		}
	}
	v.r.found = append(v.r.found, f)
}

// reportKey is report for a key that is wrong, whatever its value.
func (v value) reportKey(f Finding) {
	f.Field, f.Line, f.Column = v.field, v.key.Position.Line, v.key.Position.Column
	f.Excerpt = v.r.keyExcerpt(v.key, "…", 0)
	v.r.found = append(v.r.found, f)
}

func (r *reader) keyExcerpt(key *token.Token, text string, caret int) string {
	return r.excerpt(key.Position, strings.TrimSuffix(echo(key.Value)+": "+text, " "), caret)
}

// shown is the value's text as an excerpt may show it.
func (v value) shown() string {
	scalar, ok := v.node.(ast.ScalarNode)
	if !ok || v.key != nil && secretKey(v.key.Value) {
		return "…"
	}
	return echo(scalar.GetToken().Value)
}

func (v value) wrongType(want string) {
	v.report(Finding{Message: "want " + want + ", not " + kindOf(v.node)})
}

func kindOf(n ast.Node) string {
	switch n.(type) {
	case *ast.StringNode, *ast.LiteralNode:
		return "text"
	case *ast.IntegerNode:
		return "a whole number"
	case *ast.FloatNode, *ast.InfinityNode, *ast.NanNode:
		return "a number"
	case *ast.BoolNode:
		return "true or false"
	case *ast.SequenceNode:
		return "a list"
	case ast.MapNode:
		return "a group of keys"
	}
	return "nothing"
}

// text gives the value's text; want is what the reader of a finding should
// write in its place.
func (v value) text(want string) (string, bool) {
	var s string
	switch n := v.node.(type) {
	case *ast.StringNode:
		s = n.Value
	case *ast.LiteralNode:
		s = n.Value.Value
	default:
		v.wrongType(want)
		return "", false
	}
	if strings.ContainsFunc(s, unicode.IsControl) {
		v.report(Finding{Message: "holds control characters or a line break"})
		return "", false
	}
	return s, true
}

const writeOut = "anchors, aliases, merges and tags are not read here: write the value out"

// usable reports whether the node is one that this file may hold, and not the
// null of a key without a value, which is as if the key were not there.
func (v value) usable() bool {
	switch v.node.(type) {
	case nil, *ast.NullNode:
		return false
	case *ast.AnchorNode, *ast.AliasNode, *ast.TagNode:
		v.report(Finding{Message: writeOut})
		return false
	}
	return true
}

// items gives the items of a list.
func (v value) items(want string) []value {
	list, ok := v.node.(*ast.SequenceNode)
	if !ok {
		v.wrongType(want)
		return nil
	}
	var out []value
	for i, n := range list.Values {
		item := value{r: v.r, field: fmt.Sprintf("%s[%d]", v.field, i), node: n}
		if item.usable() {
			out = append(out, item)
		}
	}
	return out
}

// section is a group of keys. Keys are asked for one by one; those that nobody
// asked for are unknown, see done.
type section struct {
	value
	pairs []value // in the file's order, without repeated keys
	asked []string
}

// section reads the value as a group of keys; an empty one when it is not.
func (v value) section() *section {
	s := &section{value: v}
	group, ok := v.node.(ast.MapNode)
	if !ok {
		v.wrongType("a group of keys")
		return s
	}
	for it := group.MapRange(); it.Next(); {
		key := it.Key().GetToken()
		field := strings.TrimPrefix(v.field+"."+echo(key.Value), ".")
		pair := value{r: v.r, field: field, key: key, node: it.Value()}
		if _, merge := it.Key().(*ast.MergeKeyNode); merge {
			pair.reportKey(Finding{Message: writeOut})
			continue
		}
		if first := s.pair(key.Value); first != nil {
			pair.reportKey(Finding{Message: fmt.Sprintf("is given twice, first in line %d", first.key.Position.Line)})
			continue
		}
		s.pairs = append(s.pairs, pair)
	}
	return s
}

func (s *section) pair(key string) *value {
	i := slices.IndexFunc(s.pairs, func(v value) bool { return v.key.Value == key })
	if i < 0 {
		return nil
	}
	return &s.pairs[i]
}

// get gives the value of a key that is known here. ok is false when it is
// absent, or unusable, which is then reported.
func (s *section) get(key string) (v value, ok bool) {
	s.asked = append(s.asked, key)
	if p := s.pair(key); p != nil {
		return *p, p.usable()
	}
	return value{}, false
}

// all gives every pair, for groups whose keys are names.
func (s *section) all() []value {
	var out []value
	for _, p := range s.pairs {
		s.asked = append(s.asked, p.key.Value)
		if p.usable() {
			out = append(out, p)
		}
	}
	return out
}

// sub gives the group of keys under key, empty when absent.
func (s *section) sub(key string) *section {
	if v, ok := s.get(key); ok {
		return v.section()
	}
	return &section{value: value{r: s.r, field: strings.TrimPrefix(s.field+"."+key, ".")}}
}

const unknownKey = "unknown key"

func didYouMean(key string) string { return "did you mean " + key + "?" }

// done reports the keys that nobody asked for.
func (s *section) done() {
	for _, p := range s.pairs {
		key := p.key.Value
		if slices.Contains(s.asked, key) {
			continue
		}
		f := Finding{Message: unknownKey, Allowed: s.asked}
		if near := s.nearest(key); near != "" {
			f.Hint = didYouMean(near)
		}
		if file := s.secretFile(key); file != "" {
			f.Message = "a secret does not stand in this file"
			f.Hint = "put it into a file that only you can read, and name that here: " + file
		}
		p.reportKey(f)
	}
}

// nearest gives the known key that was probably meant, or "".
func (s *section) nearest(key string) string {
	key = plain(key)
	best, least := "", 1+len(key)/4
	for _, known := range s.asked {
		if d := smetrics.WagnerFischer(key, plain(known), 1, 1, 1); len(key) <= 40 && d <= least {
			best, least = known, d-1
		}
	}
	return best
}

// secretFile gives the known …File key for a secret that was written inline.
func (s *section) secretFile(key string) string {
	if !secretKey(key) {
		return ""
	}
	for _, known := range s.asked {
		if strings.HasSuffix(known, "File") && strings.Contains(plain(known), plain(key)) {
			return known
		}
	}
	return ""
}

func plain(key string) string {
	return strings.ToLower(strings.NewReplacer("_", "", "-", "").Replace(key))
}

// absolute makes a path that a person wrote absolute: ~ is the home folder, all
// else is relative to dir.
func absolute(s, dir, home string) (string, error) {
	if s == "~" || strings.HasPrefix(s, "~/") {
		if home == "" {
			return "", fmt.Errorf("%s: HOME is not set", echo(s))
		}
		return filepath.Join(home, s[1:]), nil
	}
	if !filepath.IsAbs(s) {
		s = filepath.Join(dir, s)
	}
	return filepath.Clean(s), nil
}
