package questions

import (
	"strconv"
	"strings"
)

// Match reads a text as an answer. With choices it is one of them, by its text
// or else by its number ("2", "2.", "2)"), and anything else only with FreeText;
// without choices it is any text that is not empty. A choice's text may be in
// letters of either case, with more or fewer blanks, and end in a full stop, an
// exclamation mark or a comma; not in a question mark, for "yes?" asks. It may
// stand in emphasis ("**yes**") and below what it quotes ("> Ship it?").
//
// answer is the choice as it was asked, or the text without the blanks around
// it, and choice is its number from 1. What was written to other people
// (IsTalk), and a code in front (TakeCode), is for the caller to look at first.
func (q Question) Match(text string) (answer string, choice int, ok bool) {
	text = ownWords(strings.ReplaceAll(text, "\r\n", "\n"))
	if text == "" {
		return "", 0, false
	}
	for _, alike := range []func(string) string{plainly, loosely} {
		for i, c := range q.Choices {
			if alike(c) == alike(text) && alike(text) != "" {
				return c, i + 1, true
			}
		}
	}
	number := strings.TrimRight(strings.TrimLeft(text, emphasis), emphasis+".)")
	n, err := strconv.ParseUint(number, 10, 8) // no sign: "+1" is applause
	if err == nil && len(number) < 3 && n >= 1 && n <= uint64(len(q.Choices)) {
		return q.Choices[n-1], int(n), true
	}
	if len(q.Choices) > 0 && !q.FreeText {
		return "", 0, false
	}
	return text, 0, true
}

// plainly is a text as it is compared: blanks and letters' case tell nothing.
func plainly(s string) string { return strings.ToLower(strings.Join(strings.Fields(s), " ")) }

func loosely(s string) string {
	return strings.TrimRight(strings.TrimLeft(plainly(s), emphasis), emphasis+".!,;:… ")
}

// emphasis are the marks around a text that is emphasized.
const emphasis = "*_~`"

// ownWords is what a reply says below the lines that it quotes at its beginning,
// and all of it when it says nothing more.
func ownWords(text string) string {
	rest := strings.TrimSpace(text)
	for strings.HasPrefix(rest, ">") {
		_, below, _ := strings.Cut(rest, "\n")
		rest = strings.TrimSpace(below)
	}
	if rest == "" {
		return strings.TrimSpace(text)
	}
	return rest
}

// Alike reports whether two choices could not be told apart in a reply.
func Alike(a, b string) bool { return loosely(a) == loosely(b) }
