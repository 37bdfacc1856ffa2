package outbox

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"the-loop/channels"
	"the-loop/internal/eventlog"
	"the-loop/state"
)

const envRemember = "OUTBOX_TEST_REMEMBER" // a root: this process remembers one entry there

func TestMain(m *testing.M) {
	if dir := os.Getenv(envRemember); dir != "" {
		os.Exit(rememberOne(dir))
	}
	goleak.VerifyTestMain(m)
}

func rememberOne(dir string) int {
	root, err := state.Open(dir)
	if err == nil {
		var e *Entry
		ev := channels.Event{ID: state.NewID(), Type: "session.awaiting_input", Text: fmt.Sprint(os.Getpid())}
		e, err = NewEntry(ev, time.Now(), []Attempted{{Channel: "slack", At: time.Now(), Outcome: down()}})
		if err == nil {
			err = Open(root, Options{}).Remember(context.Background(), e, nil)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func TestL04_FiftyProcessesAtOnceLeaveFiftyEntries(t *testing.T) {
	t.Parallel()
	s, root := store(t, Options{})
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for range 50 {
		cmd := exec.CommandContext(t.Context(), exe)
		cmd.Env = append(os.Environ(), envRemember+"="+root.Dir(), "GORACE=atexit_sleep_ms=0")
		var out bytes.Buffer
		cmd.Stderr = &out
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		wg.Go(func() {
			if err := cmd.Wait(); err != nil {
				t.Errorf("%v\n%s", err, out.String())
			}
		})
	}
	wg.Wait()
	if b := bytesOf(t, root, state.Outbox); !json.Valid(b) {
		t.Errorf("no valid JSON: %s", b)
	}
	texts := map[string]bool{}
	for _, e := range entriesOf(t, s) {
		ev, err := e.Event()
		if err != nil {
			t.Fatal(err)
		}
		texts[ev.Text] = true
	}
	if len(texts) != 50 {
		t.Errorf("%d entries of 50 processes", len(texts))
	}
}

func newRoot(t *testing.T) *state.Root {
	t.Helper()
	root, err := state.Open(filepath.Join(t.TempDir(), "root"))
	if err != nil {
		t.Fatal(err)
	}
	return root
}

// store gives an outbox that writes an event log, in a root of its own.
func store(t *testing.T, o Options) (*Store, *state.Root) {
	t.Helper()
	root := newRoot(t)
	o.Log = eventlog.New(root, nil)
	return Open(root, o), root
}

func entriesOf(t *testing.T, s *Store) []*Entry {
	t.Helper()
	entries, bad, damaged, err := s.Entries()
	if err != nil || bad > 0 || damaged {
		t.Fatalf("%d bad, damaged %v, %v", bad, damaged, err)
	}
	return entries
}

func entryOf(t *testing.T, s *Store, id string) *Entry {
	t.Helper()
	for _, e := range entriesOf(t, s) {
		if e.ID == id {
			return e
		}
	}
	t.Fatalf("no entry %s", id)
	return nil
}

func bytesOf(t *testing.T, root *state.Root, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(root.Path(name))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// place writes a file under the root by hand.
func place(t *testing.T, root *state.Root, name, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(root.Path(name)), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(root.Path(name), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// logged lists the event log's events, with the channel or file each is about.
func logged(t *testing.T, root *state.Root) (out []string) {
	t.Helper()
	err := eventlog.Read(root, func(l eventlog.Line) bool {
		out = append(out, strings.TrimSpace(l.Event+" "+l.Channel))
		return true
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func count(list []string, want string) (n int) {
	for _, s := range list {
		if s == want {
			n++
		}
	}
	return n
}

func refused(reason channels.Reason, code string) channels.Outcome {
	return channels.Outcome{State: channels.StateRefused, Reason: reason, Code: code, At: time.Now()}
}

func down() channels.Outcome { return refused(channels.ReasonDown, "connection_refused") }

func rate(after time.Duration) channels.Outcome {
	o := refused(channels.ReasonRate, "ratelimited")
	o.RetryAfter = after
	return o
}

func uncertain() channels.Outcome {
	return channels.Outcome{
		State: channels.StateUncertain, Reason: channels.ReasonUnknown, Code: "timeout", At: time.Now(),
	}
}

func accepted(ref string) channels.Outcome {
	return channels.Outcome{State: channels.StateAccepted, Receipt: channels.Receipt{Ref: ref}, At: time.Now()}
}

func held() channels.Outcome {
	return channels.Outcome{State: channels.StatePending, Reason: channels.ReasonHeld, At: time.Now()}
}

// remember stores an event that was taken at a time, with what came of asking.
func remember(t *testing.T, s *Store, id string, at time.Time, asked ...Attempted) {
	t.Helper()
	e, err := NewEntry(channels.Event{ID: id, Type: "work_item.done", Text: "text of " + id}, at, asked)
	if err == nil {
		err = s.Remember(t.Context(), e, nil)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func asked(channel string, o channels.Outcome) Attempted {
	return Attempted{Channel: channel, At: o.At, Outcome: o}
}

func required(channel string, o channels.Outcome) Attempted {
	return Attempted{Channel: channel, At: o.At, Outcome: o, Required: true}
}

func claimOne(t *testing.T, s *Store, channel string) Claimed {
	t.Helper()
	claims, err := s.Claim(t.Context(), channel, 1, "")
	if err != nil || len(claims) != 1 {
		t.Fatalf("%d claims, %v", len(claims), err)
	}
	return claims[0]
}

func start(t *testing.T, s *Store, c Claimed) channels.Delivery {
	t.Helper()
	d, ok, err := s.Start(t.Context(), c)
	if err != nil || !ok {
		t.Fatalf("start: %v, %v", ok, err)
	}
	return d
}

func settle(t *testing.T, s *Store, c Claimed, o channels.Outcome) Settled {
	t.Helper()
	out, err := s.Settle(t.Context(), c, o)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func sweep(t *testing.T, s *Store, lanes ...Lane) {
	t.Helper()
	if err := s.Sweep(t.Context(), lanes); err != nil {
		t.Fatal(err)
	}
}

func setAside(t *testing.T, root *state.Root) map[string]string {
	t.Helper()
	names, err := SetAside(root)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for _, name := range names {
		out[name] = string(bytesOf(t, root, name))
	}
	return out
}

func ids(entries []*Entry) []string {
	var out []string
	for _, e := range entries {
		out = append(out, e.ID)
	}
	return out
}

func wantIDs(t *testing.T, s *Store, want ...string) {
	t.Helper()
	if got := ids(entriesOf(t, s)); !slices.Equal(got, want) {
		t.Errorf("entries %v, want %v", got, want)
	}
}
