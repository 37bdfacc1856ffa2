package channels

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"the-loop/internal/lazy"
)

// Event is one thing that happened, in words that belong to no channel. It is
// a value: nothing in the-loop changes an event once it has an ID, so that
// every attempt at delivering it carries the same bytes.
//
// The JSON keys are those of the Python program's outbox, plus "id".
type Event struct {
	// ID is the event's ULID, given by the bus when empty. It is the outbox
	// entry's key, the webhook-id, and the marker that the kinds with a
	// look-up search for: one id everywhere.
	ID string `json:"id,omitempty"`
	// Type is dotted lower case, such as "session.awaiting_input".
	Type string `json:"eventType"`
	// WorkItem is what the event is about, see ParseWorkItem. May be empty.
	WorkItem string `json:"workItem"`
	// Text is for people: UTF-8, no NUL, at most the configured limit.
	Text string `json:"text"`
	// URL links to the record or the thing itself. May be empty.
	URL string `json:"url"`
	// Detail is anything that encodes as JSON. Numbers read back from a file
	// are json.Number, so that they are written again digit for digit.
	Detail map[string]any `json:"detail"`
	// Source names where the event came from; a channel of that name is not
	// owed it.
	Source  string `json:"source"`
	Summary string `json:"summary"`
	// Actor is the person behind the event, nil when there is none.
	Actor *Actor `json:"actor,omitempty"`
}

// Actor is a person as the surfaces know them.
type Actor struct {
	IDs  map[string]string `json:"ids,omitempty"` // surface name to id there
	Name string            `json:"name,omitempty"`
}

// Encode gives the event as one line of JSON without a line break. The bytes
// are a function of the event alone: Encode(DecodeEvent(Encode(e))) is
// Encode(e), which is what makes every attempt's body identical.
func (e Event) Encode() ([]byte, error) {
	if e.Detail == nil {
		e.Detail = map[string]any{}
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(e); err != nil {
		return nil, fmt.Errorf("encode event: %w", err)
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// DecodeEvent reads one event. Unknown keys are ignored, missing ones are
// zero, numbers in Detail are kept as written. It fails when the bytes are not
// one JSON object or the type is missing.
func DecodeEvent(b []byte) (Event, error) {
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.UseNumber()
	var e Event
	if err := dec.Decode(&e); err != nil {
		return Event{}, fmt.Errorf("decode event: %w", err)
	}
	if dec.More() {
		return Event{}, errors.New("decode event: more than one JSON value")
	}
	if e.Type == "" {
		return Event{}, errors.New("decode event: no eventType")
	}
	return e, nil
}

var typePattern = lazy.Regexp(`^[a-z][a-z0-9_]*(\.[a-z][a-z0-9_]*)*$`)

// Validate reports the first field that no channel could carry: a malformed
// type, an unreadable work item. It does not look at the text, see CleanText.
func (e Event) Validate() error {
	if !ValidType(e.Type) {
		return fmt.Errorf("event type %q: want dotted lower-case words, like session.awaiting_input", e.Type)
	}
	if e.WorkItem != "" {
		if _, err := ParseWorkItem(e.WorkItem); err != nil {
			return err
		}
	}
	return nil
}

// ValidType reports whether s has the form of an event type.
func ValidType(s string) bool { return len(s) <= 128 && typePattern().MatchString(s) }

// CleanText replaces what is not UTF-8, and NUL, by U+FFFD, and says whether
// anything was replaced.
func CleanText(s string) (clean string, changed bool) {
	if utf8.ValidString(s) && !strings.ContainsRune(s, 0) {
		return s, false
	}
	s = strings.ToValidUTF8(s, "\uFFFD")
	return strings.ReplaceAll(s, "\x00", "\uFFFD"), true
}

// WorkItem is a parsed reference: github:owner/repo#7 or local:name#1.
type WorkItem struct {
	Kind   string // "github" or "local"
	Owner  string // of a github reference
	Name   string // the repository, or the local name
	Number int
}

var (
	githubRef = lazy.Regexp(`^github:([A-Za-z0-9][A-Za-z0-9-]{0,38})/([A-Za-z0-9._-]{1,100})#([1-9][0-9]{0,8})$`)
	localRef  = lazy.Regexp(`^local:([a-z0-9][a-z0-9._-]{0,63})#([1-9][0-9]{0,8})$`)
)

// ParseWorkItem reads a reference. The error says what forms there are.
func ParseWorkItem(s string) (WorkItem, error) {
	if m := githubRef().FindStringSubmatch(s); m != nil {
		n, _ := strconv.Atoi(m[3])
		return WorkItem{Kind: "github", Owner: m[1], Name: m[2], Number: n}, nil
	}
	if m := localRef().FindStringSubmatch(s); m != nil {
		n, _ := strconv.Atoi(m[2])
		return WorkItem{Kind: "local", Name: m[1], Number: n}, nil
	}
	return WorkItem{}, fmt.Errorf("work item %q: want github:owner/repo#7 or local:name#1", s)
}

func (w WorkItem) String() string {
	if w.Kind == "github" {
		return fmt.Sprintf("github:%s/%s#%d", w.Owner, w.Name, w.Number)
	}
	return fmt.Sprintf("local:%s#%d", w.Name, w.Number)
}
