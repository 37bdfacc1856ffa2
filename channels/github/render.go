package github

import (
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"the-loop/channels"
)

// maxComment is how long a comment may be. GitHub documents no unit; others
// measured 65,536 characters, and more in bytes.
const maxComment = 65_536

// What is not the text is bounded too, so that there is always room for it.
const (
	noticeRoom = 120  // for the notice of a cut
	maxTitle   = 300  // of the headline
	maxWord    = 80   // of a name
	maxLink    = 1000 // a longer address stands in the text, where it may be cut
	maxHint    = 8000 // a longer list of choices is not shown
	maxEnding  = 500  // of the line that says how a question ended
)

// rendered gives the body of the comment for an event, its marker on top. It is
// no longer than maxComment: the text is cut, and neither the marker nor the
// hint how to answer.
func rendered(d channels.Delivery, v channels.Verbosity, now time.Time) (string, error) {
	e := d.Event
	head := head(d, v, now)
	body, tail := bodyOf(e, v), ""
	if link := linkOf(e); utf8.RuneCountInString(link) > maxLink {
		body = strings.TrimPrefix(body+"\n\n"+link, "\n\n")
	} else if link != "" {
		tail += "\n\n" + link
	}
	if d.Ended != "" {
		tail += "\n\n" + endingOf(d.Ended)
	} else if hint := hintOf(e); hint != "" {
		tail += "\n\n" + hint
	}
	room := maxComment - maxMarker - utf8.RuneCountInString(head) - utf8.RuneCountInString(tail) - 2
	text := head
	if body = cut(body, room); body != "" {
		text += "\n\n" + body
	}
	asked, _ := channels.AskedOf(e)
	return sign(channels.Mark{ID: e.ID, Code: asked.Code, Closed: d.Ended != ""}, text+tail)
}

// bodyOf is what people read between the headline and the link. An answer is a
// person's words, and quoted.
func bodyOf(e channels.Event, v channels.Verbosity) string {
	switch {
	case e.Type != "session.reply":
		return defuse(e.Body(v))
	case v == channels.Quiet || e.Text == "":
		return ""
	}
	return quote(defuseAll(e.Text))
}

// head is the first line that people read.
func head(d channels.Delivery, v channels.Verbosity, now time.Time) string {
	e, name := d.Event, ""
	if e.Actor != nil && v != channels.Quiet {
		name = word(e.Actor.Name)
	}
	title := strings.TrimSuffix(e.Headline(), " · "+e.WorkItem) // it stands on that ticket
	line := "**" + defuse(cutLine(title, maxTitle)) + "**"
	switch {
	case name != "" && e.Type == "session.reply":
		line = "**" + name + " answered:**"
	case name != "":
		line += " · " + name
	}
	if e.Type == "session.reply" {
		if code, ok := e.Detail["code"].(string); ok {
			line += " · " + word(code)
		}
		if via, ok := e.Detail["via"].(string); ok {
			line += " · via " + word(via)
		}
	}
	if late := d.LateNote(now); late != "" {
		line += " · " + late
	}
	return line
}

// word is a name or the like, on one line.
func word(s string) string { return defuseAll(cutLine(channels.OneLine(s), maxWord)) }

// linkOf is the event's address, "" when it has none or it leads to the ticket
// that the comment stands on.
func linkOf(e channels.Event) string {
	if e.URL == "" || leadsTo(e.URL, e.WorkItem) {
		return ""
	}
	return defuse(channels.OneLine(e.URL))
}

// hintOf says how to answer, "" for what is no question.
func hintOf(e channels.Event) string {
	asked, ok := channels.AskedOf(e)
	if !ok {
		return ""
	}
	if hint := defuse(asked.Hint()); utf8.RuneCountInString(hint) <= maxHint {
		return hint
	}
	asked.Choices = nil
	return cutLine(defuse(asked.Hint()), maxHint) // a code of that length is no code, see sign
}

// endingOf is the line that says how a question ended.
func endingOf(how string) string {
	return "**✅ " + cutLine(defuseAll(channels.OneLine(how)), maxEnding) + "**"
}

// leadsTo reports whether an address is that of the work item itself, or of a
// comment on it.
func leadsTo(address, workItem string) bool {
	m := linkPattern().FindStringSubmatch(address)
	return m != nil && strings.EqualFold(fmt.Sprintf("github:%s/%s#%s", m[1], m[2], m[3]), workItem)
}
