package docs_test

import (
	"flag"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
)

var (
	update = flag.Bool("update", false, "write what is generated anew")
	strict = flag.Bool("strict", false, "what is generated must be as it would be now")
)

// binaries holds the program and the receiver, once bin has built them.
var binaries string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "the-loop-docs-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	binaries = dir
	exit := m.Run()
	_ = os.RemoveAll(dir)
	os.Exit(exit)
}

var build = sync.OnceValue(func() error {
	cmd := exec.Command("go", "build", "-buildvcs=false", "-o", binaries+"/", "./cmd/the-loop", "./testdata/receiver")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build: %w\n%s", err, out)
	}
	return nil
})

func bin(t *testing.T) string {
	t.Helper()
	if err := build(); err != nil {
		t.Fatal(err)
	}
	return binaries
}

// markdown lists all pages.
func markdown(t *testing.T) []string {
	t.Helper()
	files := []string{"README.md", "CHANGELOG.md"}
	err := filepath.WalkDir("docs", func(path string, _ fs.DirEntry, err error) error {
		if strings.HasSuffix(path, ".md") {
			files = append(files, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

var (
	link    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading = regexp.MustCompile(`(?m)^#+ (.+)$`)
	noSlug  = regexp.MustCompile(`[^\p{L}\p{N} _-]`)
)

func TestLinksLeadSomewhere(t *testing.T) {
	for _, file := range markdown(t) {
		for _, m := range link.FindAllStringSubmatch(read(t, file), -1) {
			if strings.HasPrefix(m[1], "https://") {
				continue
			}
			path, anchor, _ := strings.Cut(m[1], "#")
			target := filepath.Join(filepath.Dir(file), path)
			if path == "" {
				target = file
			}
			if _, err := os.Stat(target); err != nil || filepath.IsAbs(path) {
				t.Errorf("%s: %s leads nowhere", file, m[1])
				continue
			}
			if anchor == "" {
				continue
			}
			var anchors []string
			for _, h := range heading.FindAllStringSubmatch(read(t, target), -1) {
				slug := noSlug.ReplaceAllString(strings.ToLower(h[1]), "")
				anchors = append(anchors, strings.ReplaceAll(slug, " ", "-"))
			}
			if !slices.Contains(anchors, anchor) {
				t.Errorf("%s: %s has no heading for #%s", file, target, anchor)
			}
		}
	}
}

func TestEveryPageIsLinked(t *testing.T) {
	var linked []string
	for _, file := range markdown(t) {
		for _, m := range link.FindAllStringSubmatch(read(t, file), -1) {
			path, _, _ := strings.Cut(m[1], "#")
			linked = append(linked, filepath.Join(filepath.Dir(file), path))
		}
	}
	for _, file := range markdown(t) {
		if file != "README.md" && !slices.Contains(linked, file) && !slices.Contains(linked, filepath.Dir(file)) {
			t.Errorf("no page links to %s", file)
		}
	}
}

func TestNoLineNumbers(t *testing.T) {
	number := regexp.MustCompile(`\.go:\d+|\blines? \d+`)
	for _, file := range markdown(t) {
		if m := number.FindString(read(t, file)); m != "" {
			t.Errorf("%s: %q will be wrong soon", file, m)
		}
	}
}

// TestCommandsExist walks every command line of ours in the pages: in console
// blocks what follows a "$ ", in prose what is marked as code.
func TestCommandsExist(t *testing.T) {
	typed := regexp.MustCompile("(?m)^\\$ (.*)$|`((?:the-loop|make) [a-z][^`]*)`")
	sep := regexp.MustCompile(`&&|\|\||[;|&]`)
	targets := read(t, "Makefile")
	seen := 0
	for _, file := range markdown(t) {
		for _, m := range typed.FindAllStringSubmatch(read(t, file), -1) {
			for _, part := range sep.Split(m[1]+m[2], -1) {
				words := strings.Fields(strings.Replace(part, "go run ./cmd/the-loop", "the-loop", 1))
				switch {
				case len(words) < 2:
				case words[0] == "make":
					seen++
					if !strings.Contains(targets, "\n"+words[1]+":") {
						t.Errorf("%s: there is no target for %q", file, strings.TrimSpace(part))
					}
				case words[0] == "the-loop":
					seen++
					if err := commandExists(t, words[1:]); err != nil {
						t.Errorf("%s: %q: %v", file, strings.TrimSpace(part), err)
					}
				}
			}
		}
	}
	for _, file := range markdown(t) {
		for _, marked := range code(read(t, file)) {
			flag, _, _ := strings.Cut(marked, " ")
			if !strings.HasPrefix(flag, "--") || file == "docs/testing.md" {
				continue
			}
			if !slices.ContainsFunc(slices.Collect(maps.Values(helpTexts)), func(h string) bool { return hasFlag(h, flag) }) {
				t.Errorf("%s: no command has the flag %s", file, flag)
			}
		}
	}
	if seen < 30 {
		t.Errorf("only %d commands were found", seen)
	}
}

var helpTexts = map[string]string{} // of one test, by command

func commandExists(t *testing.T, words []string) error {
	t.Helper()
	name := regexp.MustCompile(`^[a-z][a-z-]+$`)
	path := words[:1]
	nested := []string{"outbox", "channels", "questions", "inbox", "ask"}
	if slices.Contains(nested, words[0]) && len(words) > 1 && name.MatchString(words[1]) {
		path = words[:2]
	}
	command := strings.Join(path, " ")
	help, ok := helpTexts[command]
	if !ok {
		out, err := exec.Command(filepath.Join(bin(t), "the-loop"), append(slices.Clone(path), "--help")...).CombinedOutput()
		if err != nil {
			return fmt.Errorf("--help: %w", err)
		}
		help = string(out)
		helpTexts[command] = help
	}
	if !strings.Contains(help, "the-loop "+command+" - ") {
		return fmt.Errorf("there is no command %s", command)
	}
	for _, w := range words[len(path):] {
		flag, _, _ := strings.Cut(w, "=")
		if strings.HasPrefix(flag, "--") && !hasFlag(help, flag) {
			return fmt.Errorf("there is no flag %s", flag)
		}
	}
	return nil
}

func hasFlag(help, flag string) bool {
	return regexp.MustCompile(regexp.QuoteMeta(flag) + `\b`).MatchString(help)
}

// TestCIRunsTheReadmesCommand: what a reader is told to type is what CI runs.
func TestCIRunsTheReadmesCommand(t *testing.T) {
	lines := strings.Split(strings.TrimSpace(read(t, ".ci/run")), "\n")
	last := lines[len(lines)-1]
	_, block, _ := strings.Cut(read(t, "README.md"), "```console\n")
	if !strings.Contains(block[:strings.Index(block, "```")], "$ "+last+"\n") {
		t.Errorf("the README's first block does not have %q, which CI runs", last)
	}
}

// TestGeneratedTables holds the tables of tests against the tests that there
// are. A test that is named must exist; only with -strict may none be missing.
func TestGeneratedTables(t *testing.T) {
	tests := map[string][]string{}
	names := regexp.MustCompile(`(?m)^func (Test\w+)\(|["./]((?:[A-Z]-\d\d)_\w+)`)
	script := regexp.MustCompile(`^[A-Z]\d+_[a-z_]+$`) // its name is the subtest's
	err := filepath.WalkDir(".", func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if name := strings.TrimSuffix(filepath.Base(path), ".txt"); script.MatchString(name) {
			tests[name] = append(tests[name], filepath.Dir(path))
		}
		if !strings.HasSuffix(path, "_test.go") && !strings.HasPrefix(path, "channels/channelstest/") {
			return nil
		}
		for _, m := range names.FindAllStringSubmatch(read(t, path), -1) {
			tests[m[1]+m[2]] = append(tests[m[1]+m[2]], filepath.Dir(path))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	generated(t, "docs/delivery.md", "promises", tests, regexp.MustCompile(`^(?:Test)?P([1-9]\d?(?:P[1-9]\d?)*)_`), "P")
	generated(t, "docs/testing.md", "cases", tests, regexp.MustCompile(`^(?:Test)?([A-OQ-Z]-?\d\d|P-?0\d)_`), "")
}

func generated(t *testing.T, file, what string, tests map[string][]string, pattern *regexp.Regexp, prefix string) {
	t.Helper()
	rows := map[string][]string{}
	for name := range tests {
		m := pattern.FindStringSubmatch(name)
		if m == nil {
			continue
		}
		keys := []string{m[1]}
		if prefix != "" { // TestP1P2_ carries both
			keys = strings.Split(m[1], prefix)
		}
		for _, key := range keys {
			key = prefix + key
			if prefix == "" && !strings.Contains(key, "-") {
				key = key[:1] + "-" + key[1:]
			}
			rows[key] = append(rows[key], "`"+name+"`")
		}
	}
	var keys []string
	for key := range rows {
		keys = append(keys, key)
	}
	slices.SortFunc(keys, func(a, b string) int {
		return strings.Compare(fmt.Sprintf("%c%5s", a[0], a[1:]), fmt.Sprintf("%c%5s", b[0], b[1:]))
	})
	var now strings.Builder
	now.WriteString("| | tests |\n|---|---|\n")
	for _, key := range keys {
		slices.Sort(rows[key])
		fmt.Fprintf(&now, "| %s | %s |\n", key, strings.Join(rows[key], " "))
	}
	page := read(t, file)
	begin, end := "<!-- generated: "+what+" -->\n", "<!-- end -->"
	before, rest, ok := strings.Cut(page, begin)
	block, after, closed := strings.Cut(rest, end)
	if !ok || !closed {
		t.Fatalf("%s has no place for the generated table", file)
	}
	for _, name := range code(block) {
		if tests[name] == nil && !*update {
			t.Errorf("%s names %s, which is gone (make docs)", file, name)
		}
	}
	switch {
	case block == now.String():
	case *update:
		if err := os.WriteFile(file, []byte(before+begin+now.String()+end+after), 0o644); err != nil {
			t.Fatal(err)
		}
	case *strict:
		t.Errorf("%s is old (make docs):\n%s", file, firstDifferences(block, now.String()))
	}
}

func firstDifferences(docs, now string) string {
	var b strings.Builder
	d, n := strings.Split(docs, "\n"), strings.Split(now, "\n")
	for i, shown := 0, 0; i < max(len(d), len(n)) && shown < 8; i++ {
		var dl, nl string
		if i < len(d) {
			dl = d[i]
		}
		if i < len(n) {
			nl = n[i]
		}
		if dl != nl {
			fmt.Fprintf(&b, "  docs: %s\n  now:  %s\n", dl, nl)
			shown++
		}
	}
	return b.String()
}
