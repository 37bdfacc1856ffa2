package inbound_test

import (
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"the-loop/internal/inbound"
)

func TestE15_ControlBytesAreTakenOut(t *testing.T) {
	for text, want := range map[string]string{
		"yes\nrm -rf x\x03\x1b[A":              "yes\nrm -rf x[A",
		"a\r\nb\rc\x00d\x7fe\u0085f\u009bg":    "a\nbcdefg",
		"\ttab\n\nlines ":                      "\ttab\n\nlines ",
		"\u202eevil\u202c \u2066x\u2069\u200f": "evil x",
		"a\u200bb\ufeffc\u2060d\u00ade\u180ef": "abcdef",
		"a\u2028b\u2029c":                      "a\nb\nc",
		"a\xff\xfeb\xc3":                       "a\ufffdb\ufffd",
		"hi\U000e0048\U000e0049\u034f\u3164":   "hi", // tags hide a text
		"pass\u200dword p\u0430\u200cy":        "password p\u0430y",
		"👩\u200d👩\u200d👧 🏳\ufe0f\u200d🌈":       "👩\u200d👩\u200d👧 🏳\ufe0f\u200d🌈",
		"می\u200cخواهم क\u094d\u200dष":         "می\u200cخواهم क\u094d\u200dष",
		"👩\u200d\u200d👩 👩\u200d\u200b👩\u200d":  "👩\u200d👩 👩👩",
		"e\u0301 \u0600 日本\U000e0100":          "e\u0301 \u0600 日本\U000e0100",
		"":                                     "",
	} {
		got, cut := inbound.CleanInbound(text)
		if got != want || cut {
			t.Errorf("%q\ngot  %q, cut %v\nwant %q", text, got, cut, want)
		}
	}
}

// Whoever calls AppendInbox without it does no harm either.
func TestE15_TheInboxHoldsNoControlBytes(t *testing.T) {
	root := boxRoot(t)
	put(t, root, item, message("a", "yes\r\nrm\x03\x1b[A\u202e"))
	wantTexts(t, unread(t, root, item), "1 yes\nrm[A")
}

func TestLongTextIsCutBetweenCharacters(t *testing.T) {
	const family = "👩\u200d👩\u200d👧"
	for _, tt := range []struct{ name, text, want string }{
		{"fits", strings.Repeat("é", 4000), strings.Repeat("é", 4000)},
		{"one too many", strings.Repeat("é", 4001), strings.Repeat("é", 4000) + "\n… cut here: 1 more characters"},
		{
			"a cluster at the border", strings.Repeat("a", 3998) + family + "z",
			strings.Repeat("a", 3998) + "\n… cut here: 6 more characters",
		},
		{
			"one cluster longer than all", "a" + strings.Repeat("\u0301", 5000),
			"a" + strings.Repeat("\u0301", 3999) + "\n… cut here: 1001 more characters",
		},
		{"what is taken out does not count", strings.Repeat("\x01", 9999) + "x", "x"},
	} {
		got, cut := inbound.CleanInbound(tt.text)
		if got != tt.want || cut != strings.Contains(tt.want, "cut here") {
			t.Errorf("%s: %d characters, cut %v: …%q", tt.name, utf8.RuneCountInString(got), cut, got[max(0, len(got)-60):])
		}
	}
}

func FuzzCleanInbound(f *testing.F) {
	f.Add("yes\nrm -rf x\x03\x1b[A")
	f.Add("👩\u200d\u200b👩\u200d\u202e\xff\r\n")
	f.Add(strings.Repeat("e\u0301\u200d", 3000))
	f.Fuzz(func(t *testing.T, text string) {
		got, cut := inbound.CleanInbound(text)
		if !utf8.ValidString(got) {
			t.Errorf("not UTF-8: %q", got)
		}
		kept := got
		if at := strings.LastIndex(got, "\n… cut here: "); cut {
			kept = got[:max(at, 0)]
		}
		if n := utf8.RuneCountInString(kept); n > 4000 || cut && n == 0 {
			t.Errorf("%d characters, cut %v", n, cut)
		}
		for _, r := range got {
			if r != '\n' && r != '\t' && (unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r)) {
				t.Errorf("%U in %q", r, got)
			}
		}
		if again, _ := inbound.CleanInbound(got); !cut && again != got {
			t.Errorf("%q becomes %q", got, again)
		}
	})
}
