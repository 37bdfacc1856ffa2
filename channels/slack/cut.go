package slack

import (
	"strings"

	"github.com/rivo/uniseg"
)

// Slack's own three characters; nothing else is changed (docs.slack.dev,
// "Escaping text"). A "<" that is escaped opens no link and no mention.
var escaper = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;")

func escape(s string) string { return escaper.Replace(s) }

// escapedLen counts what Slack counts: the characters of the escaped text.
// Whether Slack takes one beyond the BMP for one character or two is not
// documented; counted as two (UTF-16) it fits either way.
func escapedLen(s string) int {
	n := 0
	for _, r := range s {
		n += escapedRuneLen(r)
	}
	return n
}

func escapedRuneLen(r rune) int {
	switch {
	case r == '&':
		return len("&amp;")
	case r == '<', r == '>':
		return len("&lt;")
	case r > 0xFFFF:
		return 2
	}
	return 1
}

// cutText splits unescaped text into at most limit pieces: the first of no more
// than first characters once it is escaped, the others of no more than rest.
// The pieces and left, which did not fit, joined are the text. Cutting before
// escaping keeps every entity whole.
func cutText(text string, limit, first, rest int) (pieces []string, left string) {
	room := first
	for len(text) > 0 && len(pieces) < limit {
		n := cutPoint(text, room)
		pieces = append(pieces, text[:n])
		text = text[n:]
		room = rest
	}
	return pieces, text
}

// cutPoint is how many bytes of text make the next piece of at most room
// characters. When all of it does not fit, the piece ends after the last line
// break in its second half, else after the last blank there, else between two
// grapheme clusters. Only a cluster that is itself too long is cut, between
// two runes. It is at least one rune.
func cutPoint(text string, room int) int {
	var pos, used, line, blank int
	state := -1
	for pos < len(text) {
		cluster, _, _, next := uniseg.FirstGraphemeClusterInString(text[pos:], state)
		cost := escapedLen(cluster)
		if used+cost > room {
			switch {
			case line > 0:
				return line
			case blank > 0:
				return blank
			case pos > 0:
				return pos
			}
			return cutCluster(cluster, room)
		}
		pos, used, state = pos+len(cluster), used+cost, next
		if used > room/2 {
			switch cluster {
			case "\n", "\r\n":
				line = pos
			case " ", "\t":
				blank = pos
			}
		}
	}
	return pos
}

// cutCluster is how many bytes of one grapheme cluster fit into room, between
// two runes, and at least one rune.
func cutCluster(cluster string, room int) int {
	used := 0
	for i, r := range cluster {
		if used += escapedRuneLen(r); used > room && i > 0 {
			return i
		}
	}
	return len(cluster)
}
