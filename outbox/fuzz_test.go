package outbox

import (
	"bytes"
	"errors"
	"os"
	"testing"
)

// FuzzParse: no bytes make the decoder panic, and what it took it writes in a
// way that it reads the same again. testdata/fuzz holds the corpus.
func FuzzParse(f *testing.F) {
	seed, err := os.ReadFile("testdata/seed.json")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(seed)
	for _, text := range damage {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		first, err := parse(b)
		if err != nil {
			if !errors.Is(err, errDamaged) && !errors.Is(err, ErrNewer) {
				t.Fatalf("an error that nobody branches on: %v", err)
			}
			return
		}
		whole := len(first.ids)
		entries := first.entries()
		if len(entries)+len(first.bad) < whole {
			t.Fatalf("%d entries and %d bad ones of %d", len(entries), len(first.bad), whole)
		}
		for _, e := range entries {
			_ = e.State()
			if err := first.put(e); err != nil {
				t.Fatalf("what was read cannot be written: %v", err)
			}
		}
		once := encoded(t, first)
		second, err := parse(once)
		if err != nil {
			t.Fatalf("what was written cannot be read: %v\n%s", err, once)
		}
		again := second.entries()
		if len(again) != len(entries) || len(second.bad) > 0 {
			t.Fatalf("%d entries became %d, %d bad\n%s", len(entries), len(again), len(second.bad), once)
		}
		for _, e := range again {
			if err := second.put(e); err != nil {
				t.Fatal(err)
			}
		}
		if twice := encoded(t, second); !bytes.Equal(once, twice) {
			t.Fatalf("not stable:\n%s\n%s", once, twice)
		}
	})
}

func encoded(t *testing.T, f *file) []byte {
	t.Helper()
	parts, err := f.encode()
	if err != nil {
		t.Fatal(err)
	}
	return bytes.Join(parts, nil)
}
