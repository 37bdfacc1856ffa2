package slack

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"the-loop/channels"
	"the-loop/channels/channelstest"
	"the-loop/state"
)

func TestThread_OnePerWorkItem(t *testing.T) {
	s := newSlack(t)
	c := newChannel(t, s)
	var other, alone channels.Receipt
	for i := range 4 {
		d := question("A or B?")
		switch i {
		case 1:
			d.Event.WorkItem = "github:o/r#8"
			other = post(t, c, d)
		case 2:
			d.Event.WorkItem = ""
			alone = post(t, c, d)
		default:
			post(t, c, d)
		}
	}
	messages := s.Messages(channelstest.SlackRoom)
	for i, want := range []string{messages[0].TS, "", "", messages[0].TS} {
		if messages[i].ThreadTS != want {
			t.Errorf("message %d is in thread %q, want %q", i, messages[i].ThreadTS, want)
		}
	}
	if other.Ref == alone.Ref {
		t.Error("two messages with one ref")
	}
}

func TestThread_IsFoundByAnotherProcess(t *testing.T) {
	s := newSlack(t)
	c := newChannel(t, s)
	post(t, c, question("A or B?"))
	post(t, newChannel(t, s, func(o *Options) { o.Root = c.o.Root }), question("C or D?"))
	wantThread(t, s, 2)

	s.AddRoom("C9")
	post(t, newChannel(t, s, func(o *Options) { o.Root, o.Channel = c.o.Root, "C9" }), question("E or F?"))
	if m := s.Messages("C9"); len(m) != 1 || m[0].ThreadTS != "" {
		t.Errorf("the other room has %+v, want a root", m)
	}
}

