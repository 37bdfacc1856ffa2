package proof

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"the-loop/bus"
	"the-loop/channels"
	"the-loop/internal/ledger"
	"the-loop/outbox"
	"the-loop/state"
)

// A publish whose intent could not be made durable goes out once without it.
// What stands of the intent must not be taken over when the process dies: its
// record is pending there, so that it would count as never sent.
func TestP2_AnIntentWhoseSyncFailedIsNotTakenOver(t *testing.T) {
	fails := false
	root, _ := state.Open(t.TempDir())
	stepped := root.WithSteps(func(op state.Op, path string) error {
		if fails && op == state.OpSync && strings.Contains(path, state.Sending()) {
			return errors.New("input/output error")
		}
		return nil
	})
	a := newReceiver(t, false)
	store := outbox.Open(stepped, outbox.Options{})
	b := &bus.Bus{
		Routes: crashRoutes("plain", a.URL, "-"), Store: store, Standing: store, Ledger: ledger.NewLocal(stepped),
	}
	ev := channels.Event{ID: "first", Type: "work_item.done", WorkItem: "local:x#1", Text: "x"}
	if res := b.Publish(t.Context(), ev); !res.Stored {
		t.Fatalf("%+v", res)
	}
	fails, ev.ID = true, "second"
	if res := b.Publish(t.Context(), ev); res.Accepted() != 1 || res.Stored || len(res.Notes) == 0 {
		t.Fatalf("%+v", res)
	}
	// The process dies: its files stay as they are, and its locks go.
	copied, _ := state.Open(filepath.Join(t.TempDir(), "root"))
	if err := os.CopyFS(copied.Dir(), os.DirFS(root.Dir())); err != nil {
		t.Fatal(err)
	}
	drainTwice(t, copied, crashRoutes("plain", a.URL, "-"))
	if got := a.counts(); got["first"] != 1 || got["second"] != 1 {
		t.Errorf("arrived: %v", got)
	}
}
