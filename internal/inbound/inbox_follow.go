package inbound

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"slices"
	"time"

	"the-loop/state"
)

// Follower gives unread lines as they come. It is used by one goroutine. Two
// followers of one root both give a line that neither has marked as read.
type Follower struct {
	root  *state.Root
	wants func(workItem string) bool
	seen  map[string]*followed // by slug

	// Missed counts the unread lines that were gone when their turn came: the
	// inbox had been turned over twice, or was damaged.
	Missed int64
}

// followed is what is known of one inbox.
type followed struct {
	workItem string
	given    int64 // up to here its lines were given
	stamp    stamp // of the files when they were read last
}

// stamp changes when something is appended, turned over or marked as read.
type stamp [3]struct {
	size int64
	at   time.Time
}

// Follow gives a follower of the inboxes whose work item is wanted; nil is all.
func Follow(root *state.Root, wants func(workItem string) bool) *Follower {
	return &Follower{root: root, wants: wants, seen: map[string]*followed{}}
}

// FollowEvery is how often Wait looks.
const FollowEvery = 100 * time.Millisecond

// Wait gives what Next gives as soon as that is something. It returns no lines
// and the cause when ctx ends first.
func (f *Follower) Wait(ctx context.Context) ([]Line, error) {
	tick := time.NewTicker(FollowEvery)
	defer tick.Stop()
	for {
		lines, err := f.Next()
		if err != nil || len(lines) > 0 {
			return lines, err
		}
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-tick.C:
		}
	}
}

// Next gives the unread lines that it has not given before: those of one work
// item in their order, those of several by when they were taken in. An inbox in
// which nothing changed is not opened.
func (f *Follower) Next() ([]Line, error) {
	slugs, err := inboxSlugs(f.root)
	if err != nil {
		return nil, err
	}
	var boxes [][]Line
	for _, slug := range slugs {
		lines, err := f.next(slug)
		if err != nil {
			return nil, err
		}
		if len(lines) > 0 {
			boxes = append(boxes, lines)
		}
	}
	return merge(boxes), nil
}

// merge takes the earliest of the boxes' first lines again and again, so that
// within a box no clock that was set changes the order.
func merge(boxes [][]Line) (out []Line) {
	for len(boxes) > 0 {
		first := 0
		for i, box := range boxes {
			if box[0].ReceivedAt.Before(boxes[first][0].ReceivedAt) {
				first = i
			}
		}
		out = append(out, boxes[first][0])
		if boxes[first] = boxes[first][1:]; len(boxes[first]) == 0 {
			boxes = slices.Delete(boxes, first, first+1)
		}
	}
	return out
}

func (f *Follower) next(slug string) ([]Line, error) {
	in := f.seen[slug]
	if in == nil {
		in = &followed{}
		f.seen[slug] = in
	}
	if in.workItem != "" && f.wants != nil && !f.wants(in.workItem) {
		return nil, nil
	}
	now, err := f.stamp(slug)
	if err != nil || now == in.stamp {
		return nil, err
	}
	read, err := readUpTo(f.root, slug)
	if err != nil {
		return nil, err
	}
	from := max(read, in.given)
	lines, err := inboxAfter(f.root, slug, from)
	if err != nil {
		return nil, err
	}
	in.stamp = now
	if len(lines) == 0 {
		return nil, nil
	}
	in.workItem = lines[0].WorkItem
	if f.wants != nil && !f.wants(in.workItem) {
		return nil, nil
	}
	for _, l := range lines {
		f.Missed += l.Seq - from - 1
		from = l.Seq
	}
	in.given = from
	return lines, nil
}

// stamp is taken before the files are read: what is added meanwhile is found
// the next time.
func (f *Follower) stamp(slug string) (s stamp, err error) {
	for i, name := range []string{state.Inbox(slug), state.Inbox(slug) + ".1", state.InboxRead(slug)} {
		fi, err := os.Stat(f.root.Path(name))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return s, err
		}
		s[i].size, s[i].at = fi.Size(), fi.ModTime()
	}
	return s, nil
}
