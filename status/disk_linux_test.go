package status_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"the-loop/channels"
	"the-loop/state"
	"the-loop/status"
)

// smallDisk gives a site that stands on a file system of its own. Where there
// can be none, the test says so.
func smallDisk(t *testing.T, options string) *site {
	t.Helper()
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "mode=0700,"+options); err != nil {
		t.Skipf("NOT TESTED HERE: this needs a small file system of its own, and mounting a tmpfs failed: %v", err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(dir, syscall.MNT_DETACH) })
	root, err := state.Open(filepath.Join(dir, "root"))
	if err != nil {
		t.Fatal(err)
	}
	s := siteOn(root)
	s.src.Services = nil // none is needed
	writeFile(t, root.Path(state.Health), "{}")
	return s
}

func TestAFullDiskIsNotOK(t *testing.T) {
	s := smallDisk(t, "size=4m")
	r := status.Make(s.src)
	if !r.OK || r.Disk.Trouble != "" || !strings.Contains(r.Disk.Line(), "MiB free: make room") {
		t.Errorf("before: %+v, %q", r.Disk, r.Disk.Line())
	}
	if err := os.WriteFile(s.root.Path("ballast"), bytes.Repeat([]byte("x"), 3500<<10), 0o600); err != nil {
		t.Fatal(err)
	}
	if r := status.Make(s.src); r.OK || r.Disk.Trouble != "full" || !strings.Contains(r.Disk.Line(), "KiB free") {
		t.Errorf("%+v, %q", r.Disk, r.Disk.Line())
	}
}

func TestADiskWithoutRoomForAFileIsFull(t *testing.T) {
	s := smallDisk(t, "size=200m,nr_inodes=6")
	for n := range 6 { // the last of them find no room
		_ = os.WriteFile(s.root.Path(strings.Repeat("x", n+1)), nil, 0o600)
	}
	if r := status.Make(s.src); r.OK || !strings.HasPrefix(r.Disk.Line(), "full, with no room for one more file") {
		t.Errorf("%+v, %q", r.Disk, r.Disk.Line())
	}
}

func TestAReadOnlyDiskIsNotOKAndHidesNothing(t *testing.T) {
	s := smallDisk(t, "size=200m")
	s.put(t, "e1", time.Now(), map[string]channels.Outcome{"ops": refusal(channels.ReasonDown, "refused")})
	mount := filepath.Dir(s.root.Dir())
	if err := syscall.Mount("tmpfs", mount, "tmpfs", syscall.MS_REMOUNT|syscall.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
	r := status.Make(s.src)
	if r.OK || r.Disk.Trouble != "read-only file system" || len(r.Unreadable) > 0 || r.ChannelDelivery.Pending != 1 {
		t.Errorf("%+v, %v, %d", r.Disk, r.Unreadable, r.ChannelDelivery.Pending)
	}
}
