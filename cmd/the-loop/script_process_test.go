package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

// patience is how long a script waits for something that must happen. It is
// used up only when a test fails.
const patience = 30 * time.Second

// exits CODE PROGRAM [ARG…]: runs it and wants exactly that exit code.
func exits(ts *testscript.TestScript, neg bool, args []string) {
	want(ts, !neg && len(args) >= 2, "exits CODE PROGRAM [ARG…]")
	code, err := strconv.Atoi(args[0])
	ts.Check(err)
	err = ts.Exec(args[1], args[2:]...)
	var exit *exec.ExitError
	switch {
	case err == nil && code != 0:
		ts.Fatalf("exit code 0, want %d", code)
	case errors.As(err, &exit) && exit.ExitCode() != code:
		ts.Fatalf("exit code %d, want %d", exit.ExitCode(), code)
	case err != nil && exit == nil:
		ts.Check(err)
	}
}

// daemonProcess is a the-loop that runs beside the script.
type daemonProcess struct {
	cmd  *exec.Cmd
	done chan struct{}
}

// carried are the variables that a script sets and its daemons see.
var carried = []string{
	"HOME", "PATH", "TMPDIR", "XDG_CONFIG_HOME", "XDG_STATE_HOME", "THE_LOOP_CONFIG", "THE_LOOP_STATE", "GORACE",
	"GOCOVERDIR", "THE_LOOP_MACHINE_ID",
}

func command(ts *testscript.TestScript, ctx context.Context, extra, args []string) *exec.Cmd {
	program := ""
	for _, dir := range filepath.SplitList(ts.Getenv("PATH")) {
		if p := filepath.Join(dir, "the-loop"); program == "" && isFile(p) {
			program = p
		}
	}
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir = ts.MkAbs(".")
	for _, name := range carried {
		cmd.Env = append(cmd.Env, name+"="+ts.Getenv(name))
	}
	cmd.Env = append(cmd.Env, extra...)
	return cmd
}

func isFile(path string) bool {
	fi, err := os.Stat(path)
	return err == nil && fi.Mode().IsRegular()
}

// daemon NAME [KEY=VALUE…] ARG…: starts the-loop beside the script. What it
// says goes to NAME.out and NAME.err.
func daemonCommand(ts *testscript.TestScript, _ bool, args []string) {
	want(ts, len(args) >= 2, "daemon NAME [KEY=VALUE…] ARG…")
	name, rest := args[0], args[1:]
	var extra []string
	for len(rest) > 0 && strings.Contains(rest[0], "=") {
		extra, rest = append(extra, rest[0]), rest[1:]
	}
	d := &daemonProcess{cmd: command(ts, context.Background(), extra, rest), done: make(chan struct{})}
	out, err := os.Create(ts.MkAbs(name + ".out"))
	ts.Check(err)
	errs, err := os.Create(ts.MkAbs(name + ".err"))
	ts.Check(err)
	d.cmd.Stdout, d.cmd.Stderr = out, errs
	ts.Check(d.cmd.Start())
	go func() {
		defer close(d.done)
		_ = d.cmd.Wait()
		_, _ = out.Close(), errs.Close()
	}()
	stageOf(ts).daemons[name] = d
}

func (s *stage) daemon(ts *testscript.TestScript, name string) *daemonProcess {
	d := s.daemons[name]
	if d == nil {
		ts.Fatalf("there is no daemon %s", name)
	}
	return d
}

// signal NAME TERM|INT|HUP|KILL: to that daemon, by its process id.
func signalDaemon(ts *testscript.TestScript, _ bool, args []string) {
	want(ts, len(args) == 2, "signal NAME SIGNAL")
	sig, ok := map[string]syscall.Signal{
		"TERM": syscall.SIGTERM, "INT": syscall.SIGINT, "HUP": syscall.SIGHUP, "KILL": syscall.SIGKILL,
	}[args[1]]
	want(ts, ok, "signal NAME TERM|INT|HUP|KILL")
	ts.Check(stageOf(ts).daemon(ts, args[0]).cmd.Process.Signal(sig))
}

// stopsoon NAME SIGNAL: sends the signal again and again, for nobody can see
// when the first one was taken in, until the daemon is dead of it.
func stopsoon(ts *testscript.TestScript, _ bool, args []string) {
	want(ts, len(args) == 2, "stopsoon NAME SIGNAL")
	w := stageOf(ts)
	d := w.daemon(ts, args[0])
	began := time.Now()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for alive := true; alive; {
		signalDaemon(ts, false, args)
		select {
		case <-d.done:
			alive = false
		case <-tick.C:
		}
	}
	delete(w.daemons, args[0])
	status := d.cmd.ProcessState.Sys().(syscall.WaitStatus)
	if took := time.Since(began); !status.Signaled() || took > 3*time.Second {
		ts.Fatalf("after %v it ended with %v, want it to be killed by the second signal", took, d.cmd.ProcessState)
	}
}

