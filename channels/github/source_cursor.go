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
	// Since is until when every change was seen.
	Since time.Time `json:"since"`
	// Start is, until Since comes there, from when on all is given. Of what is
	// older only questions are.
	Start time.Time `json:"start,omitzero"`
	// Seen are those within the overlap, "id@second", and later ones: what was
	// given while Since could not move, after a failure or because something
	// may have changed behind the reading.
	Seen []string `json:"seen,omitempty"`
	// ETag is of the first page as it is asked for now, when nothing can be new
	// while it stays the same.
	ETag string `json:"etag,omitempty"`
}

// decodeCursor reads a cursor. One that cannot be read is none: what was given
// before is known by its key.
func decodeCursor(raw json.RawMessage) cursor {
	var c cursor
	if json.Unmarshal(raw, &c) != nil {
		return cursor{}
	}
	return c
}

// fresh reports whether a kind was not begun.
func (c cursor) fresh() bool {
	return c.Comment.Since.IsZero() || c.Review.Since.IsZero() || c.Inline.Since.IsZero()
}

// begin lets what was not begun begin at start. Questions are comments, and are
// looked for before it.
func (c *cursor) begin(start time.Time) {
	if c.Comment.Since.IsZero() {
		c.Comment = track{Since: start.Add(-startMarks), Start: start}
	}
	for _, t := range []*track{&c.Review, &c.Inline} {
		if t.Since.IsZero() {
			*t = track{Since: start}
		}
	}
}

// floor is from when on it is read.
func (t track) floor() time.Time { return t.Since.Add(-overlap) }

// sighting is something that was seen as it was at a time.
type sighting struct {
	id int64
	at time.Time
}

// latest gives the time of the last of them, zero for none.
func latest(seen []sighting) (at time.Time) {
	for _, s := range seen {
		if s.at.After(at) {
			at = s.at
		}
	}
	return at
}

func (s sighting) String() string {
	return strconv.FormatInt(s.id, 10) + "@" + strconv.FormatInt(s.at.Unix(), 10)
}

// has reports whether it was seen, or is older than what is looked at.
func (t track) has(s sighting) bool {
	return s.at.Before(t.floor()) || slices.Contains(t.Seen, s.String())
}

// early reports whether it is from before the start, less the overlap that goes
// for every Since.
func (t track) early(s sighting) bool { return s.at.Before(t.Start.Add(-overlap)) }

// note adds what was seen, and leaves Since.
func (t *track) note(seen []sighting) {
	for _, s := range seen {
		if !t.has(s) {
			t.Seen = append(t.Seen, s.String())
		}
	}
}

// advance notes what was seen, moves Since on to a time until which nothing can
// have been missed, and forgets what is behind the overlap then. It reports
// whether it moved.
func (t *track) advance(to time.Time, seen []sighting) (moved bool) {
	before := t.Since
	t.note(seen)
	if to.After(t.Since) {
		t.Since = to.UTC()
	}
	if !t.Since.Before(t.Start) {
		t.Start = time.Time{}
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
