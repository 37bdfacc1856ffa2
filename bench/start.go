package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// process is a whole process that ended.
type process struct {
	took time.Duration
	rss  int64 // the most that it used, bytes; only where peak ran it
	out  string
}

// process runs one of our programs to its end.
func (b *bench) process(env []string, name string, args ...string) (process, error) {
	return b.wholeProcess(env, filepath.Join(b.bin, name), args...)
}

func (b *bench) wholeProcess(env []string, path string, args ...string) (p process, err error) {
	cmd, out := b.command(env, path, args...)
	p.took, err = timed(cmd.Run)
	p.out = out.String()
	return p, explained(cmd, err, p.out)
}

// peak runs one of our programs for so long at most, by a program of its own that
// sees how much memory it uses: we are too big to. One that was ended is no error.
func (b *bench) peak(most time.Duration, env []string, name string, args ...string) (p process, err error) {
	cmd, out := b.command(env, filepath.Join(b.bin, "peak"),
		append([]string{most.String(), filepath.Join(b.bin, name)}, args...)...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) } // it has a process to end
	figures, w, err := os.Pipe()
	if err != nil {
		return p, err
	}
	defer figures.Close()
	cmd.ExtraFiles = []*os.File{w}
	err = errors.Join(cmd.Run(), w.Close())
	p.out = out.String()
	if err := explained(cmd, err, p.out); err != nil {
		return p, err
	}
	_, err = fmt.Fscan(figures, &p.took, &p.rss)
	return p, err
}

func (b *bench) command(env []string, path string, args ...string) (*exec.Cmd, *bytes.Buffer) {
	cmd := exec.CommandContext(b.ctx, path, args...)
	cmd.Env = append(os.Environ(), env...)
	cmd.Dir = b.dir
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	return cmd, &out
}

func explained(cmd *exec.Cmd, err error, out string) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w\n%s", strings.Join(cmd.Args, " "), err, out)
}

func startRows() []row {
	return []row{
		{
			name: "status, beside what it is linked with", limit: 1.3,
			what:    "a program linked with the same libraries that prints a line",
			measure: func(b *bench) (figures, error) { return b.start("linked") },
		},
		{
			name: "status, beside an empty program", limit: 4.5, what: "an empty Go program",
			measure: func(b *bench) (figures, error) { return b.start("empty") },
		},
		{name: "the binary, stripped", limit: 1, what: "at most", measure: binarySize},
	}
}

// start compares whole processes: status on a root with a config.
func (b *bench) start(floor string) (figures, error) {
	dir, err := b.fresh()
	if err != nil {
		return figures{}, err
	}
	env, err := configured(dir, "channels:\n  hook: {type: webhook, url: \"http://127.0.0.1:9/\"}\n")
	if err != nil {
		return figures{}, err
	}
	run := func(name string, args ...string) func() (time.Duration, error) {
		return func() (time.Duration, error) {
			p, err := b.process(env, name, args...)
			return p.took, err
		}
	}
	return inTurn(30, run("the-loop", "status"), run(floor))
}

func binarySize(b *bench) (figures, error) {
	info, err := os.Stat(filepath.Join(b.bin, "the-loop"))
	if err != nil {
		return figures{}, err
	}
	return megabytes(info.Size(), 25), nil
}
