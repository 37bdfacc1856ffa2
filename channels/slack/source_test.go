package slack

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"the-loop/channels"
	"the-loop/channels/channelstest"
	"the-loop/internal/reader"
)

var _ reader.Source = (*Source)(nil)

// reading is one thread with a question, read by a source.
type reading struct {
	t      *testing.T
	s      *channelstest.Slack
	c      *Channel
	source *Source
	asked  channels.Delivery
	root   string
	log    bytes.Buffer
	place  reader.ReadPlace
	cursor json.RawMessage
	calls  []string // what before was asked for
}

func newReading(t *testing.T) *reading {
	r := &reading{t: t, s: newSlack(t), asked: inquiry("Ship it?")}
	r.c = newChannel(t, r.s, func(o *Options) { o.Log = slog.New(slog.NewTextHandler(&r.log, nil)) })
	r.source = NewSource(r.c)
	r.root = post(t, r.c, r.asked).Ref
	places := r.source.Places([]reader.Watched{{WorkItem: "github:o/r#7", Open: true}})
	if len(places) != 1 {
		t.Fatalf("places: %+v", places)
	}
	r.place = places[0]
	return r
}

func (r *reading) before(_ context.Context, method string) error {
	r.calls = append(r.calls, method)
	return nil
}

// read reads once and moves the cursor, as the reader does.
func (r *reading) read() (texts string, err error) {
	r.t.Helper()
	ms, next, err := r.source.Read(r.t.Context(), r.place, r.cursor, r.before)
	if len(next) > 0 {
		r.cursor = next
	}
	var all []string
	for _, m := range ms {
		all = append(all, m.Text)
	}
	channelstest.NoLeak(r.t, channels.Receipt{}, err, channelstest.SlackToken)
	return strings.Join(all, " "), err
}

func (r *reading) want(want string) {
	r.t.Helper()
	if got, err := r.read(); err != nil || got != want {
		r.t.Errorf("read %q, %v, want %q", got, err, want)
	}
}

func (r *reading) reply(text string) channelstest.SlackMessage {
	return r.s.Reply(room, r.root, "U7", text)
}

func TestSource_APlaceForEachThreadThatIsWatched(t *testing.T) {
	s := newSlack(t)
	c := newChannel(t, s)
	first := post(t, c, about("github:o/r#7", "A or B?"))
	post(t, c, about("github:o/r#8", "C or D?"))
	s.AddRoom("C9")
	c9 := newChannel(t, s, func(o *Options) { o.Name, o.Channel, o.Root = "nine", "C9", c.o.Root })
	third := post(t, c9, about("github:o/r#7", "E or F?"))
	if err := c.threads.move(t.Context(), "local:x#1", "", first.Ref); err != nil { // two items, one thread
		t.Fatal(err)
	}
	source := NewSource(c, c9)
	items := []reader.Watched{{WorkItem: "github:o/r#7"}, {WorkItem: "local:x#1"}, {WorkItem: "local:none#1"}}
	places := source.Places(items)
	if len(places) != 2 ||
		places[0].Key != "slack:C0123456:"+first.Ref || places[1].Key != "slack:C9:"+third.Ref ||
		!slices.Equal(places[0].WorkItems, []string{"github:o/r#7", "local:x#1"}) ||
		!slices.Equal(places[1].WorkItems, []string{"github:o/r#7"}) {
		t.Errorf("got %+v", places)
	}
	if source.Name() != "slack" || len(source.Places(nil)) > 0 {
		t.Error("there is a place that nobody watches")
	}
	s.Reply("C9", third.Ref, "U7", "yes")
	ms, _, err := source.Read(t.Context(), places[1], nil, func(context.Context, string) error { return nil })
	if err != nil || len(ms) != 1 || ms[0].Channel != "nine" || ms[0].Place.Conversation != "C9" {
		t.Errorf("read %+v, %v", ms, err)
	}
	for _, key := range []string{"slack:C5:" + first.Ref, "slack:C9:soon", "github:o/r"} {
		place := reader.ReadPlace{Key: key, WorkItems: []string{"github:o/r#7"}}
		if _, _, err := source.Read(t.Context(), place, nil, nil); err == nil {
			t.Errorf("%s was read", key)
		}
	}
}

