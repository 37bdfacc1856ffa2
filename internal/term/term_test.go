package term

import (
	"bytes"
	"os"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

const family = "👩\u200d👩\u200d👧"

func TestCleanShowsWhatIsThere(t *testing.T) {
	for in, want := range map[string]string{
		"plain text, äöü, 漢字":                `plain text, äöü, 漢字`,
		family + " ❤️ 🇩🇪":                    family + " ❤️ 🇩🇪",
		"می\u200cخواهم":                      "می\u200cخواهم",
		"non\u00a0breaking":                  "non\u00a0breaking",
		`C:\new`:                             `C:\new`,
		"a\nb\r\n\tc":                        `a\nb\r\n\tc`,
		"\x1b[2Jgone\x07\x00\x7f":            `\x1b[2Jgone\a\x00\x7f`,
		"\u009b31m":                          `\u009b31m`,
		"\x9b31m \xff\xc3(":                  `\x9b31m \xff\xc3(`,
		"a\u202eb\u2066c\u200fd\u200e\u061c": `a\u202eb\u2066c\u200fd\u200e\u061c`,
		"l\u2028p\u2029":                     `l\u2028p\u2029`,
		"\u200b\ufeff\u00ad\U000e0041":       `\u200b\ufeff\u00ad\U000e0041`,
		"\ufffd":                             "\ufffd",
	} {
		if got := Clean(in); got != want {
			t.Errorf("%+q: %q, want %q", in, got, want)
		}
	}
}

func TestCutKeepsGraphemesWhole(t *testing.T) {
	for _, c := range []struct {
		in    string
		width int
		want  string
	}{
		{"hello", 5, "hello"},
		{"hello", 4, "hel…"},
		{"hello", 1, "…"},
		{"hello", 0, ""},
		{"hello", -1, ""},
		{"", 0, ""},
		{"漢字漢字", 8, "漢字漢字"},
		{"漢字漢字", 6, "漢字…"},
		{"漢字漢字", 7, "漢字漢…"},
		{family + family, 3, family + "…"},
		{"e\u0301e\u0301e\u0301", 2, "e\u0301…"},
	} {
		if got := Cut(c.in, c.width); got != c.want {
			t.Errorf("%q at %d: %q, want %q", c.in, c.width, got, c.want)
		}
	}
}

func FuzzCleanAndCut(f *testing.F) {
	for _, s := range []string{
		"hello", family, "\x1b[31m\x9b\u202e", "漢字\n", "\u0600\u0600a", "\u200d\u0301", "🇩🇪🇩",
	} {
		f.Add(s, 3)
	}
	f.Fuzz(func(t *testing.T, s string, width int) {
		clean := Clean(s)
		for _, r := range clean {
			if unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) || r == '\u2028' || r == '\u2029' {
				t.Errorf("%+q holds %U", clean, r)
			}
		}
		if !utf8.ValidString(clean) || Clean(clean) != clean {
			t.Errorf("%+q is not clean", clean)
		}
		width %= 100
		cut := Cut(clean, width)
		if Width(cut) > max(width, 0) || !utf8.ValidString(cut) {
			t.Errorf("%+q at %d: %+q takes %d", clean, width, cut, Width(cut))
		}
		if cut != clean && width > 0 && !strings.HasPrefix(clean, strings.TrimSuffix(cut, "…")) {
			t.Errorf("%+q is no beginning of %+q", cut, clean)
		}
	})
}

func TestAgo(t *testing.T) {
	now := time.Date(2026, 9, 22, 10, 0, 0, 0, time.UTC)
	for d, want := range map[time.Duration]string{
		-time.Hour: "just now", 0: "just now", time.Second: "1s ago", 59 * time.Second: "59s ago",
		time.Minute: "1m ago", 59 * time.Minute: "59m ago", 2*time.Hour + 59*time.Minute: "2h ago",
		23 * time.Hour: "23h ago", 47 * time.Hour: "1d ago", 400 * day: "400d ago",
	} {
		if got := Ago(now, now.Add(-d)); got != want {
			t.Errorf("%v: %s, want %s", d, got, want)
		}
	}
}

