package outbox

import (
	"context"
	"encoding/json"
	"time"

	"the-loop/state"
)

// How an entry left the outbox.
const (
	LeftDelivered = "delivered"
	LeftDropped   = "dropped"
	LeftEvicted   = "evicted"
	LeftResent    = "sent again"
)

// Left tells the story of an entry that is not in the outbox any more, without
// its text: a line of settled.jsonl.
type Left struct {
	ID         string               `json:"id"`
	At         time.Time            `json:"at"` // when the event was taken
	LeftAt     time.Time            `json:"leftAt"`
	How        string               `json:"how"`
	ResentAs   string               `json:"resentAs,omitempty"`
	EventType  string               `json:"eventType"`
	WorkItem   string               `json:"workItem"`
	Attempts   int                  `json:"attempts"`
	LastError  string               `json:"lastError"`
	Deliveries map[string]*Delivery `json:"deliveries"`
}

// keepLeft is how long settled.jsonl is believed: lines older than that are
// passed over, until the turn-over takes them away.
const keepLeft = 30 * 24 * time.Hour

// leave removes an entry from the file and tells settled.jsonl once that is
// durable.
func (f *file) leave(e *Entry, how, resentAs string) {
	f.remove(e.ID)
	l := Left{
		ID: e.ID, At: e.At, LeftAt: time.Now().UTC().Truncate(time.Millisecond), How: how, ResentAs: resentAs,
		Attempts: e.Attempts, LastError: e.LastError, Deliveries: e.Deliveries,
	}
	if ev, err := e.Event(); err == nil {
		l.EventType, l.WorkItem = ev.Type, ev.WorkItem
	}
	f.left = append(f.left, l)
}

func (s *Store) settledLog() state.Log {
	l := s.root.Log(state.Settled)
	l.Limit = 10 << 20
	return l
}

// tellLeft writes what left into settled.jsonl. That an entry was sent again is
// written durably, and before the file is: it must not be forgotten, for the
// second attempt is made once. Of the others a line may be lost with the power.
func (s *Store) tellLeft(ctx context.Context, left []Left, resent bool) error {
	for _, l := range left {
		if (l.ResentAs != "") != resent {
			continue
		}
		b, err := json.Marshal(l)
		if err != nil {
			return err
		}
		if !resent {
			_ = s.settledLog().Append(ctx, b)
		} else if err := s.settledLog().AppendDurably(ctx, b); err != nil {
			return err
		}
	}
	return nil
}

// Left gives what became of an entry that left in the last 30 days.
func (s *Store) Left(id string) (Left, bool, error) {
	var found Left
	err := s.settledLog().Lines(func(line []byte) bool {
		var l Left
		if json.Unmarshal(line, &l) == nil && l.ID == id && time.Since(l.LeftAt) < keepLeft {
			found = l // the latest is right
		}
		return true
	})
	return found, found.ID != "", err
}
