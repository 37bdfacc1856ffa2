package state_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"the-loop/state"
)

func check(t *testing.T, root *state.Root, machine string) error {
	t.Helper()
	t.Setenv("THE_LOOP_MACHINE_ID", machine)
	return root.CheckMachine(t.Context())
}

func TestARootBelongsToTheMachineThatFirstDrainsIt(t *testing.T) {
	root := open(t)
	for i, want := range []error{nil, nil} {
		if err := check(t, root, "machine-a"); !errors.Is(err, want) {
			t.Errorf("check %d: %v", i, err)
		}
	}
	text := read(t, root.Path(state.RootIdentity))
	if strings.Contains(text, "machine-a") || !strings.Contains(text, `"version":1`) {
		t.Errorf("the file is %s", text)
	}
	for range 2 {
		if err := check(t, root, "machine-b"); !errors.Is(err, state.ErrMoved) {
			t.Errorf("another machine: %v", err)
		}
	}
	if now := read(t, root.Path(state.RootIdentity)); now != text {
		t.Errorf("refusing changed the file: %s", now)
	}
	if err := root.Adopt(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := check(t, root, "machine-b"); err != nil {
		t.Errorf("adopted: %v", err)
	}
	if err := check(t, root, "machine-a"); !errors.Is(err, state.ErrMoved) {
		t.Errorf("the machine that it was copied from: %v", err)
	}
}

func TestTwoRootsOfOneMachineTellNothingOfEachOther(t *testing.T) {
	a, b := open(t), open(t)
	if err := errors.Join(check(t, a, "m"), check(t, b, "m")); err != nil {
		t.Fatal(err)
	}
	if read(t, a.Path(state.RootIdentity)) == read(t, b.Path(state.RootIdentity)) {
		t.Error("the hash is the same in both")
	}
}

func TestP10_ANewerIdentityIsLeftAlone(t *testing.T) {
	root := open(t)
	if err := check(t, root, "m"); err != nil {
		t.Fatal(err)
	}
	const newer = `{"version":2,"who":"knows"}`
	if err := os.WriteFile(root.Path(state.RootIdentity), []byte(newer), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, err := range map[string]error{"check": check(t, root, "m"), "adopt": root.Adopt(t.Context())} {
		if err == nil || !strings.Contains(err.Error(), "newer version") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if now := read(t, root.Path(state.RootIdentity)); now != newer {
		t.Errorf("the file is %s", now)
	}
}

func TestP10_ADamagedIdentityIsSetAsideAndUnknownKeysStay(t *testing.T) {
	root := open(t)
	if err := check(t, root, "m"); err != nil {
		t.Fatal(err)
	}
	path := root.Path(state.RootIdentity)
	if err := os.WriteFile(path, []byte("{dam"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := check(t, root, "m"); err != nil {
		t.Errorf("damaged: %v", err)
	}
	aside, err := filepath.Glob(path + ".corrupt-*")
	if err != nil || len(aside) != 1 || read(t, aside[0]) != "{dam" {
		t.Errorf("set aside %v, %v", aside, err)
	}
	text := strings.Replace(read(t, path), "{", `{"k":[1],`, 1)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("THE_LOOP_MACHINE_ID", "other")
	if err := root.Adopt(t.Context()); err != nil {
		t.Fatal(err)
	}
	if now := read(t, path); !strings.Contains(now, `"k":[1]`) {
		t.Errorf("the file is %s", now)
	}
}

func TestAnIdentityThatCannotBeWrittenIsAnError(t *testing.T) {
	t.Setenv("THE_LOOP_MACHINE_ID", "m")
	broken := errors.New("broken")
	for _, failing := range []state.Op{state.OpMkdir, state.OpLock, state.OpCreate, state.OpWrite, state.OpReplace} {
		root := open(t)
		bad := root.WithSteps(func(op state.Op, _ string) error {
			if op == failing {
				return broken
			}
			return nil
		})
		if err := bad.CheckMachine(t.Context()); !errors.Is(err, broken) {
			t.Errorf("%s: %v", failing, err)
		}
		if _, err := os.Stat(root.Path(state.RootIdentity)); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: %v", failing, err)
		}
	}
}
