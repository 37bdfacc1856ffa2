package main

import (
	"the-loop/internal/lazy"
	"the-loop/internal/term"
)

// notes says on stderr what keeps messages from coming in.
func notes(w world, lines []string) {
	for _, line := range lines {
		printf(w.stderr, "note: %s\n", term.Clean(line))
	}
}

// teller says each trouble once, when it is new.
type teller struct {
	w    world
	said map[string]bool // by what stays the same of it
	seen map[string]bool // at the last look
}

func newTeller(w world) *teller { return &teller{w: w, said: map[string]bool{}} }

// counting matches what changes of a trouble while it stays the same one.
var counting = lazy.Regexp(`^\d+ | \((once|\d+ times)\)$|: read again in \w+$`)

// look takes what is so now. What was not so at the look before may be over in
// a moment, and is not said yet.
func (t *teller) look(lines []string) {
	now := map[string]bool{}
	for _, line := range lines {
		key := counting().ReplaceAllString(line, "")
		if now[key] = true; t.seen[key] {
			t.tell(key, line)
		}
	}
	t.seen = now
}

// end takes what is so at the end.
func (t *teller) end(lines []string) {
	for _, line := range lines {
		t.tell(counting().ReplaceAllString(line, ""), line)
	}
}

func (t *teller) tell(key, line string) {
	if !t.said[key] {
		t.said[key] = true
		notes(t.w, []string{line})
	}
}
