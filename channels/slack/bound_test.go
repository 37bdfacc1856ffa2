package slack

import (
	"bytes"
	"log/slog"
	"os"
	"strings"
	"sync"
	"testing"

	"the-loop/channels"
	"the-loop/channels/channelstest"
	"the-loop/state"
)

func about(item, text string) channels.Delivery {
	d := question(text)
	d.Event.WorkItem = item
	return d
}

func TestThreads_AreThoseOfThisConversation(t *testing.T) {
	s := newSlack(t)
	c := newChannel(t, s)
	if rows, err := c.Threads(); err != nil || len(rows) > 0 {
		t.Errorf("without a file: %v, %v", rows, err)
	}
	first, second := post(t, c, about("github:o/r#7", "A or B?")), post(t, c, about("local:x#1", "C or D?"))
	s.AddRoom("C9")
	elsewhere := newChannel(t, s, func(o *Options) { o.Root, o.Channel = c.o.Root, "C9" })
	other := post(t, elsewhere, about("github:o/r#8", "E or F?"))

	rows, err := c.Threads()
	if err != nil || len(rows) != 2 {
		t.Fatalf("got %+v, %v, want two threads", rows, err)
	}
	for i, want := range []Thread{{WorkItem: "github:o/r#7", TS: first.Ref}, {WorkItem: "local:x#1", TS: second.Ref}} {
		got := rows[i]
		if got.WorkItem != want.WorkItem || got.TS != want.TS || got.Conversation != room || got.At.IsZero() {
			t.Errorf("thread %d is %+v, want %+v", i, got, want)
		}
	}
	for _, tt := range []struct{ conversation, thread, want string }{
		{room, first.Ref, "github:o/r#7"},
		{room, second.Ref, "local:x#1"},
		{room, other.Ref, ""},
		{"C9", first.Ref, ""},
		{"C9", other.Ref, ""}, // ours, and another channel's
		{room, "", ""},
	} {
		if item, ok := c.WorkItem(tt.conversation, tt.thread); item != tt.want || ok != (tt.want != "") {
			t.Errorf("%s in %s is of %q, want %q", tt.thread, tt.conversation, item, tt.want)
		}
	}
	bare := newChannel(t, s, func(o *Options) { o.Root = nil })
	if _, ok := bare.WorkItem(room, first.Ref); ok {
		t.Error("a channel that keeps no bindings knows a thread")
	}
}

// The file is read again when it was replaced, by whomever, and only then.
func TestThreads_AreReadAgainWhenTheFileChanged(t *testing.T) {
	s := newSlack(t)
	c := newChannel(t, s)
	post(t, c, question("A or B?"))
	if _, err := c.Threads(); err != nil {
		t.Fatal(err)
	}
	held := c.bound.held
	if _, err := c.Threads(); err != nil || c.bound.held != held {
		t.Error("an unchanged file was opened again")
	}
	other := newChannel(t, s, func(o *Options) { o.Root = c.o.Root })
	r := post(t, other, about("local:x#1", "C or D?"))
	if item, ok := c.WorkItem(room, r.Ref); !ok || item != "local:x#1" {
		t.Errorf("what another process bound is of %q", item)
	}
	if err := os.Remove(c.threads.doc.Path()); err != nil {
		t.Fatal(err)
	}
	if rows, err := c.Threads(); err != nil || len(rows) > 0 {
		t.Errorf("after the file was deleted: %v, %v", rows, err)
	}
}

// Same length, same time, and in all likelihood the same inode number: only
// that the old file is held open tells the new one from it.
func TestThreads_ANewFileThatLooksLikeTheOldOneIsSeen(t *testing.T) {
	s := newSlack(t)
	c := newChannel(t, s)
	r := post(t, c, about("local:x#1", "A or B?"))
	path := c.threads.doc.Path()
	for i, item := range []string{"local:x#2", "local:x#3", "local:x#4"} {
		if _, ok := c.WorkItem(room, r.Ref); !ok {
			t.Fatal("the thread is not known")
		}
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		old := []string{"local:x#1", "local:x#2", "local:x#3"}[i]
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, bytes.Replace(b, []byte(old), []byte(item), 1), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(path, info.ModTime(), info.ModTime()); err != nil {
			t.Fatal(err)
		}
		if got, _ := c.WorkItem(room, r.Ref); got != item {
			t.Errorf("got %q, want %q", got, item)
		}
	}
}

func TestP12_NothingIsOursWhileTheBindingsCannotBeRead(t *testing.T) {
	var log bytes.Buffer
	c := newChannel(t, newSlack(t), func(o *Options) { o.Log = slog.New(slog.NewTextHandler(&log, nil)) })
	r := post(t, c, question("A or B?"))
	path := c.threads.doc.Path()
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := os.WriteFile(path, []byte(`{"version": 1, "threads": {`), 0o600); err != nil {
			t.Fatal(err)
		}
		for range 3 {
			if item, ok := c.WorkItem(room, r.Ref); ok {
				t.Errorf("found %q in a damaged file", item)
			}
		}
		if _, err := c.Threads(); err == nil {
			t.Error("a damaged file is no error")
		}
		if err := os.WriteFile(path, good, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, ok := c.WorkItem(room, r.Ref); !ok {
			t.Error("not found once the file was mended")
		}
	}
	if n := strings.Count(log.String(), "cannot be read"); n != 2 {
		t.Errorf("said %d times, want once for each time it broke:\n%s", n, &log)
	}
}

func TestThreads_AreSafeForSeveralGoroutines(t *testing.T) {
	s := newSlack(t)
	c := newChannel(t, s)
	r := post(t, c, question("A or B?"))
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 50 {
				if item, ok := c.WorkItem(room, r.Ref); !ok {
					t.Errorf("the thread is of %q", item)
				}
				if _, err := c.Threads(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Go(func() {
		for range 10 {
			if err := c.threads.move(t.Context(), state.NewID(), "", channelstest.SlackTS(question("").At)); err != nil {
				t.Error(err)
			}
		}
	})
	wg.Wait()
}
