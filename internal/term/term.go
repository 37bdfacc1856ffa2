// Package term is the one printer for people: what it gives fits on one line
// of a terminal, shows what is there, and makes the terminal do nothing.
package term

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/mattn/go-isatty"
	"github.com/rivo/uniseg"
)

// Clean makes s fit to be shown as one value on one line: control characters,
// line breaks, bidi controls, what else has no shape of its own, and bytes that
// are not UTF-8 are written out as Go writes them ("\n", "\x1b", "\u202e").
// A backslash stays as it is, so that the result is for reading only. Cleaning
// it again changes nothing.
func Clean(s string) string {
	if isClean(s) {
		return s
	}
	var b strings.Builder
	for len(s) > 0 {
		r, size := utf8.DecodeRuneInString(s)
		switch {
		case r == utf8.RuneError && size == 1:
			fmt.Fprintf(&b, `\x%02x`, s[0])
		case visible(r):
			b.WriteRune(r)
		default:
			quoted := strconv.QuoteRuneToASCII(r)
			b.WriteString(quoted[1 : len(quoted)-1])
		}
		s = s[size:]
	}
	return b.String()
}

func isClean(s string) bool {
	return utf8.ValidString(s) && !strings.ContainsFunc(s, func(r rune) bool { return !visible(r) })
}

// visible reports whether r may be shown as it is. Joiners have no shape but
// give one to their neighbours, in emoji as in Persian.
func visible(r rune) bool {
	const nonJoiner, joiner = '\u200c', '\u200d'
	return unicode.IsPrint(r) || unicode.Is(unicode.Zs, r) || r == nonJoiner || r == joiner
}

// Width is how many columns of a terminal s takes, counted by grapheme. It is
// right for what Clean gives.
func Width(s string) int { return uniseg.StringWidth(s) }

// Cut gives s when it takes no more than width columns, else as much of it as
// fits with "…" at the end. Graphemes stay whole.
func Cut(s string, width int) string {
	if Width(s) <= width {
		return s
	}
	if width < 1 {
		return ""
	}
	kept, used := 0, 0
	for rest, state := s, -1; rest != ""; {
		var cluster string
		var w int
		cluster, rest, w, state = uniseg.FirstGraphemeClusterInString(rest, state)
		if used+w > width-1 {
			break
		}
		kept, used = kept+len(cluster), used+w
	}
	return s[:kept] + "…"
}

const day = 24 * time.Hour

// Ago says how long before now t was, in whole units of the largest kind: "59s
// ago", "4m ago", "2h ago", "3d ago". What lies less than a second back, or in
// the future because a clock was set, was "just now".
func Ago(now, t time.Time) string {
	switch d := now.Sub(t); {
	case d < time.Second:
		return "just now"
	case d < time.Minute:
		return fmt.Sprintf("%ds ago", d/time.Second)
	case d < time.Hour:
		return fmt.Sprintf("%dm ago", d/time.Minute)
	case d < day:
		return fmt.Sprintf("%dh ago", d/time.Hour)
	default:
		return fmt.Sprintf("%dd ago", d/day)
	}
}

// Span says how long d is. The unit is the largest of which there are at least
// two, and the rest follows in the next smaller unit, rounded: "60s", "90s",
// "4m", "2m30s", "60m", "2h", "36h", "7d". Below two seconds it is what Go
// prints, in whole milliseconds.
func Span(d time.Duration) string {
	if d < 0 {
		return "-" + Span(d.Abs())
	}
	if d < 2*time.Second {
		return d.Round(time.Millisecond).String()
	}
	units := []struct {
		size time.Duration
		name string
	}{{day, "d"}, {time.Hour, "h"}, {time.Minute, "m"}, {time.Second, "s"}}
	for i, unit := range units {
		small := units[min(i+1, len(units)-1)]
		rounded := d.Round(small.size)
		if rounded < 2*unit.size {
			continue
		}
		text := fmt.Sprintf("%d%s", rounded/unit.size, unit.name)
		if rest := rounded % unit.size; rest > 0 {
			text += fmt.Sprintf("%d%s", rest/small.size, small.name)
		}
		return text
	}
	return d.String() // not reached: two seconds are two of the last unit
}

// IsTerminal reports whether w is a terminal.
func IsTerminal(w io.Writer) bool {
	f, ok := w.(interface{ Fd() uintptr })
	return ok && (isatty.IsTerminal(f.Fd()) || isatty.IsCygwinTerminal(f.Fd()))
}

// ColorOK reports whether what is written to w may be coloured: it is a
// terminal that can, and the user did not say no with NO_COLOR.
func ColorOK(w io.Writer, getenv func(string) string) bool {
	return getenv("NO_COLOR") == "" && getenv("TERM") != "dumb" && IsTerminal(w)
}
