package github

import (
	"strconv"
	"strings"

	"the-loop/channels"
	"the-loop/internal/lazy"
)

var (
	loginPattern = lazy.Regexp(`^[A-Za-z0-9][A-Za-z0-9_-]{0,38}(\[bot\])?$`) // "_": managed users
	ownerPattern = lazy.Regexp(`^[A-Za-z0-9][A-Za-z0-9_-]{0,38}$`)
	repoPattern  = lazy.Regexp(`^[A-Za-z0-9._-]{1,100}$`)
	linkPattern  = lazy.Regexp(`/([^/]+)/([^/]+)/(?:issues|pull)/([1-9][0-9]{0,8})(?:[#/]|$)`)
)

// ticket is an issue or a pull request.
type ticket struct {
	owner, repo string
	number      int
}

// ticketOf reads a work item. ok is false when it is no ticket on GitHub.
func ticketOf(workItem string) (ticket, bool) {
	w, err := channels.ParseWorkItem(workItem)
	if err != nil || w.Kind != "github" {
		return ticket{}, false
	}
	t := ticket{w.Owner, w.Name, w.Number}
	return t, t.repo != "." && t.repo != ".." // which an address would fold away
}

// ticketAt reads a conversation, "owner/repo#7".
func ticketAt(conversation string) (ticket, bool) { return ticketOf("github:" + conversation) }

// ref is the id of a comment and its kind: "comment:17", "inline:17",
// "review:17".
func parseRef(ref string) (kind string, id int64, ok bool) {
	kind, number, _ := strings.Cut(ref, ":")
	id, err := strconv.ParseInt(number, 10, 64)
	switch {
	case err != nil, id <= 0:
		return "", 0, false
	case kind == "comment", kind == "inline", kind == "review":
		return kind, id, true
	}
	return "", 0, false
}

func commentRef(id int64) string { return "comment:" + strconv.FormatInt(id, 10) }

func noTicket() error {
	return &channels.Refusal{
		Reason: channels.ReasonConfig, Code: "no_ticket", Detail: "the work item is no ticket on GitHub",
	}
}
