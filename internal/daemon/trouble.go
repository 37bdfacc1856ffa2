package daemon

import (
	"log/slog"
	"strings"
	"sync"
	"time"
)

// trouble logs a failure that comes back again and again once: when its text
// changes, once an hour, and when it is over. Digits are no change: they are
// the names of temporary files, ports, counts.
type trouble struct {
	mu     sync.Mutex
	text   string
	count  int
	logged time.Time
}

func (t *trouble) report(logger *slog.Logger, what string, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err == nil {
		if t.count > 0 {
			logger.Info("recovered", "what", what, "after_attempts", t.count)
		}
		t.text, t.count = "", 0
		return
	}
	t.count++
	if text := kind(err.Error()); text != t.text || time.Since(t.logged) >= time.Hour {
		t.text, t.logged = text, time.Now()
		logger.Error(what, "error", err)
	}
}

func kind(text string) string {
	return strings.Map(func(r rune) rune {
		if '0' <= r && r <= '9' {
			return -1
		}
		return r
	}, text)
}

func firstLine(err error) string {
	line, _, _ := strings.Cut(err.Error(), "\n")
	return line
}
