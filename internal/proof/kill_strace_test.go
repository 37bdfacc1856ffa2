//go:build crashmain

package proof

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"the-loop/channels"
	"the-loop/outbox"
	"the-loop/state"
)

// The second opinion on the kill sweeps: not we ourselves but strace kills the
// process, at its system calls, those of the libraries below us included. How
// many points there are is counted in a clean trace first, and the sweep fails
// when it did not reach each of them.

// calls are those that change something or exclude somebody, by the names that
// they have on the kernel's side, "?" for those that an architecture lacks.
func calls() map[string]string {
	return map[string]string{
		"write": "write", "fsync": "fsync", "fdatasync": "fdatasync", "flock": "flock", "open": "openat",
		"rename": "?rename,?renameat,?renameat2", "unlink": "?unlink,?unlinkat", "mkdir": "?mkdir,?mkdirat",
	}
}

func callNames() []string {
	return []string{"mkdir", "open", "flock", "write", "fsync", "fdatasync", "rename", "unlink"}
}

// window is crashmain's: the calls of the thread under test are counted from it.
const window = 200

// slots is more threads than touch files in any scene.
const slots = 8

// tracedScene is a process to be killed, and the root that it finds.
type tracedScene struct {
	name, does, class string
	refuses           bool
	ids               []string
	prepare           func(t *testing.T, root *state.Root, a *receiver)
}

func tracedScenes() []tracedScene {
	nothing := func(*testing.T, *state.Root, *receiver) {}
	var all []tracedScene
	for _, class := range []string{"idempotent", "plain"} {
		all = append(all,
			tracedScene{"publish, accepted", "publish", class, false, []string{crashID}, nothing},
			tracedScene{"publish, refused", "publish", class, true, []string{crashID}, nothing},
			tracedScene{"drain of two", "drain", class, false, []string{"two-1", "two-2"}, leaveTwo},
			tracedScene{"recovery", "drain", class, false, []string{crashID, "two-1", "two-2"}, leaveDead},
		)
	}
	return all
}

