package channels

import (
	"errors"
	"time"
)

// State is where a delivery stands. docs/flow.md draws the moves between them.
type State string

// The states of a delivery.
const (
	StatePending   State = "pending"   // to be sent
	StateSending   State = "sending"   // written down just before the first byte leaves
	StateAccepted  State = "accepted"  // the channel has it, with proof
	StateRefused   State = "refused"   // the channel provably does not have it
	StateUncertain State = "uncertain" // bytes may have left and no answer tells
	StateLost      State = "lost"      // was uncertain, and there is proof that it never arrived
	StateDead      State = "dead"      // will not be tried again by itself
)

// Outcome is what came of one attempt, as one flat value: a Receipt, a
// *Refusal or an *Uncertain without their causes, so that it can be written
// down and shown.
type Outcome struct {
	State      State // accepted, refused, uncertain; pending when it was not asked
	Reason     Reason
	Code       string
	Detail     string
	RetryAfter time.Duration
	Guessed    bool // see Refusal
	Receipt    Receipt
	At         time.Time // when the outcome became known
}

// OutcomeOf turns what Post returned into an Outcome. An error that is neither
// a *Refusal nor an *Uncertain is uncertain: nobody has proved anything.
func OutcomeOf(r Receipt, err error) Outcome {
	o := Outcome{State: StateAccepted, Receipt: r, At: time.Now()}
	if err == nil {
		return o
	}
	var refusal *Refusal
	var unknown *Uncertain
	switch {
	case errors.As(err, &refusal):
		o.State, o.Reason, o.Code, o.Detail = StateRefused, refusal.Reason, SafeCode(refusal.Code), refusal.Detail
		o.RetryAfter, o.Guessed = refusal.RetryAfter, refusal.Guessed
	case errors.As(err, &unknown):
		o.State, o.Reason, o.Code, o.Detail = StateUncertain, ReasonUnknown, SafeCode(unknown.Code), unknown.Detail
	default:
		o.State, o.Reason, o.Code = StateUncertain, ReasonUnknown, "error"
	}
	return o
}

// Error says in one line why an attempt was not accepted: the text that
// lastError and the results carry. Empty for an acceptance.
func (o Outcome) Error() string {
	switch o.State {
	case StateRefused:
		return verdictText("post failed: ", o.Code, o.Detail)
	case StateUncertain:
		return verdictText("outcome unknown: ", o.Code, o.Detail)
	case StatePending:
		return verdictText("not asked: ", o.Code, o.Detail)
	}
	return ""
}
