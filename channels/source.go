package channels

import (
	"strings"
	"time"
)

// Watched is a work item that somebody was asked about.
type Watched struct {
	WorkItem string
	Open     bool      // a question is open
	Since    time.Time // when it was first asked about
}

// ReadPlace is one thing to read on a surface that is read by asking.
type ReadPlace struct {
	// Key names it in the file of cursors, and never changes:
	// "slack:C0123456:1699.0001", "github:o/r", "github:o/r#7".
	Key string
	// WorkItems are those whose open questions make it urgent; none for a whole
	// repository.
	WorkItems []string
	// Repo is the "o/r" of a whole repository.
	Repo string
}

// Covers reports whether the work item's answers may stand in the place.
func (p ReadPlace) Covers(workItem string) bool {
	for _, w := range p.WorkItems {
		if w == workItem {
			return true
		}
	}
	prefix := "github:" + p.Repo + "#"
	return p.Repo != "" && len(workItem) > len(prefix) && strings.EqualFold(workItem[:len(prefix)], prefix)
}
