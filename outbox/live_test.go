package outbox

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"the-loop/channels"
	"the-loop/state"
)

// A process that lives on, and could not store what it published, leaves its
// journal: the next cycle need not wait for its death.
func TestP6_WhatALivingPublisherCouldNotStoreIsTakenOver(t *testing.T) {
	s, root := store(t, Options{})
	full := true
	lives := Open(root.WithSteps(func(op state.Op, path string) error {
		if full && op == state.OpReplace && strings.HasSuffix(path, "undelivered.json") {
			return syscall.ENOSPC
		}
		return nil
	}), Options{})
	ev := channels.Event{ID: "e", Type: "job.failed", Text: "x"}
	publish := func() error {
		in, err := lives.Begin(t.Context(), ev, time.Now(), []Planned{{Channel: "x"}}, false)
		must(t, err)
		must(t, in.Outcome(Attempted{Channel: "x", At: time.Now(), Outcome: down()}))
		e, err := NewEntry(ev, time.Now(), []Attempted{{Channel: "x", At: time.Now(), Outcome: down()}})
		must(t, err)
		return lives.Remember(t.Context(), e, in)
	}
	if err := publish(); !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
	full = false
	wantIDs(t, s, "e") // status counts it at once
	sweep(t, s, Lane{Channel: "x"})
	if d := entryOf(t, s, "e").Deliveries["x"]; d.State != channels.StateRefused || len(journals(t, root)) != 0 {
		t.Errorf("%+v, journals %v", d, journals(t, root))
	}
	ev.ID = "f" // it goes on publishing, in a journal of its own
	must(t, publish(), lives.Close())
	wantIDs(t, s, "e", "f")
	if left := journals(t, root); len(left) != 0 {
		t.Errorf("journals %v", left)
	}
}

func TestP2_AFirstSendInTheFutureIsNotRepeated(t *testing.T) {
	s, root := store(t, Options{})
	place(t, root, state.Outbox, `{"version": 1, "pending": {"A": {"at": "2020-01-01T00:00:00Z",
		"event": {"eventType": "a.b"}, "channels": ["hook"], "deliveries": {"hook": {
		"state": "uncertain", "reason": "unknown", "attempts": 1, "firstSentAt": "2999-01-01T00:00:00Z"}}}}}`)
	for range 2 {
		sweep(t, s, Lane{Channel: "hook", DropsRepeats: time.Hour})
		if d := entryOf(t, s, "A").Deliveries["hook"]; d.State != channels.StateUncertain {
			t.Errorf("it is %s, first sent %s", d.State, d.FirstSentAt)
		}
	}
}

func TestOneUnreadableJournalCostsTheOthersNothing(t *testing.T) {
	s, root := store(t, Options{})
	dead := Open(root, Options{})
	begin(t, dead, "e", false, Planned{Channel: "x"})
	dies(dead)
	must(t, os.Mkdir(filepath.Join(root.Path(state.Sending()), "1-x.jsonl"), 0o700))
	for range 2 {
		wantIDs(t, s, "e")
		named := s.UnreadableJournals()
		if len(named) != 1 || named[0].Name != "delivery/sending/1-x.jsonl" || named[0].Err == nil {
			t.Errorf("unreadable: %v", named)
		}
		sweep(t, s, Lane{Channel: "x"})
	}
	if left := journals(t, root); len(left) != 1 {
		t.Errorf("journals %v", left)
	}
}

func TestARotatedTokenIsARecoverySaidOnce(t *testing.T) {
	s, root := store(t, Options{})
	old, fresh := Asker{Channel: "slack", Credential: "old"}, Asker{Channel: "slack", Credential: "new"}
	bad := channels.OutcomeOf(channels.Receipt{}, &channels.Refusal{Reason: channels.ReasonAuth, Code: "invalid_auth"})
	must(t, s.Observe(t.Context(), old, "a", bad))
	for range 3 {
		must(t, s.Observe(t.Context(), fresh, "b", accepted("1")))
		must(t, s.Observe(t.Context(), old, "a", bad)) // a process that was not restarted
	}
	if ok, st, err := s.MayAsk(t.Context(), old); ok || st == nil || err != nil {
		t.Errorf("the old token is asked again: %v, %+v, %v", ok, st, err)
	}
	lines := logged(t, root)
	if n := count(lines, "channel.recovered slack"); n != 1 {
		t.Errorf("recovered %d times: %v", n, lines)
	}
	if n := count(lines, "channel.failing slack"); n != 1 {
		t.Errorf("failing %d times: %v", n, lines)
	}
}
