package outbox

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io/fs"
	"path/filepath"

	"the-loop/state"
)

// health is delivery/health.json: channel, then credential hash, to standing.
type health struct {
	Version  int                            `json:"version"`
	Key      string                         `json:"key"`
	Channels map[string]map[string]Standing `json:"channels"`
	Paused   map[string]pause               `json:"paused"`

	extra state.Extra
}

func parseHealth(b []byte) (*health, error) {
	h := &health{Version: 1, Channels: map[string]map[string]Standing{}, Paused: map[string]pause{}}
	b = bytes.TrimSpace(state.TrimBOM(b))
	if len(b) == 0 {
		return h, nil
	}
	var raw struct {
		Version  int                                   `json:"version"`
		Key      string                                `json:"key"`
		Channels map[string]map[string]json.RawMessage `json:"channels"`
		Paused   map[string]pause                      `json:"paused"`
	}
	var err error
	if h.extra, err = state.UnmarshalKeeping(b, &raw); err != nil {
		return nil, err
	}
	if raw.Version > 1 {
		return nil, errNewerHealth
	}
	h.Key = raw.Key
	if raw.Paused != nil {
		h.Paused = raw.Paused
	}
	for name, byCredential := range raw.Channels {
		h.Channels[name] = map[string]Standing{}
		for credential, b := range byCredential {
			var st Standing
			if st.extra, err = state.UnmarshalKeeping(b, &st); err != nil {
				return nil, err
			}
			h.Channels[name][credential] = st
		}
	}
	return h, nil
}

var errNewerHealth = errors.New("health.json was written by a newer version: upgrade the-loop")

func (h *health) encode() ([]byte, error) {
	raw := struct {
		Version  int                                   `json:"version"`
		Key      string                                `json:"key"`
		Channels map[string]map[string]json.RawMessage `json:"channels"`
		Paused   map[string]pause                      `json:"paused,omitempty"`
	}{1, h.Key, map[string]map[string]json.RawMessage{}, h.Paused}
	for name, byCredential := range h.Channels {
		raw.Channels[name] = map[string]json.RawMessage{}
		for credential, st := range byCredential {
			b, err := state.MarshalKeeping(st, st.extra)
			if err != nil {
				return nil, err
			}
			raw.Channels[name][credential] = b
		}
	}
	b, err := state.MarshalKeeping(raw, h.extra)
	return append(b, '\n'), err
}

// hash gives the key under which a credential's standing is kept. Without the
// file's random key nobody can try tokens against it.
func (h *health) hash(credential string) string {
	m := hmac.New(sha256.New, []byte(h.Key))
	m.Write([]byte(credential))
	return hex.EncodeToString(m.Sum(nil))[:16]
}

func (s *Store) readHealth() (*health, error) {
	b, err := s.health.Read()
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	return parseHealth(b)
}

// changeHealth runs one change under the file's lock, and writes when it says so.
func (s *Store) changeHealth(ctx context.Context, change func(h *health) (dirty bool)) error {
	return s.health.Update(ctx, func(tx *state.Tx) error {
		b, err := tx.Read()
		if err != nil {
			return err
		}
		h, err := parseHealth(b)
		if errors.Is(err, errNewerHealth) {
			return err
		}
		if err != nil { // the next verdicts tell it anew; a pause is over, and the file set aside says so
			aside, err := tx.SetAside()
			if err != nil {
				return err
			}
			_ = s.opts.Log.SetAside(ctx, filepath.Base(aside))
			h, _ = parseHealth(nil)
		}
		if h.Key == "" {
			h.Key = rand.Text()
		}
		if !change(h) {
			return nil
		}
		if b, err = h.encode(); err != nil {
			return err
		}
		return tx.Write(b)
	})
}
