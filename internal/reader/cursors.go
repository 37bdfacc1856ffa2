package reader

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"time"

	"the-loop/state"
)

// version is the format of the file of cursors that this package writes.
const version = 1

// forgetAfter is how long the cursor of a place that is not read any more is
// kept.
const forgetAfter = 30 * 24 * time.Hour

var (
	// ErrNewer is returned for a file of cursors that a newer version of
	// the-loop wrote. Nothing is read then, and the file stays as it is.
	ErrNewer = errors.New(state.Cursors + " was written by a newer version: upgrade the-loop")

	errDamaged = errors.New(state.Cursors + " is damaged")
)

// cursors is the file of how far each place was read:
//
//	{"version": 1, "places": {"github:o/r#7": {"cursor": …, "at": "2026-09-22T10:00:00Z"}}}
//
// "at" is when the row was last written while there was such a place to read,
// to a day. Keys that are not ours are kept. Only who holds the reader's role
// writes it.
type cursors struct {
	doc state.Document
	log *slog.Logger
}

// rows is the file in memory. Rows stay the bytes that they were until somebody
// looks at them.
type rows struct {
	extra  state.Extra
	places map[string]json.RawMessage
}

type row struct {
	Cursor json.RawMessage `json:"cursor"`
	At     time.Time       `json:"at"`
}

// get gives the place's cursor, nil when there is none. A damaged file is set
// aside, and all is read from the beginning; one that may not be read, or is
// newer, is an error.
func (c cursors) get(ctx context.Context, key string) (json.RawMessage, error) {
	b, err := c.doc.Read()
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", state.Cursors, err)
	}
	f, err := parseRows(b)
	if errors.Is(err, errDamaged) {
		err = c.doc.Update(ctx, func(tx *state.Tx) error {
			f, err = c.load(tx)
			return err
		})
	}
	if err != nil {
		return nil, err
	}
	_, w, _ := f.row(key)
	return w.Cursor, nil
}

// put writes the place's cursor, durably. Of the other rows those in listed are
// marked as used, and when forget is set those that long were not are dropped.
func (c cursors) put(
	ctx context.Context, key string, cursor json.RawMessage, listed map[string]bool, forget bool,
) error {
	now := time.Now().UTC().Truncate(time.Second)
	return c.doc.Update(ctx, func(tx *state.Tx) error {
		f, err := c.load(tx)
		if err != nil {
			return err
		}
		extra, _, ok := f.row(key)
		if raw, there := f.places[key]; there && !ok {
			if err := c.keep(tx, key, raw); err != nil {
				return err
			}
		}
		if err := f.set(key, row{cursor, now}, extra); err != nil {
			return err
		}
		if err := f.age(now, key, listed, forget); err != nil {
			return err
		}
		out, err := f.encode()
		if err != nil {
			return err
		}
		return tx.Write(out)
	})
}

// load reads the file under its lock, and sets a damaged one aside.
func (c cursors) load(tx *state.Tx) (rows, error) {
	b, err := tx.Read()
	if err != nil {
		return rows{}, fmt.Errorf("read %s: %w", state.Cursors, err)
	}
	f, err := parseRows(b)
	if !errors.Is(err, errDamaged) {
		return f, err
	}
	aside, asideErr := tx.SetAside()
	if asideErr != nil {
		return rows{}, asideErr
	}
	c.log.Warn("a damaged file was set aside; every place is read from its beginning", "file", aside, "error", err)
	return parseRows(nil)
}

// keep writes the row that cannot be understood into a file of its own.
func (c cursors) keep(tx *state.Tx, key string, raw json.RawMessage) error {
	b, err := json.Marshal(map[string]json.RawMessage{key: raw})
	if err != nil {
		return err
	}
	aside, err := tx.Keep(b)
	if err == nil {
		c.log.Warn("a damaged cursor was set aside; its place was read from the beginning", "place", key, "file", aside)
	}
	return err
}

func parseRows(b []byte) (rows, error) {
	f := rows{places: map[string]json.RawMessage{}}
	b = bytes.TrimSpace(state.TrimBOM(b))
	if len(b) == 0 {
		return f, nil
	}
	var top struct {
		Version *int            `json:"version"`
		Places  json.RawMessage `json:"places"`
	}
	var err error
	if f.extra, err = state.UnmarshalKeeping(b, &top); err != nil {
		return rows{}, fmt.Errorf("%w: %w", errDamaged, err)
	}
	if top.Version != nil && *top.Version > version {
		return rows{}, ErrNewer
	}
	if len(top.Places) == 0 {
		return f, nil
	}
	if err := json.Unmarshal(top.Places, &f.places); err != nil || f.places == nil {
		return rows{}, fmt.Errorf("%w: places is no object", errDamaged)
	}
	return f, nil
}

// row decodes one row; ok is false for one that is not there, or is damaged.
func (f rows) row(key string) (extra state.Extra, w row, ok bool) {
	raw, ok := f.places[key]
	if !ok {
		return nil, row{}, false
	}
	extra, err := state.UnmarshalKeeping(raw, &w)
	if err != nil {
		return nil, row{}, false
	}
	if bytes.Equal(w.Cursor, []byte("null")) {
		w.Cursor = nil
	}
	return extra, w, true
}

func (f rows) set(key string, w row, extra state.Extra) error {
	b, err := state.MarshalKeeping(w, extra)
	if err == nil {
		f.places[key] = b
	}
	return err
}

// age marks the rows that are in use, at most once a day, and drops those that
// have not been for long. A time ahead of ours was written by a wrong clock.
func (f rows) age(now time.Time, written string, listed map[string]bool, forget bool) error {
	for key := range f.places {
		extra, w, ok := f.row(key)
		if !ok || key == written {
			continue
		}
		switch age := now.Sub(w.At); {
		case age < 0 || w.At.IsZero() || listed[key] && age >= 24*time.Hour:
			w.At = now
			if err := f.set(key, w, extra); err != nil {
				return err
			}
		case forget && !listed[key] && age > forgetAfter:
			delete(f.places, key)
		}
	}
	return nil
}

func (f rows) encode() ([]byte, error) {
	b, err := state.MarshalKeeping(struct {
		Version int                        `json:"version"`
		Places  map[string]json.RawMessage `json:"places"`
	}{version, f.places}, f.extra)
	return append(b, '\n'), err
}

// sameJSON compares two cursors by what they say.
func sameJSON(a, b json.RawMessage) bool {
	var x, y bytes.Buffer
	if len(a) == 0 || len(b) == 0 || json.Compact(&x, a) != nil || json.Compact(&y, b) != nil {
		return len(a) == len(b) && len(a) == 0
	}
	return bytes.Equal(x.Bytes(), y.Bytes())
}
