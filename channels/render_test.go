package channels

import (
	"strings"
	"testing"
	"time"
)

func TestParseVerbosity(t *testing.T) {
	for s, want := range map[string]Verbosity{"": Normal, "quiet": Quiet, "normal": Normal, "verbose": Verbose} {
		if got, err := ParseVerbosity(s); got != want || err != nil {
			t.Errorf("%q: %q, %v, want %q", s, got, err, want)
		}
	}
	if _, err := ParseVerbosity("Loud"); err == nil || !strings.Contains(err.Error(), "quiet, normal or verbose") {
		t.Errorf("error %v does not name the levels", err)
	}
}

func TestHeadline(t *testing.T) {
	for want, e := range map[string]Event{
		"Question · github:o/r#7":           {Type: "session.awaiting_input", WorkItem: "github:o/r#7"},
		"Answer":                            {Type: "session.reply"},
		"Work item done · local:x#1":        {Type: "work_item.done", WorkItem: "local:x#1"},
		"Event":                             {},
		"Two lines · one \uFFFD here":       {Type: "two\n lines", WorkItem: "one\r\n\xff  here"},
		"Something nobody has heard of yet": {Type: "something.nobody.has_heard_of.yet"},
	} {
		if got := e.Headline(); got != want {
			t.Errorf("%+v: %q, want %q", e, got, want)
		}
	}
}

func TestBody(t *testing.T) {
	e := Event{Summary: "short", Text: "long\x00\ntext", Detail: map[string]any{"b": "<two>", "a": 1.5, "c": []any{true}}}
	for v, want := range map[Verbosity]string{
		Quiet:   "",
		Normal:  "short\nlong\uFFFD\ntext",
		Verbose: "short\nlong\uFFFD\ntext\na: 1.5\nb: <two>\nc: [true]",
	} {
		if got := e.Body(v); got != want {
			t.Errorf("%s: %q, want %q", v, got, want)
		}
	}
	if got := (Event{Summary: "same", Text: "same"}).Body(Normal); got != "same" {
		t.Errorf("a summary that is the text: %q", got)
	}
	if got := (Event{Detail: map[string]any{"f": func() {}}}).Body(Verbose); got != "f: (cannot be shown)" {
		t.Errorf("a detail that is no JSON: %q", got)
	}
}

func TestLateNote(t *testing.T) {
	now := time.Date(2026, 9, 22, 10, 0, 0, 0, time.UTC)
	for _, tt := range []struct {
		age       time.Duration
		eventType string
		want      string
	}{
		{LateAfter, "session.awaiting_input", ""},
		{-time.Hour, "session.awaiting_input", ""},
		{LateAfter + 1, "session.awaiting_input", "asked 5m ago"},
		{7*time.Hour + 59*time.Minute, "session.awaiting_input", "asked 7h ago"},
		{47 * time.Hour, "job.failed", "from 47h ago"},
		{50 * time.Hour, "job.failed", "from 2d ago"},
	} {
		d := Delivery{Event: Event{Type: tt.eventType}, At: now.Add(-tt.age)}
		if got := d.LateNote(now); got != tt.want {
			t.Errorf("%s after %v: %q, want %q", tt.eventType, tt.age, got, tt.want)
		}
	}
	if got := (Delivery{}).LateNote(now); got != "" {
		t.Errorf("taken nobody knows when: %q", got)
	}
}
