package outbox

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"the-loop/state"
)

// Version is the file format that this package writes.
const Version = 1

// ErrNewer is returned for a file that a newer version of the-loop wrote. It
// is neither written nor set aside.
var ErrNewer = errors.New("undelivered.json was written by a newer version: upgrade the-loop")

// errDamaged is returned for bytes that are no outbox.
var errDamaged = errors.New("undelivered.json is damaged")

// file is undelivered.json in memory. Entries stay the bytes that they were
// until somebody looks at them.
type file struct {
	extra state.Extra // members beside version and pending
	ids   []string    // in the order in which they stand
	raw   map[string]json.RawMessage
	bad   []badEntry // taken out: they will be set aside
	left  []Left     // left: settled.jsonl will tell of them
}

type badEntry struct {
	id  string
	raw json.RawMessage
}

// parse reads the whole file. No bytes are an empty outbox; a byte order mark
// is passed over. Of two entries with one id the later one stands, as in any
// JSON reader, and the earlier is among the bad.
func parse(b []byte) (*file, error) {
	if f, ok := split(b); ok {
		return f, nil
	}
	return parseJSON(b)
}

func parseJSON(b []byte) (*file, error) {
	f := &file{raw: map[string]json.RawMessage{}}
	b = bytes.TrimSpace(state.TrimBOM(b))
	if len(b) == 0 {
		return f, nil
	}
	var top struct {
		Version *int            `json:"version"`
		Pending json.RawMessage `json:"pending"`
	}
	var err error
	if f.extra, err = state.UnmarshalKeeping(b, &top); err != nil {
		return nil, fmt.Errorf("%w: %w", errDamaged, err)
	}
	if top.Version != nil && *top.Version > Version {
		return nil, ErrNewer
	}
	if len(top.Pending) == 0 {
		return f, nil
	}
	if err := f.parsePending(top.Pending); err != nil {
		return nil, fmt.Errorf("%w: pending: %w", errDamaged, err)
	}
	return f, nil
}

func (f *file) parsePending(b []byte) error {
	dec := json.NewDecoder(bytes.NewReader(b))
	if t, err := dec.Token(); err != nil || t != json.Delim('{') {
		return errors.New("not an object")
	}
	for dec.More() {
		t, err := dec.Token()
		if err != nil {
			return err
		}
		id, _ := t.(string)
		var raw json.RawMessage
		if err := dec.Decode(&raw); err != nil {
			return err
		}
		f.add(id, raw)
	}
	return nil
}

// add takes an entry in that was read.
func (f *file) add(id string, raw json.RawMessage) {
	if old, twice := f.raw[id]; twice {
		f.bad = append(f.bad, badEntry{id, old})
		f.remove(id)
	}
	f.ids = append(f.ids, id)
	f.raw[id] = raw
}

// encode gives the file's bytes, one entry a line.
func (f *file) encode() ([]byte, error) {
	head, err := state.MarshalKeeping(struct {
		Version int `json:"version"`
	}{Version}, f.extra)
	if err != nil {
		return nil, err
	}
	size := len(head) + 32
	for id, raw := range f.raw {
		size += len(id) + len(raw) + len(`"":`+",\n")
	}
	out := make([]byte, 0, size)
	out = append(out, head[:len(head)-1]...)
	out = append(out, `,"pending":{`...)
	for i, id := range f.ids {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(out, '\n')
		if out, err = appendKey(out, id); err != nil {
			return nil, err
		}
		out = append(append(out, ':'), f.raw[id]...)
	}
	return append(out, ownTail...), nil
}

func appendKey(out []byte, id string) ([]byte, error) {
	if isPlain(id) {
		return append(append(append(out, '"'), id...), '"'), nil
	}
	key, err := json.Marshal(id)
	return append(out, key...), err
}

// entry decodes one entry. One that cannot be is taken out of the file and
// remembered as bad: it never costs the others.
func (f *file) entry(id string) (*Entry, bool) {
	raw, ok := f.raw[id]
	if !ok {
		return nil, false
	}
	e, err := decodeEntry(id, raw)
	if err != nil {
		f.bad = append(f.bad, badEntry{id, raw})
		f.remove(id)
		return nil, false
	}
	return e, true
}

// entries decodes all of them, oldest first: by time, then by id.
func (f *file) entries() []*Entry {
	out := make([]*Entry, 0, len(f.ids))
	for _, id := range slices.Clone(f.ids) {
		if e, ok := f.entry(id); ok {
			out = append(out, e)
		}
	}
	slices.SortFunc(out, func(a, b *Entry) int {
		if c := a.At.Compare(b.At); c != 0 {
			return c
		}
		return strings.Compare(a.ID, b.ID)
	})
	return out
}

// put stores an entry, in its old place or at the end.
func (f *file) put(e *Entry) error {
	raw, err := e.encode()
	if err != nil {
		return err
	}
	if _, ok := f.raw[e.ID]; !ok {
		f.ids = append(f.ids, e.ID)
	}
	f.raw[e.ID] = raw
	return nil
}

func (f *file) remove(id string) {
	delete(f.raw, id)
	f.ids = slices.DeleteFunc(f.ids, func(s string) bool { return s == id })
}
