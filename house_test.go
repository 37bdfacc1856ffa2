package docs_test

// Here the house is held to its rules: which package may import which, and what
// stands in no file.

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// layers lists the packages from the top of the house to its ground, those that
// stand side by side in one row. A package imports only from rows below its own.
// What is not listed must not be there.
var layers = [][]string{
	{"the-loop/cmd/the-loop", "the-loop/internal/proof"},
	{"the-loop/internal/daemon"},
	{"the-loop/status"},
	{"the-loop/internal/reader", "the-loop/internal/receiver"},
	{"the-loop/internal/inbound"},
	{"the-loop/internal/questions"},
	{"the-loop/drain"},
	{"the-loop/bus"},
	{"the-loop/outbox"},
	{"the-loop/internal/config", "the-loop/internal/eventlog", "the-loop/internal/ledger"},
	{"the-loop/channels/file", "the-loop/channels/github", "the-loop/channels/slack", "the-loop/channels/webhook"},
	{"the-loop/channels/channelstest", "the-loop/channels/internal/wire"},
	{"the-loop/channels"},
	{"the-loop/internal/lazy", "the-loop/internal/term", "the-loop/state"},
}

// goPackage is what `go list -json` says of a package.
type goPackage struct {
	ImportPath string
	Imports    []string
}

func goList(t *testing.T, args ...string) []goPackage {
	t.Helper()
	cmd := exec.Command("go", append([]string{"list", "-json"}, args...)...)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list %v: %v\n%s", args, err, &errs)
	}
	var all []goPackage
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var p goPackage
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
}

func layerOf(path string) int {
	return slices.IndexFunc(layers, func(row []string) bool { return slices.Contains(row, path) })
}

func TestImportsRunDownwardsOnly(t *testing.T) {
	seen := 0
	for _, p := range goList(t, "./...") {
		if p.ImportPath == "the-loop" { // these tests
			continue
		}
		from := layerOf(p.ImportPath)
		if from < 0 {
			t.Errorf("%s stands in no layer", p.ImportPath)
			continue
		}
		seen++
		for _, i := range p.Imports {
			if i != "the-loop" && !strings.HasPrefix(i, "the-loop/") {
				continue
			}
			if to := layerOf(i); to <= from {
				t.Errorf("%s imports %s, which is not below it", p.ImportPath, i)
			}
		}
	}
	if seen < 16 {
		t.Errorf("only %d packages were looked at", seen)
	}
}

// The surfaces know their own protocol and nothing of each other.
func TestASurfaceImportsNoOther(t *testing.T) {
	kinds := regexp.MustCompile(`^the-loop/channels/(file|slack|webhook|github)$`)
	for _, p := range goList(t, "./channels/...") {
		for _, i := range p.Imports {
			if kinds.MatchString(p.ImportPath) && kinds.MatchString(i) {
				t.Errorf("%s imports %s", p.ImportPath, i)
			}
		}
	}
}

func TestTheProgramHoldsNoTestCode(t *testing.T) {
	deps := goList(t, "-deps", "./cmd/the-loop")
	if len(deps) < 100 {
		t.Fatalf("only %d packages", len(deps))
	}
	for _, p := range deps {
		if p.ImportPath == "testing" || strings.HasPrefix(p.ImportPath, "testing/") ||
			strings.HasSuffix(p.ImportPath, "/channelstest") {
			t.Errorf("the-loop is built with %s", p.ImportPath)
		}
	}
}

// source is one Go file of ours.
type source struct {
	path  string
	lines []string
}

func (s source) isTest() bool {
	return strings.HasSuffix(s.path, "_test.go") || strings.Contains(s.path, "channelstest")
}

func sources(t *testing.T) []source {
	t.Helper()
	var out []source
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && path != "." && strings.HasPrefix(d.Name(), ".") {
			return filepath.SkipDir
		}
		if d.IsDir() || filepath.Ext(path) != ".go" {
			return nil
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		out = append(out, source{filepath.ToSlash(path), strings.Split(strings.TrimSuffix(string(b), "\n"), "\n")})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(out) < 80 {
		t.Fatalf("only %d files", len(out))
	}
	return out
}

func TestFilesAndLinesAreShort(t *testing.T) {
	const longestFile, longestLine = 600, 120
	for _, s := range sources(t) {
		if len(s.lines) > longestFile {
			t.Errorf("%s has %d lines, at most %d", s.path, len(s.lines), longestFile)
		}
		for n, line := range s.lines {
			if w := utf8.RuneCountInString(line); w > longestLine {
				t.Errorf("%s:%d has %d characters, at most %d", s.path, n+1, w, longestLine)
			}
		}
	}
}

// What begins by itself cannot be left out or put in order.
func TestNothingBeginsByItself(t *testing.T) {
	inits := regexp.MustCompile(`^func init\(`)
	for _, s := range sources(t) {
		for n, line := range s.lines {
			if inits.MatchString(line) {
				t.Errorf("%s:%d: %s", s.path, n+1, line)
			}
		}
	}
}

// A sleep in the program cannot be interrupted; one in a test is a guess, but
// in a synctest bubble, where time is ours. A bubble is looked for by its name
// anywhere in the file, which is all that can be seen without the types.
func TestNobodySleeps(t *testing.T) {
	const sleep = "time." + "Sleep("
	for _, s := range sources(t) {
		bubble := slices.ContainsFunc(s.lines, func(l string) bool { return strings.Contains(l, "synctest.Test(") })
		if s.isTest() && bubble {
			continue
		}
		for n, line := range s.lines {
			if strings.Contains(line, sleep) {
				t.Errorf("%s:%d: %s", s.path, n+1, strings.TrimSpace(line))
			}
		}
	}
}

// State that a package keeps for itself is shared by all who use it. A variable
// of a package is an error to compare with, a pattern that is compiled when it is
// used (each costs every command its start otherwise), a table that is only read,
// or a value for a flag of the linker.
func TestPackagesKeepNoState(t *testing.T) {
	variable := regexp.MustCompile(`^var (\w+)|^\t(\w+) += (regexp|lazy)\.`)
	fixed := regexp.MustCompile(`errors\.New\(|lazy\.Regexp\(|= map\[|= \[\]|strings\.NewReplacer\(|^var _ `)
	for _, s := range sources(t) {
		if s.isTest() || strings.HasPrefix(s.path, "tools/") {
			continue
		}
		for n, line := range s.lines {
			if variable.MatchString(line) && !fixed.MatchString(line) && line != "var (" {
				t.Errorf("%s:%d: %s", s.path, n+1, line)
			}
		}
	}
}

// What is built is built, and not kept: a big file in the tree is one that came
// in by mistake.
func TestNothingBigIsKept(t *testing.T) {
	const most = 256 << 10
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (path == "bin" || path == "dist" || path != "." && strings.HasPrefix(d.Name(), ".")):
			return filepath.SkipDir
		case d.IsDir() || path == "the-loop":
			return nil
		}
		info, err := d.Info()
		if err == nil && info.Size() > most {
			t.Errorf("%s has %d bytes, at most %d", path, info.Size(), most)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}
