// Command peak runs a program to its end, for so long at most, and says how long it
// took and how much memory it used:
//
//	peak DURATION PROGRAM [ARGUMENT…]
//
// On Linux the most that a process used begins with what the process that started
// it used until then. So a driver that once held an outbox of 100,000 entries sees
// that in everything that it starts, and has this start it instead.
package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	os.Exit(run(ctx, os.Args[1:]))
}

// run writes NANOSECONDS BYTES to the file descriptor 3. Its exit code is that of
// the program, and 0 for one that was ended for its time was over.
func run(ctx context.Context, args []string) int {
	most, err := time.ParseDuration(args[0])
	if err != nil {
		fmt.Fprintln(os.Stderr, "peak:", err)
		return 2
	}
	timed, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	cmd := exec.CommandContext(timed, args[1], args[2:]...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	began := time.Now()
	err = cmd.Run()
	took := time.Since(began)
	if cmd.ProcessState == nil {
		fmt.Fprintln(os.Stderr, "peak:", err)
		return 2
	}
	var bytes int64
	if use, ok := cmd.ProcessState.SysUsage().(*syscall.Rusage); ok {
		bytes = int64(use.Maxrss)
	}
	if runtime.GOOS == "linux" {
		bytes *= 1024 // which counts in kilobytes
	}
	if _, err := fmt.Fprintln(os.NewFile(3, "figures"), took.Nanoseconds(), bytes); err != nil {
		fmt.Fprintln(os.Stderr, "peak:", err)
		return 2
	}
	if timed.Err() != nil && ctx.Err() == nil {
		return 0
	}
	return cmd.ProcessState.ExitCode()
}
