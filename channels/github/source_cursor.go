package github

import (
	"encoding/json"
	"slices"
	"strconv"
	"time"
)

// overlap is how far behind the last thing that was seen it is read again.
// GitHub's since counts whole seconds and includes its own, and what was
// written first may be visible second.
const overlap = 10 * time.Second

// What a ticket is.
const (
	isIssue = "issue"
	isPull  = "pull"
)

// cursor is how far a place was read, each kind by itself: one that fails does
// not hold up the others, and is not passed over.
type cursor struct {
	Is      string `json:"is,omitempty"` // of a ticket: isIssue, isPull, "" while unknown
	Comment track  `json:"comment"`
	Review  track  `json:"review"`
	Inline  track  `json:"inline"`
}

// track is how far one kind was read. All times are GitHub's.
type track struct {
	// Since is the last change that was seen.
	Since time.Time `json:"since"`
	// Seen are those within the overlap, "id@second". After a failure others
	// may stand here: what was given, while Since stays.
	Seen []string `json:"seen,omitempty"`
	// ETag is of the first page as it is asked for now, when it was the only
	// one and had room: then nothing can be new while it stays the same.
	ETag string `json:"etag,omitempty"`
}

// decodeCursor reads a cursor. None, or one that cannot be read, begins at
// start: what was given before is known by its key.
func decodeCursor(raw json.RawMessage, start time.Time) cursor {
	var c cursor
	if json.Unmarshal(raw, &c) != nil {
		c = cursor{}
	}
	for _, t := range []*track{&c.Comment, &c.Review, &c.Inline} {
		if t.Since.IsZero() {
			*t = track{Since: start}
		}
	}
	return c
}

// floor is from when on it is read.
func (t track) floor() time.Time { return t.Since.Add(-overlap) }

// sighting is something that was seen as it was at a time.
type sighting struct {
	id int64
	at time.Time
}

func (s sighting) String() string {
	return strconv.FormatInt(s.id, 10) + "@" + strconv.FormatInt(s.at.Unix(), 10)
}

// has reports whether it was seen, or is older than what is looked at.
func (t track) has(s sighting) bool {
	return s.at.Before(t.floor()) || slices.Contains(t.Seen, s.String())
}

// note adds what was seen, and leaves Since.
func (t *track) note(seen []sighting) {
	for _, s := range seen {
		if !t.has(s) {
			t.Seen = append(t.Seen, s.String())
		}
	}
}

// advance moves Since to the latest of to and what was seen, and forgets what
// is behind the overlap then. It reports whether it moved.
func (t *track) advance(to time.Time, seen []sighting) (moved bool) {
	before := t.Since
	t.note(seen)
	for _, s := range seen {
		if s.at.After(to) {
			to = s.at
		}
	}
	if to.After(t.Since) {
		t.Since = to.UTC()
	}
	floor := t.floor().Unix()
	t.Seen = slices.DeleteFunc(t.Seen, func(s string) bool { return secondOf(s) < floor })
	return t.Since.After(before)
}

func secondOf(seen string) int64 {
	for i := range len(seen) {
		if seen[i] == '@' {
			n, _ := strconv.ParseInt(seen[i+1:], 10, 64)
			return n
		}
	}
	return 0
}
