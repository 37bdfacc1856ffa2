package reader

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"the-loop/channels"
	"the-loop/state"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// surface is a source: each place holds keys, one message each, and the cursor
// is how many were given. A read of one page is one call of "list".
type surface struct {
	name string
	read func(ctx context.Context, key string) error // before anything is given; nil: goes well

	mu     sync.Mutex
	places []ReadPlace
	said   map[string][]string
	reads  []readAt
	calls  []time.Time // that the budget let through
}

type readAt struct {
	key string
	at  time.Time
}

func newSurface(name string, keys ...string) *surface {
	s := &surface{name: name, said: map[string][]string{}}
	for _, k := range keys {
		s.places = append(s.places, ReadPlace{Key: k, WorkItems: []string{"item:" + k}})
	}
	return s
}

func (s *surface) Name() string { return s.name }

func (s *surface) Places([]Watched) []ReadPlace {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.places)
}

func (s *surface) set(keys ...string) {
	places := newSurface("", keys...).places
	s.mu.Lock()
	defer s.mu.Unlock()
	s.places = places
}

func (s *surface) say(key string, messages ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.said[key] = append(s.said[key], messages...)
}

func (s *surface) Read(
	ctx context.Context, p ReadPlace, cursor json.RawMessage, before func(context.Context, string) error,
) ([]channels.Message, json.RawMessage, error) {
	s.mu.Lock()
	s.reads = append(s.reads, readAt{p.Key, time.Now()})
	s.mu.Unlock()
	if err := before(ctx, "list"); err != nil {
		return nil, nil, err
	}
	s.mu.Lock()
	s.calls = append(s.calls, time.Now())
	s.mu.Unlock()
	if s.read != nil {
		if err := s.read(ctx, p.Key); err != nil {
			return nil, nil, err
		}
	}
	n := 0
	if cursor != nil {
		if err := json.Unmarshal(cursor, &n); err != nil {
			return nil, nil, err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []channels.Message
	for _, key := range s.said[p.Key][min(n, len(s.said[p.Key])):] {
		out = append(out, channels.Message{Key: key})
	}
	return out, json.RawMessage(fmt.Sprint(len(s.said[p.Key]))), nil
}

// when gives how long after began the place was read.
func (s *surface) when(key string, began time.Time) (out []time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.reads {
		if r.key == key {
			out = append(out, r.at.Sub(began))
		}
	}
	return out
}

func (s *surface) order() (keys []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.reads {
		keys = append(keys, r.key)
	}
	return keys
}

// hang is a read that ends with its context.
func hang(ctx context.Context, _ string) error { <-ctx.Done(); return ctx.Err() }

// site is a root with a reader.
type site struct {
	root *state.Root
	opts Options
	*Reader

	mu      sync.Mutex
	took    []string
	fails   error
	watched []Watched
	told    []string // by Trouble
	log     bytes.Buffer
}

func newSite(t *testing.T, sources ...Source) *site {
	t.Helper()
	root, err := state.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return newSiteOn(root, sources...)
}

func newSiteOn(root *state.Root, sources ...Source) *site {
	s := &site{root: root}
	s.opts = Options{
		Root: root, Role: root.Role(state.ReaderRole), Who: "test", Sources: sources,
		Watched: func() []Watched {
			s.mu.Lock()
			defer s.mu.Unlock()
			return slices.Clone(s.watched)
		},
		Take: s.take, Log: slog.New(slog.NewTextHandler(&s.log, nil)),
		Trouble: func(source string, err error) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.told = append(s.told, fmt.Sprint(source, ": ", err))
		},
	}
	s.Reader = New(s.opts)
	return s
}

func (s *site) take(_ context.Context, ms ...channels.Message) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range ms {
		s.took = append(s.took, m.Key)
	}
	return s.fails
}

func (s *site) taken() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.took)
}

func (s *site) failWith(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fails = err
}

func (s *site) trouble() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.told)
}

// ask opens questions in the places; none closes all.
func (s *site) ask(keys ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.watched = nil
	for _, k := range keys {
		s.watched = append(s.watched, Watched{WorkItem: "item:" + k, Open: true})
	}
}

func (s *site) file(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile(s.root.Path(state.Cursors))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(b))
}

func (s *site) write(t *testing.T, text string) {
	t.Helper()
	if err := os.MkdirAll(s.root.Path("inbound"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(s.root.Path(state.Cursors), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// aside gives what was set aside.
func (s *site) aside(t *testing.T) (texts []string) {
	t.Helper()
	list, err := os.ReadDir(s.root.Path("inbound"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	for _, e := range list {
		if !strings.Contains(e.Name(), ".corrupt-") {
			continue
		}
		b, err := os.ReadFile(s.root.Path("inbound/" + e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		texts = append(texts, string(b))
	}
	return texts
}

// fsWalk gives every file below dir by its name from there.
func fsWalk(dir string, see func(name string, fi os.FileInfo)) error {
	return filepath.Walk(dir, func(path string, fi os.FileInfo, err error) error {
		if err != nil || fi.IsDir() {
			return err
		}
		name, err := filepath.Rel(dir, path)
		see(filepath.ToSlash(name), fi)
		return err
	})
}
