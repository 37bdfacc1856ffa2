package slack

import (
	"fmt"
	"net/url"
	"strings"
	"time"
	"unicode/utf8"

	"the-loop/channels"
)

// A message is plain mrkdwn text without blocks, of no more than maxMessage
// characters. Slack takes 40,000, but splits by itself from 4,000 on, which
// would break a link or an entity in two and leave the rest without an id. A
// text object of a block takes 3,000, so a part fits there too.
const (
	maxMessage = 3000
	// maxParts bounds what one event may put into a room. What is longer is
	// cut, and the last part says so.
	maxParts = 20

	maxLink    = 1000 // a longer address stands in the body, where it may be split
	maxTitle   = 300
	maxActor   = 80
	headRoom   = 250 // for the mention, the actor, the late note and the part number
	noticeRoom = 150 // for the notice of a cut
	partRoom   = 12  // for "_19/20_\n"
)

// render gives the texts of the delivery's messages, in order, at least one.
// How the body is split depends on the event and the verbosity alone, and
// neither on the time nor on the mention: a later attempt finds the parts that
// an earlier one posted.
//
// The last thing of the last part is ending, for which each part has hintRoom:
// how to answer a question, and once it is closed, how it ended.
func (c *Channel) render(d channels.Delivery, now time.Time, ending string) []string {
	e := d.Event
	title, body := c.titleAndBody(e)
	room := maxMessage - hintRoom(e)
	first := room - headRoom - escapedLen(title)
	pieces, left := cutText(body, maxParts, first, room-partRoom)
	notice := ""
	if left != "" {
		last := len(pieces) - 1
		short, _ := cutText(pieces[last], 1, room-partRoom-noticeRoom, 0)
		missing := utf8.RuneCountInString(left) + utf8.RuneCountInString(pieces[last][len(short[0]):])
		pieces[last] = short[0]
		notice = fmt.Sprintf("\n_… cut here: %d more characters, event %s_", missing, escape(channels.OneLine(e.ID)))
	}
	parts := []string{c.head(d, title, len(pieces), now)}
	for i, piece := range pieces {
		if i == 0 {
			parts[0] += "\n" + escape(piece)
			continue
		}
		parts = append(parts, fmt.Sprintf("_%d/%d_\n%s", i+1, len(pieces), escape(piece)))
	}
	parts[len(parts)-1] += notice
	if ending != "" {
		parts[len(parts)-1] += "\n" + ending
	}
	return parts
}

// hintRoom is what a question's hint needs, with the line break before it.
func hintRoom(e channels.Event) int {
	hint := hintOf(e)
	if hint == "" {
		return 0
	}
	return utf16Len("\n" + hint)
}

// titleAndBody gives the headline as mrkdwn, linked when the event has a
// proper address, and the body as plain text.
func (c *Channel) titleAndBody(e channels.Event) (title, body string) {
	body = e.Body(c.o.Verbosity)
	title = escapeShort(e.Headline(), maxTitle)
	if e.URL == "" {
		return "*" + title + "*", body
	}
	if address, ok := linkAddress(e.URL); ok {
		return "*<" + address + "|" + title + ">*", body
	}
	return "*" + title + "*", strings.TrimSuffix(channels.OneLine(e.URL)+"\n"+body, "\n")
}

// head is the first line of the first message.
func (c *Channel) head(d channels.Delivery, title string, parts int, now time.Time) string {
	line := title
	if c.o.Mention != "" {
		line = c.o.Mention + " " + line
	}
	if a := d.Event.Actor; a != nil && a.Name != "" && c.o.Verbosity != channels.Quiet {
		line += " · " + escapeShort(channels.OneLine(a.Name), maxActor)
	}
	if late := d.LateNote(now); late != "" {
		line += " · " + late
	}
	if parts > 1 {
		line += fmt.Sprintf(" · 1/%d", parts)
	}
	return line
}

// escapeShort escapes the beginning of s, of at most room characters.
func escapeShort(s string, room int) string {
	pieces, _ := cutText(s, 1, room, 0)
	return escape(strings.Join(pieces, ""))
}

// linkAddress gives the address as it may stand before the "|" of a link. Only
// what a browser would open as a page is one: http or https, with a host and
// without a user name, which could feign another host.
func linkAddress(raw string) (string, bool) {
	u, err := url.Parse(raw)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Hostname() == "" || u.User != nil {
		return "", false
	}
	if strings.ContainsFunc(raw, func(r rune) bool { return r <= ' ' || r == 0x7f || r == utf8.RuneError }) {
		return "", false
	}
	address := escape(strings.ReplaceAll(u.String(), "|", "%7C"))
	return address, len(address) <= maxLink
}
