package outbox

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"the-loop/channels"
	"the-loop/state"
)

// Intent is what a publish wrote down before its first byte left. It stands in
// the process's journal until the publish is settled; when the process dies
// before that, the next cycle makes an entry of it.
//
// Its methods may be called from several goroutines. None of them is called
// after Settle.
type Intent struct {
	journal *journal
	file    *state.Journal
	id      string
}

// Planned is a channel that is owed the event.
type Planned struct {
	Channel  string `json:"channel"`
	Required bool   `json:"required,omitempty"`
	// Held is why it is not asked, nil when it is.
	Held *channels.Outcome `json:"-"`
}

// intentLine is a line of a journal. The first of an intent has its event;
// each of the others adds what became known.
type intentLine struct {
	ID string `json:"id"`

	At       time.Time       `json:"at,omitzero"`
	Event    json.RawMessage `json:"event,omitempty"`
	Planned  []plannedJSON   `json:"planned,omitempty"`
	Recorded string          `json:"recorded,omitempty"` // pending, yes, no, unneeded

	URL     string       `json:"url,omitempty"` // the record's, with recorded yes
	Channel string       `json:"channel,omitempty"`
	Part    string       `json:"part,omitempty"` // of the channel's split message
	Outcome *outcomeJSON `json:"outcome,omitempty"`
	Settled bool         `json:"settled,omitempty"`
}

type plannedJSON struct {
	Planned
	Held *outcomeJSON `json:"held,omitempty"`
}

// outcomeJSON is an outcome as a journal keeps it.
type outcomeJSON struct {
	State   channels.State  `json:"state"`
	Reason  channels.Reason `json:"reason,omitempty"`
	Code    string          `json:"code,omitempty"`
	Detail  string          `json:"detail,omitempty"`
	Ref     string          `json:"ref,omitempty"`
	Link    string          `json:"link,omitempty"`
	Parts   []string        `json:"parts,omitempty"`
	Started time.Time       `json:"started,omitzero"`
	At      time.Time       `json:"at"`
}

func toJSON(o channels.Outcome, started time.Time) *outcomeJSON {
	return &outcomeJSON{
		State: o.State, Reason: o.Reason, Code: o.Code, Detail: o.Detail, Ref: o.Receipt.Ref, Link: o.Receipt.Link,
		Parts: o.Receipt.Parts, Started: started, At: o.At,
	}
}

func (j *outcomeJSON) outcome() channels.Outcome {
	return channels.Outcome{
		State: j.State, Reason: j.Reason, Code: j.Code, Detail: j.Detail, At: j.At,
		Receipt: channels.Receipt{Ref: j.Ref, Link: j.Link, Parts: j.Parts},
	}
}

// journal is this process's journal, made when the first intent is written and
// removed when the process closes the store with nothing open in it.
type journal struct {
	mu   sync.Mutex
	file *state.Journal
	open int // intents that are not settled
}

// Begin writes an intent, durably: from its return on the event is taken.
// recorded says whether a record will be written: then nothing may leave before
// Recorded has returned. An error means that nothing was written, or (with
// state.ErrNotLocked, and an intent) that nobody can tell later whether we live.
func (s *Store) Begin(
	ctx context.Context, ev channels.Event, at time.Time, planned []Planned, recorded bool,
) (*Intent, error) {
	line := intentLine{ID: ev.ID, At: at.UTC(), Recorded: "unneeded"}
	if recorded {
		line.Recorded = "pending"
	}
	ev.ID = ""
	var err error
	if line.Event, err = ev.Encode(); err != nil {
		return nil, err
	}
	for _, p := range planned {
		j := plannedJSON{Planned: p}
		if p.Held != nil {
			j.Held = toJSON(*p.Held, time.Time{})
		}
		line.Planned = append(line.Planned, j)
	}
	b, err := json.Marshal(line)
	if err != nil {
		return nil, err
	}
	file, err := s.journal.begin(s.root, b)
	if file == nil {
		return nil, fmt.Errorf("write the intent: %w", err)
	}
	return &Intent{journal: &s.journal, file: file, id: line.ID}, err
}

// turnOver is the size past which a journal with nothing open is begun anew.
const turnOver = 1 << 20

func (j *journal) begin(root *state.Root, line []byte) (*state.Journal, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.file != nil && j.open == 0 && j.file.Size() > turnOver {
		if err := j.file.Remove(); err != nil {
			return nil, err
		}
		j.file = nil
	}
	var err error
	if j.file == nil {
		if j.file, err = root.NewJournal(state.Sending(), line); j.file == nil {
			return nil, err
		}
	} else if err := j.file.AppendDurably(line); err != nil {
		return nil, err
	}
	j.open++
	return j.file, err
}

func (i *Intent) write(line intentLine, durable bool) error {
	line.ID = i.id
	b, err := json.Marshal(line)
	if err != nil {
		return err
	}
	if durable {
		return i.file.AppendDurably(b)
	}
	return i.file.Append(b)
}

// Recorded writes down what became of the record, durably: a byte may leave
// from here on.
func (i *Intent) Recorded(ok bool, url string) error {
	if i == nil {
		return nil
	}
	line := intentLine{Recorded: "no"}
	if ok {
		line.Recorded, line.URL = "yes", url
	}
	return i.write(line, true)
}

// Outcome writes down what a channel said. It survives our death. A power cut
// may lose it, and the delivery is uncertain then.
func (i *Intent) Outcome(a Attempted) error {
	if i == nil {
		return nil
	}
	return i.write(intentLine{Channel: a.Channel, Outcome: toJSON(a.Outcome, a.At)}, false)
}

// Part writes down, durably, that a channel has one more part of a split
// message, before the next one is sent.
func (i *Intent) Part(channel, ref string) error {
	if i == nil {
		return nil
	}
	return i.write(intentLine{Channel: channel, Part: ref}, true)
}

// settled marks the intent as done with. Where an entry was made of it, the
// mark is durable before anybody can claim the entry.
func (i *Intent) settled(durable bool) error {
	if i == nil {
		return nil
	}
	err := i.write(intentLine{Settled: true}, durable)
	if err == nil {
		i.journal.mu.Lock()
		i.journal.open--
		i.journal.mu.Unlock()
	}
	return err
}

// Close removes this process's journal. One with an intent that could not be
// settled stays, for the next cycle to find. The store can be used again.
func (s *Store) Close() error {
	s.journal.mu.Lock()
	defer s.journal.mu.Unlock()
	file := s.journal.file
	if file == nil {
		return nil
	}
	s.journal.file = nil
	if s.journal.open > 0 {
		s.journal.open = 0
		file.Leave()
		return nil
	}
	return file.Remove()
}
