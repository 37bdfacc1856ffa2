package main

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"the-loop/internal/inbound"
	"the-loop/internal/term"
)

// frame prints messages for whoever reads text, a model most of all, so that a
// message cannot pass for anything but the one message that it is:
//
//	--- 3f9a1c02 message 12 about github:o/r#7, 2 lines, 16 bytes
//	from Octo (slack U012ABCDEF)
//	at   2026-11-30T22:10:05Z
//	| looks good
//	| to me
//	--- 3f9a1c02 end
//
// Every line of the body begins with "| ", and no other line does, so that a
// body cannot end and cannot begin another: this holds whatever a body says.
// For a reader that does not keep to it, such as a model, there is more. The
// token is random and made by this invocation, so that a body which repeats the
// frame of another one has the wrong one; only where tail or listen goes on, and
// what it printed got about, may somebody know it who writes later. The head
// says how much body follows. The values in the head are put on one line each by
// the one printer for people.
type frame struct{ token string }

func newFrame() frame {
	var b [4]byte
	_, _ = rand.Read(b[:]) // never fails
	return frame{hex.EncodeToString(b[:])}
}

// print prints one message, in one write.
func (f frame) print(w io.Writer, l inbound.Line) error {
	var body, b strings.Builder
	lines := 0
	for line := range strings.SplitSeq(l.Text, "\n") {
		body.WriteString("| " + visibleLine(line) + "\n")
		lines++
	}
	plural := "s"
	if lines == 1 {
		plural = ""
	}
	fmt.Fprintf(&b, "--- %s message %d about %s, %d line%s, %d bytes\n", f.token, l.Seq, term.Clean(l.WorkItem),
		lines, plural, body.Len()-lines*len("| ")-1)
	row := func(name, value string) {
		if value != "" {
			fmt.Fprintf(&b, "%-4s %s\n", name, term.Clean(value))
		}
	}
	who := l.From.Surface + " " + l.From.ID
	if l.From.Name != "" {
		who = l.From.Name + " (" + who + ")"
	}
	row("from", who)
	row("at", l.At.UTC().Format(time.RFC3339))
	row("link", l.Link)
	b.WriteString(body.String())
	fmt.Fprintf(&b, "--- %s end\n", f.token)
	_, err := io.WriteString(w, b.String())
	return err
}

// visibleLine is one line of a text as it may be shown. Tabs stay. The inbox
// holds nothing else that moves a cursor, unless somebody wrote to it by hand.
func visibleLine(s string) string {
	cells := strings.Split(s, "\t")
	for i, cell := range cells {
		cells[i] = term.Clean(cell)
	}
	return strings.Join(cells, "\t")
}

// printLine prints a message as one line of JSON, in one write.
func printLine(w io.Writer, l inbound.Line) error {
	enc := json.NewEncoder(w) // it writes each value at once
	enc.SetEscapeHTML(false)
	return enc.Encode(l)
}
