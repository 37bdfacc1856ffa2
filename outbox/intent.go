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
// after Remember.
type Intent struct {
	journal *journal
	in      *openJournal
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

// journal is where this process writes its intents. It is made when the first
// one is written, and removed when the store is closed with nothing open in it.
type journal struct {
	mu  sync.Mutex
	now *openJournal
}

// openJournal is a journal's file with what is open in it.
type openJournal struct {
	file *state.Journal
	open int // intents that are not settled
	// left: an intent in it could not be settled. No other is begun in it, and
	// when the last open one is settled it is left to the next drain cycle.
	left bool
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
	in, err := s.journal.begin(s.root, b)
	if in == nil {
		return nil, fmt.Errorf("write the intent: %w", err)
	}
	return &Intent{journal: &s.journal, in: in, id: line.ID}, err
}

// turnOver is the size past which a journal with nothing open is begun anew.
const turnOver = 1 << 20

func (j *journal) begin(root *state.Root, line []byte) (*openJournal, error) {
	in, written, err := j.open(root, line)
	if in == nil || written {
		return in, err
	}
	if err := in.file.AppendDurably(line); err != nil {
		j.end(in, true)
		return nil, err
	}
	return in, nil
}

// open gives the journal for one more intent. One that is made for it has the
// line in it.
func (j *journal) open(root *state.Root, line []byte) (in *openJournal, written bool, err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if now := j.now; now != nil && now.open == 0 && now.file.Size() > turnOver {
		if err := now.file.Remove(); err != nil {
			return nil, false, err
		}
		j.now = nil
	}
	if j.now == nil {
		file, err := root.NewJournal(state.Sending(), line)
		if file == nil {
			return nil, false, err
		}
		j.now = &openJournal{file: file, open: 1}
		return j.now, true, err
	}
	j.now.open++
	return j.now, false, nil
}

// end takes note that an intent is over: settled, or left to whoever takes the
// journal over.
func (j *journal) end(in *openJournal, settled bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	in.open--
	if !settled {
		in.left = true
		if j.now == in {
			j.now = nil
		}
	}
	if in.left && in.open == 0 {
		in.file.Leave()
	}
}

func (i *Intent) write(line intentLine, durable bool) error {
	line.ID = i.id
	b, err := json.Marshal(line)
	if err != nil {
		return err
	}
	if durable {
		return i.in.file.AppendDurably(b)
	}
	return i.in.file.Append(b)
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

// settled marks the intent of what every channel took as done with. Where an
// entry was made of it, see settleAll.
func (i *Intent) settled() error {
	if i == nil {
		return nil
	}
	return i.write(intentLine{Settled: true}, false)
}

// end is called once, when nothing more will be written about the intent.
func (i *Intent) end(settled bool) {
	if i != nil {
		i.journal.end(i.in, settled)
	}
}

// Close removes this process's journal. One with an intent that could not be
// settled stays, for the next cycle to find. The store can be used again.
func (s *Store) Close() error {
	s.journal.mu.Lock()
	defer s.journal.mu.Unlock()
	now := s.journal.now
	s.journal.now = nil
	switch {
	case now == nil:
		return nil
	case now.open > 0:
		now.file.Leave()
		return nil
	}
	return now.file.Remove()
}
