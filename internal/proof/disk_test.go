package proof

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"the-loop/state"
)

// disk is a model of what a power cut may leave of a folder. It watches the
// real one through state's steps, and keeps, of every file, the bytes of the
// last fsync, and of every folder its names at its last fsync and each change
// since then. After a cut a file may hold what was synced, what was written, a
// part of that, or the right length with zeros in it; of the changes of a
// folder any may be there and any be missing. Only that a rename puts a whole
// file in the place of another is taken for granted; the old name may stay.
//
// That an fsync is made where a step says so is believed.
type disk struct {
	base string
	cut  func() // called before each operation

	mu    sync.Mutex
	last  [2]string       // the operation that is going on, and its path
	ids   map[uint64]int  // by inode, of what is there now
	files map[int]*onDisk // by our own number: the system uses its again
	next  int
}

// onDisk is a file or a folder.
type onDisk struct {
	isDir bool

	synced, now []byte // of a file

	names, syncedNames map[string]int // of a folder
	pending            []change
}

// change is what one operation did to a folder: names and what they lead to
// since then, 0 for nothing.
type change struct {
	sets map[string]int
	kept string // a rename's old name, which may stay
}

func newDisk(base string) *disk {
	d := &disk{base: base, ids: map[uint64]int{}, files: map[int]*onDisk{}}
	d.observe()
	for _, f := range d.files { // all that there is is durable: it is old
		f.synced, f.syncedNames, f.pending = f.now, maps.Clone(f.names), nil
	}
	return d
}

func (d *disk) step(op state.Op, path string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.settle()
	d.last = [2]string{string(op), path}
	d.cut()
	return nil
}

// end is called when the last operation has been made.
func (d *disk) end() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.settle()
	d.last = [2]string{}
	d.cut()
}

// settle takes in what the operation did that was going on.
func (d *disk) settle() {
	d.observe()
	switch state.Op(d.last[0]) {
	case state.OpSync:
		f := d.at(d.last[1])
		if f == nil { // a journal is written under a hidden name first
			f = d.at(filepath.Join(filepath.Dir(d.last[1]), "."+filepath.Base(d.last[1])))
		}
		if f != nil {
			f.synced = f.now
		}
	case state.OpSyncDir:
		if f := d.at(d.last[1]); f != nil {
			f.syncedNames, f.pending = maps.Clone(f.names), nil
		}
	}
}

func (d *disk) at(path string) *onDisk { return d.files[d.ids[inode(path)]] }

func inode(path string) uint64 {
	fi, err := os.Stat(path)
	if err != nil {
		return 0
	}
	return fi.Sys().(*syscall.Stat_t).Ino
}

// observe notes what changed since the last time.
func (d *disk) observe() {
	ids := map[uint64]int{}
	d.observeAt(d.base, ids)
	d.ids = ids
}

func (d *disk) observeAt(path string, ids map[uint64]int) (id int) {
	fi, err := os.Stat(path)
	if err != nil {
		return 0
	}
	ino := inode(path)
	if id = d.ids[ino]; id == 0 {
		d.next++
		id = d.next
		d.files[id] = &onDisk{isDir: fi.IsDir(), names: map[string]int{}, syncedNames: map[string]int{}}
	}
	ids[ino] = id
	f := d.files[id]
	if !f.isDir {
		if b, err := os.ReadFile(path); err == nil && !bytes.Equal(b, f.now) {
			f.now = b
		}
		return id
	}
	list, _ := os.ReadDir(path)
	names := map[string]int{}
	for _, entry := range list {
		if child := d.observeAt(filepath.Join(path, entry.Name()), ids); child != 0 {
			names[entry.Name()] = child
		}
	}
	f.changeTo(names)
	return id
}

// changeTo notes the difference as one change, for one operation made it.
func (f *onDisk) changeTo(names map[string]int) {
	c := change{sets: map[string]int{}}
	for name, child := range names {
		if f.names[name] != child {
			c.sets[name] = child
		}
	}
	for name, child := range f.names {
		if names[name] != 0 {
			continue
		}
		for _, to := range c.sets {
			if to == child {
				c.kept = name
			}
		}
		c.sets[name] = 0
	}
	f.names = names
	if len(c.sets) > 0 {
		f.pending = append(f.pending, c)
	}
}

// tree is what stands under the base after a cut: files by path, and folders
// with nil bytes.
type tree map[string][]byte

func (t tree) key() [32]byte {
	h := sha256.New()
	for _, path := range slices.Sorted(maps.Keys(t)) {
		if !isLock(path) {
			fmt.Fprintf(h, "%q %q\n", path, t[path])
		}
	}
	return [32]byte(h.Sum(nil))
}

