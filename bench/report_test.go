package main

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestTableStandsBetweenItsMarks(t *testing.T) {
	path := filepath.Join(t.TempDir(), "performance.md")
	if err := os.WriteFile(path, []byte("before\n"+tableBegins+"old\n"+tableEnds+"after\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	within := judge(row{name: "one", what: "the floor", limit: 2}, []figures{{"3 ms", "2 ms", 1.5}})
	tooSlow := judge(row{name: "two", what: "the floor", limit: 0.5, least: true}, []figures{{"1/s", "1000/s", 0.001}})
	lacking := line{row: row{name: "three", what: "apprise", limit: 1}, absent: "there is no apprise here"}
	b := testBench(t, 5, "")
	for range 2 { // the second time over its own table
		if err := b.write(path, host{[]string{"a machine"}}, []line{within, tooSlow, lacking}); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"before\n", "\nafter\n", "- a machine\n", "performance-remember.svg",
		"| one | 3 ms | the floor: 2 ms | 1.50 (1.50 to 1.50) | ≤ 2 | ok |\n",
		"| two | 1/s | the floor: 1000/s | 0.001 (0.001 to 0.001) | ≥ 0.5 | over |\n",
		"| three | | apprise | | ≤ 1 | not measured: there is no apprise here |\n",
	} {
		if strings.Count(string(text), want) != 1 {
			t.Errorf("%q is not there once:\n%s", want, text)
		}
	}
	if strings.Contains(string(text), "old") {
		t.Errorf("the old table is there still:\n%s", text)
	}
}

func TestDocumentWithoutMarksIsLeftAlone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "performance.md")
	if err := os.WriteFile(path, []byte("no marks\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := testBench(t, 1, "").write(path, host{}, nil); err == nil {
		t.Error("written")
	}
	if b, err := os.ReadFile(path); string(b) != "no marks\n" || err != nil {
		t.Error(string(b), err)
	}
}

func TestPlotNeedsSizesToCompare(t *testing.T) {
	path := filepath.Join(t.TempDir(), "plot.svg")
	var p points
	p.add(100, time.Millisecond, time.Millisecond)
	if err := p.draw(path); err == nil {
		t.Error("drawn of one size")
	}
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
	p.add(1000, 2*time.Millisecond, time.Millisecond)
	if err := p.draw(path); err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(path); err != nil || !strings.Contains(string(b), "the-loop") {
		t.Error(err)
	}
}

// Figures that are not all of them, or not ours, are not written down.
func TestOnlyWholeTablesAreWritten(t *testing.T) {
	for _, args := range [][]string{
		{"-o", "x.md", "-only", "status"},
		{"-o", "x.md", "-slow", "status=2"},
		{"-runs", "0"},
		{"extra"},
		{"-only", "("},
		{"-slow", "2"},
	} {
		if _, err := parseOptions(args, io.Discard); err == nil {
			t.Errorf("%v was taken", args)
		}
	}
	o, err := parseOptions([]string{"-o", "x.md", "-check"}, io.Discard)
	if err != nil || o.out != "x.md" || !o.check || o.runs != 5 || !o.only.MatchString("anything") {
		t.Error(o, err)
	}
}
