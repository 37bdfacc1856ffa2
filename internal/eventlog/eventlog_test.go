package eventlog_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"the-loop/channels"
	"the-loop/internal/eventlog"
	"the-loop/state"
)

func open(t *testing.T) *state.Root {
	t.Helper()
	root, err := state.Open(filepath.Join(t.TempDir(), "root"))
	if err != nil {
		t.Fatal(err)
	}
	return root
}

// writers are the methods that write a line: all that return just an error.
func writers(l *eventlog.Log) map[string]reflect.Value {
	out := map[string]reflect.Value{}
	v := reflect.ValueOf(l)
	for i := range v.NumMethod() {
		m := v.Method(i)
		if m.Type().NumOut() == 1 && m.Type().Out(0) == reflect.TypeFor[error]() {
			out[v.Type().Method(i).Name] = m
		}
	}
	return out
}

// call gives a method a context and, for each other parameter, something in
// which a line could break.
func call(ctx context.Context, m reflect.Value) error {
	const odd = "a\nb\u2028\"\xff\x00c"
	args := make([]reflect.Value, m.Type().NumIn())
	for i := range args {
		switch in := m.Type().In(i); in {
		case reflect.TypeFor[context.Context]():
			args[i] = reflect.ValueOf(ctx)
		case reflect.TypeFor[eventlog.Subject]():
			args[i] = reflect.ValueOf(eventlog.Subject{EntryID: "A", EventType: "a.b", WorkItem: odd})
		case reflect.TypeFor[string]():
			args[i] = reflect.ValueOf(odd)
		case reflect.TypeFor[[]string]():
			args[i] = reflect.ValueOf([]string{odd, "x"})
		case reflect.TypeFor[int]():
			args[i] = reflect.ValueOf(3)
		case reflect.TypeFor[time.Duration]():
			args[i] = reflect.ValueOf(90 * time.Second)
		default:
			return fmt.Errorf("a parameter of type %s", in)
		}
	}
	err, _ := m.Call(args)[0].Interface().(error)
	return err
}

func TestEveryMethodWritesOneValidLine(t *testing.T) {
	root := open(t)
	methods := writers(eventlog.New(root, nil))
	if len(methods) < 15 {
		t.Fatalf("only %d methods were found", len(methods))
	}
	events := map[string]string{}
	for name, m := range methods {
		before, _ := os.ReadFile(root.Path(state.EventLog))
		if err := call(t.Context(), m); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		after, err := os.ReadFile(root.Path(state.EventLog))
		if err != nil {
			t.Fatal(err)
		}
		line := bytes.TrimPrefix(after, before)
		if !bytes.HasSuffix(line, []byte("\n")) || bytes.Count(line, []byte("\n")) != 1 || !json.Valid(line) {
			t.Errorf("%s wrote %q", name, line)
		}
		var got eventlog.Line
		dec := json.NewDecoder(bytes.NewReader(line))
		dec.DisallowUnknownFields()
		if err := dec.Decode(&got); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		levels := []string{"debug", "info", "warning", "error"}
		if got.Event == "" || !slices.Contains(levels, got.Level) || time.Since(got.At) > time.Minute {
			t.Errorf("%s: %+v", name, got)
		}
		if other, twice := events[got.Event]; twice {
			t.Errorf("%s and %s write the same event %s", name, other, got.Event)
		}
		events[got.Event] = name
	}
}

// P9: there is no way to put a message's text, a token or an address into it.
func TestP9_NoWayToPutTextIn(t *testing.T) {
	allowed := map[string]bool{
		"at": true, "event": true, "level": true, "entry_id": true, "event_type": true, "work_item": true,
		"channel": true, "channels": true, "reason": true, "code": true, "error": true, "attempts": true,
		"channels_posted": true, "recorded": true, "waited_seconds": true, "service": true, "file": true,
		"resent_as": true,
	}
	for f := range reflect.TypeFor[eventlog.Line]().Fields() {
		key, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if !allowed[key] {
			t.Errorf("Line has a field %s (%q): could it carry the text?", f.Name, key)
		}
	}
	for f := range reflect.TypeFor[eventlog.Subject]().Fields() {
		if !slices.Contains([]string{"EntryID", "EventType", "WorkItem"}, f.Name) {
			t.Errorf("Subject has a field %s", f.Name)
		}
	}
	plain := []reflect.Type{
		reflect.TypeFor[context.Context](), reflect.TypeFor[eventlog.Subject](), reflect.TypeFor[string](),
		reflect.TypeFor[[]string](), reflect.TypeFor[int](), reflect.TypeFor[time.Duration](),
	}
	for m := range reflect.TypeFor[*eventlog.Log]().Methods() {
		for i := 1; i < m.Type.NumIn(); i++ { // 0 is the receiver
			in := m.Type.In(i)
			if !slices.Contains(plain, in) {
				t.Errorf("%s takes a %s", m.Name, in)
			}
			if in == reflect.TypeFor[channels.Event]() || in == reflect.TypeFor[*channels.Event]() {
				t.Errorf("%s takes an event, text and all", m.Name)
			}
		}
	}
}

