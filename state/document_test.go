package state_test

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

	"the-loop/state"
)

func inodeOf(fi fs.FileInfo) string {
	return fmt.Sprint(fi.Sys().(*syscall.Stat_t).Ino)
}

func TestF12_PrivateFromTheFirstByte(t *testing.T) {
	for _, mask := range []string{"022", "000", "077"} {
		t.Run("umask "+mask, func(t *testing.T) {
			out := output(t, process(t, open(t), "umask", mask))
			kinds := map[string]bool{}
			for line := range strings.Lines(out) {
				mode, name, _ := strings.Cut(strings.TrimSpace(line), " ")
				name, when, _ := strings.Cut(name, " ")
				switch {
				case strings.HasPrefix(mode, "d"):
					if mode != "drwx------" {
						t.Errorf("folder %s is %s %s", name, mode, when)
					}
				case mode == "-rw-r--r--" && name == state.Outbox && when != "(at the end)":
					// what the test itself opened to all, until it is rewritten
				case mode != "-rw-------":
					t.Errorf("file %s is %s %s", name, mode, when)
				}
				for _, kind := range []string{"/.undelivered", ".lock", ".corrupt-", "undelivered.json ", ".jsonl.1"} {
					kinds[kind] = kinds[kind] || strings.Contains(line, kind)
				}
			}
			for kind, seen := range kinds {
				if !seen {
					t.Errorf("no file like %q was seen: the test looks at the wrong moment", kind)
				}
			}
		})
	}
}

func TestF12_ARewriteMakesAnOpenFilePrivate(t *testing.T) {
	doc := open(t).Document(state.Outbox)
	for _, mode := range []fs.FileMode{0o644, 0o666, 0o600} {
		write(t, doc, "old")
		if err := os.Chmod(doc.Path(), mode); err != nil {
			t.Fatal(err)
		}
		write(t, doc, "new")
		fi, err := os.Stat(doc.Path())
		if err != nil || fi.Mode().Perm() != 0o600 {
			t.Errorf("a file that was %v is %v after the rewrite, %v", mode, fi.Mode().Perm(), err)
		}
	}
}

// failAt gives the root with its n-th operation failing, and what that was.
func failAt(root *state.Root, n int) (*state.Root, *state.Op) {
	failed := new(state.Op)
	return root.WithSteps(func(op state.Op, path string) error {
		if n--; n < 0 && *failed == "" {
			*failed = op
			return &fs.PathError{Op: string(op), Path: path, Err: syscall.EIO}
		}
		return nil
	}), failed
}

func TestUpdateFailsWhole(t *testing.T) {
	for _, old := range []string{"", "the old document"} {
		var failed []state.Op
		for n := 0; ; n++ {
			root := open(t)
			if old != "" {
				write(t, root.Document(state.Outbox), old)
			}
			broken, op := failAt(root, n)
			err := broken.Document(state.Outbox).Update(t.Context(), func(tx *state.Tx) error {
				if _, err := tx.Read(); err != nil {
					return err
				}
				return tx.Write([]byte("the new "), []byte("document"))
			})
			if *op == "" {
				if err != nil {
					t.Fatalf("nothing failed, and yet: %v", err)
				}
				break
			}
			failed = append(failed, *op)
			if !errors.Is(err, syscall.EIO) {
				t.Errorf("%s failed, and Update says %v", *op, err)
			}
			b, err := root.Document(state.Outbox).Read()
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("%s failed: %v", *op, err)
			}
			if got := string(b); got != old && got != "the new document" {
				t.Errorf("%s failed: the document is %q", *op, got)
			}
			if left := temporary(t, root.Dir()); len(left) > 0 {
				t.Errorf("%s failed: %v was left", *op, left)
			}
			write(t, root.Document(state.Outbox), "works again")
		}
		for _, op := range []state.Op{
			state.OpLock, state.OpRead, state.OpCreate, state.OpWrite, state.OpReplace, state.OpSyncDir,
		} {
			if !contains(failed, op) {
				t.Errorf("%s was never failed: %v", op, failed)
			}
		}
	}
}

