package outbox

import (
	"bytes"
	"encoding/json"
)

// The file is read in two ways. What stands just as encode writes it, one entry a
// line, is cut into its lines without looking into the entries: whoever adds one
// to many pays for no more than their bytes. Anything else is read as JSON. Both
// give the same.

var (
	ownHead = []byte(`{"version":1,"pending":{`)
	ownTail = []byte("\n}}\n")
)

// split reads a file that stands as encode writes it; ok is false for any other.
// That each line is one member is seen from its strings and brackets; whether it
// is an entry is seen when it is decoded.
func split(b []byte) (f *file, ok bool) {
	rest, okHead := bytes.CutPrefix(b, ownHead)
	rest, okTail := bytes.CutSuffix(rest, ownTail)
	if !okHead || !okTail {
		return nil, false
	}
	n := bytes.Count(rest, []byte("\n"))
	f = &file{ids: make([]string, 0, n+1), raw: make(map[string]json.RawMessage, n+1)}
	for len(rest) > 0 {
		if rest[0] != '\n' {
			return nil, false
		}
		line := rest[1:]
		end := bytes.IndexByte(line, '\n')
		if end < 0 {
			end = len(line)
		}
		line, rest = line[:end], line[end:]
		if len(rest) > 0 {
			if line, ok = bytes.CutSuffix(line, []byte(",")); !ok {
				return nil, false
			}
		}
		id, value, ok := member(line)
		if !ok {
			return nil, false
		}
		f.add(id, value)
	}
	return f, true
}

// member cuts `"id":{…}` where the id needs no escaping and the object takes up
// the rest of the line.
func member(line []byte) (id string, value []byte, ok bool) {
	if len(line) == 0 || line[0] != '"' {
		return "", nil, false
	}
	end := bytes.IndexByte(line[1:], '"') + 1
	if end < 2 || !isPlain(line[1:end]) || !bytes.HasPrefix(line[end:], []byte(`":{`)) {
		return "", nil, false
	}
	value = line[end+len(`":`):]
	return string(line[1:end]), value, isOneObject(value)
}

// isPlain reports whether a text stands in JSON as it is.
func isPlain[T string | []byte](text T) bool {
	for i := range len(text) {
		if c := text[i]; c < ' ' || c > '~' || c == '"' || c == '\\' || c == '<' || c == '>' || c == '&' {
			return false
		}
	}
	return true
}

// isOneObject reports whether b, which begins with a brace, ends where that is
// closed.
func isOneObject(b []byte) bool {
	depth := 0
	for i := 0; i < len(b); i++ {
		switch b[i] {
		case '"':
			n := stringLen(b[i:])
			if n == 0 {
				return false
			}
			i += n - 1
		case '{', '[':
			depth++
		case '}', ']':
			if depth--; depth == 0 {
				return i == len(b)-1
			}
		}
	}
	return false
}

// stringLen is how long the JSON string is that b begins with, its quotes
// included; 0 when it does not end.
func stringLen(b []byte) int {
	for i := 1; i < len(b); {
		quote := bytes.IndexByte(b[i:], '"')
		if quote < 0 {
			return 0
		}
		i += quote
		slashes := 0
		for b[i-1-slashes] == '\\' {
			slashes++
		}
		if i++; slashes%2 == 0 {
			return i
		}
	}
	return 0
}
