package status_test

import (
	"os"
	"path/filepath"
	"testing"

	"the-loop/state"
	"the-loop/status"
)

func TestDiskIsMentionedOnlyWhenThereIsSomethingToDo(t *testing.T) {
	free := func(n int64) *int64 { return &n }
	for name, tt := range map[string]struct {
		disk status.Disk
		want string
	}{
		"well":         {status.Disk{FreeBytes: free(100 << 20)}, ""},
		"nobody knows": {status.Disk{}, ""},
		"low": {
			status.Disk{FreeBytes: free(84 << 20)}, "84 MiB free: make room; when it is full, nothing more can be kept",
		},
		"full": {
			status.Disk{Trouble: "full", FreeBytes: free(12 << 10)},
			"full (12 KiB free): make room; what comes now may not be kept",
		},
		"empty of room": {
			status.Disk{Trouble: "full", FreeBytes: free(0)},
			"full (0 B free): make room; what comes now may not be kept",
		},
		"no room for a file": {
			status.Disk{Trouble: "full", FreeBytes: free(5 << 30)},
			"full, with no room for one more file: remove some; nothing more can be kept",
		},
		"read-only": {
			status.Disk{Trouble: "read-only file system", FreeBytes: free(5 << 30)},
			"nothing can be written under the root, nor kept, until this is mended: read-only file system",
		},
	} {
		if got := tt.disk.Line(); got != tt.want {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
	}
}

// A root that is not there yet is made in the nearest folder that is; status
// looks at that one and makes nothing.
func TestDiskOfARootThatIsNotThereIsThatOfTheFolderAbove(t *testing.T) {
	dir := t.TempDir()
	writeFile(t, filepath.Join(dir, "file"), "")
	report := func(name string) status.Report {
		root, err := state.Open(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		return status.Make(siteOn(root).src)
	}
	if r := report("a/b/root"); r.Disk.Trouble != "" || r.Disk.FreeBytes == nil || *r.Disk.FreeBytes < 1<<20 {
		t.Errorf("%+v", r.Disk)
	}
	if _, err := os.Stat(filepath.Join(dir, "a")); err == nil {
		t.Error("status made a folder")
	}
	for name, want := range map[string]string{
		"file/root": "not a directory", "file": filepath.Join(dir, "file") + " is not a folder",
	} {
		if r := report(name); r.Disk.Trouble != want || r.OK {
			t.Errorf("%s: %+v, ok %v", name, r.Disk, r.OK)
		}
	}
}
