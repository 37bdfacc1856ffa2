package channels

import (
	"fmt"
	"strings"
)

// Type is one row of the catalogue: an event type that the-loop knows.
type Type struct {
	Name     string
	Recorded bool   // written to the ledger before it is fanned out
	Meaning  string // one line for people
}

// Types is the catalogue of event types. Others are carried too, unrecorded,
// with a warning: the list exists so that a typing error is seen.
func Types() []Type {
	return []Type{
		{"session.awaiting_input", true, "a session asks a question and waits for the answer"},
		{"session.reply", true, "somebody answered a session"},
		{"session.started", false, "a session began work"},
		{"session.finished", false, "a session ended by itself"},
		{"session.failed", false, "a session ended with an error"},
		{"work_item.started", false, "work on an item began"},
		{"work_item.progress", false, "news about an item that is being worked on"},
		{"work_item.blocked", true, "an item cannot go on without somebody"},
		{"work_item.done", true, "an item is finished"},
		{"job.succeeded", false, "a script or CI job ended well"},
		{"job.failed", false, "a script or CI job ended badly"},
		{"channel.test", false, "the marked message of `channels test`"},
	}
}

// LookupType finds a type in the catalogue.
func LookupType(name string) (Type, bool) {
	for _, t := range Types() {
		if t.Name == name {
			return t, true
		}
	}
	return Type{}, false
}

// Pattern is what a channel subscribes to: an event type, "prefix.*" or "*".
type Pattern string

// ParsePattern checks a pattern's form. known is false when it can match
// nothing of the catalogue, which is worth a warning and no more.
func ParsePattern(s string) (p Pattern, known bool, err error) {
	p = Pattern(s)
	prefix, isPrefix := strings.CutSuffix(s, ".*")
	switch {
	case s == "*":
		return p, true, nil
	case isPrefix && ValidType(prefix), !isPrefix && ValidType(s):
	default:
		return "", false, fmt.Errorf("subscription %q: want an event type, a prefix like work_item.*, or *", s)
	}
	for _, t := range Types() {
		if p.Match(t.Name) {
			return p, true, nil
		}
	}
	return p, false, nil
}

// Match reports whether an event of that type is subscribed to.
func (p Pattern) Match(eventType string) bool {
	if p == "*" {
		return true
	}
	if prefix, ok := strings.CutSuffix(string(p), "*"); ok {
		return strings.HasPrefix(eventType, prefix)
	}
	return string(p) == eventType
}
