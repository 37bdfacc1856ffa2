// Package bus takes an event, records it, and fans it out to every channel
// that is owed it. What no channel accepted goes to the outbox.
package bus

import (
	"context"
	"time"

	"the-loop/channels"
	"the-loop/internal/eventlog"
	"the-loop/outbox"
)

// Ledger is the one channel of record.
type Ledger interface {
	// Record writes the event down, durably, and gives the record's link. An
	// http(s) link rides on the event to the channels.
	Record(ctx context.Context, ev channels.Event) (link string, err error)
}

// Store keeps what no channel accepted. *outbox.Store is one.
type Store interface {
	// Begin writes the intent to publish, durably.
	Begin(ctx context.Context, ev channels.Event, at time.Time, planned []outbox.Planned, recorded bool) (
		*outbox.Intent, error)
	// Remember stores what is still owed and settles the intent, durably.
	Remember(ctx context.Context, e *outbox.Entry, in *outbox.Intent) error
}

// Standing knows which channels may be asked. *outbox.Store is one.
type Standing interface {
	MayAsk(ctx context.Context, a outbox.Asker) (bool, *outbox.Standing, error)
	Observe(ctx context.Context, a outbox.Asker, entryID string, o channels.Outcome) error
	Pace(ctx context.Context, channel string, apart time.Duration, limit time.Time) (time.Time, bool, error)
}

// MaxText is how long an event's text may be by default, in bytes.
const MaxText = 1 << 20

// Bus publishes events. Its fields are set before the first Publish and not
// changed after it; Publish is then safe for concurrent use.
type Bus struct {
	Routes []Route
	// Ledger records the types that the catalogue says are recorded. nil: none.
	Ledger Ledger
	// Store remembers. nil: nothing is remembered and no folder is created.
	Store Store
	// Standing keeps failing channels from being asked. nil: all are asked.
	Standing Standing
	// Log gets the facts. May be nil.
	Log *eventlog.Log
	// MaxText is the longest text in bytes. Defaults to MaxText.
	MaxText int

	asksAll bool // whether they are owed the event or not
}

// Recorded says what became of the record.
type Recorded string

// What may become of the record.
const (
	RecordedYes      Recorded = "yes"
	RecordedNo       Recorded = "no"       // it failed
	RecordedUnneeded Recorded = "unneeded" // of a type that is not recorded, or no ledger
)

// Post is what one channel said.
type Post struct {
	Channel string          `json:"channel"`
	State   channels.State  `json:"state"` // accepted, refused, uncertain; pending: not asked
	Reason  channels.Reason `json:"reason"`
	Code    string          `json:"code"`
	Error   string          `json:"error"`
	Ref     string          `json:"ref"`
	Link    string          `json:"link,omitempty"`
}

// Result is what became of a publish. No failure of a channel, a disk or the
// outbox is an error or a panic in the caller: it is in here.
type Result struct {
	ID       string   `json:"id"`
	Recorded Recorded `json:"recorded"`
	Record   string   `json:"record,omitempty"` // its link
	Posts    []Post   `json:"posts"`            // one per channel owed, in the routes' order
	// Queued: something is still owed, and stands in the outbox.
	Queued bool `json:"queued"`
	// Stored: the event was on disk before its first byte left, and what had to
	// be kept of it is. False when the state root cannot be written, or when
	// there is none.
	Stored bool `json:"stored"`

	// Event is the event as it was taken, with its id.
	Event channels.Event `json:"-"`
	// Notes are for the person at the terminal: what was changed in the event,
	// what could not be written.
	Notes []string `json:"-"`
	// Err says why the event was not taken at all: its id, type or work item is
	// malformed, its text too long, its detail no JSON. Nothing was written or
	// sent then.
	Err error `json:"-"`
	// RecordErr is the ledger's error with RecordedNo.
	RecordErr error `json:"-"`
}

// Accepted counts the channels that took the event.
func (r Result) Accepted() int {
	n := 0
	for _, p := range r.Posts {
		if p.State == channels.StateAccepted {
			n++
		}
	}
	return n
}

// Lost reports whether the event is nowhere: owed, not accepted, not stored.
func (r Result) Lost() bool { return len(r.Posts) > 0 && r.Accepted() == 0 && !r.Queued }
