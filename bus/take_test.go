package bus_test

import (
	"encoding/json"
	"strings"
	"testing"

	"the-loop/bus"
	"the-loop/channels"
)

func TestBadBytesAreReplacedAndSaid(t *testing.T) {
	const note = "what was not valid UTF-8 text, or NUL, was replaced by \uFFFD"
	for name, tt := range map[string]struct {
		ev   channels.Event
		want string // part of the event's JSON
	}{
		"text":         {channels.Event{Text: "a\xffb\x00c"}, `"text":"a` + "\uFFFDb\uFFFDc" + `"`},
		"summary":      {channels.Event{Summary: "\xc3"}, `"summary":"` + "\uFFFD" + `"`},
		"url":          {channels.Event{URL: "http://x/\x00"}, `"url":"http://x/` + "\uFFFD" + `"`},
		"source":       {channels.Event{Source: "c\x00"}, `"source":"c` + "\uFFFD" + `"`},
		"detail":       {channels.Event{Detail: map[string]any{"k": "\xff"}}, `"k":"` + "\uFFFD" + `"`},
		"detail's NUL": {channels.Event{Detail: map[string]any{"k": []any{"\x00"}}}, `"k":["` + "\uFFFD" + `"]`},
		"detail's key": {channels.Event{Detail: map[string]any{"a": map[string]any{"\x00": 1}}}, `{"` + "\uFFFD" + `":1}`},
		"strings":      {channels.Event{Detail: map[string]any{"k": []string{"\xff"}}}, `["` + "\uFFFD" + `"]`},
		"string map": {
			channels.Event{Detail: map[string]any{"k": map[string]string{"a": "\xff"}}},
			`{"a":"` + "\uFFFD" + `"}`,
		},
		"a struct's NUL": {
			channels.Event{Detail: map[string]any{"k": struct{ A string }{"\x00"}}},
			`{"A":"` + "\uFFFD" + `"}`,
		},
		"actor": {
			channels.Event{Actor: &channels.Actor{Name: "O\xff", IDs: map[string]string{"slack": "U\x00"}}},
			`"actor":{"ids":{"slack":"U` + "\uFFFD" + `"},"name":"O` + "\uFFFD" + `"}`,
		},
	} {
		c := &fake{name: "room"}
		b := bus.Bus{Routes: []bus.Route{all(c)}}
		tt.ev.Type = "job.failed"
		res := b.Publish(t.Context(), tt.ev)
		if res.Err != nil || len(res.Notes) != 1 || res.Notes[0] != note {
			t.Errorf("%s: error %v, notes %q", name, res.Err, res.Notes)
			continue
		}
		raw, err := c.got[0].Event.Encode()
		if err != nil || !strings.Contains(string(raw), tt.want) || strings.Contains(string(raw), `\u0000`) {
			t.Errorf("%s: sent %s, want %s in it (%v)", name, raw, tt.want, err)
		}
	}
}

func TestCleanEventIsTakenWithoutANote(t *testing.T) {
	ev := channels.Event{
		Type: "job.failed", Text: "\uFFFD is a letter too", Detail: map[string]any{"k": "\uFFFD", "": nil},
		Actor: &channels.Actor{Name: "Octo"},
	}
	b := bus.Bus{}
	if res := b.Publish(t.Context(), ev); res.Err != nil || len(res.Notes) > 0 {
		t.Errorf("error %v, notes %q", res.Err, res.Notes)
	}
	ev.Type = "joob.failed"
	if res := b.Publish(t.Context(), ev); res.Err != nil || len(res.Notes) != 1 {
		t.Errorf("an unknown type: error %v, notes %q", res.Err, res.Notes)
	}
}

func TestTheCallersEventIsLeftAlone(t *testing.T) {
	inner := map[string]any{"k": "\x00"}
	ev := channels.Event{Type: "job.failed", Detail: map[string]any{"in": inner}, Actor: &channels.Actor{Name: "\x00"}}
	b := bus.Bus{}
	b.Publish(t.Context(), ev)
	if ev.ID != "" || ev.Detail["in"].(map[string]any)["k"] != "\x00" || ev.Actor.Name != "\x00" {
		t.Errorf("changed: %+v", ev)
	}
}

