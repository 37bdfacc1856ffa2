package questions

import (
	"crypto/sha256"
	"encoding/binary"
	"os"
	"strings"
	"unicode"
	"unicode/utf8"

	"the-loop/state"
)

// Codes are made of what can be told apart on a phone and over the phone: no I,
// O, 0 and 1, no S and 5, no Z that is read as 2 and no B that is read as 8.
const (
	letters = "ACDEFGHJKLMNPQRTUVWXY"
	digits  = "2346789"
)

// seedOf is what a question's code is made of: its id and the root that it is
// asked in, so that every process gives the same one, and another machine that
// asks under the same id, given by hand, another.
func seedOf(root *state.Root, id string) string {
	host, _ := os.Hostname() // without one the folder alone must do
	return id + "\x00" + root.Dir() + "\x00" + host
}

// code gives the short code of a question: three characters made of the seed; or,
// when an open question has those, four that begin with nobody's three. A code
// has a letter and a digit, which few words have.
func code(seed, id string, open []Question) string {
	taken := map[string]bool{}
	for _, q := range open {
		if q.ID != id && q.Code != "" {
			taken[q.Code] = true
		}
	}
	three := draw(seed, 3, 0)
	if !taken[three] {
		return three
	}
	for n := uint64(1); n < 10_000; n++ {
		if four := draw(seed, 4, n); !taken[four] && !taken[four[:3]] {
			return four
		}
	}
	return draw(seed, 4, 1) // thousands are open: a code cannot help any more
}

// draw makes n characters out of a seed, letters and digits in them.
func draw(seed string, n int, salt uint64) string {
	const all = letters + digits
	for try := uint64(0); ; try++ {
		sum := sha256.Sum256(binary.BigEndian.AppendUint64([]byte(seed+"\x00"), salt<<32|try))
		out := make([]byte, n)
		for i := range out {
			out[i] = all[int(binary.BigEndian.Uint16(sum[2*i:]))%len(all)]
		}
		if s := string(out); strings.ContainsAny(s, letters) && strings.ContainsAny(s, digits) {
			return s
		}
	}
}

// TakeCode takes the question's code off the beginning of a text, in letters of
// either case and with what people put behind a code: "7K2 yes", "7k2: yes",
// "7K2 — yes", and below what the reply quotes. The code alone is coded, and the
// rest is empty.
func (q Question) TakeCode(text string) (rest string, coded bool) {
	text = strings.TrimSpace(text)
	own, n := ownWords(text), len(q.Code)
	if n == 0 || len(own) < n || !strings.EqualFold(own[:n], q.Code) {
		return text, false
	}
	after := own[n:]
	rest = strings.TrimSpace(after)
	if rest == "" {
		return "", true
	}
	sep, size := utf8.DecodeRuneInString(rest)
	switch touches := len(after) == len(rest); {
	case !strings.ContainsRune(":,;.)-–—", sep):
		if touches { // it is a longer word
			return text, false
		}
		return rest, true
	case touches && (sep == '.' || sep == ')') && !endsWord(rest[size:]):
		return text, false // "7K2.5"
	case touches || endsWord(rest[size:]):
		return strings.TrimSpace(rest[size:]), true
	}
	return rest, true // "7K2 -1"
}

func endsWord(s string) bool {
	r, _ := utf8.DecodeRuneInString(s)
	return s == "" || unicode.IsSpace(r)
}

// IsTalk reports whether a text begins with "//", quotes left out: what people say to each other
// beside a question, and no answer to it.
func IsTalk(text string) bool { return strings.HasPrefix(ownWords(text), "//") }
