package slack

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"time"

	"the-loop/state"
)

const (
	// claimLife is how long others wait for the thread that somebody claimed
	// to open. A post takes a second; who needs longer is dead or stuck, and a
	// second thread is a smaller harm than a question that is not asked.
	claimLife = 5 * time.Second
	claimLook = 100 * time.Millisecond
)

var (
	// errBusy: somebody else is opening the thread, and ctx ended before that.
	errBusy  = errors.New("another process is opening the thread")
	errNewer = errors.New("the thread bindings are of a newer version")
)

// threads is a channel's file of which thread belongs to which work item:
//
//	{"version": 1, "threads": {"github:o/r#7":
//	    {"conversation": "C0123456", "ts": "1699999999.000100", "at": "2026-09-22T10:00:00Z"}}}
//
// A thread that is being opened has a "claim" in place of the "ts". A binding
// of another conversation counts as none. Keys that are not ours are kept.
type threads struct {
	doc          state.Document
	conversation string
}

// binding is one row of the file.
type binding struct {
	Conversation string    `json:"conversation"`
	TS           string    `json:"ts"`
	Claim        string    `json:"claim"`
	At           time.Time `json:"at"`
}

// claimed reports whether somebody is opening the thread at this moment.
func (b binding) claimed(now time.Time) bool {
	age := now.Sub(b.At)
	return b.TS == "" && b.Claim != "" && age >= 0 && age < claimLife
}

// enter gives the root of the item's thread or, when there is none, a claim on
// opening it, which is durable. Only one of all processes has a claim at a
// time; the others wait for what comes of it, without a lock. errBusy says
// that ctx ended first, any other error that the file is of no use.
func (t *threads) enter(ctx context.Context, item string) (root, claim string, err error) {
	mine := binding{Conversation: t.conversation, Claim: state.NewID()}
	for {
		b, err := t.find(item)
		if err == nil && b.TS != "" {
			return b.TS, "", nil
		}
		if err != nil || !b.claimed(time.Now()) {
			err = t.update(ctx, func(f bindings) bool {
				if b = t.own(f.find(item)); b.TS != "" || b.claimed(time.Now()) {
					return false
				}
				mine.At = time.Now().UTC()
				b = mine
				return f.put(item, b)
			})
			switch {
			case err != nil:
				return "", "", err
			case b.TS != "":
				return b.TS, "", nil
			case b.Claim == mine.Claim:
				return "", mine.Claim, nil
			}
		}
		if !sleep(ctx, claimLook) {
			return "", "", errBusy
		}
	}
}

// find reads the item's binding without a lock.
func (t *threads) find(item string) (binding, error) {
	b, err := t.doc.Read()
	if err != nil {
		return binding{}, err
	}
	f, err := parseBindings(b)
	if err != nil {
		return binding{}, err
	}
	return t.own(f.find(item)), nil
}

// own is b when it is of our conversation, else no binding.
func (t *threads) own(b binding) binding {
	if b.Conversation != t.conversation {
		return binding{}
	}
	return b
}

// release gives up a claim, if it is still ours: no thread was opened. Like
// move, it is done even when ctx has ended: it tells what has become of a post.
func (t *threads) release(ctx context.Context, item, claim string) error {
	return t.update(context.WithoutCancel(ctx), func(f bindings) bool {
		if b := t.own(f.find(item)); b.TS != "" || b.Claim != claim {
			return false
		}
		return f.put(item, binding{})
	})
}

// move makes to the root of the item's thread in the place of from. Either may
// be "", for none. Whoever moved it first is right: nothing is done when it is
// no longer from.
func (t *threads) move(ctx context.Context, item, from, to string) error {
	return t.update(context.WithoutCancel(ctx), func(f bindings) bool {
		if t.own(f.find(item)).TS != from {
			return false
		}
		if to == "" {
			return f.put(item, binding{})
		}
		return f.put(item, binding{Conversation: t.conversation, TS: to, At: time.Now().UTC()})
	})
}

// update lets change work on the bindings under the lock and writes them when
// it returns true. A damaged file is set aside first, its bytes kept.
func (t *threads) update(ctx context.Context, change func(f bindings) bool) error {
	return t.doc.Update(ctx, func(tx *state.Tx) error {
		b, err := tx.Read()
		if err != nil {
			return err
		}
		f, err := parseBindings(b)
		switch {
		case errors.Is(err, errNewer):
			return err
		case err != nil:
			if _, err := tx.SetAside(); err != nil {
				return err
			}
			f, _ = parseBindings(nil)
		}
		if !change(f) {
			return nil
		}
		b, err = f.encode()
		if err != nil {
			return err
		}
		return tx.Write(b)
	})
}

// object is a JSON object whose unknown keys live through a rewrite.
type object map[string]json.RawMessage

// bindings is the parsed file.
type bindings struct {
	top, threads object
}

// parseBindings reads the file; no bytes are an empty one. It fails with
// errNewer on a version that is not ours to touch, else on damage.
func parseBindings(b []byte) (bindings, error) {
	f := bindings{object{"version": json.RawMessage("1")}, object{}}
	if b == nil {
		return f, nil
	}
	var head struct {
		Version int `json:"version"`
	}
	if err := errors.Join(json.Unmarshal(b, &f.top), json.Unmarshal(b, &head)); err != nil {
		return bindings{}, err
	}
	if head.Version > 1 {
		return bindings{}, errNewer
	}
	if raw, ok := f.top["threads"]; ok {
		if err := json.Unmarshal(raw, &f.threads); err != nil {
			return bindings{}, err
		}
	}
	if f.top == nil || f.threads == nil {
		return bindings{}, errors.New("null in the place of an object")
	}
	return f, nil
}

// find gives the item's binding; one that cannot be read is none.
func (f bindings) find(item string) binding {
	var b binding
	if err := json.Unmarshal(f.threads[item], &b); err != nil {
		return binding{}
	}
	return b
}

// put replaces the item's binding, an empty one removes it. It returns true.
func (f bindings) put(item string, b binding) bool {
	var row object
	if err := json.Unmarshal(f.threads[item], &row); err != nil || row == nil {
		row = object{} // what cannot be read has no keys to keep
	}
	maps.DeleteFunc(row, func(key string, _ json.RawMessage) bool {
		return key == "conversation" || key == "ts" || key == "claim" || key == "at"
	})
	for key, value := range map[string]string{"conversation": b.Conversation, "ts": b.TS, "claim": b.Claim} {
		if value != "" {
			row[key], _ = json.Marshal(value)
		}
	}
	if !b.At.IsZero() {
		row["at"], _ = json.Marshal(b.At)
	}
	if len(row) == 0 {
		delete(f.threads, item)
		return true
	}
	f.threads[item], _ = json.Marshal(row)
	return true
}

func (f bindings) encode() ([]byte, error) {
	threads, err := json.Marshal(f.threads)
	if err != nil {
		return nil, err
	}
	f.top["threads"] = threads
	b, err := json.MarshalIndent(f.top, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("encode thread bindings: %w", err)
	}
	return append(b, '\n'), nil
}

// sleep waits for d and reports false when ctx ends before.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