func TestSource_RepliesAreReadOnceEachAndInOrder(t *testing.T) {
	r := newReading(t)
	r.want("")
	if want := fmt.Sprintf(`{"after":%q}`, r.root); string(r.cursor) != want {
		t.Errorf("cursor %s, want %s", r.cursor, want)
	}
	for _, text := range []string{"1", "2", "3", "4", "5"} {
		r.reply(text)
	}
	r.s.Reply(room, "", "U7", "in the room")
	r.s.LimitPages(2)
	r.want("1 2 3 4 5")
	r.want("")
	last := r.reply("6")
	r.want("6")
	r.want("")
	if want := fmt.Sprintf(`{"after":%q}`, last.TS); string(r.cursor) != want {
		t.Errorf("cursor %s, want %s", r.cursor, want)
	}
	r.cursor = nil // from the beginning
	r.want("1 2 3 4 5 6")
	r.cursor = json.RawMessage(`{"after":"soon"}`) // as good as none
	r.want("1 2 3 4 5 6")
	form := r.s.Forms("conversations.replies")[0]
	if form.Get("include_all_metadata") != "1" || form.Get("oldest") != r.root || form.Get("inclusive") != "0" {
		t.Errorf("asked for %v", form)
	}
}

func TestSource_MessagesAreWhole(t *testing.T) {
	r := newReading(t)
	reply := r.reply("a &lt; b")
	edited := r.reply("no")
	r.s.Edit(room, edited.TS, "yes")
	other := inquiry("And this?")
	post(t, r.c, other)
	ms, _, err := r.source.Read(t.Context(), r.place, nil, r.before)
	if err != nil || len(ms) != 3 {
		t.Fatalf("read %+v, %v", ms, err)
	}
	m := ms[0]
	if m.Key != "slack:"+room+":"+reply.TS || m.WorkItem != "github:o/r#7" || m.Place.Thread != r.root ||
		m.From != (channels.Author{ID: "U7", Person: true}) || m.Text != "a < b" || m.Edited || m.Mark != nil {
		t.Errorf("the reply is %+v", m)
	}
	if !ms[1].Edited || ms[1].Text != "yes" {
		t.Errorf("the edited one is %+v", ms[1])
	}
	mark := channels.Mark{ID: other.Event.ID, Code: "7K2", Ours: true}
	if m := ms[2]; !m.From.Us || m.From.Person || m.Mark == nil || *m.Mark != mark {
		t.Errorf("our own is %+v, marked %+v", m.From, m.Mark)
	}
}

// The budget is asked before every request, and its no is final.
func TestSource_NoRequestWithoutTheBudget(t *testing.T) {
	r := newReading(t)
	r.reply("1")
	r.reply("2")
	r.s.LimitPages(1)
	r.want("1 2")
	// The root is a page of its own.
	want := []string{"auth.test", "conversations.replies", "conversations.replies", "conversations.replies"}
	if !slices.Equal(r.calls, want) {
		t.Errorf("asked for %v, want %v", r.calls, want)
	}
	sent := len(r.s.Requests())
	spent := errors.New("spent")
	r.cursor = nil
	ms, next, err := r.source.Read(t.Context(), r.place, nil, func(context.Context, string) error { return spent })
	if !errors.Is(err, spent) || len(ms) > 0 || next != nil || len(r.s.Requests()) != sent {
		t.Errorf("got %v, %s, %v after %d more requests", ms, next, err, len(r.s.Requests())-sent)
	}
}

func TestL08_RateLimitIsARefusalWithItsWait(t *testing.T) {
	r := newReading(t)
	r.want("")
	r.s.Queue(channelstest.Answer(429, `{"ok":false,"error":"ratelimited"}`, "Retry-After: 17"))
	_, err := r.read()
	if refusal := wantRefusal(t, err, channels.ReasonRate, "ratelimited"); refusal.RetryAfter != 17*time.Second {
		t.Errorf("wait %s", refusal.RetryAfter)
	}
}

