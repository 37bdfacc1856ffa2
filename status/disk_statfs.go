//go:build linux || darwin

package status

import (
	"math"
	"os"

	"golang.org/x/sys/unix"
)

func writable(dir string) error { return unix.Access(dir, unix.W_OK|unix.X_OK) }

// room gives the bytes that are free for us, and whether one more file can be
// made. A system that counts no files makes room for them as it goes.
func room(dir string) (bytes int64, files, ok bool) {
	var s unix.Statfs_t
	if unix.Statfs(dir, &s) != nil {
		return 0, false, false
	}
	blocks := s.Bavail
	if os.Geteuid() == 0 { // what is reserved, is for it
		blocks = s.Bfree
	}
	free := float64(blocks) * float64(s.Bsize)
	return int64(min(free, math.MaxInt64/2)), s.Files == 0 || s.Ffree > 0, true
}
