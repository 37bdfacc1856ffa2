package github

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"

	"the-loop/channels"
	"the-loop/internal/lazy"
)

// The marker is the first line of every body that we write:
//
//	<!-- the-loop id=01KB… code=7K2 state=open sum=1f2e3d4c -->
//
// GitHub shows nothing of it. code and state stand on questions only. sum is
// over the rest of the body, with white space folded: GitHub's editor writes
// \r\n, and people's mail programs fold lines.
var (
	markerPattern = lazy.Regexp(`^<!-- the-loop id=([A-Za-z0-9][A-Za-z0-9._-]{0,127})` +
		`(?: code=([A-Z2-9]{3,4}) state=(open|closed))? sum=([0-9a-f]{8}) -->$`)
	markerID   = lazy.Regexp(`^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$`)
	markerCode = lazy.Regexp(`^[A-Z2-9]{3,4}$`)
)

// maxMarker is the length of the longest marker, with its line break.
const maxMarker = len("<!-- the-loop id= code=7K2Q state=closed sum=01234567 -->\n") + 128

// ParseMark reads the marker of a comment's body, nil when it does not begin
// with one. It says nothing about who wrote the body. A marker that is quoted,
// escaped ("&lt;!--") or not on the first line is none.
func ParseMark(body string) *channels.Mark {
	mark, _, _ := readMark(body)
	return mark
}

// readMark gives the marker, its sum, and the rest of the body.
func readMark(body string) (mark *channels.Mark, sum, rest string) {
	line, rest, _ := strings.Cut(body, "\n")
	m := markerPattern().FindStringSubmatch(strings.TrimSuffix(line, "\r"))
	if m == nil {
		return nil, "", body
	}
	return &channels.Mark{ID: m[1], Code: m[2], Closed: m[3] == "closed", Ours: m[4] == sumOf(rest)}, m[4], rest
}

// sign puts the marker over a body. mark.Ours is not looked at. An id or a
// code that a marker cannot carry is an error. What is not UTF-8 is replaced
// here, before the sum is taken, and not by JSON after it.
func sign(mark channels.Mark, rest string) (string, error) {
	if !markerID().MatchString(mark.ID) || (mark.Code != "" && !markerCode().MatchString(mark.Code)) {
		return "", &channels.Refusal{
			Reason: channels.ReasonUnacceptable, Code: "bad_id", Detail: "the id or the code does not fit into a marker",
		}
	}
	rest, _ = channels.CleanText(rest)
	return signWith(mark, sumOf(rest), rest), nil
}

func signWith(mark channels.Mark, sum, rest string) string {
	question := ""
	if mark.Code != "" {
		state := "open"
		if mark.Closed {
			state = "closed"
		}
		question = fmt.Sprintf(" code=%s state=%s", mark.Code, state)
	}
	return fmt.Sprintf("<!-- the-loop id=%s%s sum=%s -->\n%s", mark.ID, question, sum, rest)
}

func sumOf(rest string) string {
	sum := sha256.Sum256([]byte(channels.OneLine(rest)))
	return hex.EncodeToString(sum[:4])
}
