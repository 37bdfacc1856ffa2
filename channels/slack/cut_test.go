package slack

import (
	"strings"
	"testing"
	"unicode/utf8"
)

func TestCutText(t *testing.T) {
	family := "👩‍👩‍👧‍👦" // one grapheme cluster, 11 UTF-16 units
	for name, tt := range map[string]struct {
		text  string
		first int
		rest  int
		want  []string
	}{
		"nothing":            {"", 10, 10, nil},
		"fits":               {"0123456789", 10, 10, []string{"0123456789"}},
		"letters":            {"0123456789ab", 10, 10, []string{"0123456789", "ab"}},
		"last line break":    {"0123\n567\n9ab", 10, 10, []string{"0123\n567\n", "9ab"}},
		"early line break":   {"0\n23456789ab", 10, 10, []string{"0\n23456789", "ab"}},
		"windows line break": {"012345\r\n89ab", 10, 10, []string{"012345\r\n", "89ab"}},
		"blank":              {"01234 6789ab", 10, 10, []string{"01234 ", "6789ab"}},
		"line over blank":    {"01234\n6 89ab", 10, 10, []string{"01234\n", "6 89ab"}},
		"entity is whole":    {"012345678<9", 10, 10, []string{"012345678", "<9"}},
		"cluster is whole":   {"0123" + family + "x", 13, 13, []string{"0123", family + "x"}},
		"rest is other":      {"0123456789", 3, 5, []string{"012", "34567", "89"}},
		"endless cluster":    {"e" + accents(12), 10, 10, []string{"e" + accents(9), accents(3)}},
	} {
		t.Run(name, func(t *testing.T) {
			got, left := cutText(tt.text, 100, tt.first, tt.rest)
			if strings.Join(got, "|") != strings.Join(tt.want, "|") || left != "" {
				t.Errorf("got %q and %q left, want %q", got, left, tt.want)
			}
		})
	}
}

func accents(n int) string { return strings.Repeat("\u0301", n) }

func FuzzCutText(f *testing.F) {
	for _, text := range []string{
		"", "a < b && b > c", "one\ntwo\r\nthree\n", "👩‍👩‍👧‍👦🇩🇪🇫🇷", "e" + accents(9), "한국어",
		"漢字漢字漢字漢字 漢字", "\u2028\u200d\u200d\ufe0f", "&amp;&lt;", strings.Repeat("&", 50), "\xff\xfe",
	} {
		f.Add(text, uint8(20), uint8(30))
	}
	f.Fuzz(func(t *testing.T, text string, a, b uint8) {
		first, rest := 5+int(a), 5+int(b) // no less than "&amp;" needs
		pieces, left := cutText(text, 1000, first, rest)
		if strings.Join(pieces, "")+left != text {
			t.Fatalf("%q and %q are not %q", pieces, left, text)
		}
		if left != "" && len(pieces) < 1000 {
			t.Fatalf("%q left after %d pieces", left, len(pieces))
		}
		room := first
		for _, piece := range pieces {
			if piece == "" {
				t.Fatal("an empty piece")
			}
			wire := escape(piece)
			if utf8.ValidString(text) && !utf8.ValidString(wire) {
				t.Fatalf("%q is not UTF-8", wire)
			}
			if escapedLen(piece) > room || utf8.RuneCountInString(wire) > room {
				t.Fatalf("%q is longer than %d", wire, room)
			}
			if open := strings.LastIndex(wire, "&"); open >= 0 && !strings.Contains(wire[open:], ";") {
				t.Fatalf("%q ends within an entity", wire)
			}
			room = rest
		}
	})
}
