package inbound

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"the-loop/channels"
)

// maxInbound is how many characters of a message are kept.
const maxInbound = 4000

// CleanInbound makes what somebody wrote fit to be handed to a session, which
// may type it into a terminal or read it to a model: nothing in it is a key
// press, and nothing in it is there without being seen. Control characters but
// line breaks and tabs, bidi controls and characters without a shape are taken
// out, "\r\n" becomes "\n", and what is not UTF-8 U+FFFD. What is longer than
// 4,000 characters (code points) is cut between two of what people see as
// characters, and a last line says how many are missing; cut is true then.
func CleanInbound(text string) (clean string, cut bool) {
	clean = stripInbound(text)
	if utf8.RuneCountInString(clean) <= maxInbound {
		return clean, false
	}
	at := inboundCut(clean)
	return clean[:at] + fmt.Sprintf("\n… cut here: %d more characters", utf8.RuneCountInString(clean[at:])), true
}

// inboundCut is how many bytes make up the first maxInbound characters, or a
// little less, for a cluster stays whole unless it is itself too long.
func inboundCut(s string) int {
	pos := channels.Fit(s, maxInbound)
	if pos > 0 {
		return pos
	}
	for range maxInbound {
		_, size := utf8.DecodeRuneInString(s[pos:])
		pos += size
	}
	return pos
}

// stripInbound is CleanInbound without the cut. Doing it again changes nothing.
func stripInbound(text string) string {
	text = strings.ToValidUTF8(text, "\uFFFD")
	if !strings.ContainsFunc(text, func(r rune) bool { return r == '\u2028' || r == '\u2029' || unshown(r) }) {
		return text
	}
	var b strings.Builder
	before := rune(0) // the last one that was kept
	for i, r := range text {
		switch {
		case r == '\u2028' || r == '\u2029': // line breaks that are no control characters
			r = '\n'
		case isJoiner(r) && joins(before) && joins(firstRune(text[i+utf8.RuneLen(r):])):
		case unshown(r):
			continue
		}
		b.WriteRune(r)
		before = r
	}
	return b.String()
}

// unshown reports whether r is a control, a bidi control, or has no shape of
// its own: what Unicode calls format characters and default ignorable. Among
// them are the tags, in which a whole text can hide. A few format characters of
// Arabic and other scripts have a shape, and stay.
func unshown(r rune) bool {
	switch {
	case r == '\n', r == '\t':
		return false
	case unicode.IsControl(r):
		return true
	case unicode.Is(unicode.Cf, r):
		return !unicode.Is(unicode.Prepended_Concatenation_Mark, r)
	}
	return unicode.Is(unicode.Other_Default_Ignorable_Code_Point, r)
}

func isJoiner(r rune) bool { return r == '\u200c' || r == '\u200d' }

// joins reports whether a joiner beside r gives it another shape, as in emoji,
// Persian or Hindi. Between letters of other scripts it only hides.
func joins(r rune) bool {
	switch {
	case r <= unicode.MaxLatin1 || isJoiner(r) || unshown(r):
		return false
	case unicode.IsLetter(r):
		return !unicode.In(r, unicode.Latin, unicode.Greek, unicode.Cyrillic, unicode.Han, unicode.Hiragana,
			unicode.Katakana, unicode.Hangul)
	}
	return unicode.IsMark(r) || unicode.IsSymbol(r)
}

// firstRune is the character that a joiner in front of s would join, 0 at the
// end of the text.
func firstRune(s string) rune {
	for _, r := range s {
		return r
	}
	return 0
}
