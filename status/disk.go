package status

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/dustin/go-humanize"
)

// Disk says whether anything can be written under the root.
type Disk struct {
	// Trouble is why nothing can, "" when it can as far as one sees without
	// writing. "full" is less than 1 MiB, or no room for a new file.
	Trouble string `json:"trouble"`
	// FreeBytes is the room that there is for us, null where the system does not
	// tell. Below 100 MiB it is time to make some.
	FreeBytes *int64 `json:"freeBytes"`
}

const (
	fullBelow = 1 << 20
	lowBelow  = 100 << 20
	diskFull  = "full"
)

// Line is the one line for people, "" when there is nothing to say.
func (d Disk) Line() string {
	free := ""
	if d.FreeBytes != nil {
		free = humanize.IBytes(uint64(*d.FreeBytes)) + " free"
	}
	switch {
	case d.Trouble == diskFull && (d.FreeBytes == nil || *d.FreeBytes >= fullBelow):
		return "full, with no room for one more file: remove some; nothing more can be kept"
	case d.Trouble == diskFull:
		return "full (" + free + "): make room; what comes now may not be kept"
	case d.Trouble != "":
		return "nothing can be written under the root, nor kept, until this is mended: " + d.Trouble
	case d.FreeBytes != nil && *d.FreeBytes < lowBelow:
		return free + ": make room; when it is full, nothing more can be kept"
	}
	return ""
}

// diskOf looks at the disk that the folder is on, or will be made on. It writes
// nothing.
func diskOf(dir string) (d Disk) {
	fi, err := os.Stat(dir)
	for errors.Is(err, fs.ErrNotExist) && dir != filepath.Dir(dir) {
		dir = filepath.Dir(dir)
		fi, err = os.Stat(dir)
	}
	switch {
	case err != nil:
		return Disk{Trouble: cause(err).Error()}
	case !fi.IsDir():
		return Disk{Trouble: dir + " is not a folder"}
	}
	if err := writable(dir); err != nil {
		d.Trouble = err.Error()
	}
	free, files, ok := room(dir)
	if !ok {
		return d
	}
	d.FreeBytes = &free
	if d.Trouble == "" && (free < fullBelow || !files) {
		d.Trouble = diskFull
	}
	return d
}
