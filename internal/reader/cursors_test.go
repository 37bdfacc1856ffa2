package reader

import (
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"the-loop/state"
)

func TestUnknownKeysOfTheFileAreKept(t *testing.T) {
	s := newSite(t, newSurface("slack", "a"))
	s.write(t, `{"version":1,"new":"top","places":{"a":{"cursor":7,"at":"2026-01-01T00:00:00Z","more":[1]},"b":{"x":{}}}}`)
	if err := s.CatchUp(t.Context()); err != nil {
		t.Fatal(err)
	}
	got := s.file(t)
	for _, want := range []string{`"new":"top"`, `"more":[1]`, `"x":{}`, `"a":{"cursor":0,`, `"version":1`} {
		if !strings.Contains(got, want) {
			t.Errorf("%s is gone: %s", want, got)
		}
	}
}

func TestP10_ADamagedFileIsSetAside(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, damaged := range []string{`{"version":1,"pla`, `null`, `[]`, `{"places":7}`, `{"places":[]}`, "\x00\x00"} {
			src := newSurface("slack", "a")
			src.say("a", "m1")
			s := newSite(t, src)
			s.write(t, damaged)
			for range 2 {
				if err := s.CatchUp(t.Context()); err != nil {
					t.Errorf("%q: %v", damaged, err)
				}
			}
			if got := s.aside(t); !slices.Equal(got, []string{damaged}) {
				t.Errorf("%q: set aside %q", damaged, got)
			}
			if !slices.Equal(s.taken(), []string{"m1"}) || !strings.Contains(s.file(t), `"a":{"cursor":1,`) {
				t.Errorf("%q: %v, %s", damaged, s.taken(), s.file(t))
			}
			if !strings.Contains(s.log.String(), "set aside") {
				t.Errorf("logged: %s", &s.log)
			}
		}
	})
}

func TestADamagedRowCostsNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := newSurface("slack", "a", "b")
		src.say("a", "m1")
		src.say("b", "m2", "m3")
		s := newSite(t, src)
		s.write(t, `{"places":{"a":[7],"b":{"cursor":1,"at":"2026-01-01T00:00:00Z"}}}`)
		if err := s.CatchUp(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := s.taken(); !slices.Equal(got, []string{"m1", "m3"}) {
			t.Errorf("taken %v", got)
		}
		if got := s.aside(t); !slices.Equal(got, []string{`{"a":[7]}`}) {
			t.Errorf("set aside: %q", got)
		}
	})
}

func TestANewerFileIsLeftAloneAndNothingIsRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := newSurface("slack", "a")
		s := newSite(t, src)
		const newer = `{"version":2,"places":[]}`
		s.write(t, newer)
		if err := s.CatchUp(t.Context()); !errors.Is(err, ErrNewer) {
			t.Errorf("%v", err)
		}
		s.Start(t.Context())
		time.Sleep(30 * time.Minute)
		s.Stop()
		if len(src.order()) != 0 || s.file(t) != newer || len(s.aside(t)) != 0 {
			t.Errorf("read %v, %s, set aside %v", src.order(), s.file(t), s.aside(t))
		}
		if got := s.State()[0]; got.LastError != ErrNewer.Error() || len(s.trouble()) != 1 {
			t.Errorf("%+v, told %v", got, s.trouble())
		}
	})
}

func TestAFileThatMayNotBeReadIsLeftAlone(t *testing.T) {
	src := newSurface("slack", "a")
	s := newSite(t)
	s.write(t, "{}")
	denied := errors.New("denied")
	s = newSiteOn(s.root.WithSteps(func(op state.Op, path string) error {
		if op == state.OpRead && strings.HasSuffix(path, "cursors.json") {
			return denied
		}
		return nil
	}), src)
	if err := s.CatchUp(t.Context()); !errors.Is(err, denied) || len(src.order()) != 0 || len(s.aside(t)) != 0 {
		t.Errorf("%v, read %v", err, src.order())
	}
}

// A cursor that could not be written is where it was: its messages come again.
func TestACursorThatCannotBeWrittenIsAFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, failing := range []state.Op{state.OpLock, state.OpCreate, state.OpWrite, state.OpSync, state.OpReplace} {
			src := newSurface("slack", "a")
			src.say("a", "m1")
			broken := errors.New("broken")
			s := newSite(t)
			fails := true
			s = newSiteOn(s.root.WithSteps(func(op state.Op, path string) error {
				if fails && op == failing && strings.Contains(path, "cursors.json") {
					return broken
				}
				return nil
			}), src)
			if err := s.CatchUp(t.Context()); !errors.Is(err, broken) || s.file(t) != "" {
				t.Errorf("%s: %v, %s", failing, err, s.file(t))
			}
			fails = false
			if err := s.CatchUp(t.Context()); err != nil || !slices.Equal(s.taken(), []string{"m1", "m1"}) {
				t.Errorf("%s: %v, taken %v", failing, err, s.taken())
			}
		}
	})
}

func TestAPlaceThatIsNotReadAnyMoreIsForgottenAfterThirtyDays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := newSurface("slack", "a", "b", "c")
		s := newSite(t, src)
		catchUp := func() {
			t.Helper()
			if err := s.CatchUp(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		has := func(key string) bool { return strings.Contains(s.file(t), `"`+key+`":{`) }
		catchUp()
		time.Sleep(60 * 24 * time.Hour)
		src.say("a", "m1")
		catchUp() // b and c say nothing, and are read
		src.set("a", "b")
		time.Sleep(29 * 24 * time.Hour)
		src.say("a", "m2")
		catchUp()
		if !has("b") || !has("c") {
			t.Errorf("too early: %s", s.file(t))
		}
		time.Sleep(2 * 24 * time.Hour)
		src.say("a", "m3")
		catchUp()
		if !has("b") || has("c") {
			t.Errorf("too late: %s", s.file(t))
		}
	})
}

func TestNothingIsForgottenBeforeEverySourceWasAsked(t *testing.T) {
	s := newSite(t)
	c := s.cursors
	s.write(t, `{"places":{"old":{"cursor":1,"at":"2020-01-01T00:00:00Z"},
		"ahead":{"cursor":1,"at":"2099-01-01T00:00:00Z"}}}`)
	if err := c.put(t.Context(), "a", []byte("1"), nil, false); err != nil || !strings.Contains(s.file(t), `"old"`) {
		t.Errorf("%v, %s", err, s.file(t))
	}
	if strings.Contains(s.file(t), "2099") {
		t.Errorf("a wrong clock's time stays: %s", s.file(t))
	}
	if err := c.put(t.Context(), "a", []byte("2"), nil, true); err != nil || strings.Contains(s.file(t), `"old"`) {
		t.Errorf("%v, %s", err, s.file(t))
	}
}

func TestEveryFileIsDeclaredAndPrivate(t *testing.T) {
	s := newSite(t, newSurface("slack", "a"))
	if err := s.CatchUp(t.Context()); err != nil {
		t.Fatal(err)
	}
	seen := 0
	err := fsWalk(s.root.Dir(), func(name string, fi os.FileInfo) {
		seen++
		if !state.IsDeclared(name) || fi.Mode().Perm() != 0o600 {
			t.Errorf("%s, %v", name, fi.Mode())
		}
	})
	if err != nil || seen != 4 { // the cursors, their lock, the role, the pace
		t.Errorf("%d files, %v", seen, err)
	}
}
