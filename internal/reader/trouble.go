package reader

import (
	"fmt"
	"path/filepath"
	"runtime"
	"strings"
	"time"
)

// trouble keeps what fails at a source, so that it is said once: when its text
// is new, once an hour, and when all of it is over. Digits are no change: they
// are ports, counts, the names of temporary files.
type trouble struct {
	failing  map[string]string // by place: the text
	said     map[string]time.Time
	attempts int
}

func newTrouble() trouble { return trouble{failing: map[string]string{}, said: map[string]time.Time{}} }

// fails notes a failure and reports whether to say it.
func (t *trouble) fails(key string, err error, now time.Time) bool {
	text := strings.Map(func(r rune) rune {
		if '0' <= r && r <= '9' {
			return -1
		}
		return r
	}, err.Error())
	t.failing[key] = text
	t.attempts++
	if at, ok := t.said[text]; ok && now.Sub(at) < time.Hour {
		return false
	}
	if len(t.said) > 100 {
		clear(t.said)
	}
	t.said[text] = now
	return true
}

// ends notes that the place is well and reports whether all are, after how many
// failures.
func (t *trouble) ends(key string) (attempts int, over bool) {
	if _, ok := t.failing[key]; !ok {
		return 0, false
	}
	delete(t.failing, key)
	if len(t.failing) > 0 {
		return 0, false
	}
	attempts = t.attempts
	*t = newTrouble()
	return attempts, true
}

// settle says how a read of the place ended, where that is news.
func (s *source) settle(key string, err error) {
	now := time.Now()
	say, over, attempts := false, false, 0
	s.mu.Lock()
	if err != nil {
		say = s.trouble.fails(key, err, now)
		s.now.LastError, _, _ = strings.Cut(err.Error(), "\n")
	} else if attempts, over = s.trouble.ends(key); over {
		s.now.LastError = ""
	}
	s.mu.Unlock()
	switch {
	case say && strings.HasPrefix(key, "\x00"):
		s.r.opts.Log.Error("reading failed", "source", s.src.Name(), "error", err)
	case say:
		s.r.opts.Log.Error("reading failed", "source", s.src.Name(), "place", key, "error", err)
	case over:
		s.r.opts.Log.Info("recovered", "source", s.src.Name(), "after_attempts", attempts)
	}
	if s.r.opts.Trouble != nil && (say || over) {
		s.r.opts.Trouble(s.src.Name(), err)
	}
}

// survive turns a panic into an error, which says where it was. Of the panic's
// own words it keeps those of Go's runtime; any other may hold what came in.
func survive(f func() error) (err error) {
	defer func() {
		p := recover()
		if p == nil {
			return
		}
		what := fmt.Sprintf("%T", p)
		if e, ok := p.(runtime.Error); ok {
			what = e.Error()
		}
		var pcs [32]uintptr
		frames := runtime.CallersFrames(pcs[:runtime.Callers(2, pcs[:])])
		var at strings.Builder
		for n := 0; n < 6; {
			f, more := frames.Next()
			if f.Function != "" && !strings.HasPrefix(f.Function, "runtime.") {
				fmt.Fprintf(&at, " < %s:%d", filepath.Base(f.File), f.Line)
				n++
			}
			if !more {
				break
			}
		}
		err = fmt.Errorf("panic: %s%s", what, &at)
	}()
	return f()
}