func TestLinesSayWhatHappened(t *testing.T) {
	root := open(t)
	var told bytes.Buffer
	l := eventlog.New(root, slog.New(slog.NewJSONHandler(&told, nil)))
	sub := eventlog.Subject{EntryID: "A", EventType: "work_item.done", WorkItem: "local:x#1"}
	ctx := t.Context()
	for _, err := range []error{
		l.Asked(ctx, sub, 0),
		l.DeliveredLate(ctx, sub, "slack", 3, 90*time.Second),
		l.Evicted(ctx, sub),
		l.ConfigRefused(ctx, "poller"),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	var got []eventlog.Line
	if err := eventlog.Read(root, func(l eventlog.Line) bool { got = append(got, l); return true }); err != nil {
		t.Fatal(err)
	}
	if len(got) != 4 || got[0].ChannelsPosted == nil || *got[0].ChannelsPosted != 0 ||
		got[1].WaitedSeconds != 90 || got[1].Attempts != 3 || got[1].Channel != "slack" || got[1].EntryID != "A" ||
		got[2].Event != "channel.undelivered_dropped" || got[2].Level != "warning" || got[3].Level != "error" {
		t.Errorf("%+v", got)
	}
	for _, want := range []string{`"entry_id":"A"`, `"level":"WARN"`, `"level":"ERROR"`, `"waited_seconds":90`} {
		if !strings.Contains(told.String(), want) {
			t.Errorf("the logger was not told %s:\n%s", want, told.String())
		}
	}
}

func TestNoLogAndTheZeroLogWriteNowhere(t *testing.T) {
	for _, l := range []*eventlog.Log{nil, {}} {
		for name, m := range writers(l) {
			if err := call(t.Context(), m); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}

func TestALineThatCannotBeWrittenIsSaid(t *testing.T) {
	var told bytes.Buffer
	broken := open(t).WithSteps(func(state.Op, string) error { return syscall.ENOSPC })
	l := eventlog.New(broken, slog.New(slog.NewTextHandler(&told, nil)))
	if err := l.Dropped(t.Context(), eventlog.Subject{EntryID: "A"}); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("%v", err)
	}
	if !strings.Contains(told.String(), "event log cannot be written") || !strings.Contains(told.String(), "entry_id=A") {
		t.Errorf("the logger was told %s", told.String())
	}
}

func TestOnlyWhatMustBeIsDurable(t *testing.T) {
	durable := map[string]bool{}
	for name := range writers(&eventlog.Log{}) {
		root := open(t)
		m := writers(eventlog.New(root.WithSteps(func(op state.Op, _ string) error {
			durable[name] = durable[name] || op == state.OpSync
			return nil
		}), nil))[name]
		if err := call(t.Context(), m); err != nil {
			t.Fatal(err)
		}
	}
	for name, is := range durable {
		if is != (name == "Evicted") {
			t.Errorf("%s waits for the disk: %v", name, is)
		}
	}
}

func TestReadPassesOverWhatItCannotRead(t *testing.T) {
	root := open(t)
	l := eventlog.New(root, nil)
	for _, line := range []string{"no JSON", "{}", "null", `{"event":"from a newer version","level":"info","new":1}`} {
		if err := root.Log(state.EventLog).Append(t.Context(), []byte(line)); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.Service(t.Context(), "poller", "started"); err != nil {
		t.Fatal(err)
	}
	var got []string
	if err := eventlog.Read(root, func(l eventlog.Line) bool { got = append(got, l.Event); return true }); err != nil {
		t.Fatal(err)
	}
	if want := []string{"from a newer version", "service.started"}; !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
}

func TestFollowGivesWhatIsAdded(t *testing.T) {
	root := open(t)
	l := eventlog.New(root, nil)
	if err := l.Service(t.Context(), "poller", "started"); err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		var got []string
		done := make(chan error, 1)
		go func() {
			done <- eventlog.Follow(ctx, root, func(l eventlog.Line) bool { got = append(got, l.Event); return true })
		}()
		synctest.Wait()
		if err := l.Service(ctx, "poller", "stopped"); err != nil {
			t.Error(err)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		cancel()
		if err := <-done; err != nil || !slices.Equal(got, []string{"service.started", "service.stopped"}) {
			t.Errorf("%q, %v", got, err)
		}
	})
}
