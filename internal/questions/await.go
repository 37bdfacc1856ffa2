package questions

import (
	"context"
	"os"
	"time"

	"the-loop/state"
)

const (
	lookEvery = 100 * time.Millisecond
	// mirrorFor is how long an answer that is there waits for its copy.
	mirrorFor = 10 * time.Second
)

// Await waits until a question is closed and gives it. An answer whose copy is
// on its way to the ledger is waited for ten seconds longer. When ctx ends it
// gives the question as it was seen last, and the cause. A file that cannot be
// read any more ends it too.
//
// It closes nothing: a question whose time is over is closed by others.
func Await(ctx context.Context, root *state.Root, id string) (q Question, err error) {
	path := document(root, id).Path()
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	var seen glimpse
	defer func() { _ = seen.file.Close() }() // closing none is an error, and nothing else
	var answered time.Time                   // when we saw that it is
	for {
		if !seen.holds(path) {
			_ = seen.file.Close()
			seen = look(path) // before it is read: what is newer is then seen as changed
			if q, err = Get(root, id); err != nil {
				return q, err
			}
		}
		if q.State != StateOpen {
			if answered.IsZero() {
				answered = time.Now()
			}
			if q.Answer == nil || q.Answer.Mirror != MirrorPending ||
				time.Since(answered) > mirrorFor || time.Since(q.ClosedAt) > mirrorFor {
				return q, nil
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return q, context.Cause(ctx)
		}
	}
}

// glimpse is a file as it was seen, held open so that its inode is not given to
// another file.
type glimpse struct {
	file *os.File
	info os.FileInfo
}

func look(path string) (g glimpse) {
	f, err := os.Open(path)
	if err != nil {
		return g
	}
	g.file = f
	g.info, _ = f.Stat()
	return g
}

// holds reports whether what stands at path is that file, and as it was: we
// replace it by a rename, and editors may write into it.
func (g glimpse) holds(path string) bool {
	if g.info == nil {
		return false
	}
	now, err := os.Stat(path)
	return err == nil && os.SameFile(g.info, now) && now.ModTime().Equal(g.info.ModTime()) && now.Size() == g.info.Size()
}
