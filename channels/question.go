package channels

import (
	"fmt"
	"strings"
)

// Asked is what a question's event says beside its text, in its detail, where
// every channel finds it: {"code": "7K2", "choices": ["yes", "no"],
// "freeText": true, "buttons": true}.
type Asked struct {
	// Code is the short code that tells the question from others in the same
	// conversation: three or four of A-Z and 2-9, one digit at least.
	Code string
	// Choices are the two to four texts to choose from, none for any text.
	Choices []string
	// FreeText: with choices, any other text counts too.
	FreeText bool
	// Buttons: a press can come back, so that a surface that has buttons may
	// show the choices as such.
	Buttons bool
}

// AskedOf reads what a question's event says. ok is false for any other event,
// and for a question without a code: one that an older version asked.
func AskedOf(e Event) (a Asked, ok bool) {
	if e.Type != "session.awaiting_input" {
		return Asked{}, false
	}
	a.Code, _ = e.Detail["code"].(string)
	a.FreeText, _ = e.Detail["freeText"].(bool)
	a.Buttons, _ = e.Detail["buttons"].(bool)
	switch choices := e.Detail["choices"].(type) {
	case []string:
		a.Choices = choices
	case []any:
		for _, c := range choices {
			text, _ := c.(string)
			a.Choices = append(a.Choices, text)
		}
	}
	return a, a.Code != ""
}

// Detail gives the event's detail.
func (a Asked) Detail() map[string]any {
	d := map[string]any{"code": a.Code}
	if len(a.Choices) > 0 {
		d["choices"] = a.Choices
	}
	if a.FreeText {
		d["freeText"] = true
	}
	if a.Buttons {
		d["buttons"] = true
	}
	return d
}

// Hint tells a person how to answer, as plain text: the numbered choices, and
// the code for a place where more than one question is open.
func (a Asked) Hint() string {
	var b strings.Builder
	for i, c := range a.Choices {
		fmt.Fprintf(&b, "%d. %s\n", i+1, OneLine(c))
	}
	switch {
	case len(a.Choices) > 0 && a.FreeText:
		b.WriteString("Reply with a choice, its number, or your own words")
	case len(a.Choices) > 0:
		b.WriteString("Reply with a choice or its number")
	default:
		b.WriteString("Reply here")
	}
	fmt.Fprintf(&b, "; begin with %s if more than one question is open here.", a.Code)
	return b.String()
}
