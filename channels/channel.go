// Package channels holds the words that everything else speaks: what an event
// is, what a channel is asked, and the three things that can come of it.
//
// A channel is a named surface that can be asked to post an event: a Slack
// room, a webhook, a file. It accepts (a Receipt: proof that it has the
// event), it refuses (a *Refusal: proof that it has not), or the outcome is
// unknown (an *Uncertain: bytes may have left and no answer says what became
// of them). There is no fourth, and nobody guesses between them.
package channels

import (
	"context"
	"time"

	"the-loop/internal/lazy"
)

// Channel is a surface that can be asked to post.
type Channel interface {
	// Name is the channel's name in the config; it never changes.
	Name() string

	// Post makes one attempt at delivering d and returns when the outcome is
	// known or ctx ends. It makes no second attempt of its own.
	//
	// A nil error is an acceptance: the provider has all of the message.
	// A *Refusal says that it provably does not have it; an *Uncertain, and
	// any other error, that it may. With either, the receipt still lists the
	// parts of a split message that were accepted before.
	//
	// No error text holds a token, a webhook address or the message's text.
	// Post is safe to call from several goroutines.
	Post(ctx context.Context, d Delivery) (Receipt, error)
}

// Idempotent is a channel whose receiver promised to drop a repeated id.
type Idempotent interface {
	Channel
	// DropsRepeats is how long the receiver remembers an id, 0 for not at all.
	DropsRepeats() time.Duration
}

// Selective is a channel that can carry some events only: a ticket's comments
// what is about a ticket. It is not owed the others.
type Selective interface {
	Channel
	Carries(e Event) bool
}

// Credentialed is a channel whose standing depends on more than its name. A
// new credential (or target) is a new chance: what was refused under the old
// one says nothing about it.
type Credentialed interface {
	Channel
	// Credential gives bytes that change whenever the token, the address or
	// the target does. They are hashed before they are written anywhere. A
	// missing token is not an error here but in Post.
	Credential() string
}

// Reader is a channel that can read a message back, as a proof for people
// (`channels test`): it returns nil when the message with that receipt is
// really there.
type Reader interface {
	Channel
	ReadBack(ctx context.Context, r Receipt) error
}

// Delivery is what a channel is asked to carry.
type Delivery struct {
	Event Event
	// At is when the event was taken. A kind that renders for people says so
	// when the message goes out late (LateAfter).
	At time.Time
	// Ended says how a question ended that goes out late, "" while it is open. A
	// kind that renders for people shows that, and asks nobody any more.
	Ended string
	// Attempt counts the sends of this delivery, from 1.
	Attempt int
	// Parts are the receipts of the parts that earlier attempts at a split
	// message got accepted; Post goes on after them.
	Parts []string
	// OnPart, when set, is called after each accepted part but the last, with
	// that part's ref, and returns when it is durable. Post stops with an
	// *Uncertain when it fails, for the next part must not be sent.
	OnPart func(ref string) error
}

// LateAfter is how old an event must be before its message says so.
const LateAfter = 5 * time.Minute

// Receipt is a channel's proof of acceptance.
type Receipt struct {
	// Ref is the provider's id for the message ("1699999999.000100").
	Ref string
	// Link is an address where a person can look at it, if there is one.
	Link string
	// Parts are the refs of all accepted parts of a split message, those that
	// Delivery.Parts named included, in order. Empty for an unsplit one.
	Parts []string
}

var namePattern = lazy.Regexp(`^[a-z0-9][a-z0-9._-]{0,63}$`)

// ValidName reports whether s may name a channel or be an id given by hand.
// "undelivered" is taken: it would collide with the outbox's own file.
func ValidName(s string) bool { return namePattern().MatchString(s) && s != "undelivered" }
