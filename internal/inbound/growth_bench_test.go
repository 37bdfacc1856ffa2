package inbound_test

import (
	"fmt"
	"os"
	"testing"
	"time"

	"the-loop/state"
)

// BenchmarkTake takes one reply in beside n questions that were answered.
func BenchmarkTake(b *testing.B) {
	for _, n := range []int{10, 1000, 10_000} {
		b.Run(fmt.Sprintf("%d questions", n), func(b *testing.B) {
			s := newBenchSite(b)
			old := time.Now().Add(-time.Hour)
			for i := range n {
				id := fmt.Sprintf("q%06d", i)
				text := fmt.Sprintf(`{"version":1,"workItem":"local:a#1","text":"t","state":"answered",`+
					`"askedAt":"2026-01-01T00:00:00Z","closedAt":"2026-01-02T00:00:00Z",`+
					`"answer":{"text":"yes","via":"slack","at":"2026-01-01T00:00:00Z"},"id":%q}`, id)
				path := s.root.Path(state.Question(id))
				if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
					b.Fatal(err)
				}
				if err := os.Chtimes(path, old, old); err != nil {
					b.Fatal(err)
				}
			}
			if err := os.Chtimes(s.root.Path("questions"), old, old); err != nil {
				b.Fatal(err)
			}
			s.take(s.reply("hello"))
			for b.Loop() {
				s.take(s.reply("hello"))
			}
		})
	}
}

func newBenchSite(b *testing.B) *site {
	root, err := state.Open(b.TempDir())
	if err != nil {
		b.Fatal(err)
	}
	if err := os.MkdirAll(root.Path("questions"), 0o700); err != nil {
		b.Fatal(err)
	}
	return siteOn(b, root)
}
