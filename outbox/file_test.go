package outbox

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"the-loop/channels"
	"the-loop/state"
)

const seedID = "01KB3Z0000000000000000000A"

func TestSeedFileIsReadAndDrained(t *testing.T) {
	s, root := store(t, Options{})
	seed, err := os.ReadFile("testdata/seed.json")
	if err != nil {
		t.Fatal(err)
	}
	place(t, root, state.Outbox, string(seed))
	e := entryOf(t, s, seedID)
	if !e.At.Equal(time.Date(2026, 9, 22, 10, 0, 0, 0, time.UTC)) || e.Attempts != 1 ||
		!e.LastAttemptAt.Equal(e.At.Add(time.Minute)) || e.LastError != "slack: post failed: channel_not_found" ||
		!slices.Equal(e.Channels, []string{"slack"}) {
		t.Errorf("%+v", e)
	}
	ev, err := e.Event()
	want := channels.Event{
		ID: seedID, Type: "session.awaiting_input", WorkItem: "github:o/r#7", Text: "A or B?",
		URL: "https://github.com/o/r/issues/7#issuecomment-1", Detail: map[string]any{"actor": "octocat"},
		Source: "cli", Actor: &channels.Actor{IDs: map[string]string{"github": "octocat"}, Name: "Octo"},
	}
	if diff := cmp.Diff(want, ev); err != nil || diff != "" {
		t.Errorf("%v\n%s", err, diff)
	}
	if got := e.State(); got != channels.StateRefused {
		t.Errorf("tried once, and it is %s", got)
	}
	sweep(t, s, Lane{Channel: "slack"})
	c := claimOne(t, s, "slack")
	if d := start(t, s, c); d.Attempt != 2 {
		t.Errorf("attempt %d after one of the Python program's", d.Attempt)
	}
	settle(t, s, c, accepted("1"))
	wantIDs(t, s)
}

func TestTheFileHasTheSeedsKeys(t *testing.T) {
	s, root := store(t, Options{})
	e, err := NewEntry(channels.Event{ID: seedID, Type: "session.awaiting_input", Text: "<A> & B"},
		time.Date(2026, 9, 22, 10, 0, 0, 5e8, time.FixedZone("", 7200)), []Attempted{asked("slack", held())})
	if err == nil {
		err = s.Remember(t.Context(), e, nil)
	}
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Version int
		Pending map[string]map[string]json.RawMessage
	}
	b := bytesOf(t, root, state.Outbox)
	if err := json.Unmarshal(b, &file); err != nil {
		t.Fatal(err)
	}
	entry := file.Pending[seedID]
	for key, want := range map[string]string{
		"at": `"2026-09-22T08:00:00Z"`, "attempts": "0", "lastAttemptAt": `""`, "channels": `["slack"]`,
	} {
		if got := string(entry[key]); got != want {
			t.Errorf("%s: %s, want %s", key, got, want)
		}
	}
	var keys []string
	for key := range entry {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	if want := strings.Fields("at attempts channels deliveries event lastAttemptAt lastError"); !slices.Equal(keys, want) {
		t.Errorf("keys %v, want %v", keys, want)
	}
	if file.Version != 1 || !bytes.Contains(b, []byte("<A> & B")) {
		t.Errorf("version %d: %s", file.Version, b)
	}
}

func TestUnknownKeysAreKeptOnEveryLevel(t *testing.T) {
	s, root := store(t, Options{})
	place(t, root, state.Outbox, `{"version": 1, "extra": {"top": 1.50}, "pending": {"A": {
		"at": "2026-09-22T10:00:00Z", "extra": ["entry"], "newer": null, "channels": ["slack"],
		"claim": {"id": "c", "by": "h/1", "at": "2026-09-22T10:00:00Z", "extra": "claim"},
		"event": {"eventType": "a.b", "extra": "event", "actor": {"extra": "actor"}, "detail": {"n": 1.50}},
		"deliveries": {"slack": {"state": "pending", "claim": "c", "extra": "delivery", "x": [1, 2]}}
	}}}`)
	c := Claimed{Event: channels.Event{ID: "A"}, Channel: "slack", ID: "c"}
	start(t, s, c)
	got := bytesOf(t, root, state.Outbox)
	var file struct {
		Extra   json.RawMessage
		Pending map[string]struct {
			Extra, Newer, Event json.RawMessage
			Claim               struct{ ID, Extra string }
			Deliveries          map[string]struct {
				State, Extra string
				X            json.RawMessage
			}
		}
	}
	if err := json.Unmarshal(got, &file); err != nil {
		t.Fatal(err)
	}
	e := file.Pending["A"]
	const event = `{"eventType":"a.b","extra":"event","actor":{"extra":"actor"},"detail":{"n":1.50}}`
	for what, ok := range map[string]bool{
		"rewritten":             e.Deliveries["slack"].State == "sending",
		"top level":             string(file.Extra) == `{"top": 1.50}`,
		"entry":                 string(e.Extra) == `["entry"]` && string(e.Newer) == "null",
		"claim":                 e.Claim.Extra == "claim" && e.Claim.ID == "c",
		"delivery":              e.Deliveries["slack"].Extra == "delivery" && e.Deliveries["slack"].X != nil,
		"event, and its digits": string(e.Event) == event,
	} {
		if !ok {
			t.Errorf("%s: not kept:\n%s", what, got)
		}
	}
}

