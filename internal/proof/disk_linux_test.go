package proof

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"the-loop/bus"
	"the-loop/channels"
	"the-loop/drain"
	"the-loop/outbox"
	"the-loop/state"
)

// Here the disk itself is broken: full, read-only, somebody else's, or reached
// by links. The error sweeps fail one operation of ours at a time; these find
// what a real file system does beside.

// smallDisk mounts one of that many KiB. Where it may not, the test says so.
func smallDisk(t *testing.T, kib int) (dir string) {
	t.Helper()
	dir = t.TempDir()
	err := syscall.Mount("tmpfs", dir, "tmpfs", 0, fmt.Sprintf("size=%dk,mode=0700", kib))
	if err != nil {
		t.Skipf("NOT TESTED HERE: this needs a small file system of its own, and mounting a tmpfs failed: %v", err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(dir, syscall.MNT_DETACH) })
	return dir
}

// publisher is a bus with one plain webhook.
func publisher(root *state.Root, url string) (*bus.Bus, *outbox.Store) {
	store := outbox.Open(root, outbox.Options{Cap: 1 << 20})
	return &bus.Bus{Routes: crashRoutes("plain", url, "-"), Store: store, Standing: store}, store
}

func diskEvent(n int) channels.Event {
	return channels.Event{ID: fmt.Sprintf("disk-%04d", n), Type: "job.failed", Text: strings.Repeat("x", 3000)}
}

func TestP1P7_ARealDiskFull(t *testing.T) {
	dir := smallDisk(t, 512)
	root, _ := state.Open(filepath.Join(dir, "root"))
	// The outbox is rewritten beside itself: a disk that is to be of use again
	// needs room for it twice.
	ballast := layBallast(t, dir, 256)
	refuses, takes := newReceiver(t, true), newReceiver(t, false)
	b, store := publisher(root, refuses.URL)
	var queued, lost []string
	for n := 0; len(lost) < 20 && n < 200; n++ {
		res := b.Publish(t.Context(), diskEvent(n))
		switch {
		case res.Queued == res.Lost():
			t.Fatalf("event %d is queued %v and lost %v", n, res.Queued, res.Lost())
		case res.Queued:
			queued = append(queued, res.ID)
		case res.Stored || len(res.Notes) == 0 || !strings.Contains(strings.Join(res.Notes, " "), "no space left"):
			t.Errorf("event %d is lost: stored %v, notes %q", n, res.Stored, res.Notes)
			fallthrough
		default:
			lost = append(lost, res.ID)
		}
	}
	if len(queued) < 10 || len(lost) < 20 {
		t.Fatalf("%d queued, %d lost: the disk did not fill up", len(queued), len(lost))
	}
	// A full disk stops no message that a channel takes.
	ok, okStore := publisher(root, takes.URL)
	if res := ok.Publish(t.Context(), diskEvent(1000)); res.Accepted() != 1 || res.Stored {
		t.Errorf("with a full disk: %+v", res)
	}
	for _, s := range []*outbox.Store{store, okStore} {
		if err := s.Close(); err != nil {
			t.Logf("close: %v", err)
		}
	}
	t.Logf("%d queued, %d lost and said so", len(queued), len(lost))
	checkEntries(t, root, queued)

	// Full as it is, a drain sends nothing that it cannot write down.
	refuses.heal()
	if _, err := oneCycle(t, root, refuses.URL); err == nil {
		t.Log("the cycle found room: draining frees what it needs")
	}
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	left, _, _, err := drainTwice(t, root, crashRoutes("plain", refuses.URL, "-")).Entries()
	if err != nil || len(left) > 0 {
		t.Errorf("%d entries left after there was room again, %v", len(left), err)
	}
	got := refuses.counts()
	for _, id := range queued {
		if got[id] != 1 {
			t.Errorf("%s arrived %d times", id, got[id])
		}
	}
	for _, id := range lost {
		if got[id] != 0 {
			t.Errorf("%s was said to be lost, and arrived", id)
		}
	}
	noLitter(t, root)
}

