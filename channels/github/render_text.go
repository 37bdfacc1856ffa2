package github

import (
	"fmt"
	"regexp"
	"strings"
	"unicode/utf8"

	"the-loop/channels"
	"the-loop/internal/lazy"
)

// zeroWidth is put where GitHub would see more than text: behind the "@" of a
// mention, into "<!--" and "&#64;", before the number of a reference. It is
// U+200B: not a letter, so that no name or number begins behind it, and not
// white space to Markdown, so that nothing else changes. It is seen by nobody,
// and the text, in a code block too, reads as it was written.
const zeroWidth = "\u200b"

var (
	// htmlBlock begins a line that GitHub shows nothing of, nor of what follows
	// until it is ended: a declaration or a processing instruction.
	htmlBlock = lazy.Regexp(`(?m)^([ \t]*<)([!?])`)
	// charRef is "@" or "#" in other words: GitHub looks for mentions in what
	// Markdown has made of them.
	charRef  = lazy.Regexp(`(?i)&(#|commat;|num;)`)
	closing  = lazy.Regexp(`(?i)\b((?:close[sd]?|fix(?:e[sd])?|resolve[sd]?):?\s+(?:[\w.-]+/[\w.-]+)?)#([0-9])`)
	closeGH  = lazy.Regexp(`(?i)\b((?:close[sd]?|fix(?:e[sd])?|resolve[sd]?):?\s+GH-)([0-9])`)
	closeURL = lazy.Regexp(`(?i)\b((?:close[sd]?|fix(?:e[sd])?|resolve[sd]?):?\s+)(https?://)`)
	shortRef = lazy.Regexp(`#([0-9])`)
	ghRef    = lazy.Regexp(`(?i)\b(GH-)([0-9])`)
	// pathURL is an address up to its host, and the rest of it.
	pathURL = lazy.Regexp("(?i)\\bhttps?://[^\\s/<>()\\[\\]\"'`]+/[^\\s<>()\\[\\]\"'`]*")
)

// defuse keeps text that we did not write from doing anything on GitHub: it
// mentions nobody, closes nothing, is no marker and hides nothing of what
// follows. Its other Markdown stays. In the path of an address "@" becomes
// "%40", which leads to the same place; zeroWidth would not.
func defuse(text string) string {
	text = strings.ReplaceAll(text, "<!--", "<"+zeroWidth+"!--")
	text = htmlBlock().ReplaceAllString(text, "$1"+zeroWidth+"$2")
	text = charRef().ReplaceAllString(text, "&"+zeroWidth+"$1")
	text = pathURL().ReplaceAllStringFunc(text, escapeAt)
	text = strings.ReplaceAll(text, "@", "@"+zeroWidth)
	text = closing().ReplaceAllString(text, "$1#"+zeroWidth+"$2")
	text = closeGH().ReplaceAllString(text, "$1"+zeroWidth+"$2")
	return closeURL().ReplaceAllString(text, "$1"+zeroWidth+"$2")
}

// escapeAt writes "@" behind the host of an address as an address may.
func escapeAt(address string) string {
	host := strings.Index(address, "//") + len("//")
	path := host + strings.Index(address[host:], "/")
	return address[:path] + strings.ReplaceAll(address[path:], "@", "%40")
}

// defuseAll is defuse for what a person answered: it refers to nothing either,
// and holds no token.
func defuseAll(text string) string {
	text = defuse(scrub(text))
	text = shortRef().ReplaceAllString(text, "#"+zeroWidth+"$1")
	return ghRef().ReplaceAllString(text, "$1"+zeroWidth+"$2")
}

// removed stands where a token stood.
const removed = "[removed]"

