package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"text/tabwriter"
)

// host is the machine, in words.
type host struct{ lines []string }

// machine says what machine this is, without its name.
func machine(dir string) host {
	cpu, err := firstValue("/proc/cpuinfo", "model name")
	if err != nil {
		cpu = runtime.GOARCH
	}
	release, _ := os.ReadFile("/proc/sys/kernel/osrelease")
	kernel, _, _ := strings.Cut(strings.TrimSpace(string(release)), "-") // what follows is whoever built it
	memory, _ := valueIn("/proc/meminfo", "MemTotal")
	return host{[]string{
		fmt.Sprintf("%s, %d cores, %.0f GB", cpu, runtime.NumCPU(), memory*1024/1e9),
		fmt.Sprintf("%s %s, %s", runtime.GOOS, kernel, fileSystem(dir)),
		runtime.Version(),
	}}
}

// firstValue gives what follows a key in a file of /proc.
func firstValue(path, key string) (string, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	for l := range strings.Lines(string(b)) {
		if name, value, _ := strings.Cut(l, ":"); strings.TrimSpace(name) == key {
			return strings.TrimSpace(value), nil
		}
	}
	return "", fmt.Errorf("%s has no %s", path, key)
}

// fileSystem is the kind of the file system that a folder is on.
func fileSystem(dir string) string {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return "unknown file system"
	}
	b, _ := os.ReadFile("/proc/mounts")
	best, kind := "", "unknown file system"
	for l := range strings.Lines(string(b)) {
		f := strings.Fields(l)
		if len(f) < 3 {
			continue
		}
		if within := strings.HasPrefix(abs+"/", strings.TrimSuffix(f[1], "/")+"/"); within && len(f[1]) >= len(best) {
			best, kind = f[1], f[2]
		}
	}
	return kind
}

func (l line) limitText() string {
	if l.least {
		return fmt.Sprintf("≥ %g", l.limit)
	}
	return fmt.Sprintf("≤ %g", l.limit)
}

func printTable(w io.Writer, m host, lines []line) {
	fmt.Fprintln(w, strings.Join(m.lines, "; "))
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "what\tours\tfloor\tratio\tlimit\t")
	for _, l := range lines {
		if !l.measured() {
			fmt.Fprintf(t, "%s\t-\t-\t-\t%s\t%s\n", l.name, l.limitText(), firstLine(l.verdict()))
			continue
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\n", l.name, l.ours, l.floor, short(l.ratio), l.limitText(), l.verdict())
	}
	_ = t.Flush()
}

const (
	tableBegins = "<!-- make bench writes from here -->\n"
	tableEnds   = "<!-- to here -->\n"
)

// write puts the table into the document, between its marks.
func (b *bench) write(path string, m host, lines []line) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	before, rest, ok := bytes.Cut(text, []byte(tableBegins))
	_, after, ok2 := bytes.Cut(rest, []byte(tableEnds))
	if !ok || !ok2 {
		return errors.New(path + " has no place for the table")
	}
	var out bytes.Buffer
	out.Write(before)
	out.WriteString(tableBegins + "\n")
	for _, l := range m.lines {
		fmt.Fprintf(&out, "- %s\n", l)
	}
	fmt.Fprintf(&out, "- medians of %d runs; in brackets the least and the greatest ratio of them\n\n", b.runs)
	out.WriteString("| what | ours | beside it | ratio | limit | |\n|---|---|---|---|---|---|\n")
	for _, l := range lines {
		if !l.measured() {
			fmt.Fprintf(&out, "| %s | | %s | | %s | %s |\n", l.name, l.what, l.limitText(), firstLine(l.verdict()))
			continue
		}
		fmt.Fprintf(&out, "| %s | %s | %s: %s | %s (%s to %s) | %s | %s |\n",
			l.name, l.ours, l.what, l.floor, short(l.ratio), short(l.spread[0]), short(l.spread[1]), l.limitText(), l.verdict())
	}
	fmt.Fprintf(&out, "\n![the cost per remember against the size of the backlog](%s)\n\n%s",
		filepath.Base(plotBeside(path)), tableEnds)
	out.Write(after)
	return os.WriteFile(path, out.Bytes(), 0o644)
}

// plotBeside gives the plot that stands beside a document.
func plotBeside(path string) string {
	return strings.TrimSuffix(path, filepath.Ext(path)) + "-remember.svg"
}

// short is a ratio in two places, or in two digits where those would be none.
func short(ratio float64) string {
	if ratio > 0 && ratio < 0.1 {
		return fmt.Sprintf("%.2g", ratio)
	}
	return fmt.Sprintf("%.2f", ratio)
}

func firstLine(text string) string {
	first, _, _ := strings.Cut(text, "\n")
	return first
}