// What came before the page that failed is given. The cursor moves when the
// order is proven, and never past what was not read.
func TestSource_WhatCameBeforeAFailureIsKept(t *testing.T) {
	r := newReading(t)
	var ts []string
	for i := range 6 {
		ts = append(ts, r.reply(fmt.Sprint(i)).TS)
	}
	r.s.LimitPages(2)
	r.want("0 1 2 3 4 5")
	for pages, tt := range map[int]struct{ texts, cursor string }{
		0: {"", ""},
		1: {"0", ""},
		2: {"0 1 2", ts[2]},
		3: {"0 1 2 3 4", ts[4]},
	} {
		r.cursor = nil
		r.calls = nil
		fail := func(ctx context.Context, method string) error {
			if len(r.calls) == pages {
				r.s.Queue(channelstest.Answer(500, ""))
			}
			return r.before(ctx, method)
		}
		ms, next, err := r.source.Read(t.Context(), r.place, nil, fail)
		var texts []string
		for _, m := range ms {
			texts = append(texts, m.Text)
		}
		want := ""
		if tt.cursor != "" {
			want = fmt.Sprintf(`{"after":%q}`, tt.cursor)
		}
		if err == nil || strings.Join(texts, " ") != tt.texts || string(next) != want {
			t.Errorf("after %d pages: %v, %s, %v; want %s and %s", pages, texts, next, err, tt.texts, want)
		}
		r.cursor = next
		if rest, err := r.read(); err != nil || !strings.HasSuffix("0 1 2 3 4 5", rest) || rest == "" {
			t.Errorf("after %d pages the rest is %q, %v", pages, rest, err)
		}
	}
}

func TestSource_AThreadThatIsGoneIsSaidOnce(t *testing.T) {
	r := newReading(t)
	r.reply("1")
	r.want("1")
	cursor := string(r.cursor)
	r.s.Delete(room, r.root)
	for range 3 {
		r.want("")
	}
	if string(r.cursor) != cursor {
		t.Errorf("cursor %s, want %s", r.cursor, cursor)
	}
	if n := strings.Count(r.log.String(), "the thread is gone"); n != 1 {
		t.Errorf("said %d times", n)
	}
}

func TestSource_ADeletedRootStillHasReplies(t *testing.T) {
	r := newReading(t)
	r.reply("1")
	r.s.Bury(room, r.root)
	r.want("1")
}

// A page with something in it that is no message of ours to read.
func TestSource_OneBadMessageCostsNoOther(t *testing.T) {
	r := newReading(t)
	r.want("")
	page := `{"ok":true,"messages":[{"ts":"9000000000.000001","user":"U7","text":"1"},{"user":"U7","text":"no ts"},
		{"ts":"9000000000.000002","user":"U7","text":"2","edited":"strange","metadata":[]}],"has_more":false}`
	r.s.Queue(channelstest.Answer(200, page))
	r.want("1 2")
}

func TestSource_WhatIsNoPageProvesNothing(t *testing.T) {
	r := newReading(t)
	r.reply("1")
	r.want("1")
	cursor := string(r.cursor)
	r.reply("2")
	for name, fault := range map[string]channelstest.Fault{
		"no list":   channelstest.Answer(200, `{"ok":true}`),
		"html":      channelstest.Answer(200, `<html>`),
		"no cursor": channelstest.Answer(200, `{"ok":true,"messages":[],"has_more":true}`),
		"cut off":   channelstest.DropRead(),
		"scope":     channelstest.SlackError("missing_scope"),
	} {
		r.s.Queue(fault)
		if got, err := r.read(); err == nil || got != "" || string(r.cursor) != cursor {
			t.Errorf("%s: read %q, %v, cursor %s", name, got, err, r.cursor)
		}
	}
	r.want("2")
}
