package questions

import "the-loop/state"

// CodeOf is the code that a question has in the root where none is taken.
func CodeOf(root *state.Root, id string) string { return CodeOfSeed(seedOf(root, id)) }

// CodeOfSeed is the code that is made of a seed.
func CodeOfSeed(seed string) string { return code(seed, "", nil) }

// Same gives the open question that asks just that: the first one that does.
func Same(root *state.Root, workItem, text string, choices []string) (Question, bool) {
	open, _ := Open(root)
	return sameAs(open, workItem, text, choices)
}
