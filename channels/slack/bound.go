package slack

import (
	"cmp"
	"errors"
	"io/fs"
	"os"
	"slices"
	"sync"
	"time"
)

// Thread is a thread of ours: the root of it is TS.
type Thread struct {
	WorkItem     string
	Conversation string
	TS           string
	At           time.Time // when it was bound
}

// bound remembers what the bindings' file held when it was last read.
type bound struct {
	mu   sync.Mutex
	held *os.File // kept open, so that its inode cannot be another file's
	info fs.FileInfo
	rows []Thread // nobody changes it; replaced whole
	said string
}

// Threads gives the threads that work items are bound to in this channel's
// conversation, the oldest first, from the bindings' file without a lock. It
// is read again only when it has changed. No file is no threads.
func (c *Channel) Threads() ([]Thread, error) {
	if c.threads == nil {
		return nil, nil
	}
	rows, err := c.bound.load(c.threads)
	if err != nil {
		return nil, err
	}
	return slices.Clone(rows), nil
}

// WorkItem gives the work item whose thread it is. Nothing is ours that is in
// another conversation than the channel's, and nothing while the bindings
// cannot be read, which is logged once.
func (c *Channel) WorkItem(conversation, thread string) (item string, ok bool) {
	if conversation != c.o.Channel || thread == "" {
		return "", false
	}
	for _, t := range c.ours() {
		if t.TS == thread {
			return t.WorkItem, true
		}
	}
	return "", false
}

// ours gives the threads, none while they cannot be read. Nobody changes it.
func (c *Channel) ours() []Thread {
	if c.threads == nil {
		return nil
	}
	rows, err := c.bound.load(c.threads)
	if c.bound.news(err) {
		c.o.Log.Warn("thread bindings cannot be read: replies in them are passed over",
			"channel", c.o.Name, "error", err)
	}
	return rows
}

// load gives the threads of the file as it is now.
func (b *bound) load(t *threads) ([]Thread, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if now, err := os.Stat(t.doc.Path()); err == nil && b.held != nil && same(b.info, now) {
		return b.rows, nil
	}
	b.forget()
	// Opened before it is read: what is read is never older than what is held.
	held, err := os.Open(t.doc.Path())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	info, err := held.Stat()
	if err == nil {
		b.rows, err = t.all()
	}
	if err != nil {
		_ = held.Close()
		return nil, err
	}
	b.held, b.info = held, info
	return b.rows, nil
}

// same reports whether the file at the path is still the one that is held, and
// unchanged.
func same(held, now fs.FileInfo) bool {
	return os.SameFile(held, now) && held.Size() == now.Size() && held.ModTime().Equal(now.ModTime())
}

func (b *bound) forget() {
	if b.held != nil {
		_ = b.held.Close()
	}
	b.held, b.info, b.rows = nil, nil, nil
}

// news reports whether err is another one than last time, and is one at all.
func (b *bound) news(err error) bool {
	text := ""
	if err != nil {
		text = err.Error()
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	changed := text != b.said
	b.said = text
	return changed && text != ""
}

// all reads the threads of our conversation, the oldest first.
func (t *threads) all() (rows []Thread, err error) {
	b, err := t.doc.Read()
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	f, err := parseBindings(b)
	if err != nil {
		return nil, err
	}
	for item := range f.threads {
		if b := t.own(f.find(item)); tsPattern().MatchString(b.TS) {
			rows = append(rows, Thread{item, b.Conversation, b.TS, b.At})
		}
	}
	slices.SortFunc(rows, func(a, b Thread) int {
		return cmp.Or(cmp.Compare(a.TS, b.TS), cmp.Compare(a.WorkItem, b.WorkItem))
	})
	return rows, nil
}
