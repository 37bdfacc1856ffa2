package state_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"the-loop/state"
)

// The test binary runs itself again as another process; these say as what.
const (
	envJob  = "STATE_TEST_JOB"
	envRoot = "STATE_TEST_ROOT"
	envArg  = "STATE_TEST_ARG"
)

func TestMain(m *testing.M) {
	if job := os.Getenv(envJob); job != "" {
		os.Exit(runJob(job, os.Getenv(envRoot), os.Getenv(envArg)))
	}
	goleak.VerifyTestMain(m)
}

func runJob(job, dir, arg string) int {
	root, err := state.Open(dir)
	if err == nil {
		switch job {
		case "increment":
			n, _ := strconv.Atoi(arg)
			for range n {
				err = errors.Join(err, increment(root))
			}
		case "append":
			err = appendMany(root, arg, 25)
		case "try":
			err = try(root)
		case "umask":
			mask, _ := strconv.ParseInt(arg, 8, 32)
			err = writeEverything(root, int(mask))
		case "dead journals":
			err = printDead(root)
		case "die with a journal":
			err = leaveJournal(root, arg)
		case "slots":
			n, _ := strconv.Atoi(arg)
			err = takeSlots(root, n)
		default:
			err = fmt.Errorf("no such job: %s", job)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// printDead prints the journals that this process would take over.
func printDead(root *state.Root) error {
	journals, err := root.DeadJournals(state.Sending())
	for _, lines := range journals {
		fmt.Printf("%s\n", bytes.Join(lines, []byte("|")))
	}
	return err
}

// leaveJournal ends, as a killed process does, without closing its journal.
func leaveJournal(root *state.Root, first string) error {
	j, err := root.NewJournal(state.Sending(), []byte(first))
	if err == nil {
		err = j.Append([]byte("more"))
	}
	return err
}

// takeSlots prints the slots that it took.
func takeSlots(root *state.Root, n int) error {
	for range n {
		at, ok, err := root.Slots(state.Pace("slack")).Take(context.Background(), 10*time.Millisecond,
			time.Now().Add(time.Minute))
		if err != nil || !ok {
			return fmt.Errorf("no slot: %w", err)
		}
		fmt.Println(at.UnixNano())
	}
	return nil
}

// process prepares this test binary as another process that does a job.
func process(t *testing.T, root *state.Root, job, arg string) *exec.Cmd {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), exe)
	cmd.Env = append(os.Environ(), "GORACE=atexit_sleep_ms=0", envJob+"="+job, envRoot+"="+root.Dir(), envArg+"="+arg)
	return cmd
}

// output runs it and gives its standard output.
func output(t *testing.T, cmd *exec.Cmd) string {
	t.Helper()
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("the other process: %v\n%s", err, stderr.String())
	}
	return string(out)
}

func open(t *testing.T) *state.Root {
	t.Helper()
	root, err := state.Open(filepath.Join(t.TempDir(), "root"))
	if err != nil {
		t.Fatal(err)
	}
	return root
}

func write(t *testing.T, d state.Document, text string) {
	t.Helper()
	err := d.Update(t.Context(), func(tx *state.Tx) error { return tx.Write([]byte(text)) })
	if err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func increment(root *state.Root) error {
	return root.Document(state.Outbox).Update(context.Background(), func(tx *state.Tx) error {
		b, err := tx.Read()
		if err != nil {
			return err
		}
		n, _ := strconv.Atoi(string(b))
		return tx.Write(strconv.AppendInt(nil, int64(n)+1, 10))
	})
}

func appendMany(root *state.Root, who string, n int) error {
	log := root.Log(state.EventLog)
	for i := range n {
		if err := log.Append(context.Background(), longLine(who, i)); err != nil {
			return err
		}
	}
	return nil
}

// longLine spans several pages, so that a write that is not atomic would show.
func longLine(who string, i int) []byte {
	return fmt.Appendf(nil, "%s %d %s", who, i, strings.Repeat(who[:1], 9000))
}

// filesUnder lists what stands under dir, with its mode.
func filesUnder(dir string) (map[string]fs.FileMode, error) {
	out := map[string]fs.FileMode{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		fi, err := d.Info()
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(dir, path)
		out[rel] = fi.Mode()
		return err
	})
	return out, err
}

// temporary lists the hidden files under dir.
func temporary(t *testing.T, dir string) (names []string) {
	t.Helper()
	files, err := filesUnder(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	for name := range files {
		if base := filepath.Base(name); base != "." && strings.HasPrefix(base, ".") {
			names = append(names, name)
		}
	}
	return names
}

// writeEverything writes in every way there is, under a umask, and prints the
// mode of every file and folder that it left or saw on the way.
func writeEverything(root *state.Root, mask int) error {
	syscall.Umask(mask)
	seen := func(when string) error {
		files, err := filesUnder(root.Dir())
		for name, mode := range files {
			fmt.Printf("%v %s (%s)\n", mode, name, when)
		}
		return err
	}
	watched := root.WithSteps(func(op state.Op, path string) error {
		if op == state.OpWrite || op == state.OpReplace {
			return seen(string(op))
		}
		return nil
	})
	ctx := context.Background()
	doc := watched.Document(state.Outbox)
	rewrite := func(tx *state.Tx) error { return tx.Write([]byte("text")) }
	steps := []func() error{
		func() error { return doc.Update(ctx, rewrite) },
		func() error { return os.Chmod(doc.Path(), 0o644) },
		func() error { return doc.Update(ctx, rewrite) },
		func() error { return doc.Update(ctx, rewrite) },
		func() error {
			return doc.Update(ctx, func(tx *state.Tx) error {
				_, err := tx.Keep([]byte("kept"))
				return err
			})
		},
		func() error { return os.Chmod(doc.Path(), 0o644) },
		func() error {
			return doc.Update(ctx, func(tx *state.Tx) error {
				_, err := tx.SetAside()
				return err
			})
		},
		func() error {
			log := watched.Log(state.EventLog)
			log.Limit = 1
			return errors.Join(log.Append(ctx, []byte("line")), log.AppendDurably(ctx, []byte("line")))
		},
		func() error {
			release, held, err := watched.Role(state.DrainRole).Take("a test")
			if err == nil && held {
				release()
			}
			return err
		},
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
	}
	return seen("at the end")
}

// try reports whether the outbox's lock is free, and waits a moment for it.
func try(root *state.Root) error {
	ctx, cancel := shortly(context.Background())
	defer cancel()
	err := root.Document(state.Outbox).Update(ctx, func(tx *state.Tx) error { return nil })
	switch {
	case errors.Is(err, errGaveUp):
		_, err = io.WriteString(os.Stdout, "locked")
	case err == nil:
		_, err = io.WriteString(os.Stdout, "free")
	}
	return err
}