func TestSetAsideAndKeepFailWhole(t *testing.T) {
	for n := 0; ; n++ {
		root := open(t)
		write(t, root.Document(state.Outbox), "damaged")
		broken, op := failAt(root, n)
		err := broken.Document(state.Outbox).Update(t.Context(), func(tx *state.Tx) error {
			if _, err := tx.Keep([]byte("kept")); err != nil {
				return err
			}
			_, err := tx.SetAside()
			return err
		})
		if *op == "" {
			if err != nil {
				t.Fatal(err)
			}
			return
		}
		if !errors.Is(err, syscall.EIO) {
			t.Errorf("%s failed, and Update says %v", *op, err)
		}
		found := 0
		files, _ := filesUnder(root.Dir())
		for name, mode := range files {
			if mode.IsRegular() && read(t, filepath.Join(root.Dir(), name)) == "damaged" {
				found++
			}
		}
		if left := temporary(t, root.Dir()); found != 1 || len(left) > 0 {
			t.Errorf("%s failed: the damaged bytes stand %d times, left behind: %v", *op, found, left)
		}
	}
}

func contains(ops []state.Op, op state.Op) bool {
	for _, o := range ops {
		if o == op {
			return true
		}
	}
	return false
}

func TestK01_SetAsideKeepsTheBytes(t *testing.T) {
	root := open(t)
	doc := root.Document(state.Outbox)
	write(t, doc, "\x00\x00damaged")
	var aside, kept string
	err := doc.Update(t.Context(), func(tx *state.Tx) (err error) {
		if aside, err = tx.SetAside(); err != nil {
			return err
		}
		if b, err := tx.Read(); b != nil || err != nil {
			t.Errorf("set aside, and yet there is %q, %v", b, err)
		}
		kept, err = tx.Keep([]byte("one entry"))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if got := read(t, aside); got != "\x00\x00damaged" {
		t.Errorf("set aside: %q", got)
	}
	if got := read(t, kept); got != "one entry" {
		t.Errorf("kept: %q", got)
	}
	for _, path := range []string{aside, kept} {
		name, err := filepath.Rel(root.Dir(), path)
		if err != nil || !state.IsDeclared(filepath.ToSlash(name)) {
			t.Errorf("%s is not declared", name)
		}
	}
	if _, err := doc.Read(); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the document is still there: %v", err)
	}
}

// linked makes the outbox a link to a file in a folder of its own.
func linked(t *testing.T, root *state.Root, to string) (real string) {
	t.Helper()
	link := root.Path(state.Outbox)
	real = to
	if !filepath.IsAbs(to) {
		real = filepath.Join(filepath.Dir(link), to)
	}
	for _, dir := range []string{filepath.Dir(link), filepath.Dir(real)} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(to, link); err != nil {
		t.Fatal(err)
	}
	return real
}

func TestOurOwnLinkIsFollowed(t *testing.T) {
	for _, to := range []string{"../elsewhere/real.json", filepath.Join(t.TempDir(), "absolute", "real.json")} {
		root := open(t)
		real := linked(t, root, to)
		var temp []string
		watched := root.WithSteps(func(op state.Op, path string) error {
			if op == state.OpWrite {
				temp = temporary(t, filepath.Dir(real))
				if path != real {
					t.Errorf("written to %s", path)
				}
			}
			return nil
		})
		write(t, watched.Document(state.Outbox), "through the link")
		if got := read(t, real); got != "through the link" {
			t.Errorf("the link's target holds %q", got)
		}
		if fi, err := os.Lstat(root.Path(state.Outbox)); err != nil || fi.Mode()&fs.ModeSymlink == 0 {
			t.Errorf("the link was replaced: %v, %v", fi.Mode(), err)
		}
		if len(temp) != 1 {
			t.Errorf("the temporary file was not in the target's own folder: %v", temp)
		}
		if _, err := os.Stat(real + ".lock"); err != nil {
			t.Errorf("the lock is not beside the target: %v", err)
		}
		if b, err := root.Document(state.Outbox).Read(); err != nil || string(b) != "through the link" {
			t.Errorf("read %q, %v", b, err)
		}
	}
}

func TestALinkInALinkedFolderCountsFromWhereItReallyIs(t *testing.T) {
	top := t.TempDir()
	for _, dir := range []string{"data/state/channels", "data/state/shared", "home"} {
		if err := os.MkdirAll(filepath.Join(top, dir), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	// home/channels leads to data/state/channels, where undelivered.json leads
	// to ../shared: that is data/state/shared, and not home/shared.
	for link, to := range map[string]string{
		"home/channels":                        "../data/state/channels",
		"data/state/channels/undelivered.json": "../shared/real.json",
	} {
		if err := os.Symlink(to, filepath.Join(top, link)); err != nil {
			t.Fatal(err)
		}
	}
	root, err := state.Open(filepath.Join(top, "home"))
	if err != nil {
		t.Fatal(err)
	}
	write(t, root.Document(state.Outbox), "text")
	if got := read(t, filepath.Join(top, "data/state/shared/real.json")); got != "text" {
		t.Errorf("the file holds %q", got)
	}
}

func TestAForeignLinkIsRefused(t *testing.T) {
	root := open(t)
	real := linked(t, root, "../elsewhere/real.json")
	if err := os.Lchown(root.Path(state.Outbox), 65534, 65534); err != nil {
		t.Logf("only root can give a link away (%v): what is tested is that our own is followed", err)
		write(t, root.Document(state.Outbox), "ours")
		return
	}
	if err := os.WriteFile(real, []byte("theirs\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if os.Geteuid() != 0 {
		t.Log("we are not root, and could give a link away all the same")
	}
	doc := root.Document(state.Outbox)
	log := root.Log(state.Outbox)
	for what, err := range map[string]error{
		"read":   second(doc.Read()),
		"update": doc.Update(t.Context(), func(tx *state.Tx) error { return tx.Write([]byte("x")) }),
		"append": log.Append(t.Context(), []byte("x")),
		"lines":  log.Lines(func([]byte) bool { return true }),
		"follow": log.Follow(t.Context(), 1, func([]byte) bool { return false }),
	} {
		if !errors.Is(err, state.ErrNotOurs) {
			t.Errorf("%s: %v, want ErrNotOurs", what, err)
		}
	}
	if got := read(t, real); got != "theirs\n" {
		t.Errorf("the file behind a foreign link was changed: %q", got)
	}
	if files, _ := filesUnder(filepath.Dir(real)); len(files) != 2 {
		t.Errorf("something was created beside it: %v", files)
	}
}

func second[T any](_ T, err error) error { return err }

func TestALinkToItselfIsAnError(t *testing.T) {
	root := open(t)
	linked(t, root, "undelivered.json")
	if _, err := root.Document(state.Outbox).Read(); !errors.Is(err, syscall.ELOOP) {
		t.Errorf("got %v", err)
	}
}

func TestReadingAndOpeningTouchNothing(t *testing.T) {
	root := open(t)
	if _, err := root.Document(state.Outbox).Read(); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("an absent document: %v", err)
	}
	if err := root.Log(state.EventLog).Lines(func([]byte) bool { t.Error("a line"); return true }); err != nil {
		t.Errorf("an absent log: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := root.Log(state.EventLog).Follow(ctx, 1, func([]byte) bool { return true }); err != nil {
		t.Errorf("following an absent log: %v", err)
	}
	if _, err := os.Lstat(root.Dir()); !errors.Is(err, fs.ErrNotExist) {
		t.Error("the root was created")
	}
}

func TestAFileInTheFoldersPlaceIsAnError(t *testing.T) {
	root := open(t)
	if err := os.MkdirAll(root.Dir(), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(root.Path("channels"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	err := root.Document(state.Outbox).Update(t.Context(), func(*state.Tx) error { return nil })
	if !errors.Is(err, syscall.ENOTDIR) {
		t.Errorf("got %v", err)
	}
}

// What never ends is not read.
func TestADeviceIsNoDocument(t *testing.T) {
	root := open(t)
	path := filepath.Join(root.Dir(), "zero.json")
	if err := errors.Join(os.MkdirAll(root.Dir(), 0o700), os.Symlink("/dev/zero", path)); err != nil {
		t.Fatal(err)
	}
	if _, err := root.Document("zero.json").Read(); err == nil || !strings.Contains(err.Error(), "no file") {
		t.Errorf("%v", err)
	}
}
