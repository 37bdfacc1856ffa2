package github

import (
	"fmt"
	"regexp"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/rivo/uniseg"

	"the-loop/channels"
)

// maxComment is how long a comment may be. GitHub documents no unit; others
// measured 65,536 characters, and more in bytes.
const maxComment = 65_536

// noticeRoom is for the notice of a cut.
const noticeRoom = 120

// zeroWidth is put where GitHub would see more than text: behind the "@" of a
// mention, into "<!--", before the number of a reference. It is seen by nobody,
// and the text reads as it was written.
const zeroWidth = "\u200b"

var (
	mention  = regexp.MustCompile(`@([A-Za-z0-9])`)
	closing  = regexp.MustCompile(`(?i)\b((?:close[sd]?|fix(?:e[sd])?|resolve[sd]?):?\s+(?:[\w.-]+/[\w.-]+)?)#([0-9])`)
	closeURL = regexp.MustCompile(`(?i)\b((?:close[sd]?|fix(?:e[sd])?|resolve[sd]?):?\s+)(https?://)`)
	shortRef = regexp.MustCompile(`#([0-9])`)
	ghRef    = regexp.MustCompile(`(?i)\b(GH-)([0-9])`)
)

// defuse keeps text that we did not write from doing anything on GitHub: it
// mentions nobody, closes nothing and is no marker. Its Markdown stays.
func defuse(text string) string {
	text = strings.ReplaceAll(text, "<!--", "<"+zeroWidth+"!--")
	text = mention.ReplaceAllString(text, "@"+zeroWidth+"$1")
	text = closing.ReplaceAllString(text, "$1#"+zeroWidth+"$2")
	return closeURL.ReplaceAllString(text, "$1"+zeroWidth+"$2")
}

// defuseAll is defuse for what a person answered: it refers to nothing either.
func defuseAll(text string) string {
	text = defuse(scrub(text))
	text = shortRef.ReplaceAllString(text, "#"+zeroWidth+"$1")
	return ghRef.ReplaceAllString(text, "$1"+zeroWidth+"$2")
}

// removed stands where a token stood.
const removed = "[removed]"

var tokens = []*regexp.Regexp{
	regexp.MustCompile(`(?s)-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(-----END [A-Z ]*PRIVATE KEY-----|$)`),
	regexp.MustCompile(`\b(?:xox[a-z]|xapp)-[A-Za-z0-9-]{8,}`),
	regexp.MustCompile(`\b(?:gh[pousr]_[A-Za-z0-9]{16,}|github_pat_[A-Za-z0-9_]{16,}|glpat-[A-Za-z0-9_-]{16,})`),
	regexp.MustCompile(`\bsk-[A-Za-z0-9_-]{16,}`),
	regexp.MustCompile(`\b(?:AKIA|ASIA)[A-Z0-9]{16}\b`),
	regexp.MustCompile(`\bAIza[A-Za-z0-9_-]{30,}`),
	regexp.MustCompile(`\bwhsec_[A-Za-z0-9+/=]{16,}`),
	regexp.MustCompile(`\beyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]*`),
}

var namedSecret = regexp.MustCompile(
	`(?i)\b((?:password|passwd|passphrase|secret|token|api[_-]?key)["']?\s*[:=]\s*["']?)([^\s"'` + "`" + `]{6,})`)

// scrub strikes out what looks like a token.
func scrub(text string) string {
	for _, t := range tokens {
		text = t.ReplaceAllString(text, removed)
	}
	return namedSecret.ReplaceAllString(text, "${1}"+removed)
}

// rendered gives the body of the comment for an event, its marker on top. It is
// no longer than maxComment: the text is cut, and neither the marker nor the
// hint how to answer.
func rendered(d channels.Delivery, v channels.Verbosity, now time.Time) (string, error) {
	e := d.Event
	head := head(d, v, now)
	body, tail := e.Body(v), ""
	if e.Type == "session.reply" {
		body = quote(defuseAll(e.Text))
	} else {
		body = defuse(body)
	}
	if e.URL != "" && !leadsTo(e.URL, e.WorkItem) {
		tail += "\n\n" + defuse(channels.OneLine(e.URL))
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

// head is the first line that people read.
func head(d channels.Delivery, v channels.Verbosity, now time.Time) string {
	e := d.Event
	title := strings.TrimSuffix(e.Headline(), " · "+e.WorkItem) // it stands on that ticket
	line := "**" + defuse(title) + "**"
	if e.Actor != nil && e.Actor.Name != "" && v != channels.Quiet {
		line += " · " + defuseAll(channels.OneLine(e.Actor.Name))
	}
	if e.Type == "session.reply" {
		if code, ok := e.Detail["code"].(string); ok {
			line += " · " + channels.OneLine(code)
		}
		if via, ok := e.Detail["via"].(string); ok {
			line += " · via " + channels.OneLine(via)
		}
	}
	if late := d.LateNote(now); late != "" {
		line += " · " + late
	}
	return line
}

// hintOf says how to answer, "" for what is no question.
func hintOf(e channels.Event) string {
	asked, ok := channels.AskedOf(e)
	if !ok {
		return ""
	}
	return defuse(asked.Hint())
}

// maxEnding is how long the line may be that says how a question ended.
const maxEnding = 500

// endingOf is that line.
func endingOf(how string) string {
	return "**✅ " + cut(defuseAll(channels.OneLine(how)), maxEnding) + "**"
}

// leadsTo reports whether an address is that of the work item itself, or of a
// comment on it.
func leadsTo(address, workItem string) bool {
	m := linkPattern.FindStringSubmatch(address)
	return m != nil && strings.EqualFold(fmt.Sprintf("github:%s/%s#%s", m[1], m[2], m[3]), workItem)
}

// quote puts "> " before each line.
func quote(text string) string {
	return "> " + strings.ReplaceAll(strings.ReplaceAll(text, "\r\n", "\n"), "\n", "\n> ")
}

// cut is the text if it fits into room characters, else its beginning, between
// two grapheme clusters, and a notice.
func cut(text string, room int) string {
	if utf8.RuneCountInString(text) <= room {
		return text
	}
	pos, used, state := 0, 0, -1
	for pos < len(text) {
		cluster, _, _, next := uniseg.FirstGraphemeClusterInString(text[pos:], state)
		n := utf8.RuneCountInString(cluster)
		if used+n > room-noticeRoom {
			break
		}
		pos, used, state = pos+len(cluster), used+n, next
	}
	return fmt.Sprintf("%s\n\n_… cut here: %d more characters_", text[:pos], utf8.RuneCountInString(text[pos:]))
}
