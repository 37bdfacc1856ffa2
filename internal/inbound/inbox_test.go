package inbound_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"the-loop/internal/inbound"
	"the-loop/internal/ledger"
	"the-loop/state"
)

func boxRoot(t *testing.T) *state.Root {
	t.Helper()
	root, err := state.Open(filepath.Join(t.TempDir(), "root"))
	must(t, err)
	return root
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func message(key, text string) inbound.Line {
	return inbound.Line{
		Key: key, At: time.Now(), Text: text, From: inbound.Sender{Name: "Octo", Surface: "slack", ID: "U1OCTO"},
	}
}

func put(t *testing.T, root *state.Root, item string, lines ...inbound.Line) {
	t.Helper()
	must(t, inbound.AppendInbox(t.Context(), root, item, lines...))
}

// unread gives "seq text" of each unread line.
func unread(t *testing.T, root *state.Root, item string) []string {
	t.Helper()
	lines, err := inbound.Unread(root, item)
	must(t, err)
	return texts(lines)
}

func texts(lines []inbound.Line) (out []string) {
	for _, l := range lines {
		out = append(out, fmt.Sprintf("%d %.20s", l.Seq, l.Text))
	}
	return out
}

func wantTexts(t *testing.T, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

func boxFile(root *state.Root, item string) string { return root.Path(state.Inbox(ledger.Slug(item))) }

func readFile(root *state.Root, item string) string {
	return root.Path(state.InboxRead(ledger.Slug(item)))
}

func TestInboxGivesWhatWasPut(t *testing.T) {
	root := boxRoot(t)
	at := time.Date(2026, 11, 30, 22, 10, 5, 0, time.FixedZone("", 3600))
	l := message("slack:C1:1.1", "a <b> & \"c\"\n\td")
	l.At, l.Link, l.Cut = at, "https://x.example/1", true
	put(t, root, item, l)
	put(t, root, item)
	got, err := inbound.Unread(root, item)
	must(t, err)
	if len(got) != 1 || got[0].ReceivedAt.IsZero() {
		t.Fatalf("%+v", got)
	}
	l.Seq, l.WorkItem, l.At, l.ReceivedAt = 1, item, at.UTC(), got[0].ReceivedAt
	if got[0] != l {
		t.Errorf("got  %+v\nwant %+v", got[0], l)
	}
	b, err := os.ReadFile(boxFile(root, item))
	must(t, err)
	if !bytes.HasPrefix(b, []byte(`{"seq":1,"key":"slack:C1:1.1","at":"2026-11-30T21:10:05Z",`)) {
		t.Errorf("%s", b)
	}
}

func TestWhatIsThereIsNotPutAgain(t *testing.T) {
	root := boxRoot(t)
	put(t, root, item, message("a", "1"), message("b", "2"), message("a", "again"))
	put(t, root, item, message("b", "again"), message("c", "3"))
	put(t, root, "local:other#1", message("a", "is another's"))
	// A text that looks like a line with the key is none.
	put(t, root, item, message("d", `{"seq":9,"key":"e","at":"`), message(`k","key":"f`, "5"))
	put(t, root, item, message("e", "6"), message("f", "7"))
	wantTexts(t, unread(t, root, item), "1 1", "2 2", "3 3", `4 {"seq":9,"key":"e","`, "5 5", "6 6", "7 7")
	wantTexts(t, unread(t, root, "local:other#1"), "1 is another's")
}

func TestATornLineCostsNoOther(t *testing.T) {
	root := boxRoot(t)
	put(t, root, item, message("a", "1"))
	f, err := os.OpenFile(boxFile(root, item), os.O_APPEND|os.O_WRONLY, 0)
	must(t, err)
	_, err = f.WriteString(`{"seq":2,"key":"b","at":"2026-`)
	must(t, errors.Join(err, f.Close()))
	put(t, root, item, message("b", "2"))
	wantTexts(t, unread(t, root, item), "1 1", "2 2")
}

func TestNumbersGoOn(t *testing.T) {
	long := strings.Repeat("x", 4000)
	var many []inbound.Line
	for i := range 2700 { // more than 10 MiB
		many = append(many, message(fmt.Sprintf("m%d", i), long))
	}
	t.Run("where the file was turned over", func(t *testing.T) {
		root := boxRoot(t)
		put(t, root, item, many...)
		if _, err := os.Stat(boxFile(root, item)); !errors.Is(err, os.ErrNotExist) {
			t.Fatalf("not turned over: %v", err)
		}
		put(t, root, item, many[len(many)-1], message("after", "after"))
		lines, err := inbound.Unread(root, item)
		must(t, err)
		if len(lines) != 2701 || lines[2700].Seq != 2701 || lines[2699].Seq != 2700 {
			t.Errorf("%d lines, the last is %d", len(lines), lines[len(lines)-1].Seq)
		}
		// What is gone is counted.
		follow := inbound.Follow(root, nil)
		must(t, os.Remove(boxFile(root, item)+".1"))
		got, err := follow.Next()
		must(t, err)
		wantTexts(t, texts(got), "2701 after")
		if follow.Missed != 2700 {
			t.Errorf("%d missed", follow.Missed)
		}
	})
	t.Run("where the files are gone", func(t *testing.T) {
		root := boxRoot(t)
		put(t, root, item, many[:3]...)
		must(t, inbound.MarkRead(t.Context(), root, item, 3))
		must(t, os.Remove(boxFile(root, item)))
		put(t, root, item, message("new", "new"))
		wantTexts(t, unread(t, root, item), "4 new")
	})
	t.Run("where the end is damaged", func(t *testing.T) {
		root := boxRoot(t)
		put(t, root, item, message("a", "1"), message("b", "2"))
		f, err := os.OpenFile(boxFile(root, item), os.O_APPEND|os.O_WRONLY, 0)
		must(t, err)
		_, err = f.WriteString(strings.Repeat("damage\n", 100_000))
		must(t, errors.Join(err, f.Close()))
		put(t, root, item, message("c", "3"))
		wantTexts(t, unread(t, root, item), "1 1", "2 2", "3 3")
	})
}

// At 500 a second, each costs what the first one did.
func TestPuttingCostsTheSameInAFullInbox(t *testing.T) {
	root := boxRoot(t)
	var many []inbound.Line
	for i := range 2000 { // 8 MiB
		many = append(many, message(fmt.Sprintf("m%d", i), strings.Repeat("x", 4000)))
	}
	put(t, root, item, many...)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	put(t, root, item, message("one", "more"))
	runtime.ReadMemStats(&after)
	if got := after.TotalAlloc - before.TotalAlloc; got > 1<<20 {
		t.Errorf("%d bytes were allocated for one line", got)
	}
}

func TestPutThatFailsMayBeRepeated(t *testing.T) {
	root := boxRoot(t)
	broken := errors.New("the disk broke")
	failing := root.WithSteps(func(op state.Op, path string) error {
		if op == state.OpSync && strings.HasSuffix(path, ".jsonl") {
			return broken
		}
		return nil
	})
	if err := inbound.AppendInbox(t.Context(), failing, item, message("a", "1")); !errors.Is(err, broken) {
		t.Fatal(err)
	}
	put(t, root, item, message("a", "1"), message("b", "2"))
	wantTexts(t, unread(t, root, item), "1 1", "2 2")
}

func TestReadIsMarkedOnceAndNeverBack(t *testing.T) {
	root := boxRoot(t)
	put(t, root, item, message("a", "1"), message("b", "2"), message("c", "3"))
	must(t, inbound.MarkRead(t.Context(), root, item, 2))
	must(t, inbound.MarkRead(t.Context(), root, item, 1))
	wantTexts(t, unread(t, root, item), "3 3")
	boxes, err := inbound.WorkItems(root)
	must(t, err)
	if len(boxes) != 1 || boxes[0].WorkItem != item || boxes[0].Unread != 1 || boxes[0].Messages != 3 ||
		time.Since(boxes[0].LastAt) > time.Minute {
		t.Errorf("%+v", boxes)
	}
	write := func(text string) { must(t, os.WriteFile(readFile(root, item), []byte(text), 0o600)) }

	write(`{"version":1,"workItem":"x","seq":1,"new":{"a":1}}`)
	must(t, inbound.MarkRead(t.Context(), root, item, 2))
	if b, err := os.ReadFile(readFile(root, item)); err != nil || !bytes.Contains(b, []byte(`"seq":2,"new":{"a":1}}`)) {
		t.Errorf("%s %v", b, err)
	}

	const newer = `{"version":2,"seq":1}`
	write(newer)
	if err := inbound.MarkRead(t.Context(), root, item, 2); !errors.Is(err, inbound.ErrInboxNewer) {
		t.Error(err)
	}
	if _, err := inbound.Unread(root, item); !errors.Is(err, inbound.ErrInboxNewer) {
		t.Error(err)
	}
	if b, _ := os.ReadFile(readFile(root, item)); string(b) != newer {
		t.Errorf("%s", b)
	}

	// With damage all is unread, and its bytes are kept.
	write("damage")
	wantTexts(t, unread(t, root, item), "1 1", "2 2", "3 3")
	must(t, inbound.MarkRead(t.Context(), root, item, 3))
	wantTexts(t, unread(t, root, item))
	aside, _ := filepath.Glob(readFile(root, item) + ".corrupt-*")
	if len(aside) != 1 {
		t.Fatal(aside)
	}
	if b, _ := os.ReadFile(aside[0]); string(b) != "damage" {
		t.Errorf("%s", b)
	}
}

func TestFollowerGivesEachLineOnceAndInOrder(t *testing.T) {
	root := boxRoot(t)
	const other = "local:other#1"
	at := func(key string, second int) inbound.Line {
		l := message(key, key)
		l.ReceivedAt = time.Date(2026, 11, 30, 22, 0, second, 0, time.UTC)
		return l
	}
	all := inbound.Follow(root, nil)
	one := inbound.Follow(root, func(item string) bool { return item == other })
	next := func(f *inbound.Follower, want ...string) {
		t.Helper()
		got, err := f.Next()
		must(t, err)
		wantTexts(t, texts(got), want...)
	}
	next(all)
	put(t, root, item, at("a", 1), at("b", 5), at("c", 3)) // a clock was set back
	put(t, root, other, at("x", 2), at("y", 4))
	next(all, "1 a", "1 x", "2 y", "2 b", "3 c")
	next(one, "1 x", "2 y")
	next(all)
	put(t, root, item, at("d", 9))
	next(one)
	next(all, "4 d")
	put(t, root, other, at("z", 9), at("zz", 9))
	must(t, inbound.MarkRead(t.Context(), root, other, 3)) // by somebody else
	next(one, "4 zz")
	next(inbound.Follow(root, nil), "1 a", "2 b", "3 c", "4 d", "4 zz")
	if all.Missed+one.Missed != 0 {
		t.Errorf("%d and %d missed", all.Missed, one.Missed)
	}
}

func TestFollowerWaits(t *testing.T) {
	root := boxRoot(t)
	over := errors.New("over")
	ctx, cancel := context.WithTimeoutCause(t.Context(), 10*time.Millisecond, over)
	defer cancel()
	if lines, err := inbound.Follow(root, nil).Wait(ctx); !errors.Is(err, over) || lines != nil {
		t.Error(lines, err)
	}
	done := make(chan error, 1)
	go func() { done <- inbound.AppendInbox(context.Background(), root, item, message("a", "1")) }()
	lines, err := inbound.Follow(root, nil).Wait(t.Context())
	must(t, errors.Join(err, <-done))
	wantTexts(t, texts(lines), "1 1")
}
