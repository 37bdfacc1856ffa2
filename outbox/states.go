package outbox

import (
	"fmt"

	"the-loop/channels"
)

// Move is one row of the transition table: what may become of a delivery.
type Move struct {
	From, To channels.State
	Why      string
}

// Moves is the whole transition table. No delivery changes its state in any
// other way; docs/flow.md draws it, and a test holds the drawing against it.
func Moves() []Move {
	return []Move{
		{channels.StatePending, channels.StateSending, "claimed, then written down"},
		{channels.StateSending, channels.StateAccepted, "accepted"},
		{channels.StateSending, channels.StateRefused, "refused"},
		{channels.StateSending, channels.StateUncertain, "no answer, or the process died"},
		{channels.StateRefused, channels.StatePending, "due again"},
		{channels.StateUncertain, channels.StatePending, "repeats are dropped by id, in time; or only its rest was lost"},
		{channels.StatePending, channels.StateUncertain, "the time to repeat is over, or the root was copied"},
		{channels.StateRefused, channels.StateDead, "unacceptable 5 times, past its time to live, or no such channel"},
		{channels.StatePending, channels.StateDead, "past its time to live, or no such channel"},
		{channels.StateRefused, channels.StateUncertain, "the time to repeat is over, or the root was copied"},
		{channels.StateUncertain, channels.StateLost, "evidence: two complete look-ups did not find it"},
		{channels.StateUncertain, channels.StateDead, "the process died twice while sending it"},
		{channels.StateDead, channels.StatePending, "retry, or the channel is back"},
		{channels.StatePending, channels.StateAccepted, "late acceptance"},
		{channels.StateRefused, channels.StateAccepted, "late acceptance"},
		{channels.StateUncertain, channels.StateAccepted, "evidence: delivered; or late acceptance"},
		{channels.StateLost, channels.StateAccepted, "late acceptance"},
		{channels.StateDead, channels.StateAccepted, "late acceptance"},
	}
}

// states lists those that a delivery in the file may be in.
func states() []channels.State {
	return []channels.State{
		channels.StatePending, channels.StateSending, channels.StateAccepted, channels.StateRefused,
		channels.StateUncertain, channels.StateLost, channels.StateDead,
	}
}

func mayMove(from, to channels.State) bool {
	for _, m := range Moves() {
		if m.From == from && m.To == to {
			return true
		}
	}
	return false
}

// move changes the state by the table, and fails where it has no such row.
func (d *Delivery) move(to channels.State) error {
	if !mayMove(d.State, to) {
		return fmt.Errorf("a delivery that is %s cannot become %s", d.State, to)
	}
	d.State = to
	return nil
}