func TestOrderIsByTimeThenByID(t *testing.T) {
	s, root := store(t, Options{})
	place(t, root, state.Outbox, `{"pending": {
		"A": {"at": "2026-09-22T10:00:02Z", "event": {"eventType": "a.b"}},
		"D": {"at": "2026-09-22T10:00:01Z", "event": {"eventType": "a.b"}},
		"C": {"at": "2026-09-22T12:00:01+02:00", "event": {"eventType": "a.b"}},
		"B": {"at": "2026-09-22T10:00:00Z", "event": {"eventType": "a.b"}}}}`)
	wantIDs(t, s, "B", "C", "D", "A")
}

func TestMissingKeysAreDefaulted(t *testing.T) {
	s, root := store(t, Options{})
	place(t, root, state.Outbox, `{"pending": {"A": {"event": {"eventType": "a.b"}, "channels": ["x", "y"],
		"deliveries": {"x": {}}}}}`)
	sweep(t, s, Lane{Channel: "x"}, Lane{Channel: "y"})
	for _, channel := range []string{"x", "y"} {
		start(t, s, claimOne(t, s, channel))
	}
}

var damage = map[string]string{
	"NULs":          strings.Repeat("\x00", 4096),
	"cut mid-entry": `{"version": 1, "pending": {"A": {"at": "2026-09-22T10`,
	"two documents": `{"version": 1, "pending": {}} {"version": 1, "pending": {}}`,
	"null":          "null",
	"array":         "[]",
	"text":          `"text"`,
	"pending null":  `{"version": 1, "pending": null}`,
	"pending array": `{"version": 1, "pending": []}`,
	"binary":        "\x80\x04\x95pickle",
}

func TestK01_DamagedFileIsSetAsideAndPublishingWorks(t *testing.T) {
	t.Parallel()
	for name, text := range damage {
		t.Run(name, func(t *testing.T) {
			s, root := store(t, Options{})
			place(t, root, state.Outbox, text)
			if entries, _, damaged, err := s.Entries(); len(entries) > 0 || !damaged || err != nil {
				t.Errorf("reading: %d entries, damaged %v, %v", len(entries), damaged, err)
			}
			if got := string(bytesOf(t, root, state.Outbox)); got != text {
				t.Error("reading changed it")
			}
			remember(t, s, "A", time.Now(), asked("slack", down()))
			remember(t, s, "B", time.Now(), asked("slack", down()))
			if got := entriesOf(t, s); len(got) != 2 {
				t.Errorf("%d entries afterwards", len(got))
			}
			aside := setAside(t, root)
			for file, kept := range aside {
				if kept != text || !strings.HasPrefix(file, state.Outbox+".corrupt-") {
					t.Errorf("%s holds %q", file, kept)
				}
			}
			if n := count(logged(t, root), "state.set_aside"); n != 1 || len(aside) != 1 {
				t.Errorf("set aside %d times, logged %d times", len(aside), n)
			}
		})
	}
}

func TestK01_EmptyFileAndByteOrderMarkAreNoDamage(t *testing.T) {
	entry := `{"version":1,"pending":{"0":{"at":"2026-09-22T10:00:00Z","event":{"eventType":"a.b"}}}}`
	for text, want := range map[string][]string{
		"": {"A"}, "\n \t": {"A"}, "{}": {"A"}, "\xef\xbb\xbf": {"A"}, "\xef\xbb\xbf" + entry: {"0", "A"},
	} {
		s, root := store(t, Options{})
		place(t, root, state.Outbox, text)
		remember(t, s, "A", time.Now(), asked("slack", down()))
		wantIDs(t, s, want...)
		if aside := setAside(t, root); len(aside) > 0 {
			t.Errorf("%q was set aside: %v", text, aside)
		}
	}
}