// layBallast takes up room that can be given back.
func layBallast(t *testing.T, dir string, kib int) (path string) {
	t.Helper()
	path = filepath.Join(dir, "ballast")
	if err := os.WriteFile(path, make([]byte, kib<<10), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// A line of a journal that the disk took half of must not spoil those that
// follow it once there is room again: not the intent of a publish that dies,
// and not the mark that one is settled.
func TestP1P2_AJournalLineThatTheDiskTookHalfOf(t *testing.T) {
	dir := smallDisk(t, 512)
	root, _ := state.Open(filepath.Join(dir, "root"))
	a := newReceiver(t, false)
	b, store := publisher(root, a.URL)
	if res := b.Publish(t.Context(), diskEvent(0)); !res.Stored { // the journal is there
		t.Fatalf("%+v", res)
	}
	ballast := filepath.Join(dir, "ballast")
	f, err := os.Create(ballast)
	for err == nil {
		_, err = f.Write(make([]byte, 1<<10))
	}
	_ = f.Close()
	for n := 1; n < 4; n++ {
		if res := b.Publish(t.Context(), diskEvent(n)); res.Accepted() != 1 || n == 3 && res.Stored {
			t.Fatalf("with a full disk: %+v", res)
		}
	}
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	ev := diskEvent(4)
	if _, err := store.Begin(t.Context(), ev, time.Now(), []outbox.Planned{{Channel: "a"}}, true); err != nil {
		t.Fatal(err)
	}
	// The process dies: its files stay as they are, and its locks go.
	copied, _ := state.Open(filepath.Join(t.TempDir(), "root"))
	if err := os.CopyFS(copied.Dir(), os.DirFS(root.Dir())); err != nil {
		t.Fatal(err)
	}
	checkEntries(t, copied, []string{ev.ID}) // of which nothing had been sent
	drainTwice(t, copied, crashRoutes("plain", a.URL, "-"))
	for n := range 5 {
		if got := a.counts()[diskEvent(n).ID]; got != 1 {
			t.Errorf("event %d arrived %d times", n, got)
		}
	}
}

// checkEntries wants exactly these in the outbox, and the file whole.
func checkEntries(t *testing.T, root *state.Root, ids []string) {
	t.Helper()
	entries, bad, damaged, err := outbox.Open(root, outbox.Options{}).Entries()
	if err != nil || bad > 0 || damaged {
		t.Errorf("the outbox: bad %d, damaged %v, %v", bad, damaged, err)
	}
	for _, id := range ids {
		if !hasEntry(entries, id) {
			t.Errorf("%s was said to be queued, and is not there", id)
		}
	}
	if len(entries) != len(ids) {
		t.Errorf("%d entries, want %d", len(entries), len(ids))
	}
}

func oneCycle(t *testing.T, root *state.Root, url string) (drain.Report, error) {
	t.Helper()
	store := outbox.Open(root, outbox.Options{})
	_ = store.Release(t.Context())
	return drain.New(drain.Options{
		Store: store, Role: root.Role(state.DrainRole), Who: "one",
		Routes: func() []bus.Route { return crashRoutes("plain", url, "-") },
	}).Cycle(t.Context())
}

// noLitter wants nothing under the root that is not declared.
func noLitter(t *testing.T, root *state.Root) {
	t.Helper()
	err := filepath.WalkDir(root.Dir(), func(path string, d fs.DirEntry, err error) error {
		name, _ := filepath.Rel(root.Dir(), path)
		if err == nil && !d.IsDir() && !state.IsDeclared(filepath.ToSlash(name)) {
			t.Errorf("%s is left behind", name)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

func TestP1P7_ReadOnlyDisk(t *testing.T) {
	dir := smallDisk(t, 1024)
	root, _ := state.Open(dir)
	a := newReceiver(t, true)
	b, store := publisher(root, a.URL)
	if res := b.Publish(t.Context(), diskEvent(0)); !res.Queued {
		t.Fatalf("%+v", res)
	}
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	if err := store.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mount("", dir, "", syscall.MS_REMOUNT|syscall.MS_RDONLY, ""); err != nil {
		t.Skipf("NOT TESTED HERE: the tmpfs cannot be made read-only: %v", err)
	}
	b, _ = publisher(root, a.URL)
	if res := b.Publish(t.Context(), diskEvent(1)); !res.Lost() || res.Stored || len(res.Notes) == 0 {
		t.Errorf("refused: %+v", res)
	}
	a.heal()
	if res := b.Publish(t.Context(), diskEvent(2)); res.Accepted() != 1 || res.Stored {
		t.Errorf("accepted: %+v", res)
	}
	if report, err := oneCycle(t, root, a.URL); !errors.Is(err, syscall.EROFS) || report.Sent() > 0 {
		t.Errorf("a cycle sent %d, %v", report.Sent(), err)
	}
	checkEntries(t, root, []string{diskEvent(0).ID})
	if n := a.counts()[diskEvent(0).ID]; n > 0 {
		t.Errorf("%d requests that could not be written down first", n)
	}
	if err := syscall.Mount("", dir, "", syscall.MS_REMOUNT, ""); err != nil {
		t.Fatal(err)
	}
	left, _, _, err := drainTwice(t, root, crashRoutes("plain", a.URL, "-")).Entries()
	if err != nil || len(left) > 0 || a.counts()[diskEvent(0).ID] != 1 {
		t.Errorf("after it is writable again: %d left, %v, %v", len(left), err, a.counts())
	}
}

// nobody is a user that owns nothing here.
const nobody = 65534

// asNobody runs a role as another user and gives what it printed.
func asNobody(t *testing.T, r role) string {
	t.Helper()
	cmd, _ := r.start(t)
	// The test binary lies in a folder that is ours alone; this way leads to it
	// without passing through.
	cmd.Path, cmd.Stdout, cmd.Dir = "/proc/self/exe", nil, "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	out, err := cmd.Output()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Skipf("NOT TESTED HERE: the test binary cannot be run as another user: %v", err)
	}
	if err != nil {
		t.Fatalf("as another user: %v: %s", err, out)
	}
	return string(out)
}

func TestP7_ARootOfAnotherUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("NOT TESTED HERE: only root can run a process as another user")
	}
	dir := t.TempDir()
	for d := dir; d != "/" && d != os.TempDir(); d = filepath.Dir(d) {
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	root, _ := state.Open(filepath.Join(dir, "root"))
	a := newReceiver(t, true)
	b, store := publisher(root, a.URL)
	if res := b.Publish(t.Context(), diskEvent(0)); !res.Queued {
		t.Fatalf("%+v", res)
	}
	_ = store.Close()
	_ = store.Release(t.Context())
	before := listing(t, root)

	job := role{Name: "publish", Root: root.Dir(), Plain: a.URL, Events: 1, Seed: 1} // which is job.succeeded
	if m := lastSaid(t, asNobody(t, job)); !m.Lost || m.Result.Stored || len(m.Notes) == 0 {
		t.Errorf("refused, and not stored: %+v, %+v", m, m.Result)
	}
	a.heal()
	if m := lastSaid(t, asNobody(t, job)); m.Result.Accepted() != 1 || m.Result.Stored {
		t.Errorf("accepted, and not stored: %+v, %+v", m, m.Result)
	}
	job.Name = "cycle"
	if out := asNobody(t, job); !strings.HasPrefix(out, "0 ") || strings.Contains(out, "<nil>") {
		t.Errorf("a cycle on a root that may not be read: %s", out)
	}
	if n := a.counts()[diskEvent(0).ID]; n > 0 {
		t.Errorf("another user's drain sent our event %d times", n)
	}
	if after := listing(t, root); after != before {
		t.Errorf("another user changed the root:\n%s\nbefore:\n%s", after, before)
	}
}

func lastSaid(t *testing.T, out string) said {
	t.Helper()
	lines := strings.Split(strings.TrimSpace(out), "\n")
	var m said
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &m); err != nil || m.Result == nil {
		t.Fatalf("%v in %s", err, out)
	}
	return m
}

// listing names all files with their sizes, modes and owners.
func listing(t *testing.T, root *state.Root) string {
	t.Helper()
	var b strings.Builder
	err := filepath.WalkDir(root.Dir(), func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		fi, err := d.Info()
		if err == nil {
			fmt.Fprintln(&b, path, fi.Mode(), fi.Size(), fi.ModTime(), fi.Sys().(*syscall.Stat_t).Uid)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestP1_RootAndOutboxBehindLinks(t *testing.T) {
	real, elsewhere, link := t.TempDir(), t.TempDir(), filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(real, link); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(real, "channels"), 0o700); err != nil {
		t.Fatal(err)
	}
	name, target := filepath.Join(real, state.Outbox), filepath.Join(elsewhere, "kept.json")
	if err := os.Symlink(target, name); err != nil {
		t.Fatal(err)
	}
	straight, _ := state.Open(real)
	through, _ := state.Open(link)
	a := newReceiver(t, true)
	for n, root := range []*state.Root{straight, through} { // they are one root, and one outbox
		b, store := publisher(root, a.URL)
		if res := b.Publish(t.Context(), diskEvent(n)); !res.Queued || !res.Stored {
			t.Errorf("%+v", res)
		}
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	}
	checkEntries(t, straight, []string{diskEvent(0).ID, diskEvent(1).ID})
	if fi, err := os.Lstat(name); err != nil || fi.Mode()&fs.ModeSymlink == 0 {
		t.Errorf("the link is no link any more: %v, %v", fi, err)
	}
	if _, err := os.Stat(target); err != nil {
		t.Errorf("the file that the link leads to: %v", err)
	}
	release, held, err := through.Role(state.DrainRole).Take("another drainer")
	if err != nil || !held {
		t.Fatal(held, err)
	}
	a.heal()
	if report, err := oneCycle(t, straight, a.URL); err != nil || report.Drainer == "" || report.Sent() > 0 {
		t.Errorf("a drain by the other name: %+v, %v", report, err)
	}
	release()
	left, _, _, err := drainTwice(t, straight, crashRoutes("plain", a.URL, "-")).Entries()
	if err != nil || len(left) > 0 || a.counts()[diskEvent(0).ID] != 1 || a.counts()[diskEvent(1).ID] != 1 {
		t.Errorf("%d left, %v, arrived %v", len(left), err, a.counts())
	}
}

func TestP1_AnOutboxBehindALinkOfAnotherUserIsNotWritten(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("NOT TESTED HERE: only root can make a link that belongs to another user")
	}
	root, _ := state.Open(t.TempDir())
	if err := os.Mkdir(root.Path("channels"), 0o700); err != nil {
		t.Fatal(err)
	}
	name, target := root.Path(state.Outbox), filepath.Join(t.TempDir(), "theirs")
	if err := os.Symlink(target, name); err != nil {
		t.Fatal(err)
	}
	if err := os.Lchown(name, nobody, nobody); err != nil {
		t.Fatal(err)
	}
	a := newReceiver(t, true)
	b, store := publisher(root, a.URL)
	res := b.Publish(t.Context(), diskEvent(0))
	if !res.Queued || !strings.Contains(strings.Join(res.Notes, " "), state.ErrNotOurs.Error()) {
		t.Errorf("kept in the journal, and said why: %+v", res)
	}
	_ = store.Close()
	a.heal()
	if report, err := oneCycle(t, root, a.URL); !errors.Is(err, state.ErrNotOurs) || report.Sent() > 0 {
		t.Errorf("a cycle: %+v, %v", report, err)
	}
	if _, err := os.Stat(target); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("what the link leads to was written: %v", err)
	}
	if err := os.Remove(name); err != nil {
		t.Fatal(err)
	}
	left, _, _, err := drainTwice(t, root, crashRoutes("plain", a.URL, "-")).Entries()
	if err != nil || len(left) > 0 || a.counts()[diskEvent(0).ID] != 1 {
		t.Errorf("once the link is gone: %d left, %v, arrived %v", len(left), err, a.counts())
	}
}
