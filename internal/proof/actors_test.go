package proof

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"

	"the-loop/bus"
	"the-loop/channels"
	"the-loop/channels/webhook"
	"the-loop/outbox"
	"the-loop/state"
)

// The orders that matter most, by name, with real processes: an actor is a
// child that says each file operation before it makes it, and waits for a byte.

// actorEnv makes the test binary an actor: "name root url id".
const actorEnv = "THE_LOOP_ACTOR"

// TestActorProcess is the child. It does nothing in an ordinary run.
func TestActorProcess(t *testing.T) {
	args := strings.Fields(os.Getenv(actorEnv))
	if len(args) != 4 {
		return
	}
	root, err := state.Open(args[1])
	if err != nil {
		t.Fatal(err)
	}
	in := bufio.NewReader(os.Stdin)
	root = root.WithSteps(func(op state.Op, path string) error {
		fmt.Printf("@step %s %s\n", op, path)
		if _, err := in.ReadByte(); err != nil {
			os.Exit(3) // the parent is gone
		}
		return nil
	})
	r := newRoom("a", "plain")
	r.via = webhook.New(webhook.Options{Name: "a", URL: args[2]})
	for _, a := range theActors() {
		if a.name == args[0] {
			fmt.Println("@done", a.play(context.Background(), root, r, args[3]).err)
		}
	}
}

type process struct {
	t    *testing.T
	cmd  *exec.Cmd
	in   io.WriteCloser
	out  *bufio.Scanner
	name string
	ops  []string // that it made, or is stopped before
}

func begin(t *testing.T, name string, root *state.Root, url, id string) *process {
	t.Helper()
	p := &process{t: t, name: name, cmd: exec.Command(os.Args[0], "-test.run=^TestActorProcess$")}
	p.cmd.Env = append(os.Environ(), "GORACE=atexit_sleep_ms=0",
		actorEnv+"="+strings.Join([]string{name, root.Dir(), url, id}, " "))
	out, err := p.cmd.StdoutPipe()
	if err == nil {
		p.in, err = p.cmd.StdinPipe()
	}
	if err == nil {
		err = p.cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.kill)
	p.out = bufio.NewScanner(out)
	return p
}

// until lets it go on, and stops it before the operation that stop names; "" is
// its end.
func (p *process) until(stop func(op, base string) bool) {
	p.t.Helper()
	for p.out.Scan() {
		word, rest, _ := strings.Cut(p.out.Text(), " ")
		switch word {
		case "@done":
			if stop != nil || rest != "<nil>" {
				p.t.Fatalf("%s ended with %s after %q", p.name, rest, p.ops)
			}
			return
		case "@step":
			p.ops = append(p.ops, rest)
			op, base, _ := strings.Cut(p.last(), " ")
			if stop != nil && stop(op, base) {
				return
			}
			p.goOn()
		}
	}
	p.t.Fatalf("%s died after %q", p.name, p.ops)
}

func (p *process) last() string { return lastOf(p.ops) }

func (p *process) goOn() {
	if _, err := p.in.Write([]byte{'\n'}); err != nil {
		p.t.Fatal(err)
	}
}

// finish lets it go on to its end.
func (p *process) finish() {
	p.t.Helper()
	p.goOn()
	p.until(nil)
}

func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait()
}

func isJournal(base string) bool {
	return strings.HasSuffix(base, ".jsonl") && strings.Contains(base, "-01")
}

// oneEach checks that each event arrives once, and that nothing waits.
func oneEach(t *testing.T, root *state.Root, a *receiver, ids ...string) {
	t.Helper()
	a.heal()
	r := newRoom("a", "plain")
	r.via = webhook.New(webhook.Options{Name: "a", URL: a.URL})
	if err := cycles(root, 2, []bus.Route{r.route(false)}); err != nil {
		t.Error(err)
	}
	rest, err := left(root)
	if err != nil || len(rest) > 0 {
		t.Errorf("%d wait, %v", len(rest), err)
	}
	for _, id := range ids {
		if got := a.counts()[id]; got != 1 {
			t.Errorf("%s arrived %d times", id, got)
		}
	}
}

func bothEnds(t *testing.T, test func(t *testing.T, dies bool)) {
	t.Run("publisher goes on", func(t *testing.T) { test(t, false) })
	t.Run("publisher dies", func(t *testing.T) { test(t, true) })
}