func TestP10_NewerVersionIsLeftAlone(t *testing.T) {
	s, root := store(t, Options{})
	text := `{"version": 2, "pending": [{"new": "shape"}]}`
	place(t, root, state.Outbox, text)
	_, _, _, err := s.Entries()
	e, errEntry := NewEntry(channels.Event{ID: "A", Type: "a.b"}, time.Now(), []Attempted{asked("slack", down())})
	_, errClaim := s.Claim(t.Context(), "slack", 1, "")
	for what, err := range map[string]error{
		"read": err, "remember": s.Remember(t.Context(), e, nil), "claim": errClaim, "sweep": s.Sweep(t.Context(), nil),
	} {
		if !errors.Is(err, ErrNewer) || errEntry != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	if got := string(bytesOf(t, root, state.Outbox)); got != text || len(setAside(t, root)) > 0 {
		t.Errorf("it was touched: %s", got)
	}
}

func TestP10_UnreadableFileIsLeftAlone(t *testing.T) {
	root := newRoot(t)
	place(t, root, state.Outbox, "damaged, but who knows: it cannot be read")
	unreadable := Open(root.WithSteps(func(op state.Op, path string) error {
		if op == state.OpRead {
			return &fs.PathError{Op: "open", Path: path, Err: syscall.EACCES}
		}
		return nil
	}), Options{})
	if _, _, damaged, err := unreadable.Entries(); damaged || !errors.Is(err, fs.ErrPermission) {
		t.Errorf("damaged %v, %v", damaged, err)
	}
	if err := unreadable.Sweep(t.Context(), nil); !errors.Is(err, fs.ErrPermission) {
		t.Errorf("sweep: %v", err)
	}
	if got := string(bytesOf(t, root, state.Outbox)); !strings.HasPrefix(got, "damaged") || len(setAside(t, root)) > 0 {
		t.Errorf("it was touched: %s", got)
	}
}

func TestP10_BadEntryIsSetAsideAndCostsNoOther(t *testing.T) {
	t.Parallel()
	for name, bad := range map[string]string{
		"no event":      `"BAD": { "at":"2026-09-22T10:00:00Z" , "channels" : [ "slack" ] }`,
		"wrong type":    `"BAD": {"attempts": "one",  "event": {"eventType": "<b> & \u0041"}}`,
		"null":          `"BAD": null`,
		"array":         `"BAD": [1,  2]`,
		"no type":       `"BAD": {"event": {"text": "x"}}`,
		"event null":    `"BAD": {"event": null}`,
		"bad time":      `"BAD": {"at": "yesterday", "event": {"eventType": "a.b"}}`,
		"far time":      `"BAD": {"at": "9999-12-31T23:59:59-12:00", "event": {"eventType": "a.b"}}`,
		"bad delivery":  `"BAD": {"event": {"eventType": "a.b"}, "deliveries": {"slack": null}}`,
		"unknown state": `"BAD": {"event": {"eventType": "a.b"}, "deliveries": {"slack": {"state": "maybe"}}}`,
		"bad id":        `"a b\r\nx": {"event":  {"eventType": "a.b"}}`,
		"empty id":      `"": {"event":  {"eventType": "a.b"}}`,
	} {
		t.Run(name, func(t *testing.T) {
			s, root := store(t, Options{})
			good := `{"at": "2026-09-22T10:00:00Z", "event": {"eventType": "a.b"}, "channels": ["slack"]}`
			place(t, root, state.Outbox, fmt.Sprintf(`{"pending": {"A": %s, %s, "C": %s}}`, good, bad, good))
			if entries, n, _, err := s.Entries(); len(entries) != 2 || n != 1 || err != nil {
				t.Errorf("%d entries, %d bad, %v", len(entries), n, err)
			}
			sweep(t, s, Lane{Channel: "slack"})
			wantIDs(t, s, "A", "C")
			aside := setAside(t, root)
			_, raw, _ := strings.Cut(bad, ": ")
			if strings.HasPrefix(bad, `""`) || name == "bad id" {
				_, raw, _ = strings.Cut(bad, `": `)
			}
			for _, kept := range aside {
				if !strings.Contains(kept, raw) || !json.Valid([]byte(kept)) {
					t.Errorf("the bytes were not kept: %s", kept)
				}
			}
			if n := count(logged(t, root), "state.set_aside"); n != 1 || len(aside) != 1 {
				t.Errorf("set aside %v, logged %d times", aside, n)
			}
			sweep(t, s, Lane{Channel: "slack"})
			if again := setAside(t, root); len(again) != 1 {
				t.Errorf("set aside again: %v", again)
			}
		})
	}
}

func TestOfTwoEntriesWithOneIDTheEarlierIsSetAside(t *testing.T) {
	s, root := store(t, Options{})
	place(t, root, state.Outbox, `{"pending": {"A": {"event": {"eventType": "a.first"}, "channels": ["slack"]},
		"A": {"event": {"eventType": "a.second"}, "channels": ["slack"]}}}`)
	sweep(t, s, Lane{Channel: "slack"})
	if ev, err := entryOf(t, s, "A").Event(); err != nil || ev.Type != "a.second" {
		t.Errorf("%s, %v", ev.Type, err)
	}
	for _, kept := range setAside(t, root) {
		if !strings.Contains(kept, "a.first") {
			t.Error(kept)
		}
	}
}

func TestNewEntryRefusesAnIDThatCouldNotBeReadAgain(t *testing.T) {
	for _, id := range []string{"", "a b", "a\nb", "é", strings.Repeat("x", 129), `"`} {
		_, err := NewEntry(channels.Event{ID: id, Type: "a.b"}, time.Now(), []Attempted{asked("slack", down())})
		if err == nil {
			t.Errorf("%q was taken", id)
		}
	}
}

func TestNothingIsWrittenWhenNothingChanged(t *testing.T) {
	s, root := store(t, Options{})
	remember(t, s, "A", time.Now(), asked("slack", down()))
	writes := 0
	watched := Open(root.WithSteps(func(op state.Op, _ string) error {
		if op == state.OpCreate {
			writes++
		}
		return nil
	}), Options{})
	sweep(t, watched, Lane{Channel: "slack"})
	if err := watched.Unclaim(t.Context(), nil); err != nil || writes > 0 {
		t.Errorf("%d writes, %v", writes, err)
	}
}

func TestRememberFailsWholeAtEveryStep(t *testing.T) {
	t.Parallel()
	for n := 0; ; n++ {
		root := newRoot(t)
		remember(t, Open(root, Options{}), "A", time.Now(), asked("slack", down()))
		left, hit := n, false
		broken := Open(root.WithSteps(func(op state.Op, path string) error {
			if left--; left == -1 {
				hit = true
				return &fs.PathError{Op: string(op), Path: path, Err: syscall.ENOSPC}
			}
			return nil
		}), Options{})
		e, err := NewEntry(channels.Event{ID: "B", Type: "a.b"}, time.Now(), []Attempted{asked("slack", down())})
		if err != nil {
			t.Fatal(err)
		}
		err = broken.Remember(t.Context(), e, nil)
		if !hit {
			if err != nil || n < 6 {
				t.Errorf("%d steps, %v", n, err)
			}
			return
		}
		if !errors.Is(err, syscall.ENOSPC) {
			t.Errorf("step %d failed: %v", n, err)
		}
		if got := ids(entriesOf(t, Open(root, Options{}))); len(got) == 0 || got[0] != "A" {
			t.Errorf("step %d failed, and it holds %v", n, got)
		}
		if err := Open(root, Options{}).Remember(t.Context(), e, nil); err != nil {
			t.Errorf("step %d failed, again: %v", n, err)
		}
	}
}

// One entry is found wherever Entries finds it: in the file, and in what a dead
// publisher left.
func TestOneEntryIsFoundWhereAllAre(t *testing.T) {
	s, root := store(t, Options{})
	remember(t, s, "A", time.Now(), asked("a", down()))
	remember(t, s, "B", time.Now(), asked("b", down()))
	dead := Open(root, Options{})
	begin(t, dead, "C", false, Planned{Channel: "c"})
	dies(dead)
	for _, want := range entriesOf(t, s) {
		e, ok, err := s.Entry(want.ID)
		if err != nil || !ok || row(e, want.Channels[0]) != row(want, want.Channels[0]) {
			t.Errorf("%s: %+v, %v, %v", want.ID, e, ok, err)
		}
	}
	if n := len(entriesOf(t, s)); n != 3 {
		t.Errorf("%d entries", n)
	}
	if e, ok, err := s.Entry("D"); ok || err != nil {
		t.Errorf("%+v, %v, %v", e, ok, err)
	}
	place(t, root, state.Outbox, "{")
	if _, ok, err := s.Entry("A"); ok || err != nil {
		t.Errorf("of a damaged file: %v, %v", ok, err)
	}
}