func TestSpan(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0s", 500 * time.Millisecond: "500ms", time.Second: "1s", 5*time.Second + 400*time.Millisecond: "5s",
		time.Minute: "60s", 90 * time.Second: "90s", 2 * time.Minute: "2m", 150 * time.Second: "2m30s",
		4*time.Minute - 200*time.Millisecond: "4m", time.Hour: "60m", 90 * time.Minute: "90m", 2 * time.Hour: "2h",
		2*time.Hour + 5*time.Minute + 20*time.Second: "2h5m", 24 * time.Hour: "24h", 36 * time.Hour: "36h",
		49 * time.Hour: "2d1h", 7 * day: "7d", -4 * time.Minute: "-4m", 2*time.Minute - time.Millisecond: "2m",
	} {
		if got := Span(d); got != want {
			t.Errorf("%v: %s, want %s", d, got, want)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		d := time.Duration(rapid.Int64Range(0, int64(10_000*day)).Draw(t, "d"))
		days, rest, found := strings.Cut(Span(d), "d")
		if !found {
			days, rest = "0", days
		}
		got, err := time.ParseDuration(days + "h")
		more, err2 := time.ParseDuration("0s" + rest)
		if off := (24*got + more - d).Abs(); err != nil || err2 != nil || off > d/96+500*time.Millisecond {
			t.Fatalf("%v: %s is off by %v", d, Span(d), off)
		}
	})
}

func TestTable(t *testing.T) {
	table := &Table{Columns: []Column{{Title: "ID"}, {Title: "TRIES", Right: true}, {Title: "ERROR", Flex: true}, {}}}
	table.Row("01KB3Z0000000000000000000A", "1", "slack: channel_not_found")
	table.Row("漢字", "12", "evil\x1b[2J\nsecond line "+strings.Repeat("x", 80), "end")
	table.Row()
	table.Row("a", "b", "c", "d", "one too many")
	var b bytes.Buffer
	if err := table.Write(&b); err != nil {
		t.Fatal(err)
	}
	want := `
ID                          TRIES  ERROR
01KB3Z0000000000000000000A      1  slack: channel_not_found
漢字                           12  evil\x1b[2J\nsecond line xxxxxxxxxxxxxx…  end

a                               b  c                                         d
`
	if diff := cmp.Diff(want[1:], b.String()); diff != "" {
		t.Error(diff)
	}
}

func TestTableWithoutRowsOrHead(t *testing.T) {
	var b bytes.Buffer
	if err := (&Table{Columns: []Column{{Title: "ID"}}}).Write(&b); err != nil || b.Len() > 0 {
		t.Errorf("%q, %v", b.String(), err)
	}
	table := &Table{Columns: []Column{{}, {}}}
	table.Row("a", "b")
	if err := table.Write(&b); err != nil || b.String() != "a  b\n" {
		t.Errorf("%q, %v", b.String(), err)
	}
}

func TestTableFits(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		table := &Table{Columns: []Column{{Title: "A", Flex: true}, {Title: "B", Right: true}, {Title: "C", Flex: true}}}
		for range rapid.IntRange(1, 5).Draw(t, "rows") {
			table.Row(rapid.String().Draw(t, "a"), rapid.StringN(0, 9, -1).Draw(t, "b"), rapid.String().Draw(t, "c"))
		}
		var b bytes.Buffer
		if err := table.Write(&b); err != nil {
			t.Fatal(err)
		}
		lines := strings.Split(strings.TrimSuffix(b.String(), "\n"), "\n")
		if len(lines) != 1+len(table.rows) {
			t.Fatalf("%d lines for %d rows", len(lines), len(table.rows))
		}
		fixed := 0 // a cell of the fixed column, of nine characters, may be cleaned to 90
		for _, row := range table.rows {
			fixed = max(fixed, Width(row[1]))
		}
		for _, line := range lines {
			if Width(line) > max(maxWidth, fixed+2*(minFlex+len(gap))) || strings.HasSuffix(line, " ") {
				t.Fatalf("%d columns: %q", Width(line), line)
			}
		}
	})
}

func TestColorOK(t *testing.T) {
	var b bytes.Buffer
	none := func(string) string { return "" }
	f, err := os.Create(t.TempDir() + "/file")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if IsTerminal(&b) || IsTerminal(f) || ColorOK(f, none) {
		t.Error("a buffer or file is no terminal")
	}
	pty, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Log("no pseudo terminal here; the other half is left out:", err)
		return
	}
	defer pty.Close()
	env := func(key, value string) func(string) string {
		return func(k string) string { return map[string]string{key: value}[k] }
	}
	if !IsTerminal(pty) || !ColorOK(pty, env("TERM", "xterm")) {
		t.Error("a terminal is one")
	}
	if ColorOK(pty, env("NO_COLOR", "1")) || ColorOK(pty, env("TERM", "dumb")) {
		t.Error("no means no")
	}
}
