package ledger

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"

	"pgregory.net/rapid"

	"the-loop/channels"
	"the-loop/state"
)

func open(t *testing.T) *state.Root {
	t.Helper()
	root, err := state.Open(filepath.Join(t.TempDir(), "root"))
	if err != nil {
		t.Fatal(err)
	}
	return root
}

func event(id string) channels.Event {
	return channels.Event{ID: id, Type: "work_item.done", WorkItem: "github:o/r#7", Text: "<b> & text"}
}

// records gives the events in a work item's file.
func records(t *testing.T, root *state.Root, workItem string) (out []string) {
	t.Helper()
	err := root.Log(state.LedgerFile(Slug(workItem))).Lines(func(b []byte) bool {
		out = append(out, string(b))
		return true
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestSlugIsReadableDistinctAndPortable(t *testing.T) {
	for in, want := range map[string]string{
		"github:o/r#7": "github-o-r-7-", "local:name#1": "local-name-1-", "": "none-", "///": "none-",
		"github:Octo/Repo#7": "github-octo-repo-7-",
	} {
		if got := Slug(in); !strings.HasPrefix(got, want) || len(got) != len(want)+8 {
			t.Errorf("%q: %s", in, got)
		}
	}
	portable := regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,39}-[0-9a-f]{8}$`)
	seen := map[string]string{}
	refs := rapid.OneOf(
		rapid.StringMatching(`github:[A-Za-z0-9-]{1,39}/[A-Za-z0-9._-]{1,100}#[1-9][0-9]{0,8}`),
		rapid.StringMatching(`local:[a-z0-9._-]{1,64}#[1-9]`), rapid.String(),
	)
	rapid.Check(t, func(t *rapid.T) {
		ref := refs.Draw(t, "ref")
		slug := Slug(ref)
		if !portable.MatchString(slug) || slug != Slug(ref) || !state.IsDeclared(state.LedgerFile(slug)) {
			t.Fatalf("%q: %s", ref, slug)
		}
		if other, twice := seen[slug]; twice && other != ref {
			t.Fatalf("%q and %q are both %s", ref, other, slug)
		}
		seen[slug] = ref
	})
	for _, pair := range [][2]string{
		{"github:o/r#7", "github:O/R#7"}, {"github:o/r#7", "github:o/r-7"}, {"github:o/r.x#1", "github:o/r-x#1"},
	} {
		if a, b := Slug(pair[0]), Slug(pair[1]); strings.EqualFold(a, b) {
			t.Errorf("%v are both %s", pair, a)
		}
	}
}

func TestRecordIsDurableOnReturn(t *testing.T) {
	var ops []string
	root := open(t)
	watched := root.WithSteps(func(op state.Op, path string) error {
		ops = append(ops, string(op))
		return nil
	})
	link, err := NewLocal(watched).Record(t.Context(), event("A"))
	if err != nil || link != root.Path(state.LedgerFile(Slug("github:o/r#7")))+"#A" {
		t.Errorf("%s, %v", link, err)
	}
	if got := strings.Join(ops, " "); !strings.HasSuffix(got, "create append sync syncdir") {
		t.Errorf("%s", got)
	}
	got := records(t, root, "github:o/r#7")
	if len(got) != 1 || !strings.HasPrefix(got[0], `{"id":"A","at":"`) ||
		!strings.Contains(got[0], `"eventType":"work_item.done"`) {
		t.Errorf("%q", got)
	}
}

func TestARecordThatFailsIsAnError(t *testing.T) {
	for n := 0; ; n++ {
		root, left, hit := open(t), n, false
		broken := root.WithSteps(func(op state.Op, path string) error {
			if left--; left == -1 {
				hit = true
				return &os.PathError{Op: string(op), Path: path, Err: syscall.EIO}
			}
			return nil
		})
		link, err := NewLocal(broken).Record(t.Context(), event("A"))
		if !hit {
			if err != nil {
				t.Error(err)
			}
			return
		}
		if !errors.Is(err, syscall.EIO) || link != "" {
			t.Errorf("step %d failed: %q, %v", n, link, err)
		}
		if _, err := NewLocal(root).Record(t.Context(), event("A")); err != nil {
			t.Errorf("step %d failed, again: %v", n, err)
		}
		if got := records(t, root, "github:o/r#7"); len(got) != 1 {
			t.Errorf("step %d failed, and it stands %d times", n, len(got))
		}
	}
}

func TestOneIDIsRecordedOnce(t *testing.T) {
	root := open(t)
	for _, id := range []string{"A", "A", "AB", "a,b", "a,c", "<&>", "<&>", `q"`, `q"`, "A"} {
		if _, err := NewLocal(root).Record(t.Context(), event(id)); err != nil {
			t.Fatal(err)
		}
	}
	if got := records(t, root, "github:o/r#7"); len(got) != 6 {
		t.Errorf("%d records of 6 ids:\n%s", len(got), strings.Join(got, "\n"))
	}
}

func TestATornRecordIsNoRecord(t *testing.T) {
	root := open(t)
	l := NewLocal(root)
	path := root.Path(state.LedgerFile(Slug("github:o/r#7")))
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(`{"id":"A","at":"2026-09-22T10:00:00Z","event":{"eve`), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"B", "A"} { // B ends the torn line
		if _, err := l.Record(t.Context(), event(id)); err != nil {
			t.Fatal(err)
		}
	}
	got := records(t, root, "github:o/r#7")
	if len(got) != 3 || !strings.HasPrefix(got[2], `{"id":"A",`) || !strings.HasSuffix(got[2], "}") {
		t.Errorf("%q", got)
	}
}

func TestConcurrentRecordsStandWhole(t *testing.T) {
	root := open(t)
	var wg sync.WaitGroup
	for i := range 20 {
		wg.Go(func() {
			ev := event(fmt.Sprintf("%02d", i))
			ev.Text = strings.Repeat("long ", 3000)
			if _, err := NewLocal(root).Record(t.Context(), ev); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	ids := map[string]bool{}
	for _, line := range records(t, root, "github:o/r#7") {
		ids[line[:10]] = true
		if !strings.HasSuffix(line, "}}") {
			t.Errorf("torn: %.60s", line)
		}
	}
	if len(ids) != 20 {
		t.Errorf("%d records of 20", len(ids))
	}
}

func TestItemsHaveFilesOfTheirOwn(t *testing.T) {
	root := open(t)
	for _, item := range []string{"github:o/r#7", "github:o/r#8", ""} {
		ev := event("A")
		ev.WorkItem = item
		if _, err := NewLocal(root).Record(t.Context(), ev); err != nil {
			t.Fatal(err)
		}
	}
	for _, item := range []string{"github:o/r#7", "github:o/r#8", ""} {
		if got := records(t, root, item); len(got) != 1 {
			t.Errorf("%q: %d records", item, len(got))
		}
	}
}
