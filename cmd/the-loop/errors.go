package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"the-loop/internal/config"
	"the-loop/internal/term"
)

// The exit codes, as the README has them.
const (
	exitDidNotHappen = 1
	exitUsage        = 2
	exitQueued       = 75 // only with --require-delivery
)

// failure ends a command with an exit code. Without an err nothing is printed:
// the command has said what there is to say.
type failure struct {
	code int
	err  error
	hint string
}

func (f *failure) Error() string {
	if f.err == nil {
		return "failed"
	}
	return f.err.Error()
}

func (f *failure) Unwrap() error { return f.err }

func usage(format string, args ...any) *failure {
	return &failure{code: exitUsage, err: fmt.Errorf(format, args...)}
}

func failed(err error) *failure { return &failure{code: exitDidNotHappen, err: err} }

func (f *failure) withHint(format string, args ...any) *failure {
	f.hint = fmt.Sprintf(format, args...)
	return f
}

// report prints how a command ended and gives its exit code.
func report(ctx context.Context, stderr io.Writer, err error) int {
	var sig signalled
	if errors.As(context.Cause(ctx), &sig) {
		return 128 + int(sig.signal)
	}
	if err == nil {
		return 0
	}
	var bad *config.Error
	if errors.As(err, &bad) {
		by := strings.TrimSuffix(err.Error(), bad.Error()) // "THE_LOOP_CONFIG: "
		printFindings(stderr, by+bad.Path, bad.Findings)
		return exitUsage
	}
	f := &failure{code: exitDidNotHappen, err: err}
	errors.As(err, &f)
	if f.err != nil {
		for line := range strings.Lines(f.err.Error()) {
			fmt.Fprintf(stderr, "the-loop: error: %s\n", term.Clean(strings.TrimSuffix(line, "\n")))
		}
	}
	if f.hint != "" {
		fmt.Fprintf(stderr, "hint: %s\n", f.hint)
	}
	return f.code
}

// printFindings prints what is wrong with a config, the place in the file and
// what to do about it.
func printFindings(w io.Writer, path string, findings []config.Finding) {
	for _, f := range findings {
		kind := "error"
		if f.Warning {
			kind = "warning"
		}
		sep := ": "
		if f.Line > 0 {
			sep = ":"
		}
		fmt.Fprintf(w, "the-loop: %s: %s%s%s\n", kind, path, sep, term.Clean(f.String()))
		for line := range strings.Lines(f.Excerpt) {
			fmt.Fprintf(w, "  %s\n", term.Clean(strings.TrimSuffix(line, "\n")))
		}
		if len(f.Allowed) > 0 {
			fmt.Fprintf(w, "allowed: %s\n", strings.Join(f.Allowed, ", "))
		}
		if f.Hint != "" {
			fmt.Fprintf(w, "hint: %s\n", term.Clean(f.Hint))
		}
	}
}
