package channels

import (
	"context"
	"time"
)

// Witness is a channel that can look up what became of a send that nobody
// answered.
type Witness interface {
	Channel

	// Look searches the surface for the message of d's event, by its id, among
	// the messages that our own author posted at since or later. It changes
	// nothing there.
	//
	// An error proves nothing. A *Refusal with ReasonAuth or ReasonConfig says
	// that no look-up will ever tell as things stand (a scope is missing, the
	// bot is not in the room, the send is older than what can be read), and its
	// Detail names what is needed; any other error may be different next time.
	Look(ctx context.Context, d Delivery, since time.Time) (Sighting, error)
}

// Sighting is what a look-up saw.
type Sighting struct {
	// Found are the parts that are there, in order from the first; a message
	// that was not split is one part. Empty: it was not seen.
	Found []string
	// Whole: all parts are there.
	Whole bool
	// Complete: everything that could hold the message was read, from since to
	// the moment at which the look-up began. Only then does not having seen a
	// part tell anything.
	Complete bool
}
