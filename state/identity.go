package state

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"os"
	"strings"
)

// ErrMoved is returned for a root that was made, or last adopted, on another
// machine: it was copied or restored, and what it says waits may be delivered
// there already.
var ErrMoved = errors.New("this root was copied or restored: the-loop outbox recheck --all")

// identity is run/root.json. Machine is a hash of the machine's id with the
// root's own, so that it tells nothing to whoever reads the file.
type identity struct {
	Version int    `json:"version"`
	ID      string `json:"id"`
	Machine string `json:"machine"`

	extra Extra
}

// CheckMachine fails with ErrMoved when the root belongs to another machine.
// One that belongs to none yet is adopted. Where the machine has no id to be
// told by, nothing can be told, and nothing is refused.
func (r *Root) CheckMachine(ctx context.Context) error {
	machine := machineID()
	if machine == "" {
		return nil
	}
	if b, err := r.Document(RootIdentity).Read(); err == nil {
		if i, err := parseIdentity(b); err == nil && i.Machine != "" {
			return i.check(machine)
		}
	}
	return r.changeIdentity(ctx, func(i *identity) error {
		if i.Machine != "" {
			return i.check(machine)
		}
		i.Machine = i.hash(machine)
		return nil
	})
}

// Adopt makes the root this machine's, whoever's it was. Where the machine has
// no id to be told by, it belongs to nobody from then on.
func (r *Root) Adopt(ctx context.Context) error {
	machine := machineID()
	return r.changeIdentity(ctx, func(i *identity) error {
		if i.Machine = ""; machine != "" {
			i.Machine = i.hash(machine)
		}
		return nil
	})
}

func (r *Root) changeIdentity(ctx context.Context, change func(i *identity) error) error {
	return r.Document(RootIdentity).Update(ctx, func(tx *Tx) error {
		b, err := tx.Read()
		if err != nil {
			return err
		}
		i, err := parseIdentity(b)
		if errors.Is(err, errNewerIdentity) {
			return err
		}
		if err != nil {
			if _, err := tx.SetAside(); err != nil {
				return err
			}
			i, _ = parseIdentity(nil)
		}
		if i.ID == "" {
			i.ID = rand.Text()
		}
		if err := change(i); err != nil {
			return err
		}
		out, err := MarshalKeeping(i, i.extra)
		if err != nil {
			return err
		}
		return tx.Write(append(out, '\n'))
	})
}

func parseIdentity(b []byte) (*identity, error) {
	i := &identity{Version: 1}
	if b = TrimBOM(b); len(strings.TrimSpace(string(b))) == 0 {
		return i, nil
	}
	var err error
	if i.extra, err = UnmarshalKeeping(b, i); err != nil {
		return nil, err
	}
	if i.Version > 1 {
		return nil, errNewerIdentity
	}
	return i, nil
}

var errNewerIdentity = errors.New(RootIdentity + " was written by a newer version: upgrade the-loop")

func (i *identity) hash(machine string) string {
	m := hmac.New(sha256.New, []byte(i.ID))
	m.Write([]byte(machine))
	return hex.EncodeToString(m.Sum(nil))[:16]
}

func (i *identity) check(machine string) error {
	if i.Machine != i.hash(machine) {
		return ErrMoved
	}
	return nil
}

// machineID is what tells this machine from others, "" where nothing does. The
// variable is for tests and for containers, which share their host's id.
func machineID() string {
	if id := os.Getenv("THE_LOOP_MACHINE_ID"); id != "" {
		return id
	}
	for _, path := range []string{"/etc/machine-id", "/var/lib/dbus/machine-id"} {
		if b, err := os.ReadFile(path); err == nil {
			if id := strings.TrimSpace(string(b)); id != "" && id != "uninitialized" {
				return id
			}
		}
	}
	return ""
}
