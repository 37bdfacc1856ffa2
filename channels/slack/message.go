package slack

import (
	"bytes"
	"context"
	"encoding/json"
	"strconv"
	"strings"
	"time"

	"the-loop/channels"
)

// Surface is channels.Message.Surface for what comes from Slack.
const Surface = "slack"

// rawMessage is what of one of Slack's messages is looked at, whichever way it
// came. Attachments, forwards, previews and blocks are left out on purpose:
// what stands there, its author did not write.
type rawMessage struct {
	Type     string          `json:"type"`
	Subtype  string          `json:"subtype"`
	Hidden   bool            `json:"hidden"`
	User     string          `json:"user"`
	BotID    string          `json:"bot_id"`
	AppID    string          `json:"app_id"`
	Text     string          `json:"text"`
	TS       string          `json:"ts"`
	ThreadTS string          `json:"thread_ts"`
	Edited   json.RawMessage `json:"edited"`
	Metadata json.RawMessage `json:"metadata"` // anybody's, of any form
}

// Introduce asks Slack who the token posts as, once for each token, so that what
// arrives from now on is known for our own. A way in that does not read calls it
// when it starts. Errors are those of Post.
func (c *Channel) Introduce(ctx context.Context) error {
	token, err := c.o.Token.Value()
	if err == nil {
		_, err = c.whoAmI(ctx, token)
	}
	return err
}

// message makes a channels.Message of one message in our conversation, that
// belongs to item and stands in thread. ok is false for what is no message of
// its own: one without a proper ts, and the news that another one was changed
// or deleted.
//
// Us and Mark.Ours are false until it is known who our token posts as, see
// Introduce. It uses no network.
func (c *Channel) message(raw rawMessage, item, thread string) (m channels.Message, ok bool) {
	at, ok := tsTime(raw.TS)
	if !ok || raw.Hidden || (raw.Type != "" && raw.Type != "message") {
		return channels.Message{}, false
	}
	switch raw.Subtype {
	case "message_changed", "message_deleted", "message_replied", "tombstone":
		return channels.Message{}, false
	}
	me := c.self.known()
	wrote := me != author{} && me.wrote(message{Subtype: raw.Subtype, User: raw.User, BotID: raw.BotID})
	edited := isSet(raw.Edited)
	return channels.Message{
		Key:      "slack:" + c.o.Channel + ":" + raw.TS,
		Surface:  Surface,
		Channel:  c.o.Name,
		WorkItem: item,
		Place:    channels.Place{Conversation: c.o.Channel, Thread: thread, ID: raw.TS},
		From:     channels.Author{ID: raw.User, Person: raw.person(), Us: wrote},
		At:       at,
		Text:     plainText(raw.Text),
		Edited:   edited,
		// A bot's message is changed by nobody but the bot.
		Mark: markOf(raw.Metadata, wrote && (me.bot != "" || !edited)),
	}, true
}

// person reports whether a person wrote it. A reply that is shown in the room
// too, and one with files, are a person's like any other.
func (raw rawMessage) person() bool {
	switch raw.Subtype {
	case "", "thread_broadcast", "file_share":
		return raw.User != "" && raw.User != "USLACKBOT" && raw.BotID == "" && raw.AppID == ""
	}
	return false
}

// markOf reads our marker out of a message's metadata, nil when it has none.
func markOf(metadata json.RawMessage, ours bool) *channels.Mark {
	var meta struct {
		EventType string          `json:"event_type"`
		Payload   json.RawMessage `json:"event_payload"`
	}
	var p struct {
		ID    string `json:"id"`
		Code  string `json:"code"`
		State string `json:"state"`
	}
	if json.Unmarshal(metadata, &meta) != nil || meta.EventType != EventType ||
		json.Unmarshal(meta.Payload, &p) != nil || p.ID == "" {
		return nil
	}
	return &channels.Mark{ID: p.ID, Code: p.Code, Closed: p.State == stateClosed, Ours: ours}
}

func isSet(raw json.RawMessage) bool { return len(raw) > 0 && !bytes.Equal(raw, []byte("null")) }

// tsTime reads a ts as the time that it is.
func tsTime(ts string) (time.Time, bool) {
	if !tsPattern().MatchString(ts) {
		return time.Time{}, false
	}
	seconds, fraction, _ := strings.Cut(ts, ".")
	s, err := strconv.ParseInt(seconds, 10, 64)
	if err != nil || s > 1<<40 {
		return time.Time{}, false
	}
	ns, err := strconv.ParseInt((fraction + "000000000")[:9], 10, 64)
	return time.Unix(s, ns).UTC(), err == nil
}

var unescaper = strings.NewReplacer("&amp;", "&", "&lt;", "<", "&gt;", ">")

// plainText undoes Slack's own escaping (docs.slack.dev, "Formatting message
// text"): a person reads what they typed. What Slack made of an address or a
// mention stands between "<" and ">", which are escaped wherever else they are.
func plainText(text string) string {
	var b strings.Builder
	for {
		before, rest, found := strings.Cut(text, "<")
		b.WriteString(unescaper.Replace(before))
		if !found {
			return b.String()
		}
		inside, after, closed := strings.Cut(rest, ">")
		if !closed { // Slack writes no such thing
			b.WriteString("<" + unescaper.Replace(rest))
			return b.String()
		}
		b.WriteString(unescaper.Replace(plainMarkup(inside)))
		text = after
	}
}

// plainMarkup is what a person reads for one <…>.
func plainMarkup(s string) string {
	target, label, labelled := strings.Cut(s, "|")
	labelled = labelled && label != ""
	switch {
	case strings.HasPrefix(target, "@"), strings.HasPrefix(target, "#"):
		if labelled {
			return target[:1] + strings.TrimPrefix(label, target[:1])
		}
		return target
	case strings.HasPrefix(target, "!"):
		if labelled { // <!subteam^S1|@team>, <!date^…|18 February>
			return label
		}
		return "@" + strings.TrimPrefix(target[1:], "subteam^")
	case !labelled:
		return target
	}
	for _, scheme := range []string{"", "http://", "https://", "mailto:", "tel:"} {
		if target == scheme+label { // Slack made the link, not the person
			return label
		}
	}
	return label + " (" + target + ")"
}
