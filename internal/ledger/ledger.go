// Package ledger is the local ledger: one file of lines per work item.
package ledger

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"the-loop/channels"
	"the-loop/state"
)

// Local writes records under the state root. It is safe for concurrent use.
type Local struct{ root *state.Root }

// NewLocal gives the local ledger of a root.
func NewLocal(root *state.Root) *Local { return &Local{root} }

// Record appends the event to its work item's file and returns when it is
// durable. The link is the file's path and the event's id. An event whose id
// is already there is not written again; only two calls at the same instant may
// both write it.
func (l *Local) Record(ctx context.Context, ev channels.Event) (string, error) {
	log := l.root.Log(state.LedgerFile(Slug(ev.WorkItem)))
	link := log.Path() + "#" + ev.ID
	raw, err := ev.Encode()
	if err != nil {
		return "", err
	}
	line, err := json.Marshal(struct {
		ID    string          `json:"id"`
		At    time.Time       `json:"at"`
		Event json.RawMessage `json:"event"`
	}{ev.ID, time.Now().UTC(), raw})
	if err != nil {
		return "", err
	}
	key, err := json.Marshal(ev.ID)
	if err != nil {
		return "", err
	}
	prefix := slices.Concat([]byte(`{"id":`), key, []byte(","))
	found := false
	err = log.Lines(func(b []byte) bool {
		found = bytes.HasPrefix(b, prefix) && json.Valid(b) // not the torn half of one
		return !found
	})
	if err != nil || found {
		return link, err
	}
	if err := log.AppendDurably(ctx, line); err != nil {
		return "", fmt.Errorf("ledger: %w", err)
	}
	return link, nil
}

// Slug names a work item's file: readable, and distinct by eight hex digits of
// the reference's hash.
func Slug(workItem string) string {
	sum := sha256.Sum256([]byte(workItem))
	readable := strings.Map(func(r rune) rune {
		switch {
		case 'a' <= r && r <= 'z', '0' <= r && r <= '9':
			return r
		case 'A' <= r && r <= 'Z':
			return r + 'a' - 'A'
		}
		return '-'
	}, workItem)
	if len(readable) > 40 {
		readable = readable[:40]
	}
	if readable = strings.Trim(readable, "-"); readable == "" {
		readable = "none"
	}
	return readable + "-" + hex.EncodeToString(sum[:4])
}
