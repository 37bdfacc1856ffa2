package channels

import (
	"errors"
	"time"
)

// Message is something that came in from a surface, in words that belong to
// none. The surface makes it of what the provider signed or of what was read
// with our own token, and decides nothing: who may answer what is one
// pipeline's business for every way in.
type Message struct {
	// Key says what happened, and is the same by whichever way and however
	// often the message reaches us:
	//
	//	slack:<conversation>:<ts>                      a reply
	//	slack:press:<question>:<user>:<action_ts>      a button
	//	github:<owner>/<repo>:<kind>:<id>:<updated_at> comment, review, inline
	//
	// It is never made of a retry header or of an id that is not signed.
	Key string `json:"key"`
	// Surface is "slack" or "github".
	Surface string `json:"surface"`
	// Channel is the config's name of the channel that it came in by, "" for
	// what came from GitHub.
	Channel string `json:"channel,omitempty"`
	// WorkItem is the conversation that it belongs to, "" when the place is
	// none of ours.
	WorkItem string `json:"workItem"`
	Place    Place  `json:"place"`
	From     Author `json:"from"`
	// At is when it was written, by the provider's clock.
	At time.Time `json:"at"`
	// Text is what the person wrote and nothing else: no attachment, forward or
	// preview; the surface's own escaping undone.
	Text string `json:"text"`
	// Where is the file and line that an inline comment is about, "a.go:12".
	Where string `json:"where,omitempty"`
	Link  string `json:"link,omitempty"`
	// Edited: it had been edited before we first saw it. It is no answer then.
	Edited bool `json:"edited,omitempty"`
	// Press is the button that was pressed, nil for a message.
	Press *Press `json:"press,omitempty"`
	// Mark is our own marker in it, nil without one. Only that of our own
	// account, or of a listed person's, tells anything.
	Mark *Mark `json:"mark,omitempty"`
}

// Author is who wrote a message, as the surface knows them.
type Author struct {
	// ID never changes: a Slack user's id, a GitHub account's number.
	ID string `json:"id"`
	// Login is the GitHub login, "" on Slack.
	Login string `json:"login,omitempty"`
	// Person: it is no bot, no app, and nothing that the provider says itself.
	Person bool `json:"person"`
	// Us: it is the account that our token posts as. A person may use the same
	// one, so that this alone does not make a message ours.
	Us bool `json:"us,omitempty"`
}

// Place is where a message stands, for answering there.
type Place struct {
	// Conversation is Slack's id of the room, or GitHub's "owner/repo#7".
	Conversation string `json:"conversation"`
	// Thread is the ts of the thread's root in Slack.
	Thread string `json:"thread,omitempty"`
	// ID is the message's own: a ts in Slack, on GitHub "comment:17",
	// "review:17" or "inline:17".
	ID string `json:"id"`
}

// Press is a button that was pressed.
type Press struct {
	Question string `json:"question"` // its id
	Choice   int    `json:"choice"`   // from 0
}

// Mark is what the marker in a message of ours says: the hidden comment on
// GitHub, the metadata in Slack.
type Mark struct {
	ID string `json:"id"` // of the event
	// Code is the short code of a question, "" in any other message.
	Code string `json:"code,omitempty"`
	// Closed: the question has been answered, withdrawn, or has expired.
	Closed bool `json:"closed,omitempty"`
	// Ours: the text is as we wrote it, so that nobody else's stands in it.
	Ours bool `json:"ours,omitempty"`
}

// Arrival is what one signed request or one frame of a socket held.
type Arrival struct {
	Messages []Message
	// Reply is the body to answer with, such as the challenge that proves an
	// address to Slack. Empty for none.
	Reply []byte
	// Dropped says by which rule there is nothing in it for us, in one word for
	// counting; "" when there are messages.
	Dropped string
}

// ErrForged is returned for what is not signed by one of our secrets, or not
// signed now.
var ErrForged = errors.New("the signature does not hold")
