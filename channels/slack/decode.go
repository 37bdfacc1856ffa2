package slack

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"the-loop/channels"
	"the-loop/internal/lazy"
)

// Why there is nothing for us in what Slack sent, in one word for counting.
const (
	droppedChallenge = "url_verification"
	droppedThread    = "unknown_thread" // nothing of ours is there, or is a thread at all
	droppedEdit      = "edit"
	droppedDeletion  = "deletion"
	droppedBot       = "bot"     // of an app, ours among them
	droppedSubtype   = "subtype" // said by Slack itself: somebody joined, a topic was set
	droppedPress     = "foreign_button"
	droppedOther     = "other"     // a kind of event that we have not asked for
	droppedMalformed = "malformed" // what a socket bears and nobody can read
)

// maxChoices bounds what a button's value may say.
const maxChoices = 4

var (
	errMalformed = errors.New("not what slack sends")

	userPattern     = lazy.Regexp(`^[A-Z0-9]{1,32}$`)
	questionPattern = lazy.Regexp(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)
)

// rooms are the conversations that things may come in from. Several channels
// may share one.
type rooms []*Channel

// find gives the channel to which the thread belongs, with its work item; when
// none knows the thread, the first one of that conversation, without one; nil
// when the conversation is none of ours.
func (r rooms) find(conversation, thread string) (c *Channel, item string) {
	for _, room := range r {
		if room.o.Channel != conversation || conversation == "" {
			continue
		}
		if item, ok := room.WorkItem(conversation, thread); ok {
			return room, item
		}
		if c == nil {
			c = room
		}
	}
	return c, ""
}

// decodeEvents reads what the Events API sends, by a request or by a socket.
func (r rooms) decodeEvents(body []byte) (channels.Arrival, error) {
	var outer struct {
		Type      string          `json:"type"`
		Challenge string          `json:"challenge"`
		Event     json.RawMessage `json:"event"`
	}
	if err := json.Unmarshal(body, &outer); err != nil {
		return channels.Arrival{}, fmt.Errorf("event: %w", errMalformed)
	}
	switch outer.Type {
	case "url_verification":
		return channels.Arrival{Reply: []byte(outer.Challenge), Dropped: droppedChallenge}, nil
	case "event_callback":
		return r.decodeEvent(outer.Event)
	}
	return channels.Arrival{Dropped: droppedOther}, nil
}

// decodeEvent reads one event. A retry is read like the first try, and the
// event's own id is not looked at: what happened is told by the message's ts.
func (r rooms) decodeEvent(event []byte) (channels.Arrival, error) {
	var kind struct {
		Type    string `json:"type"`
		Subtype string `json:"subtype"`
	}
	if err := json.Unmarshal(event, &kind); err != nil {
		return channels.Arrival{}, fmt.Errorf("event: %w", errMalformed)
	}
	switch {
	case kind.Type != "message":
		return channels.Arrival{Dropped: droppedOther}, nil
	case kind.Subtype == "message_changed":
		return channels.Arrival{Dropped: droppedEdit}, nil
	case kind.Subtype == "message_deleted":
		return channels.Arrival{Dropped: droppedDeletion}, nil
	}
	var e struct {
		rawMessage
		Channel string `json:"channel"`
	}
	if err := json.Unmarshal(event, &e); err != nil || !tsPattern().MatchString(e.TS) {
		return channels.Arrival{}, fmt.Errorf("message event: %w", errMalformed)
	}
	switch {
	case e.person():
	case e.BotID != "" || e.AppID != "" || e.Subtype == "bot_message":
		return channels.Arrival{Dropped: droppedBot}, nil
	default:
		return channels.Arrival{Dropped: droppedSubtype}, nil
	}
	if e.ThreadTS == "" {
		return channels.Arrival{Dropped: droppedThread}, nil
	}
	room, item := r.find(e.Channel, e.ThreadTS)
	if item == "" {
		return channels.Arrival{Dropped: droppedThread}, nil
	}
	m, ok := room.message(e.rawMessage, item, e.ThreadTS)
	if !ok {
		return channels.Arrival{Dropped: droppedSubtype}, nil
	}
	return channels.Arrival{Messages: []channels.Message{m}}, nil
}

