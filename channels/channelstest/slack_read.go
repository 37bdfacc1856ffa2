package channelstest

import (
	"cmp"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"time"
)

// slackReading is how a Slack shows its messages. The zero value shows all.
type slackReading struct {
	missingScope string
	pageLimit    int
	hideBefore   time.Time
	disguise     func(m *SlackMessage)
}

// DenyReading makes every reading fail for want of that scope, such as
// "channels:history"; "" grants it again.
func (s *Slack) DenyReading(scope string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reading.missingScope = scope
}

// LimitPages makes a page no longer than n, whatever is asked for; 0 ends that.
func (s *Slack) LimitPages(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reading.pageLimit = n
}

// HideBefore hides what is older than at, as the free plan does, and says so in
// every answer ("is_limited") while it hides anything. The zero time ends that.
func (s *Slack) HideBefore(at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reading.hideBefore = at
}

// Disguise lets change work on the copy of each message that is read.
func (s *Slack) Disguise(change func(m *SlackMessage)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reading.disguise = change
}

// Plant puts a message of anybody into the room, in the order of its TS, which
// is made of now when it is empty, and gives it back.
func (s *Slack) Plant(room string, m SlackMessage) SlackMessage {
	s.mu.Lock()
	defer s.mu.Unlock()
	if m.TS == "" {
		s.lastTS = max(s.lastTS+1, time.Now().UnixMicro())
		m.TS = slackTS(s.lastTS)
	}
	m.Type = cmp.Or(m.Type, "message")
	r := s.rooms[room]
	r.messages = append(r.messages, m)
	slices.SortStableFunc(r.messages, func(a, b SlackMessage) int { return cmp.Compare(slackTime(a.TS), slackTime(b.TS)) })
	return m
}

// SlackTS gives the ts of a message that was posted at that time.
func SlackTS(at time.Time) string { return slackTS(at.UnixMicro()) }

func slackTS(micros int64) string { return fmt.Sprintf("%d.%06d", micros/1e6, micros%1e6) }

// read is conversations.history and conversations.replies. Without
// include_all_metadata metadata comes without its payload.
func (s *Slack) read(method string, room *slackRoom, form url.Values) slackAnswer {
	if scope := s.reading.missingScope; scope != "" {
		return slackAnswer{"ok": false, "error": "missing_scope", "needed": scope, "provided": "chat:write"}
	}
	shown := slices.Clone(room.messages)
	if at := s.reading.hideBefore; !at.IsZero() {
		shown = slices.DeleteFunc(shown, func(m SlackMessage) bool { return slackTime(m.TS) < slackTime(SlackTS(at)) })
	}
	var answer slackAnswer
	if method == "conversations.history" {
		answer = s.page(slackHistory(shown), "", form)
	} else {
		root := slices.IndexFunc(shown, func(m SlackMessage) bool { return m.TS == form.Get("ts") })
		if root < 0 {
			return slackError("thread_not_found")
		}
		answer = s.page(slackThread(shown, shown[root]), shown[root].TS, form)
	}
	if len(shown) < len(room.messages) {
		answer["is_limited"] = true
	}
	return answer
}

// slackHistory gives the messages that are no replies, newest first.
func slackHistory(messages []SlackMessage) (roots []SlackMessage) {
	for _, m := range slices.Backward(messages) {
		if m.ThreadTS == "" || m.ThreadTS == m.TS {
			roots = append(roots, m)
		}
	}
	return roots
}

// slackThread gives the root's thread, oldest first. For a reply, or a message
// without replies, it is that one alone.
func slackThread(messages []SlackMessage, root SlackMessage) []SlackMessage {
	thread := []SlackMessage{root}
	for _, m := range messages {
		if m.ThreadTS == root.TS && m.TS != root.TS {
			thread = append(thread, m)
		}
	}
	return thread
}

// page cuts what was asked for out of messages: the time range, then a page. A
// thread's root comes with each page, even when it is older than the range. A
// cursor is the number of messages on the pages before.
func (s *Slack) page(messages []SlackMessage, root string, form url.Values) slackAnswer {
	oldest, latest, inclusive := form.Get("oldest"), form.Get("latest"), slackBool(form.Get("inclusive"))
	messages = slices.DeleteFunc(messages, func(m SlackMessage) bool {
		rootBefore := m.TS == root && oldest != "" && slackTime(root) <= slackTime(oldest)
		return !rootBefore && !slackBetween(m.TS, oldest, latest, inclusive)
	})
	limit, err := strconv.Atoi(cmp.Or(form.Get("limit"), "100"))
	if err != nil || limit < 1 || limit > 999 {
		return slackError("invalid_limit")
	}
	if s.reading.pageLimit > 0 {
		limit = min(limit, s.reading.pageLimit)
	}
	from, err := strconv.Atoi(cmp.Or(form.Get("cursor"), "0"))
	if err != nil || from < 0 || from > len(messages) {
		return slackError("invalid_cursor")
	}
	to := min(from+limit, len(messages))
	page := make([]SlackMessage, 0, limit+1)
	if from > 0 && root != "" && messages[0].TS == root {
		page = append(page, s.show(messages[0], slackBool(form.Get("include_all_metadata"))))
	}
	for _, m := range messages[from:to] {
		page = append(page, s.show(m, slackBool(form.Get("include_all_metadata"))))
	}
	answer := slackAnswer{"ok": true, "messages": page, "has_more": to < len(messages)}
	if to < len(messages) {
		answer["response_metadata"] = map[string]any{"next_cursor": strconv.Itoa(to)}
	}
	return answer
}

// show gives the message as it is read.
func (s *Slack) show(m SlackMessage, payload bool) SlackMessage {
	if m.Metadata != nil {
		meta := *m.Metadata
		if !payload {
			meta.Payload = nil
		}
		m.Metadata = &meta
	}
	if s.reading.disguise != nil {
		s.reading.disguise(&m)
	}
	return m
}