var tokens = []func() *regexp.Regexp{
	lazy.Regexp(`(?s)-----BEGIN [A-Z0-9 ]+-----.*?(-----END [A-Z0-9 ]+-----|$)`),
	lazy.Regexp(`\b(?:xox[a-z]|xapp)-[A-Za-z0-9-]{8,}`),
	lazy.Regexp(`\b(?:gh[pousr]_[A-Za-z0-9]{16,}|github_pat_[A-Za-z0-9_]{16,}|glpat-[A-Za-z0-9_-]{16,})`),
	lazy.Regexp(`\bsk-[A-Za-z0-9_-]{16,}`),
	lazy.Regexp(`\b(?:AKIA|ASIA)[A-Z0-9]{16}\b`),
	lazy.Regexp(`\bAIza[A-Za-z0-9_-]{30,}`),
	lazy.Regexp(`https://hooks\.slack\.com/\S+`),
	lazy.Regexp(`\b(?:[sr]k_(?:live|test)_[A-Za-z0-9]{16,}|(?:npm|hf)_[A-Za-z0-9]{30,}|pypi-[A-Za-z0-9_-]{36,})`),
	lazy.Regexp(`\b(?:dop_v1_[a-f0-9]{32,}|SG\.[A-Za-z0-9_-]{16,}\.[A-Za-z0-9_-]{16,})`),
	lazy.Regexp(`\bwhsec_[A-Za-z0-9+/=]{16,}`),
	lazy.Regexp(`\beyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]*`),
}

// named are values behind a name that says what they are: "DB_PASSWORD=…",
// "token: …", "Authorization: Bearer …". A short word behind "token" is one.
var named = []func() *regexp.Regexp{
	lazy.Regexp(`(?i)\b([\w-]*(?:password|passwd|passphrase)(?:[_-]\w+)*["']?[ \t]*[:=][ \t]*)` +
		`(?:"[^"\n]+"|'[^'\n]+'|[^\s"'` + "`" + `]+)`),
	lazy.Regexp(`(?i)\b([\w-]*(?:secret|token|api[_-]?key)(?:[_-]\w+)*["']?[ \t]*[:=][ \t]*)` +
		`(?:"[^"\n]+"|'[^'\n]+'|[^\s"'` + "`" + `]{6,})`),
	lazy.Regexp(`(?i)\b((?:password|passwd|passphrase) is:?[ \t]+)\S*[0-9!#$%^&*_=+]\S*`),
	lazy.Regexp(`(?i)\b((?:bearer|basic)[ \t]+)[A-Za-z0-9._~+/=-]{16,}`),
}

// inAddress is a password in an address: "postgres://admin:…@db".
var inAddress = lazy.Regexp(`(://[^\s/:@]*:)[^\s/@]+@`)

// scrub strikes out what looks like a token.
func scrub(text string) string {
	text = inAddress().ReplaceAllString(text, "${1}"+removed+"@")
	for _, t := range tokens {
		text = t().ReplaceAllString(text, removed)
	}
	for _, n := range named {
		text = n().ReplaceAllString(text, "${1}"+removed)
	}
	return text
}

// lineBreaks writes all that ends a line in Markdown as "\n".
var lineBreaks = strings.NewReplacer("\r\n", "\n", "\r", "\n")

// quote puts "> " before each line.
func quote(text string) string {
	return "> " + strings.ReplaceAll(lineBreaks.Replace(text), "\n", "\n> ")
}

// cut is the text if it fits into room characters, else its beginning, between
// two grapheme clusters, and a notice. A code block that is open at the end is
// ended, so that what follows is none of it.
func cut(text string, room int) string {
	if whole := closeFence(text); utf8.RuneCountInString(whole) <= room {
		return whole
	}
	pos := channels.Fit(text, room-noticeRoom)
	return fmt.Sprintf("%s\n\n_… cut here: %d more characters_",
		closeFence(text[:pos]), utf8.RuneCountInString(text[pos:]))
}

// cutLine is cut for something short, which is one line.
func cutLine(text string, room int) string {
	if utf8.RuneCountInString(text) <= room {
		return text
	}
	return text[:channels.Fit(text, room-1)] + "…"
}

// maxFence is the longest fence of a code block that is ended for its writer.
const maxFence = 40

var fencePattern = lazy.Regexp("^ {0,3}(`{3,}|~{3,})(.*)$")

// closeFence ends the code block that is open at the end of the text, if one is
// (spec.commonmark.org, "Fenced code blocks").
func closeFence(text string) string {
	open := ""
	for line := range strings.SplitSeq(lineBreaks.Replace(text), "\n") {
		m := fencePattern().FindStringSubmatch(line)
		switch {
		case m == nil:
		case open == "" && (m[1][0] == '~' || !strings.Contains(m[2], "`")):
			open = m[1]
		case open != "" && m[1][0] == open[0] && len(m[1]) >= len(open) && strings.TrimSpace(m[2]) == "":
			open = ""
		}
	}
	if open == "" || len(open) > maxFence {
		return text
	}
	return text + "\n" + open
}
