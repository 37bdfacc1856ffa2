package docs_test

import (
	"io/fs"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestSecurityNamesItsTests holds docs/security.md against the tests that it
// names: each must be there, a function or a script.
func TestSecurityNamesItsTests(t *testing.T) {
	there := map[string]bool{}
	function := regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)\w+)\(`)
	err := filepath.WalkDir(".", func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if strings.HasSuffix(path, "_test.go") {
			for _, m := range function.FindAllStringSubmatch(read(t, path), -1) {
				there[m[1]] = true
			}
		}
		if filepath.Base(filepath.Dir(path)) == "script" {
			there[filepath.Base(path)] = true
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	rows := table(t, "docs/security.md", "what")
	if len(rows) < 10 {
		t.Fatalf("%d rows", len(rows))
	}
	for _, row := range rows {
		names := code(row[1])
		if len(names) == 0 {
			t.Errorf("nothing holds %q", row[0])
		}
		for _, name := range names {
			if !there[name] {
				t.Errorf("docs/security.md names %s, which is not there", name)
			}
		}
	}
}