func TestDetailKeepsItsValuesDigitForDigit(t *testing.T) {
	c := refusing("room", channels.ReasonDown, "refused")
	s := newSite(t, all(c))
	type pair struct {
		B string `json:"b"`
		A int    `json:"a"`
	}
	res := s.bus.Publish(t.Context(), channels.Event{Type: "job.failed", Detail: map[string]any{
		"big": int64(9007199254740993), "raw": json.RawMessage(`{"z":1.50,"y":1e400}`),
		"nested": []any{map[string]any{"deep": pair{"<&>", -1}}, nil, true, 0.1},
	}})
	if res.Err != nil {
		t.Fatal(res.Err)
	}
	const want = `"detail":{"big":9007199254740993,"nested":[{"deep":{"a":-1,"b":"<&>"}},null,true,0.1],` +
		`"raw":{"y":1e400,"z":1.50}}`
	sent, err := c.got[0].Event.Encode()
	if err != nil || !strings.Contains(string(sent), want) {
		t.Errorf("sent %s (%v)", sent, err)
	}
	stored, err := s.entry(t).Event()
	if err != nil {
		t.Fatal(err)
	}
	again, err := stored.Encode()
	if err != nil || string(again) != string(sent) {
		t.Errorf("first  %s\nstored %s (%v)", sent, again, err)
	}
}

type explosive struct{}

func (explosive) MarshalJSON() ([]byte, error) { panic("SECRET123") }

func TestWhatCannotBeTakenIsNeitherSentNorWritten(t *testing.T) {
	circle := map[string]any{}
	circle["self"] = circle
	detail := func(v any) channels.Event {
		return channels.Event{Type: "job.failed", Detail: map[string]any{"k": v}}
	}
	for name, ev := range map[string]channels.Event{
		"channel":      detail(make(chan int)),
		"function":     detail(func() {}),
		"circle":       detail(circle),
		"explosive":    detail(explosive{}),
		"no type":      {},
		"type":         {Type: "Job Failed"},
		"work item":    {Type: "job.failed", WorkItem: "o/r#7"},
		"long text":    {Type: "job.failed", Text: strings.Repeat("x", bus.MaxText+1)},
		"id's newline": {ID: "a\r\nx-evil: 1", Type: "job.failed"},
		"id's blank":   {ID: "a b", Type: "job.failed"},
		"long id":      {ID: strings.Repeat("x", 65), Type: "job.failed"},
	} {
		c := &fake{name: "room"}
		s := newSite(t, all(c))
		res := s.bus.Publish(t.Context(), ev)
		if res.Err == nil || c.calls() > 0 || len(files(t, s.root.Dir())) > 0 {
			t.Errorf("%s: error %v, asked %d times, created %v", name, res.Err, c.calls(), files(t, s.root.Dir()))
		}
		wantNowhere(t, s.root, "SECRET123", res)
		if len(res.Posts) > 0 || res.Queued || res.Stored || res.Lost() {
			t.Errorf("%s: %+v", name, res)
		}
		if given := s.bus.PostTo(t.Context(), ev, all(c)); given.Err == nil || c.calls() > 0 {
			t.Errorf("%s: PostTo: %v", name, given.Err)
		}
	}
}

func TestLimitOfTheTextCanBeSet(t *testing.T) {
	b := bus.Bus{MaxText: 3}
	if res := b.Publish(t.Context(), channels.Event{Type: "job.failed", Text: "abcd"}); res.Err == nil {
		t.Error("4 bytes are taken")
	}
	if res := b.Publish(t.Context(), channels.Event{Type: "job.failed", Text: "abc"}); res.Err != nil {
		t.Error(res.Err)
	}
}

func TestGivenIDIsKept(t *testing.T) {
	b := bus.Bus{}
	for _, id := range []string{"01KB3Z0000000000000000000A", "nightly-7.b_1"} {
		res := b.Publish(t.Context(), channels.Event{ID: id, Type: "job.failed"})
		if res.Err != nil || res.ID != id || res.Event.ID != id {
			t.Errorf("%s: %+v", id, res)
		}
	}
}
