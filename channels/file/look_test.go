package file_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"the-loop/channels"
	"the-loop/channels/channelstest"
	"the-loop/channels/file"
	"the-loop/state"
)

func look(t *testing.T, c *file.Channel, d channels.Delivery) (channels.Sighting, error) {
	t.Helper()
	var w channels.Witness = c
	return w.Look(t.Context(), d, d.At)
}

func wantSighting(t *testing.T, c *file.Channel, d channels.Delivery, want channels.Sighting) {
	t.Helper()
	got, err := look(t, c, d)
	if err != nil || got.Whole != want.Whole || got.Complete != want.Complete || !slices.Equal(got.Found, want.Found) {
		t.Errorf("saw %+v, error %v, want %+v", got, err, want)
	}
}

func seen(d channels.Delivery) channels.Sighting {
	return channels.Sighting{Found: []string{d.Event.ID}, Whole: true}
}

func encode(t *testing.T, d channels.Delivery) string {
	t.Helper()
	line, err := d.Event.Encode()
	if err != nil {
		t.Fatal(err)
	}
	return string(line)
}

// The line stands there and its fsync failed: uncertain, and found.
func TestD01_LookFindsTheLineThatWasNotConfirmed(t *testing.T) {
	broken := true
	root := openRoot(t).WithSteps(func(op state.Op, _ string) error {
		if broken && op == state.OpSync {
			return syscall.EIO
		}
		return nil
	})
	room := file.New("room", "room.jsonl", root)
	d := channelstest.Delivery("A or B?")
	_, err := room.Post(t.Context(), d)
	checkVerdict(t, err, "eio", "")
	broken = false
	wantSighting(t, room, d, seen(d))
	wantSighting(t, room, channelstest.Delivery("another"), channels.Sighting{Complete: true})
}

func TestLook_WholeLinesOfThatIDOnly(t *testing.T) {
	root := openRoot(t)
	room, path := file.New("room", "room.jsonl", root), root.Path("room.jsonl")
	d, other := channelstest.Delivery("A or B?"), channelstest.Delivery("C or D?")
	other.Event.Text = "about " + d.Event.ID
	other.Event.Detail = map[string]any{"id": d.Event.ID}
	line, nothing := encode(t, d), channels.Sighting{Complete: true}
	for name, tt := range map[string]struct {
		text string
		want channels.Sighting
	}{
		"empty":                {"", nothing},
		"alone":                {line + "\n", seen(d)},
		"among others":         {encode(t, other) + "\n\nnot json\n" + line + "\n" + encode(t, other) + "\n", seen(d)},
		"only named":           {encode(t, other) + "\n", nothing},
		"torn":                 {line[:len(line)-1], nothing},
		"torn, then ended":     {line[:len(line)-1] + "\n", nothing},
		"its break is to come": {encode(t, other) + "\n" + line, channels.Sighting{}},
		"another's break":      {line + "\n" + encode(t, other), seen(d)},
		"another's is to come": {encode(t, other), nothing},
	} {
		t.Run(name, func(t *testing.T) {
			writeFile(t, path, tt.text)
			wantSighting(t, room, d, tt.want)
		})
	}
}

