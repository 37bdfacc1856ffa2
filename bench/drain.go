package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// drained is how many entries are drained.
const drained = 10_000

// drainFor bounds one drain, for a program that would take hours. What arrived
// until then counts.
const drainFor = 20 * time.Second

func drainRows() []row {
	drops := &shared[drain]{take: func(b *bench) (drain, error) { return b.drain("idempotent: 1h, ", 1) }}
	keeps := &shared[drain]{take: func(b *bench) (drain, error) { return b.drain("", 64) }}
	watched := &shared[idle]{take: (*bench).idle}
	return []row{
		{
			name: "drain 10,000 entries, the receiver drops repeats", limit: 0.6, least: true,
			what: "bare POSTs a second, one at a time", measure: drops.by(drain.rate),
		},
		{
			name: "drain 10,000 entries, nobody drops repeats", limit: 0.25, least: true,
			what: "bare POSTs a second, 64 at a time", measure: keeps.by(drain.rate),
		},
		{
			name: "drain 10,000 entries, memory", limit: 1, what: "at most",
			measure: drops.by(func(d drain) figures { return megabytes(d.rss, 60) }),
		},
		{
			name: "idle daemon, memory", limit: 1, what: "at most",
			measure: watched.by(func(i idle) figures { return megabytes(int64(i.rss), 20) }),
		},
		{
			name: "idle daemon, wake-ups", limit: 1, what: "at most", measure: watched.by(func(i idle) figures {
				return figures{fmt.Sprintf("%.1f/s", i.switches), "2/s", i.switches / 2}
			}),
		},
		{
			name: "idle daemon, bytes to the disk in 10 s", limit: 0,
			what:    "none (the heartbeat of each minute is not among them)",
			measure: watched.by(func(i idle) figures { return figures{fmt.Sprintf("%.0f", i.written), "0", i.written} }),
		},
	}
}

// drain is one drain, and bare POSTs beside it.
type drain struct {
	perSecond, bare float64
	rss             int64
}

func (d drain) rate() figures {
	return figures{perSecond(d.perSecond), perSecond(d.bare), d.perSecond / d.bare}
}

// drain drains a full outbox to a sink, as a whole process, and then posts as many
// to it with nothing else to do.
func (b *bench) drain(options string, atATime int) (d drain, err error) {
	s, err := newSink(http.StatusOK, 0)
	if err != nil {
		return d, err
	}
	defer s.close()
	dir, _, err := b.filled(drained)
	if err != nil {
		return d, err
	}
	env, err := configured(dir, fmt.Sprintf(
		"channels:\n  hook: {type: webhook, url: %q, %srate: 0}\n", s.url, options))
	if err != nil {
		return d, err
	}
	if _, err := b.process(env, "the-loop", "outbox", "retry", "--all"); err != nil {
		return d, err
	}
	s.got.Store(0)
	p, err := b.peak(drainFor, env, "the-loop", "outbox", "drain")
	n := s.got.Load()
	if err != nil {
		return d, err
	}
	if n == 0 || n < drained && p.took < drainFor {
		return d, fmt.Errorf("%d of %d were delivered\n%s", n, drained, p.out)
	}
	d.perSecond, d.rss = float64(n)/p.took.Seconds(), p.rss
	body, err := event().Encode()
	if err != nil {
		return d, err
	}
	took, err := timed(func() error { return postAll(b.ctx, s.url, drained, atATime, body) })
	d.bare = drained / took.Seconds()
	return d, err
}

// configured writes a config for a root, and gives the environment that names it.
func configured(dir, rest string) (env []string, err error) {
	path := filepath.Join(dir, "config.yaml")
	return []string{"THE_LOOP_CONFIG=" + path},
		os.WriteFile(path, []byte("version: 1\nstate: {root: .}\n"+rest), 0o600)
}

// idle is a daemon with nothing to do, as /proc tells of it.
type idle struct {
	rss      float64 // bytes
	switches float64 // a second
	written  float64 // bytes
}

const (
	idleFor    = 10 * time.Second // is how long a daemon is watched
	terminated = 143              // is its exit code when it was told to end
)

func (b *bench) idle() (i idle, err error) {
	if _, err := os.Stat("/proc/self/io"); err != nil {
		return i, missing{"there is no /proc/PID/io"}
	}
	dir, err := b.fresh()
	if err != nil {
		return i, err
	}
	env, err := configured(dir, "polling: {enabled: true}\nchannels:\n"+
		"  hook: {type: webhook, url: \"http://127.0.0.1:9/\", rate: 0}\n")
	if err != nil {
		return i, err
	}
	ctx, cancel := context.WithTimeout(b.ctx, 6*idleFor)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(b.bin, "the-loop"), "poller", "--log-level", "error")
	cmd.Env = append(os.Environ(), env...)
	if err := cmd.Start(); err != nil {
		return i, err
	}
	defer func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		ended := cmd.Wait()
		if code := cmd.ProcessState.ExitCode(); err == nil && code != terminated {
			err = fmt.Errorf("the daemon: %w", ended)
		}
	}()
	if err := b.pause(3 * time.Second); err != nil { // its start is over
		return i, err
	}
	before, err := watch(cmd.Process.Pid)
	if err != nil {
		return i, err
	}
	if err := b.pause(idleFor); err != nil {
		return i, err
	}
	after, err := watch(cmd.Process.Pid)
	return idle{
		rss: after.rss, switches: (after.switches - before.switches) / idleFor.Seconds(),
		written: after.written - before.written,
	}, err
}

func (b *bench) pause(d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-b.ctx.Done():
		return b.ctx.Err()
	}
}

// watch gives what a process has used since it began. Each time that a thread gave
// the processor up by itself is followed by a wake-up.
func watch(pid int) (i idle, err error) {
	proc := fmt.Sprintf("/proc/%d", pid)
	tasks, err := filepath.Glob(proc + "/task/*/status")
	if err == nil && len(tasks) == 0 {
		err = fmt.Errorf("the daemon ended: there is no %s", proc)
	}
	if err != nil {
		return i, err
	}
	for _, task := range tasks {
		n, _ := valueIn(task, "voluntary_ctxt_switches") // a thread may end meanwhile
		i.switches += n
	}
	kib, err := valueIn(proc+"/status", "VmRSS")
	i.rss = kib * 1024
	written, err2 := valueIn(proc+"/io", "write_bytes")
	i.written = written
	return i, errors.Join(err, err2)
}

// valueIn gives the number that follows a key in a file of /proc.
func valueIn(path, key string) (float64, error) {
	text, err := firstValue(path, key)
	if err != nil {
		return 0, err
	}
	number, _, _ := strings.Cut(text, " ")
	return strconv.ParseFloat(number, 64)
}