func TestP1P2_RecovererThatFindsTheJournalBeforeThePublisherSettles(t *testing.T) {
	bothEnds(t, func(t *testing.T, dies bool) {
		root, _ := scratch(t)
		a := newReceiver(t, true)
		p := begin(t, "publish", root, a.URL, idFirst)
		asked := false
		p.until(func(op, base string) bool { // it is about to store its entry
			asked = asked || op == "append" && isJournal(base)
			return asked && op == "lock" && base == "undelivered.json.lock"
		})
		r := begin(t, "recover", root, a.URL, idSecond)
		r.until(func(op, base string) bool { return op == "lock" && isJournal(base) })
		if dies {
			p.kill()
		}
		r.finish()
		if !dies {
			p.finish()
		}
		oneEach(t, root, a, idFirst)
	})
}

func TestP1P2_DrainerPastItsRecoveryWhenThePublisherDiesUnsettled(t *testing.T) {
	bothEnds(t, func(t *testing.T, dies bool) {
		root, _ := scratch(t)
		a := newReceiver(t, true)
		waiting(t, root, idWaits, "a")
		d := begin(t, "drain", root, a.URL, idSecond)
		locks := 0
		d.until(func(op, base string) bool { // the first is the recovery, the second the claim
			if op == "lock" && base == "undelivered.json.lock" {
				locks++
			}
			return locks == 2
		})
		p := begin(t, "publish", root, a.URL, idFirst)
		stored := false
		p.until(func(op, base string) bool { // its entry is durable, its intent is not settled
			stored = stored || op == "replace" && base == "undelivered.json"
			return stored && op == "append" && isJournal(base)
		})
		a.heal()
		if dies {
			p.kill()
		} else {
			p.finish()
		}
		d.finish()
		oneEach(t, root, a, idWaits, idFirst)
	})
}

func TestP1_RecovererBetweenCreateAndLockOfAJournal(t *testing.T) {
	bothEnds(t, func(t *testing.T, dies bool) {
		root, _ := scratch(t)
		a := newReceiver(t, false)
		p := begin(t, "publish", root, a.URL, idFirst)
		p.until(func(op, base string) bool { return op == "lock" && isJournal(base) }) // under its hidden name
		begin(t, "recover", root, a.URL, idSecond).until(nil)
		if dies {
			p.kill()
			oneEach(t, root, a)
			if n := a.counts()[idFirst]; n > 0 {
				t.Errorf("not taken, and arrived %d times", n)
			}
			return
		}
		p.finish()
		oneEach(t, root, a, idFirst)
	})
}

func TestP2_RetryAndDropDuringASendInFlight(t *testing.T) {
	root, _ := scratch(t)
	waiting(t, root, idWaits, "a")
	r := newRoom("a", "plain")
	r.onPost = func(id string) {
		store := outbox.Open(root, atOnce(root))
		retried, err := store.Retry(t.Context(), id)
		if err != nil || len(retried) != 1 || len(retried[0].Due) > 0 || retried[0].Left["a"] == "" {
			t.Errorf("retry: %+v, %v", retried, err)
		}
		if _, err := store.Drop(t.Context(), id); !errors.Is(err, outbox.ErrInHand) {
			t.Errorf("drop: %v", err)
		}
	}
	if err := cycles(root, 2, []bus.Route{r.route(false)}); err != nil {
		t.Error(err)
	}
	rest, err := left(root)
	if err != nil || len(rest) > 0 || r.count(idWaits) != 1 {
		t.Errorf("%d wait, arrived %d times, %v", len(rest), r.count(idWaits), err)
	}
}

func TestP2_RoleFileDeletedUnderADrainer(t *testing.T) {
	root, _ := scratch(t)
	waiting(t, root, idWaits, "a")
	r := newRoom("a", "plain")
	r.onPost = func(string) { // in flight: another drainer finds the role free
		r.onPost = nil
		if err := os.Remove(root.Path(state.DrainRole)); err != nil {
			t.Error(err)
		}
		if err := cycles(root, 1, []bus.Route{r.route(false)}); err != nil {
			t.Error(err)
		}
		rest, err := left(root)
		if err != nil || rest[idWaits] == nil || rest[idWaits].State() != channels.StateUncertain {
			t.Errorf("while it is in flight: %+v, %v", rest[idWaits], err)
		}
	}
	if err := cycles(root, 2, []bus.Route{r.route(false)}); err != nil {
		t.Error(err)
	}
	rest, err := left(root)
	if err != nil || len(rest) > 0 || r.count(idWaits) != 1 {
		t.Errorf("%d wait, arrived %d times, %v", len(rest), r.count(idWaits), err)
	}
}
