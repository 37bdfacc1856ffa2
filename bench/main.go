// Command bench measures the-loop against the floor of the machine that it runs
// on, and writes docs/performance.md.
//
// Every figure stands beside what the same disk, processor and loopback need at
// the very least for the same bytes, measured in the same minute and in turn, so
// that whatever else the machine does slows down both. What counts is the ratio.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strconv"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// bench is what all rows share.
type bench struct {
	ctx  context.Context
	dir  string // on the disk that is measured
	bin  string // the programs
	runs int
	slow slowdown
	// cost is for the plot, and roots are what the row that is measured left.
	cost  points
	roots []string
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	if len(args) > 0 && args[0] == publisherCommand {
		return publisher(ctx, args[1:], stdout, stderr)
	}
	o, err := parseOptions(args, stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		fmt.Fprintf(stderr, "bench: %v\n", err)
		return 2
	}
	temp, err := os.MkdirTemp(o.dir, ".bench-")
	if err != nil {
		fmt.Fprintf(stderr, "bench: %v\n", err)
		return 1
	}
	defer os.RemoveAll(temp)
	if temp, err = filepath.Abs(temp); err == nil {
		b := &bench{ctx: ctx, dir: temp, bin: filepath.Join(temp, "bin"), runs: o.runs, slow: o.slow}
		err = b.all(o, stdout, stderr)
	}
	if err != nil {
		fmt.Fprintf(stderr, "bench: %v\n", err)
		return 1
	}
	return 0
}

// options are what was asked for.
type options struct {
	only     *regexp.Regexp
	runs     int
	out, dir string
	check    bool
	slow     slowdown
}

func parseOptions(args []string, stderr io.Writer) (o options, err error) {
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.SetOutput(stderr)
	only := flags.String("only", "", "measure the rows whose name matches `REGEXP`")
	slow := flags.String("slow", "", "make rows look slower: `REGEXP=FACTOR`, to see the check go red")
	flags.IntVar(&o.runs, "runs", 5, "take each figure `N` times")
	flags.StringVar(&o.out, "o", "", "write the table into `FILE`, between its marks, and the plot beside it")
	flags.BoolVar(&o.check, "check", false, "exit 1 when a row is over its limit in three tries")
	flags.StringVar(&o.dir, "dir", ".", "measure on the disk of this `FOLDER`")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	switch {
	case flags.NArg() > 0:
		return o, fmt.Errorf("what is %q?", flags.Arg(0))
	case o.runs < 1:
		return o, fmt.Errorf("-runs %d: at least 1", o.runs)
	case o.out != "" && (*only != "" || *slow != ""):
		return o, errors.New("-o writes all rows as they are: it goes with neither -only nor -slow")
	}
	if o.slow, err = parseSlowdown(*slow); err != nil {
		return o, fmt.Errorf("-slow %w", err)
	}
	o.only, err = regexp.Compile(*only)
	return o, err
}

func (b *bench) all(o options, stdout, stderr io.Writer) error {
	if err := b.build(); err != nil {
		return err
	}
	var lines []line
	for _, r := range rows() {
		if !o.only.MatchString(r.name) {
			continue
		}
		fmt.Fprintf(stderr, "%s …\n", r.name)
		tries := 1
		if o.check {
			tries = checkTries
		}
		lines = append(lines, b.measure(r, tries))
		if b.ctx.Err() != nil {
			return context.Cause(b.ctx)
		}
	}
	if len(lines) == 0 {
		return fmt.Errorf("no row is called %s", o.only)
	}
	m := machine(b.dir)
	printTable(stdout, m, lines)
	for _, l := range lines {
		if l.failed != "" {
			fmt.Fprintf(stderr, "%s: %s\n", l.name, l.failed)
			return fmt.Errorf("%s: it could not be measured", l.name)
		}
	}
	if n := over(lines); o.check && n > 0 {
		return fmt.Errorf("%d of %d rows are over their limit", n, len(lines))
	}
	if o.out == "" {
		return nil
	}
	return errors.Join(b.cost.draw(plotBeside(o.out)), b.write(o.out, m, lines))
}

// build builds the program as it is released, and what it is measured against. It
// is run in the bench folder.
func (b *bench) build() error {
	for name, pkg := range map[string]string{
		"the-loop": "cmd/the-loop", "empty": "bench/internal/empty", "linked": "bench/internal/linked",
		"peak": "bench/internal/peak", "bench": "bench",
	} {
		cmd := exec.CommandContext(b.ctx, "go", "build", "-trimpath", "-ldflags", "-s -w",
			"-o", filepath.Join(b.bin, name), ".")
		cmd.Dir = filepath.Join("..", pkg) // each in its own module
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if text, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("build %s: %w\n%s", pkg, err, text)
		}
	}
	return nil
}

// fresh gives a new folder for a row, until it is measured.
func (b *bench) fresh() (string, error) {
	dir, err := os.MkdirTemp(b.dir, "root-")
	if err == nil {
		b.roots = append(b.roots, dir)
	}
	return dir, err
}

// clear deletes what a row left on the disk.
func (b *bench) clear() {
	for _, dir := range b.roots {
		_ = os.RemoveAll(dir)
	}
	b.roots = nil
}

func number(text string) int {
	n, _ := strconv.Atoi(text)
	return n
}
