package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"the-loop/internal/eventlog"
	"the-loop/internal/questions"
	"the-loop/outbox"
	"the-loop/state"
)

// Whatever operation of the disk fails, a question that cannot be kept is not
// asked, and what is said is what the system says, and what to do.
func TestF09_AQuestionThatCannotBeKeptIsNotAsked(t *testing.T) {
	for cause, hint := range map[error]string{
		syscall.ENOSPC:       "make room for ROOT, and run the same again",
		syscall.EDQUOT:       "make room for ROOT, and run the same again",
		syscall.EROFS:        "let ROOT be written, or name another folder (state.root, THE_LOOP_STATE)",
		syscall.EACCES:       "let ROOT be written, or name another folder (state.root, THE_LOOP_STATE)",
		state.ErrLockTimeout: "run the same again",
	} {
		for _, again := range []bool{false, true} {
			failed := 0
			for n := 0; n <= failed; n++ {
				root, err := state.Open(filepath.Join(t.TempDir(), "root"))
				if err != nil {
					t.Fatal(err)
				}
				left := n
				d := &deployment{root: root.WithSteps(func(op state.Op, path string) error {
					turn := strings.HasPrefix(filepath.Base(path), ".0") && strings.HasSuffix(path, ".lock")
					if left--; left >= 0 || turn { // without that lock it is kept all the same
						return nil
					}
					return &fs.PathError{Op: string(op), Path: path, Err: cause}
				})}
				o, err := d.openQuestion(context.Background(), asked{again: again, Question: questions.Question{
					ID: state.NewID(), WorkItem: "local:a#1", Text: "Ship it?", AskedAt: time.Now(),
				}})
				if err == nil {
					o.release()
					break
				}
				failed++
				var f *failure
				if !errors.As(err, &f) || f.code != exitDidNotHappen || o.send || o.record ||
					!strings.HasPrefix(err.Error(), "the question is not asked, for it cannot be kept: ") ||
					!strings.HasSuffix(err.Error(), cause.Error()) {
					t.Errorf("%v at operation %d: %+v, %v", cause, n, o, err)
				}
				if want := strings.ReplaceAll(hint, "ROOT", root.Dir()); f != nil && f.hint != want {
					t.Errorf("%v: hint %q, want %q", cause, f.hint, want)
				}
			}
			if failed < 4 {
				t.Errorf("%v: only %d operations were failed", cause, failed)
			}
		}
	}
}

// An ask that is tried again and again on a full disk must not fill it further.
func TestAQuestionThatIsNotAskedLeavesNothingBehind(t *testing.T) {
	root, err := state.Open(filepath.Join(t.TempDir(), "root"))
	if err != nil {
		t.Fatal(err)
	}
	full := &deployment{root: root.WithSteps(func(op state.Op, path string) error {
		if op == state.OpWrite {
			return syscall.ENOSPC
		}
		return nil
	})}
	for n := range 3 {
		_, err := full.openQuestion(t.Context(), asked{Question: questions.Question{
			ID: state.NewID(), WorkItem: "local:a#1", Text: fmt.Sprint(n), AskedAt: time.Now(),
		}})
		if !errors.Is(err, syscall.ENOSPC) {
			t.Fatal(err)
		}
	}
	left, err := os.ReadDir(root.Path("questions"))
	if err != nil || len(left) != 1 { // the folder's lock
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// What died before it had written down that it was sent is told by the log: only
// what all channels refused, and no outbox keeps, has been nowhere.
func TestWasPublishedIsWhatSomebodyMayHave(t *testing.T) {
	root, err := state.Open(filepath.Join(t.TempDir(), "root"))
	if err != nil {
		t.Fatal(err)
	}
	d := &deployment{root: root, log: eventlog.New(root, nil), store: outbox.Open(root, outbox.Options{})}
	room := []string{"room"}
	for id, tt := range map[string]struct {
		logs func(eventlog.Subject) error
		want bool
	}{
		"unheard-of": {func(eventlog.Subject) error { return nil }, false},
		"refused": {func(s eventlog.Subject) error {
			return d.log.Published(t.Context(), s, nil, room, "yes")
		}, false},
		"taken": {func(s eventlog.Subject) error {
			return d.log.Published(t.Context(), s, room, room, "yes")
		}, true},
		"nobody-owed": {func(s eventlog.Subject) error {
			return d.log.Published(t.Context(), s, nil, nil, "yes")
		}, true},
		"uncertain": {func(s eventlog.Subject) error {
			return errors.Join(d.log.Uncertain(t.Context(), s, "room", "timeout"),
				d.log.Published(t.Context(), s, nil, room, "yes"))
		}, true},
		"queued-once": {func(s eventlog.Subject) error {
			return errors.Join(d.log.Undelivered(t.Context(), s, room, "room: dropped since"),
				d.log.Published(t.Context(), s, nil, room, "yes"))
		}, true},
	} {
		if err := tt.logs(eventlog.Subject{EntryID: id}); err != nil {
			t.Fatal(err)
		}
		if got := d.wasPublished(id); got != tt.want {
			t.Errorf("%s: published %v, want %v", id, got, tt.want)
		}
	}
}
