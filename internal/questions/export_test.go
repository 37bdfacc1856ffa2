package questions

import "the-loop/state"

// CodeOf is the code that a question has where none is taken.
func CodeOf(id, text string) string { return code(id, text, nil) }

// Same gives the open question that asks just that: the first one that does.
func Same(root *state.Root, workItem, text string, choices []string) (Question, bool) {
	open, _ := Open(root)
	return sameAs(open, workItem, text, choices)
}