func (t tree) write(base string) error {
	for _, path := range slices.Sorted(maps.Keys(t)) {
		full := filepath.Join(base, path)
		if t[path] == nil {
			if err := os.MkdirAll(full, 0o700); err != nil {
				return err
			}
		} else if err := os.WriteFile(full, t[path], 0o600); err != nil {
			return err
		}
	}
	return nil
}

// mostStates bounds the states that are looked at for one cut.
const mostStates = 4000

// states calls f with every state that the disk may be in after a cut now.
// whole is false when there are more than mostStates.
func (d *disk) states(f func(t tree)) (whole bool) {
	// The choices are made one after the other while the tree is walked; they
	// are the digits of a number that counts through all of them.
	var digits []int
	for range mostStates {
		w := &walk{disk: d, digits: digits, out: tree{}}
		w.dir("", d.ids[inode(d.base)])
		f(w.out)
		if digits = w.next(); digits == nil {
			return true
		}
	}
	return false
}

// walk makes one state.
type walk struct {
	disk   *disk
	digits []int // the choices, as far as they are given; 0 from there on
	limits []int // how many there were at each
	out    tree
}

func (w *walk) choose(n int) int {
	i := len(w.limits)
	w.limits = append(w.limits, n)
	if i < len(w.digits) {
		return w.digits[i]
	}
	return 0
}

func (w *walk) next() []int {
	digits := slices.Clone(w.digits)
	for len(digits) < len(w.limits) {
		digits = append(digits, 0)
	}
	for i := len(w.limits) - 1; i >= 0; i-- {
		if digits[i]++; digits[i] < w.limits[i] {
			return digits[:i+1]
		}
	}
	return nil
}

func (w *walk) dir(path string, id int) {
	f := w.disk.files[id]
	w.out[path] = nil
	names := maps.Clone(f.syncedNames)
	for _, c := range f.pending {
		choice := 1 // of locks nobody reads more than that they are there
		if !onlyLocks(c.sets) {
			choice = w.choose(map[bool]int{false: 2, true: 3}[c.kept != ""])
		}
		for name, child := range c.sets {
			if choice == 1 || choice == 2 && name != c.kept {
				names[name] = child
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		child := names[name]
		if child == 0 {
			continue
		}
		sub := filepath.Join(path, name)
		if w.disk.files[child].isDir {
			w.dir(sub, child)
		} else {
			w.out[sub] = w.content(name, w.disk.files[child])
		}
	}
}

func isLock(name string) bool { return strings.HasSuffix(name, ".lock") }

func onlyLocks(sets map[string]int) bool {
	for name := range sets {
		if !isLock(name) {
			return false
		}
	}
	return true
}

// content is one of those that an unsynced file may have: what was synced, what
// was written, that without its last line, half of what was added, and zeros in
// place of it.
func (w *walk) content(name string, f *onDisk) []byte {
	variants := [][]byte{f.synced, f.now}
	switch {
	case bytes.Equal(f.now, f.synced) || isLock(name):
		variants = [][]byte{f.now}
	case bytes.HasPrefix(f.now, f.synced):
		added := len(f.now) - len(f.synced)
		last := max(len(f.synced), 1+bytes.LastIndexByte(bytes.TrimSuffix(f.now, []byte("\n")), '\n'))
		variants = append(variants, f.now[:last], f.now[:len(f.synced)+added/2],
			append(slices.Clone(f.synced), make([]byte, added)...))
	}
	i := 0
	if len(variants) > 1 {
		i = w.choose(len(variants))
	}
	return append([]byte{}, variants[i]...) // never nil: that is a folder
}

// TestDisk holds the model against what is known of one small case.
func TestDisk_AfterAnUnsyncedRenameEitherFileMayStandThere(t *testing.T) {
	root, _ := scratch(t)
	d := newDisk(filepath.Dir(root.Dir()))
	d.cut = func() {}
	doc := root.WithSteps(d.step).Document(state.Health)
	write := func(text string) {
		err := doc.Update(t.Context(), func(tx *state.Tx) error { return tx.Write([]byte(text)) })
		if err != nil {
			t.Fatal(err)
		}
	}
	write("old")
	seen := map[string]bool{}
	d.cut = func() {
		if d.last[0] != string(state.OpSyncDir) {
			return
		}
		d.states(func(s tree) {
			hidden := 0
			for name := range s {
				if strings.HasPrefix(filepath.Base(name), ".health") {
					hidden++
				}
			}
			seen[fmt.Sprintf("%s, %d hidden", s["root/"+state.Health], hidden)] = true
		})
	}
	write("new")
	want := []string{"new, 0 hidden", "new, 1 hidden", "old, 0 hidden", "old, 1 hidden"}
	if got := slices.Sorted(maps.Keys(seen)); !slices.Equal(got, want) {
		t.Errorf("after the rename: %q, want %q", got, want)
	}
}