// Any number of processes publish the first message of a work item.
func TestThread_FirstPostsAtOnceOpenOneThread(t *testing.T) {
	s := newSlack(t)
	c := newChannel(t, s)
	var wg sync.WaitGroup
	for range 6 {
		other := newChannel(t, s, func(o *Options) { o.Root = c.o.Root })
		wg.Go(func() {
			if _, err := other.Post(context.Background(), question("A or B?")); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	wantThread(t, s, 6)
}

func TestThread_ClaimIsWaitedForThenTakenOver(t *testing.T) {
	s := newSlack(t)
	c := newChannel(t, s)
	if _, claim, err := c.threads.enter(t.Context(), "github:o/r#7"); err != nil || claim == "" {
		t.Fatal(claim, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), claimLook/2)
	defer cancel()
	_, err := c.Post(ctx, question("A or B?"))
	wantRefusal(t, err, channels.ReasonOther, "thread_busy")
	if len(s.Requests()) != 0 {
		t.Error("a message was sent past a claim")
	}
	age(t, c, claimLife)
	post(t, c, question("A or B?"))
	post(t, c, question("A or B?"))
	wantThread(t, s, 2)
}

// age makes the claims in the file older.
func age(t *testing.T, c *Channel, by time.Duration) {
	t.Helper()
	if err := c.threads.update(t.Context(), func(f bindings) bool {
		for item := range f.threads {
			b := f.find(item)
			b.At = b.At.Add(-by)
			f.put(item, b)
		}
		return true
	}); err != nil {
		t.Fatal(err)
	}
}

func TestThread_ClaimIsGivenUpOnAnyFailure(t *testing.T) {
	s := newSlack(t)
	c := newChannel(t, s)
	for _, fault := range []channelstest.Fault{channelstest.SlackError("is_archived"), channelstest.DropRead()} {
		s.Queue(fault)
		if _, err := c.Post(t.Context(), question("A or B?")); err == nil {
			t.Fatal("no error")
		}
		if b, _ := c.threads.find("github:o/r#7"); b != (binding{}) {
			t.Errorf("binding %+v is left", b)
		}
	}
}

func TestThread_ALateRootDoesNotReplaceTheFirst(t *testing.T) {
	c := newChannel(t, newSlack(t))
	if err := errors.Join(
		c.threads.move(t.Context(), "github:o/r#7", "", "1.1"),
		c.threads.move(t.Context(), "github:o/r#7", "", "2.2"),
		c.threads.release(t.Context(), "github:o/r#7", ""),
	); err != nil {
		t.Fatal(err)
	}
	if b, err := c.threads.find("github:o/r#7"); err != nil || b.TS != "1.1" {
		t.Errorf("binding %+v, error %v, want 1.1", b, err)
	}
}

// Slack puts a reply whose root was deleted into the room itself.
func TestThread_DeletedRootIsReplaced(t *testing.T) {
	s := newSlack(t)
	c := newChannel(t, s)
	s.Delete(channelstest.SlackRoom, post(t, c, question("A or B?")).Ref)
	post(t, c, question(strings.Repeat("x", 5000)))
	post(t, c, question("A or B?"))
	wantThread(t, s, 3)
}

func TestThread_NotFoundIsForgotten(t *testing.T) {
	s := newSlack(t)
	c := newChannel(t, s)
	post(t, c, question("A or B?"))
	s.Queue(channelstest.SlackError("thread_not_found"))
	d := question("C or D?")
	_, err := c.Post(t.Context(), d)
	wantRefusal(t, err, channels.ReasonOther, "thread_not_found")
	post(t, c, d)
	if m := s.Messages(channelstest.SlackRoom); len(m) != 2 || m[1].ThreadTS != "" {
		t.Errorf("messages %+v, want a second root", m)
	}
}

func TestParts_GoOnAtTheFirstMissingOne(t *testing.T) {
	for name, item := range map[string]string{"bound": "github:o/r#7", "alone": ""} {
		t.Run(name, func(t *testing.T) {
			s := newSlack(t)
			c := newChannel(t, s)
			d := question(strings.Repeat("0123456789\n", 1000))
			d.Event.WorkItem = item
			var durable []string
			d.OnPart = func(ref string) error { durable = append(durable, ref); return nil }
			for i, fault := range []channelstest.Fault{channelstest.DropRead(), channelstest.SlackError("invalid_auth")} {
				s.Queue(s.ByteByByte(time.Microsecond), fault)
				r, err := c.Post(t.Context(), d)
				if err == nil || len(r.Parts) != i+1 || r.Ref != r.Parts[0] || len(durable) != i+1 {
					t.Fatalf("receipt %+v, error %v, durable %v, want %d parts", r, err, durable, i+1)
				}
				d.Parts, d.At = r.Parts, d.At.Add(-time.Hour) // late by now: the split must not shift
			}
			r := post(t, c, d)
			if len(r.Parts) != 4 || len(durable) != 3 {
				t.Errorf("receipt %+v, durable %v, want four and three", r, durable)
			}
			var got strings.Builder
			for i, m := range wantThread(t, s, 4) {
				if m.TS != r.Parts[i] {
					t.Errorf("part %d is %s, receipt says %s", i, m.TS, r.Parts[i])
				}
				_, body, _ := strings.Cut(m.Text, "\n")
				got.WriteString(body)
			}
			if got.String() != d.Event.Text {
				t.Error("the text is not complete")
			}
			d.Parts = r.Parts
			if r := post(t, c, d); len(r.Parts) != 4 || len(s.Messages(channelstest.SlackRoom)) != 4 {
				t.Error("a delivery with all its parts was posted again")
			}
		})
	}
}

func TestP3_PartThatCannotBeRecordedStops(t *testing.T) {
	s := newSlack(t)
	d := question(strings.Repeat("x", 5000))
	full := errors.New("disk full")
	d.OnPart = func(string) error { return full }
	r, err := newChannel(t, s).Post(t.Context(), d)
	var u *channels.Uncertain
	if !errors.As(err, &u) || !errors.Is(err, full) || len(r.Parts) != 1 {
		t.Errorf("receipt %+v, error %v, want an *Uncertain after one part", r, err)
	}
	wantThread(t, s, 1)
}

func TestP10_DamagedBindingsAreSetAside(t *testing.T) {
	for name, bytes := range map[string]string{
		"torn": `{"version":1,"thre`, "empty": "", "null": "null", "array": "[]", "null threads": `{"threads":null}`,
		"threads": `{"version":1,"threads":[]}`, "version": `{"version":"one"}`,
	} {
		t.Run(name, func(t *testing.T) {
			s := newSlack(t)
			c := newChannel(t, s)
			path := writeBindings(t, c, bytes)
			post(t, c, question("A or B?"))
			post(t, c, question("A or B?"))
			wantThread(t, s, 2)
			aside, _ := filepath.Glob(path + ".corrupt-*")
			if len(aside) != 1 {
				t.Fatalf("set aside: %v, want one file", aside)
			}
			if kept, _ := os.ReadFile(aside[0]); string(kept) != bytes {
				t.Errorf("kept %q, want %q", kept, bytes)
			}
		})
	}
}

func TestP10_NewerBindingsAreLeftAlone(t *testing.T) {
	s := newSlack(t)
	c := newChannel(t, s)
	const newer = `{"version":2,"threads":{"github:o/r#7":"?"}}`
	path := writeBindings(t, c, newer)
	post(t, c, question("A or B?"))
	if b, _ := os.ReadFile(path); string(b) != newer {
		t.Errorf("bindings are now %s", b)
	}
}

func TestThread_UnknownKeysAreKept(t *testing.T) {
	c := newChannel(t, newSlack(t))
	path := writeBindings(t, c, `{"version":1,"new":{"n":1.50},"threads":{
		"github:o/r#7":{"conversation":"C-other","ts":"1.1","pinned":true}, "local:x#1":{"ts":7}, "local:x#2":3}}`)
	r := post(t, c, question("A or B?"))
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var f struct {
		Version int
		New     struct{ N json.Number }
		Threads map[string]any
	}
	if err := json.Unmarshal(b, &f); err != nil {
		t.Fatal(err)
	}
	row := f.Threads["github:o/r#7"].(map[string]any)
	if row["ts"] != r.Ref || row["pinned"] != true || row["conversation"] != channelstest.SlackRoom {
		t.Errorf("row %v, want ts %s and what was there", row, r.Ref)
	}
	if f.Version != 1 || f.New.N != "1.50" || len(f.Threads) != 3 || f.Threads["local:x#2"] != 3.0 {
		t.Errorf("file is now %s", b)
	}
}

func TestF09_BindingsThatCannotBeWrittenStopNothing(t *testing.T) {
	s := newSlack(t)
	var log strings.Builder
	c := newChannel(t, s, func(o *Options) {
		o.Log = slog.New(slog.NewTextHandler(&log, nil))
		o.Root = o.Root.WithSteps(func(op state.Op, path string) error {
			if op == state.OpRead {
				return nil
			}
			return &os.PathError{Op: string(op), Path: path, Err: os.ErrPermission}
		})
	})
	d := question("A or B?")
	post(t, c, d)
	if len(s.Messages(channelstest.SlackRoom)) != 1 {
		t.Error("the message is not there")
	}
	if n := strings.Count(log.String(), "\n"); n != 1 || !strings.Contains(log.String(), d.Event.ID) {
		t.Errorf("log %q, want one line with the id", log.String())
	}
}

func post(t *testing.T, c *Channel, d channels.Delivery) channels.Receipt {
	t.Helper()
	r, err := c.Post(t.Context(), d)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func writeBindings(t *testing.T, c *Channel, text string) (path string) {
	t.Helper()
	path = c.threads.doc.Path()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
