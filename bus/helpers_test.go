package bus_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"the-loop/bus"
	"the-loop/channels"
	"the-loop/internal/eventlog"
	"the-loop/outbox"
	"the-loop/state"
)

// fake is a channel whose Post is a function; nil accepts.
type fake struct {
	name string
	post func(ctx context.Context, d channels.Delivery) (channels.Receipt, error)

	mu  sync.Mutex
	got []channels.Delivery
}

func (f *fake) Name() string { return f.name }

func (f *fake) Post(ctx context.Context, d channels.Delivery) (channels.Receipt, error) {
	f.mu.Lock()
	f.got = append(f.got, d)
	f.mu.Unlock()
	if f.post == nil {
		return channels.Receipt{Ref: "ref-" + f.name}, nil
	}
	return f.post(ctx, d)
}

func (f *fake) calls() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.got)
}

func refusing(name string, reason channels.Reason, code string) *fake {
	return &fake{name: name, post: func(context.Context, channels.Delivery) (channels.Receipt, error) {
		return channels.Receipt{}, &channels.Refusal{Reason: reason, Code: code}
	}}
}

func silent(name string) *fake {
	return &fake{name: name, post: func(ctx context.Context, _ channels.Delivery) (channels.Receipt, error) {
		<-ctx.Done()
		return channels.Receipt{}, &channels.Uncertain{Code: "timeout", Err: ctx.Err()}
	}}
}

func panicking(name string) *fake {
	return &fake{name: name, post: func(context.Context, channels.Delivery) (channels.Receipt, error) {
		panic("boom SECRET123")
	}}
}

func all(c channels.Channel) bus.Route {
	return bus.Route{Channel: c, Subscribe: []channels.Pattern{"*"}}
}

func required(c channels.Channel) bus.Route {
	r := all(c)
	r.Required = true
	return r
}

type ledgerFunc func(ctx context.Context, ev channels.Event) (string, error)

func (f ledgerFunc) Record(ctx context.Context, ev channels.Event) (string, error) { return f(ctx, ev) }

// site is a root with a bus on it.
type site struct {
	root  *state.Root
	store *outbox.Store
	bus   *bus.Bus
}

func newSite(t *testing.T, routes ...bus.Route) *site {
	t.Helper()
	root, err := state.Open(filepath.Join(t.TempDir(), "root"))
	if err != nil {
		t.Fatal(err)
	}
	return siteOn(root, routes...)
}

func siteOn(root *state.Root, routes ...bus.Route) *site {
	log := eventlog.New(root, nil)
	store := outbox.Open(root, outbox.Options{Log: log})
	return &site{root: root, store: store, bus: &bus.Bus{Routes: routes, Store: store, Standing: store, Log: log}}
}

func (s *site) entries(t *testing.T) []*outbox.Entry {
	t.Helper()
	entries, bad, damaged, err := s.store.Entries()
	if err != nil || bad > 0 || damaged {
		t.Fatalf("outbox: %v, %d bad, damaged %v", err, bad, damaged)
	}
	return entries
}

func (s *site) entry(t *testing.T) *outbox.Entry {
	t.Helper()
	entries := s.entries(t)
	if len(entries) != 1 {
		t.Fatalf("the outbox holds %d entries, want 1", len(entries))
	}
	return entries[0]
}

// lines gives the lines of the event log with that name.
func (s *site) lines(t *testing.T, name string) (lines []eventlog.Line) {
	t.Helper()
	err := eventlog.Read(s.root, func(l eventlog.Line) bool {
		if l.Event == name {
			lines = append(lines, l)
		}
		return true
	})
	if err != nil {
		t.Fatal(err)
	}
	return lines
}

func question(text string) channels.Event {
	return channels.Event{
		Type: "session.awaiting_input", WorkItem: "local:work#1", Text: text, Source: "cli",
		Detail: map[string]any{"k": "v"},
	}
}

func posts(r bus.Result) string {
	var out []string
	for _, p := range r.Posts {
		out = append(out, fmt.Sprintf("%s %s %s %s", p.Channel, p.State, p.Reason, p.Code))
	}
	return strings.Join(out, "; ")
}

func wantPosts(t *testing.T, r bus.Result, want string) {
	t.Helper()
	if r.Err != nil {
		t.Fatalf("not taken: %v", r.Err)
	}
	if got := posts(r); got != want {
		t.Errorf("posts %q, want %q", got, want)
	}
}

// files lists what there is below a folder.
func files(t *testing.T, dir string) (names []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err == nil && path != dir {
			names = append(names, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// wantNowhere fails when the secret is in a file of the root, or can be read
// from the result in any way in which it gets printed.
func wantNowhere(t *testing.T, root *state.Root, secret string, results ...bus.Result) {
	t.Helper()
	for _, path := range files(t, root.Dir()) {
		if fi, err := os.Stat(path); err != nil || fi.IsDir() {
			continue
		}
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(b), secret) {
			t.Errorf("%q stands in %s", secret, filepath.Base(path))
		}
	}
	for _, r := range results {
		b, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		text := string(b) + fmt.Sprintf("%+v %#v %v %v", r.Posts, r.Notes, r.Err, r.RecordErr)
		if strings.Contains(text, secret) {
			t.Errorf("%q stands in the result: %s", secret, text)
		}
	}
}
