package outbox

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
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
	for _, line := range []string{
		`"A":{"event":{"eventType":"a.b"}}`, `"A":{"x":"\\\"}\\"}`,
		`"A":{"x":1},"B":{"y":[2]}`, `"A":{"x":"}`, `"A":{"x":[}]}`,
		`"A":{"x":"` + "\u2028é\x00" + `"}`, `"A<":{}`, `"":{}`, `"A":{},`, `"A":[]`, `"A" :{}`, `"A":{} `,
	} {
		f.Add([]byte(string(ownHead) + "\n" + line + string(ownTail)))
		f.Add([]byte(string(ownHead) + "\n" + line + ",\n" + line + ",\n\"B\":{}" + string(ownTail)))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		sameEitherWay(t, b)
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
		if _, ok := split(once); !ok && len(first.extra) == 0 && bytes.HasPrefix(once, ownHead) && allPlain(first.ids) {
			t.Fatalf("what was written is not read the short way:\n%s", once)
		}
		sameEitherWay(t, once)
		if twice := encoded(t, second); !bytes.Equal(once, twice) {
			t.Fatalf("not stable:\n%s\n%s", once, twice)
		}
	})
}

func allPlain(ids []string) bool {
	return !slices.ContainsFunc(ids, func(id string) bool { return id == "" || !isPlain(id) })
}

// sameEitherWay checks that cutting a file into its lines gives what reading it as
// JSON does.
func sameEitherWay(t *testing.T, b []byte) {
	t.Helper()
	cut, ok := split(b)
	if !ok || !json.Valid(b) {
		return
	}
	read, err := parseJSON(b)
	if err != nil {
		t.Fatalf("%v: %s", err, b)
	}
	if diff := cmp.Diff(read, cut, cmp.AllowUnexported(file{}, badEntry{}), cmpopts.EquateEmpty()); diff != "" {
		t.Fatalf("%s\n%s", diff, b)
	}
}

func encoded(t *testing.T, f *file) []byte {
	t.Helper()
	b, err := f.encode()
	if err != nil {
		t.Fatal(err)
	}
	return b
}