// ended NAME CODE: waits until the daemon ends, and wants that exit code.
func ended(ts *testscript.TestScript, _ bool, args []string) {
	want(ts, len(args) == 2, "ended NAME CODE")
	w := stageOf(ts)
	d := w.daemon(ts, args[0])
	select {
	case <-d.done:
	case <-time.After(patience):
		ts.Fatalf("%s still runs after %v\n%s", args[0], patience, ts.ReadFile(args[0]+".err"))
	}
	delete(w.daemons, args[0])
	if got := fmt.Sprint(d.cmd.ProcessState.ExitCode()); got != args[1] {
		ts.Fatalf("%s ended with exit code %s, want %s\n%s", args[0], got, args[1], ts.ReadFile(args[0]+".err"))
	}
}

// concurrently N ARG…: so many processes of the-loop at once; all must exit 0.
func concurrently(ts *testscript.TestScript, _ bool, args []string) {
	want(ts, len(args) >= 2, "concurrently N ARG…")
	n, err := strconv.Atoi(args[0])
	ts.Check(err)
	ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
	defer cancel()
	start := make(chan struct{})
	failures := make([]string, n)
	var wg sync.WaitGroup
	for i := range n {
		cmd := command(ts, ctx, nil, args[1:])
		var out bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &out
		wg.Go(func() {
			<-start
			if err := cmd.Run(); err != nil {
				failures[i] = fmt.Sprintf("%v: %s\n", err, out.String())
			}
		})
	}
	close(start)
	wg.Wait()
	if all := strings.Join(failures, ""); all != "" {
		ts.Fatalf("of %d processes some failed:\n%s", n, all)
	}
}

// over FILE: waits until the question in the file is past its time, and what may
// still be on its way has had time to come.
func over(ts *testscript.TestScript, neg bool, args []string) {
	want(ts, !neg && len(args) == 1, "over FILE")
	var q struct{ ExpiresAt time.Time }
	ts.Check(json.Unmarshal([]byte(ts.ReadFile(args[0])), &q))
	want(ts, !q.ExpiresAt.IsZero(), "the question never expires")
	<-time.After(time.Until(q.ExpiresAt.Add(onItsWay)))
}

// waitfor received NAME N | waitfor grep REGEXP FILE | waitfor run REGEXP ARG… |
// waitfor quiet REGEXP ARG…: asks again and again until the server got so much,
// the file matches, the output of the-loop matches, or does not match any more.
func waitfor(ts *testscript.TestScript, neg bool, args []string) {
	want(ts, !neg && len(args) >= 3, "waitfor received NAME N | grep REGEXP FILE | run|quiet REGEXP ARG…")
	var last string
	var ok func() bool
	switch what := args[0]; what {
	case "received":
		n, err := strconv.Atoi(args[2])
		ts.Check(err)
		ok = func() bool {
			got := stageOf(ts).count(ts, args[1])
			last = fmt.Sprint(got)
			return got >= n
		}
	case "grep":
		re := regexp.MustCompile("(?m)" + args[1])
		ok = func() bool {
			b, _ := os.ReadFile(ts.MkAbs(args[2]))
			last = string(b)
			return re.Match(b)
		}
	case "run", "quiet":
		re := regexp.MustCompile("(?m)" + args[1])
		ok = func() bool {
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			defer cancel()
			b, _ := command(ts, ctx, nil, args[2:]).CombinedOutput()
			last = string(b)
			return re.Match(b) == (what == "run")
		}
	default:
		ts.Fatalf("waitfor: no such condition: %s", what)
	}
	giveUp := time.After(patience)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-giveUp:
			ts.Fatalf("waited %v for %s; it is:\n%s", patience, strings.Join(args, " "), last)
		case <-tick.C:
		}
	}
}

// within DURATION ARG…: the-loop must end well in that time.
func within(ts *testscript.TestScript, _ bool, args []string) {
	want(ts, len(args) >= 2, "within DURATION ARG…")
	limit, err := time.ParseDuration(args[0])
	ts.Check(err)
	began := time.Now()
	ts.Check(ts.Exec("the-loop", args[1:]...))
	if took := time.Since(began); took > limit {
		ts.Fatalf("took %v, want at most %v", took, limit)
	}
}
