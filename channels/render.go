package channels

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/rivo/uniseg"
)

// Verbosity is how much of an event a kind that renders for people shows. Each
// level holds all of the one before.
type Verbosity string

// The levels.
const (
	Quiet   Verbosity = "quiet"   // the headline and the link
	Normal  Verbosity = "normal"  // and who, the summary and the text
	Verbose Verbosity = "verbose" // and the detail
)

// ParseVerbosity reads a level; "" is Normal. The error names the levels.
func ParseVerbosity(s string) (Verbosity, error) {
	switch v := Verbosity(s); v {
	case "":
		return Normal, nil
	case Quiet, Normal, Verbose:
		return v, nil
	}
	return "", fmt.Errorf("verbosity %q: want quiet, normal or verbose", s)
}

// Headline says on one line what happened to what: "Question · github:o/r#7".
func (e Event) Headline() string {
	title := typeTitle(e.Type)
	if e.WorkItem == "" {
		return OneLine(title)
	}
	return OneLine(title + " · " + e.WorkItem)
}

// typeTitle is an event type in words: "job.failed" is "Job failed".
func typeTitle(eventType string) string {
	switch eventType {
	case "session.awaiting_input":
		return "Question"
	case "session.reply":
		return "Answer"
	}
	words := strings.NewReplacer(".", " ", "_", " ").Replace(eventType)
	if words == "" {
		return "Event"
	}
	return strings.ToUpper(words[:1]) + words[1:]
}

// Body is what people read below the headline, as plain text that is not yet
// escaped for any surface: the summary and the text, and with Verbose the
// detail. It is a function of the event alone, so that a text that is split
// into parts is split alike at every attempt.
func (e Event) Body(v Verbosity) string {
	if v == Quiet {
		return ""
	}
	var paragraphs []string
	if e.Summary != e.Text {
		paragraphs = append(paragraphs, e.Summary)
	}
	paragraphs = append(paragraphs, e.Text)
	if v == Verbose {
		paragraphs = append(paragraphs, strings.Join(DetailLines(e.more()), "\n"))
	}
	paragraphs = slices.DeleteFunc(paragraphs, func(s string) bool { return s == "" })
	text, _ := CleanText(strings.Join(paragraphs, "\n"))
	return text
}

// more is the detail without what Asked.Hint says of it.
func (e Event) more() map[string]any {
	asked, ok := AskedOf(e)
	if !ok {
		return e.Detail
	}
	more := maps.Clone(e.Detail)
	for key := range asked.Detail() {
		delete(more, key)
	}
	return more
}

// DetailLines gives the detail as "key: value" lines, sorted by key. What is
// not a string is shown as JSON.
func DetailLines(detail map[string]any) []string {
	var lines []string
	for _, key := range slices.Sorted(maps.Keys(detail)) {
		lines = append(lines, key+": "+plain(detail[key]))
	}
	return lines
}

func plain(value any) string {
	if s, ok := value.(string); ok {
		return s
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(value); err != nil {
		return "(cannot be shown)"
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// LateNote says that the event is old news: "asked 7h ago" for a question,
// "from 7h ago" for anything else. It is empty when the message goes out in
// time (LateAfter), or nobody knows when the event was taken.
func (d Delivery) LateNote(now time.Time) string {
	age := now.Sub(d.At)
	if d.At.IsZero() || age <= LateAfter {
		return ""
	}
	verb := "from "
	if d.Event.Type == "session.awaiting_input" {
		verb = "asked "
	}
	return verb + shortAge(age) + " ago"
}

// shortAge rounds down to the one unit that matters to a person.
func shortAge(age time.Duration) string {
	switch {
	case age < time.Hour:
		return fmt.Sprintf("%dm", age/time.Minute)
	case age < 48*time.Hour:
		return fmt.Sprintf("%dh", age/time.Hour)
	}
	return fmt.Sprintf("%dd", age/(24*time.Hour))
}

// OneLine puts text on one line: every run of white space, line breaks
// included, becomes one blank, and what is not UTF-8 U+FFFD.
func OneLine(s string) string {
	clean, _ := CleanText(s)
	return strings.Join(strings.Fields(clean), " ")
}

// Fit is how many bytes of the text's first grapheme clusters are no more than
// room characters (code points): where a text is cut so that nobody sees half of
// what they take for a character. It is 0 when the first one is longer.
func Fit(text string, room int) int {
	pos, used, state := 0, 0, -1
	for pos < len(text) {
		cluster, _, _, next := uniseg.FirstGraphemeClusterInString(text[pos:], state)
		n := utf8.RuneCountInString(cluster)
		if used+n > room {
			break
		}
		pos, used, state = pos+len(cluster), used+n, next
	}
	return pos
}