// press is what of a block_actions payload is looked at.
type press struct {
	Type string `json:"type"`
	User struct {
		ID string `json:"id"`
	} `json:"user"`
	Channel struct {
		ID string `json:"id"`
	} `json:"channel"`
	Container struct {
		Type      string `json:"type"`
		MessageTS string `json:"message_ts"`
		ChannelID string `json:"channel_id"`
		ThreadTS  string `json:"thread_ts"`
	} `json:"container"`
	Message struct {
		TS       string `json:"ts"`
		ThreadTS string `json:"thread_ts"`
	} `json:"message"`
	Actions []action `json:"actions"`
}

type action struct {
	Type     string `json:"type"`
	BlockID  string `json:"block_id"`
	ActionID string `json:"action_id"`
	Value    string `json:"value"`
	ActionTS string `json:"action_ts"`
}

// decodeInteraction reads what Slack sends when somebody used a control. The
// press of a button of ours, in one of our rooms, is a message even when
// nobody here knows the question: the presser is told so.
func (r rooms) decodeInteraction(payload []byte) (channels.Arrival, error) {
	var kind struct {
		Type string `json:"type"`
	}
	if err := json.Unmarshal(payload, &kind); err != nil {
		return channels.Arrival{}, fmt.Errorf("interaction: %w", errMalformed)
	}
	if kind.Type != "block_actions" {
		return channels.Arrival{Dropped: droppedOther}, nil
	}
	var p press
	if err := json.Unmarshal(payload, &p); err != nil {
		return channels.Arrival{}, fmt.Errorf("block_actions: %w", errMalformed)
	}
	place := p.place()
	room, item := r.find(place.Conversation, place.Thread)
	if room == nil {
		return channels.Arrival{Dropped: droppedThread}, nil
	}
	var arrival channels.Arrival
	for _, a := range p.Actions {
		press, ok := a.press()
		if !ok {
			continue
		}
		at, timed := tsTime(a.ActionTS)
		if !timed || !userPattern().MatchString(p.User.ID) || !tsPattern().MatchString(place.ID) {
			return channels.Arrival{}, fmt.Errorf("block_actions: %w", errMalformed)
		}
		arrival.Messages = append(arrival.Messages, channels.Message{
			Key:     strings.Join([]string{"slack:press", press.Question, p.User.ID, a.ActionTS}, ":"),
			Surface: Surface, Channel: room.o.Name, WorkItem: item, Place: place,
			From: channels.Author{ID: p.User.ID, Person: true}, At: at, Press: &press,
		})
	}
	if len(arrival.Messages) == 0 {
		arrival.Dropped = droppedPress
	}
	return arrival, nil
}

// place is where the message with the button stands. A message in the room
// itself is the root of its own thread.
func (p *press) place() channels.Place {
	conversation := firstOf(p.Channel.ID, p.Container.ChannelID)
	ts := firstOf(p.Container.MessageTS, p.Message.TS)
	thread := firstOf(p.Container.ThreadTS, p.Message.ThreadTS, ts)
	return channels.Place{Conversation: conversation, Thread: thread, ID: ts}
}

func firstOf(values ...string) string {
	for _, v := range values {
		if v != "" {
			return v
		}
	}
	return ""
}

// press reads a button of ours; false for everybody else's, and for ours with a
// value that we do not write.
func (a action) press() (channels.Press, bool) {
	number, ok := strings.CutPrefix(a.ActionID, choiceAction)
	if _, err := strconv.ParseUint(number, 10, 8); !ok || err != nil || a.BlockID != questionBlock {
		return channels.Press{}, false
	}
	var value struct {
		Question string `json:"q"`
		Choice   *int   `json:"c"`
	}
	if err := json.Unmarshal([]byte(a.Value), &value); err != nil || value.Choice == nil {
		return channels.Press{}, false
	}
	if !questionPattern().MatchString(value.Question) || *value.Choice < 0 || *value.Choice >= maxChoices {
		return channels.Press{}, false
	}
	return channels.Press{Question: value.Question, Choice: *value.Choice}, true
}
