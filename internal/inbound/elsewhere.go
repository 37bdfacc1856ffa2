package inbound

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"the-loop/channels"
	"the-loop/state"
)

// elsewhereFor is how long another machine's question counts as open when
// nothing says how it ended: as long as ours live by default.
const elsewhereFor = 7 * 24 * time.Hour

// elsewhere is inbound/elsewhere.json: the open questions of other roots in the
// conversations that we read, by their markers. They make a reply without a code
// ambiguous.
type elsewhere struct {
	Version int                           `json:"version"`
	Items   map[string]map[string]foreign `json:"items"` // by work item, then by id

	extra state.Extra
}

type foreign struct {
	Code string    `json:"code"`
	At   time.Time `json:"at"`
}

func readElsewhere(root *state.Root) (f elsewhere, err error) {
	b, err := root.Document(state.Elsewhere).Read()
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return f, err
	}
	return decodeElsewhere(b)
}

// errElsewhereNewer says that the file is not ours to touch.
var errElsewhereNewer = errors.New(state.Elsewhere + " was written by a newer version: upgrade the-loop")

// mendElsewhere sets a damaged file aside. What it held is learned anew from
// what comes in.
func mendElsewhere(ctx context.Context, root *state.Root) error {
	return root.Document(state.Elsewhere).Update(ctx, func(tx *state.Tx) error {
		b, err := tx.Read()
		if err != nil {
			return err
		}
		if _, err = decodeElsewhere(b); err == nil || errors.Is(err, errElsewhereNewer) {
			return err
		}
		_, err = tx.SetAside()
		return err
	})
}

func decodeElsewhere(b []byte) (f elsewhere, err error) {
	f.Version = 1
	if len(b) > 0 {
		if f.extra, err = state.UnmarshalKeeping(state.TrimBOM(b), &f); err != nil {
			return f, fmt.Errorf("%s is damaged: %w", state.Elsewhere, err)
		}
	}
	if f.Version > 1 {
		return f, errElsewhereNewer
	}
	if f.Items == nil {
		f.Items = map[string]map[string]foreign{}
	}
	return f, nil
}

// open gives the codes of the item's foreign questions that are open.
func (f elsewhere) open(item string, now time.Time) (codes []string) {
	for _, q := range f.Items[item] {
		if now.Sub(q.At) < elsewhereFor {
			codes = append(codes, q.Code)
		}
	}
	return codes
}

// noteElsewhere takes note of a marker that is not of our own questions, when it
// tells something new.
func noteElsewhere(ctx context.Context, root *state.Root, m channels.Message) error {
	now, err := readElsewhere(root)
	if err != nil {
		return err
	}
	if _, known := now.Items[m.WorkItem][m.Mark.ID]; known != m.Mark.Closed {
		return nil
	}
	return root.Document(state.Elsewhere).Update(ctx, func(tx *state.Tx) error {
		b, err := tx.Read()
		if err != nil {
			return err
		}
		f, err := decodeElsewhere(b)
		if err != nil {
			return err
		}
		for item, all := range f.Items {
			for id, q := range all {
				if time.Since(q.At) > elsewhereFor {
					delete(all, id)
				}
			}
			if len(all) == 0 {
				delete(f.Items, item)
			}
		}
		if f.Items[m.WorkItem] == nil {
			f.Items[m.WorkItem] = map[string]foreign{}
		}
		if m.Mark.Closed {
			delete(f.Items[m.WorkItem], m.Mark.ID)
		} else {
			f.Items[m.WorkItem][m.Mark.ID] = foreign{Code: m.Mark.Code, At: m.At.UTC()}
		}
		if b, err = state.MarshalKeeping(f, f.extra); err != nil {
			return err
		}
		return tx.Write(append(b, '\n'))
	})
}