func leaveTwo(t *testing.T, root *state.Root, _ *receiver) {
	for _, id := range []string{"two-1", "two-2"} {
		e, err := outbox.NewEntry(channels.Event{ID: id, Type: "job.failed", Text: "x"}, time.Now(), []outbox.Attempted{
			{Channel: "a", Outcome: channels.Outcome{State: channels.StatePending, At: time.Now()}},
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := outbox.Open(root, outbox.Options{}).Remember(t.Context(), e, nil); err != nil {
			t.Fatal(err)
		}
	}
}

// leaveDead leaves the journal of a publish that died in flight too.
func leaveDead(t *testing.T, root *state.Root, a *receiver) {
	death := firstDeaths()[0]
	runChild(t, "publish/plain", killAt(t, "plain", death), root.Dir(), a.URL, "-")
	leaveTwo(t, root, a)
}

func TestP1P2_StraceKillSweep(t *testing.T) {
	strace, err := exec.LookPath("strace")
	if err != nil {
		t.Skip("NOT TESTED HERE: there is no strace")
	}
	bin := filepath.Join(t.TempDir(), "crashmain")
	build := exec.Command("go", "build", "-tags", "crashmain", "-o", bin, "./crashmain")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	var points atomic.Int64
	t.Run("all", func(t *testing.T) {
		for _, scene := range tracedScenes() {
			t.Run(scene.class+", "+scene.name, func(t *testing.T) {
				t.Parallel()
				points.Add(int64(sweepScene(t, tracer{strace, bin}, scene)))
			})
		}
	})
	t.Logf("%d system calls at which the process was killed", points.Load())
	if points.Load() < 300 {
		t.Errorf("only %d points: the sweep does not reach what it should", points.Load())
	}
}

// tracer runs crashmain under strace.
type tracer struct{ strace, bin string }

// sweepScene kills at each point of each call and gives how many there were.
func sweepScene(t *testing.T, tr tracer, scene tracedScene) (points int) {
	seed, _ := state.Open(t.TempDir())
	a := newReceiver(t, false)
	scene.prepare(t, seed, a)
	arrived := a.counts()[crashID] > 0
	var told []string
	for _, call := range callNames() {
		reached, all, whole := 0, 0, 1<<30
		for slot := range slots {
			run, clean := runScene(t, tr, scene, seed, arrived, call, slot, 0)
			run.a.Close()
			whole = min(whole, clean.ours(call))
			if !clean.padded(call) {
				break // no such thread
			}
			all += len(clean.points(call))
			for _, p := range clean.points(call) {
				if reachPoint(t, tr, scene, seed, arrived, call, slot, p) {
					reached++
				}
			}
		}
		if reached != all || reached < whole { // whole: of all threads, in one clean trace
			t.Errorf("%s, %s: %s: reached %d points of %d", scene.class, scene.name, call, reached, max(all, whole))
		}
		if reached > 0 {
			told = append(told, fmt.Sprintf("%s %d", call, reached))
		}
		points += reached
	}
	t.Logf("%d points: %s", points, strings.Join(told, ", "))
	return points
}

// reachPoint kills there and checks. Runs differ now and then by a write more or
// less before the point, and the scheduler may let another thread be first to
// come so far: then the point is looked up anew in another clean trace.
func reachPoint(
	t *testing.T, tr tracer, scene tracedScene, seed *state.Root, arrived bool, call string, slot int, p traceLine,
) bool {
	t.Helper()
	n := p.n
	for range 20 {
		at := fmt.Sprintf("%s, %s, killed at %s %d/%d: %s", scene.class, scene.name, call, slot, n-window, p.what)
		run, got := runScene(t, tr, scene, seed, arrived, call, slot, n)
		run.check(t, at, scene, got)
		if got.killedAt(call, p) {
			return true
		}
		clean, again := runScene(t, tr, scene, seed, arrived, call, slot, 0)
		clean.a.Close()
		for _, q := range again.points(call) {
			if q.what == p.what && q.nth == p.nth {
				n = q.n
			}
		}
	}
	t.Logf("not reached: %s %d/%d: %s", call, slot, p.n-window, p.what)
	return false
}

// traced is one run: a root and a receiver.
type traced struct {
	root *state.Root
	a    *receiver
}

// runScene runs the scene on a copy of the seed, killed at the n-th call of a
// thread, or not at all with 0.
func runScene(
	t *testing.T, tr tracer, scene tracedScene, seed *state.Root, arrived bool, call string, slot, n int,
) (traced, *trace) {
	t.Helper()
	dir := t.TempDir()
	root, _ := state.Open(filepath.Join(dir, "root"))
	if err := os.CopyFS(root.Dir(), os.DirFS(seed.Dir())); err != nil {
		t.Fatal(err)
	}
	a := newReceiver(t, scene.refuses)
	defer a.CloseClientConnections()
	if arrived {
		a.got[crashID]++
	}
	log := filepath.Join(dir, "trace")
	var names []string
	for _, c := range callNames() {
		names = append(names, calls()[c])
	}
	args := []string{"-f", "-y", "-s", "0", "-o", log, "-e", "signal=none", "-e", "trace=" + strings.Join(names, ",")}
	if n > 0 {
		args = append(args, "-e", fmt.Sprintf("inject=%s:signal=KILL:when=%d", calls()[call], n))
	}
	args = append(args, tr.bin, scene.does, scene.class, root.Dir(), strings.TrimPrefix(a.URL, "http://"),
		call, strconv.Itoa(slot))
	cmd := exec.Command(tr.strace, args...)
	cmd.Env = append(os.Environ(), "GOMAXPROCS=1", "GOGC=off")
	out, err := cmd.CombinedOutput()
	if n == 0 && err != nil {
		t.Fatalf("a clean run: %v: %s", err, out)
	}
	b, err := os.ReadFile(log)
	if err != nil {
		t.Fatalf("no trace: %v: %s", err, out)
	}
	got := parseTrace(string(b), root.Dir())
	ws, ok := cmd.ProcessState.Sys().(syscall.WaitStatus)
	got.killed = ok && ws.Signaled() && ws.Signal() == syscall.SIGKILL // strace ends as its tracee does
	return traced{root, a}, got
}

func (run traced) check(t *testing.T, at string, scene tracedScene, got *trace) {
	t.Helper()
	defer run.a.Close()
	entries, bad, damaged, err := outbox.Open(run.root, outbox.Options{}).Entries()
	if err != nil || bad > 0 || damaged {
		t.Errorf("%s: bad %d, damaged %v, %v", at, bad, damaged, err)
	}
	taken := got.durable || scene.does == "drain"
	for _, id := range scene.ids {
		if taken && run.a.counts()[id] == 0 && !hasEntry(entries, id) {
			t.Errorf("%s: %s is nowhere", at, id)
		}
		if !taken && run.a.counts()[id] > 0 {
			t.Errorf("%s: %s arrived, and its intent was not durable", at, id)
		}
	}
	run.a.heal()
	store := drainTwice(t, run.root, crashRoutes(scene.class, run.a.URL, "-"))
	left, bad, damaged, err := store.Entries()
	if err != nil || bad > 0 || damaged {
		t.Errorf("%s: afterwards bad %d, damaged %v, %v", at, bad, damaged, err)
	}
	for _, id := range scene.ids {
		n, waits := run.a.counts()[id], hasEntry(left, id)
		switch {
		case !taken && n == 0:
		case scene.class == "idempotent" && (n == 0 || waits):
			t.Errorf("%s: %s: %d requests, waits %v", at, id, n, waits)
		case scene.class == "plain" && (n > 1 || n == 0 && !waits):
			t.Errorf("%s: %s: %d requests, waits %v", at, id, n, waits)
		}
	}
	most := 1
	if scene.name == "recovery" {
		most = 2 // one per kill
	}
	if len(left) > most {
		t.Errorf("%s: %d rows need a person", at, len(left))
	}
}

// trace is what strace saw.
type trace struct {
	lines   []traceLine
	killed  bool
	durable bool // the name of the journal was
}

type traceLine struct {
	call string // as in callNames
	n    int    // which of its thread's calls
	nth  int    // which of those of its thread that look like it
	what string // without what differs from run to run
	ours bool   // it concerns a file under the root, and may change one
}

var (
	traceCall = regexp.MustCompile(`^(\d+) +([a-z0-9_]+)\((.*)$`)
	differs   = regexp.MustCompile(`\d+-[0-9A-Z]{26}|json\d+|\b\d+<|""\.\.\., \d+`)
)

func parseTrace(log, root string) *trace {
	tr := &trace{}
	count := map[string]int{}
	visible := false
	pending := map[string]string{} // by thread
	for _, line := range strings.Split(log, "\n") {
		pid, _, _ := strings.Cut(line, " ")
		whole := line
		if strings.Contains(line, " resumed>") {
			whole = pending[pid] + line
		} else if strings.Contains(line, "<unfinished ...>") {
			pending[pid] = line
		}
		if strings.Contains(whole, " = 0") && strings.Contains(whole, root) {
			sending := filepath.Join(root, "delivery", "sending")
			visible = visible || strings.Contains(whole, "rename") && strings.Contains(whole, sending)
			tr.durable = tr.durable || visible && strings.Contains(whole, "fsync(") && strings.Contains(whole, sending+">")
		}
		m := traceCall.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		call := strings.TrimSuffix(strings.TrimRight(m[2], "2"), "at")
		count[m[1]+call]++
		args, _, _ := strings.Cut(m[3], " = ")
		args = strings.TrimSuffix(strings.TrimSpace(args), "<unfinished ...>")
		ours := strings.Contains(args, root) && (call != "open" || strings.Contains(args, "O_CREAT"))
		what := differs.ReplaceAllString(strings.ReplaceAll(args, root, ""), "…")
		if !ours {
			what = ""
		}
		tr.lines = append(tr.lines, traceLine{
			call: call, n: count[m[1]+call], what: strings.Trim(what, " )"), ours: ours,
		})
	}
	return tr
}

// points are the calls to be killed at, of the thread under test.
func (tr *trace) points(call string) (all []traceLine) {
	nth := map[string]int{}
	for _, l := range tr.lines {
		if l.call == call && l.ours && l.n > window {
			nth[l.what]++
			l.nth = nth[l.what]
			all = append(all, l)
		}
	}
	return all
}

// ours counts the calls that concern our files, of all threads.
func (tr *trace) ours(call string) (n int) {
	for _, l := range tr.lines {
		if l.call == call && l.ours {
			n++
		}
	}
	return n
}

// padded reports whether there was a thread that made the calls in vain.
func (tr *trace) padded(call string) bool {
	return slices.ContainsFunc(tr.lines, func(l traceLine) bool { return l.call == call && l.n >= window })
}

// killedAt reports whether the process died at that point: its thread came to
// it, and no further.
func (tr *trace) killedAt(call string, p traceLine) bool {
	all := tr.points(call)
	if !tr.killed || len(all) == 0 {
		return false
	}
	last := all[len(all)-1]
	return last.what == p.what && last.nth == p.nth
}