// An id that JSON does not write as it is.
func TestLook_StrangeID(t *testing.T) {
	room := file.New("room", "room.jsonl", openRoot(t))
	d := channelstest.Delivery("A or B?")
	d.Event.ID = "a\"b\\\x01Ж"
	if _, err := room.Post(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	wantSighting(t, room, d, seen(d))
	d.Event.ID = ""
	if s, err := look(t, room, d); err == nil {
		t.Errorf("no id: saw %+v and no error", s)
	}
}

func TestLook_NoOtherFile(t *testing.T) {
	root := openRoot(t)
	room, path := file.New("room", "room.jsonl", root), root.Path("room.jsonl")
	d := channelstest.Delivery("A or B?")
	writeFile(t, path+".1", encode(t, d)+"\n")
	wantSighting(t, room, d, channels.Sighting{Complete: true})
	if entries, err := os.ReadDir(root.Dir()); err != nil || len(entries) != 1 {
		t.Errorf("looking left %v, %v", entries, err)
	}
}

func TestLook_PathThatIsNoFile(t *testing.T) {
	for name, block := range map[string]func(path string) error{
		"folder": func(path string) error { return os.Mkdir(path, 0o700) },
		"pipe":   func(path string) error { return syscall.Mkfifo(path, 0o600) },
		"device": func(path string) error { return os.Symlink("/dev/null", path) },
		"loop":   func(path string) error { return os.Symlink(path, path) },
		"folder is a file": func(path string) error {
			return errors.Join(os.Remove(filepath.Dir(path)), os.WriteFile(filepath.Dir(path), nil, 0o600))
		},
	} {
		t.Run(name, func(t *testing.T) {
			root := openRoot(t)
			path := root.Path("rooms/room.jsonl")
			if err := errors.Join(os.Mkdir(filepath.Dir(path), 0o700), block(path)); err != nil {
				t.Fatal(err)
			}
			s, err := look(t, file.New("room", "rooms/room.jsonl", root), channelstest.Delivery("A or B?"))
			checkVerdict(t, err, "not_a_file", channels.ReasonConfig)
			if s.Complete || len(s.Found) > 0 {
				t.Errorf("saw %+v", s)
			}
		})
	}
}

func TestLook_LockThatCannotBeHadProvesNothing(t *testing.T) {
	for _, failure := range []error{syscall.EACCES, syscall.EIO, state.ErrLockTimeout} {
		root := openRoot(t).WithSteps(func(op state.Op, _ string) error {
			if op == state.OpLock {
				return failure
			}
			return nil
		})
		d := channelstest.Delivery("A or B?")
		writeFile(t, root.Path("room.jsonl"), encode(t, d)+"\n")
		s, err := look(t, file.New("room", "room.jsonl", root), d)
		var r *channels.Refusal
		if !errors.Is(err, failure) || errors.As(err, &r) || s.Complete || len(s.Found) > 0 {
			t.Errorf("saw %+v, error %v, want %v and nothing", s, err, failure)
		}
	}
}

// How far the file goes is not settled while somebody is writing.
func TestLook_WaitsForWhoeverHoldsTheLock(t *testing.T) {
	root := openRoot(t)
	atLock := make(chan struct{}, 1)
	room := file.New("room", "room.jsonl", root.WithSteps(func(op state.Op, _ string) error {
		if op == state.OpLock {
			atLock <- struct{}{}
		}
		return nil
	}))
	d := channelstest.Delivery("A or B?")
	writeFile(t, root.Path("room.jsonl"), "")
	sighting := make(chan channels.Sighting, 1)
	err := root.Document("room.jsonl").Update(t.Context(), func(*state.Tx) error {
		go func() {
			s, err := room.Look(t.Context(), d, d.At)
			if err != nil {
				t.Error(err)
			}
			sighting <- s
		}()
		select {
		case <-atLock:
		case s := <-sighting:
			t.Errorf("saw %+v past the lock", s)
			sighting <- s
		}
		writeFile(t, root.Path("room.jsonl"), encode(t, d)+"\n")
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	if s := <-sighting; !s.Whole {
		t.Errorf("saw %+v, want what was written before the lock was free", s)
	}
}

func TestLook_CancelledWhileReading(t *testing.T) {
	root := openRoot(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	room := file.New("room", "room.jsonl", root.WithSteps(func(op state.Op, _ string) error {
		if op == state.OpLock {
			cancel()
		}
		return nil
	}))
	d := channelstest.Delivery("A or B?")
	writeFile(t, root.Path("room.jsonl"), "{}\n"+encode(t, d)+"\n")
	if s, err := room.Look(ctx, d, d.At); !errors.Is(err, context.Canceled) || len(s.Found) > 0 || s.Complete {
		t.Errorf("saw %+v, error %v, want context.Canceled", s, err)
	}
}
