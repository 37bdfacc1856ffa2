package proof

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"text/tabwriter"
	"time"

	"the-loop/bus"
	"the-loop/channels"
	"the-loop/channels/channelstest"
	"the-loop/drain"
	"the-loop/outbox"
	"the-loop/state"
)

// The soak. Eight publishers and two drainers, processes all of them, share one
// root, and are killed, told to stop and suspended at random, beside receivers
// that misbehave. Then everything heals, and every event is accounted for.
//
// SOAK is how long it lasts (5s here, 60s by make soak), SOAK_SEED the seed,
// which is printed. The same seed rolls the same dice; what the processes make
// of it depends on the machine's scheduler too.
//
// The clock that jumps: every time stored in the outbox and in the standing of
// channels is moved by up to three hours, both ways, under the files' locks, as
// if written before the clock was set; and processes are suspended, which is
// what a machine that sleeps does to them. Not had without root: the clock of
// the system set while a process lives.

const (
	soakPublishers = 8
	soakDrainers   = 2
)

type soak struct {
	t    *testing.T
	root *state.Root
	role role

	idempotent, plain *hook
	slack             *channelstest.Slack
	fronts            map[string]*front

	mu     sync.Mutex
	events map[string]*soakEvent
	fates  map[string]int
	jumps  int

	crowded atomic.Bool
}

// crowd is how many deliveries may be on their way before no publisher is
// started for a while: the whole file is written for each step of each.
const crowd = 100

// soakEvent is what the publisher said of one event.
type soakEvent struct {
	eventType string
	taken     bool
	result    *said // nil: it died before it could tell
}

func TestP1P2P7_SoakLosesAndDoublesNothing(t *testing.T) {
	length, seed := 5*time.Second, rand.Uint64()
	if v := os.Getenv("SOAK"); v != "" {
		var err error
		if length, err = time.ParseDuration(v); err != nil {
			t.Fatalf("SOAK: %v", err)
		}
	}
	if v := os.Getenv("SOAK_SEED"); v != "" {
		var err error
		if seed, err = strconv.ParseUint(v, 10, 64); err != nil {
			t.Fatalf("SOAK_SEED: %v", err)
		}
	}
	t.Logf("SOAK=%s SOAK_SEED=%d", length, seed)
	s := newSoak(t, seed)
	ctx, cancel := context.WithTimeout(t.Context(), length)
	defer cancel()
	var wg sync.WaitGroup
	for i := range soakPublishers + soakDrainers {
		name := "publish"
		if i >= soakPublishers {
			name = "drain"
		}
		d := newDice(seed, uint64(100+i))
		wg.Go(func() {
			for ctx.Err() == nil {
				s.live(ctx, name, d)
			}
		})
	}
	wg.Go(func() { s.jump(ctx, newDice(seed, 99)) })
	wg.Go(func() { s.watch(ctx) })
	wg.Wait()
	for _, f := range s.fronts {
		f.heal()
	}
	s.settle()
	s.check()
}

func newSoak(t *testing.T, seed uint64) *soak {
	root, err := state.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv(tokenEnv, channelstest.SlackToken)
	s := &soak{
		t: t, root: root, idempotent: newHook(true), plain: newHook(false), slack: channelstest.NewSlack(t),
		events: map[string]*soakEvent{}, fates: map[string]int{},
	}
	s.slack.SetPace(0)
	s.fronts = map[string]*front{
		onIdempotent: newFront(newDice(seed, 1), httpNoes(), s.idempotent.keep),
		onPlain:      newFront(newDice(seed, 2), httpNoes(), s.plain.keep),
		onSlack:      newFront(newDice(seed, 3), slackNoes(), slackKeeper(s.slack)),
	}
	for _, f := range s.fronts {
		t.Cleanup(f.Close)
	}
	s.role = role{
		Root: root.Dir(), Idempotent: s.fronts[onIdempotent].URL,
		Plain: s.fronts[onPlain].URL, Slack: s.fronts[onSlack].URL + "/api/",
	}
	return s
}

// live is the life of one process, and its end.
func (s *soak) live(ctx context.Context, name string, d *dice) {
	for name == "publish" && s.crowded.Load() && ctx.Err() == nil {
		pause(ctx, 50*time.Millisecond)
	}
	r := s.role
	r.Name, r.Events, r.Seed = name, 1+d.n(6), uint64(d.n(1<<30))
	cmd, out := r.start(s.t)
	if err := cmd.Start(); err != nil {
		s.t.Error(err)
		return
	}
	heard := make(chan struct{})
	go func() {
		defer close(heard)
		lines := bufio.NewScanner(out)
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			s.hear(lines.Bytes())
		}
	}()
	lasts := d.between(5, 300)
	if name == "drain" {
		lasts = d.between(100, 1500)
	}
	fate := s.end(ctx, cmd, name, lasts, d, heard)
	<-heard
	err := cmd.Wait()
	if fate == "ended" && name == "publish" && err != nil {
		s.t.Errorf("a publisher that nobody harmed: %v", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fates[name+" "+fate]++
}

// end brings the process to its end, and says how.
func (s *soak) end(
	ctx context.Context, cmd *exec.Cmd, name string, lasts time.Duration, d *dice, heard <-chan struct{},
) (fate string) {
	wait := func(at time.Duration) (over bool) {
		t := time.NewTimer(at)
		defer t.Stop()
		select {
		case <-heard:
			return true
		case <-t.C:
		case <-ctx.Done():
		}
		return false
	}
	if wait(lasts) {
		return "ended"
	}
	roll := d.n(100)
	if roll < 15 {
		_ = cmd.Process.Signal(syscall.SIGSTOP)
		pause(ctx, d.between(50, 700))
		_ = cmd.Process.Signal(syscall.SIGCONT)
		s.mu.Lock()
		s.fates[name+" suspended"]++
		s.mu.Unlock()
		if wait(d.between(20, 300)) {
			return "ended"
		}
		roll = d.n(100)
	}
	if roll < 75 || ctx.Err() != nil {
		_ = cmd.Process.Kill()
		return "killed"
	}
	_ = cmd.Process.Signal(syscall.SIGTERM)
	t := time.NewTimer(10 * time.Second)
	defer t.Stop()
	select {
	case <-heard:
		return "told to stop"
	case <-t.C:
		s.t.Errorf("a %s process did not stop within 10s", name)
		_ = cmd.Process.Kill()
		return "killed"
	}
}

// watch keeps the outbox at a size that real ones have.
func (s *soak) watch(ctx context.Context) {
	for store := openStore(s.root); ctx.Err() == nil; pause(ctx, 100*time.Millisecond) {
		s.crowded.Store(len(s.onTheirWay(store)) > crowd)
	}
}

func (s *soak) hear(line []byte) {
	var m said
	if json.Unmarshal(line, &m) != nil || m.ID == "" {
		return // cut off by a kill
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.events[m.ID]
	if e == nil {
		e = &soakEvent{eventType: m.Type}
		s.events[m.ID] = e
	}
	switch m.Did {
	case "taken":
		e.taken = true
	case "ends":
		e.result = &m
	}
}

// jump moves stored times.
func (s *soak) jump(ctx context.Context, d *dice) {
	for {
		pause(ctx, d.between(300, 1200))
		if ctx.Err() != nil {
			return
		}
		by := time.Duration(d.n(240)-120) * time.Minute
		if by > 0 {
			// Less than an hour ahead would be believed, and rightly: a
			// provider may have said so.
			by += 65 * time.Minute
		}
		for _, name := range []string{state.Outbox, state.Health} {
			err := s.root.Document(name).Update(ctx, func(tx *state.Tx) error {
				b, err := tx.Read()
				if err != nil || len(b) == 0 {
					return err
				}
				return tx.Write(shift(b, by))
			})
			if err != nil && ctx.Err() == nil {
				s.t.Errorf("move the times of %s: %v", name, err)
			}
		}
		s.mu.Lock()
		s.jumps++
		s.mu.Unlock()
	}
}

// shift moves every time in a file of ours, the event's own keys left alone.
func shift(b []byte, by time.Duration) []byte {
	var v any
	dec := json.NewDecoder(strings.NewReader(string(b)))
	dec.UseNumber()
	if dec.Decode(&v) != nil {
		return b
	}
	var walk func(v any)
	walk = func(v any) {
		m, ok := v.(map[string]any)
		if !ok {
			return
		}
		for key, value := range m {
			text, _ := value.(string)
			at, err := time.Parse(time.RFC3339Nano, text)
			if err == nil && key != "event" {
				m[key] = at.Add(by).Format(time.RFC3339Nano)
			} else if key != "event" {
				walk(value)
			}
		}
	}
	walk(v)
	out, err := json.Marshal(v)
	if err != nil {
		return b
	}
	return out
}

// settle drains with healthy receivers until nothing is left but what waits for
// a person. Dead deliveries are retried, as a person would.
func (s *soak) settle() {
	store := openStore(s.root)
	d := drain.New(drain.Options{
		Store: store, Role: s.root.Role(state.DrainRole), Who: "the end", Budget: 1 << 20,
		Routes: func() []bus.Route { return s.role.routes(s.root) },
	})
	deadline := time.Now().Add(time.Minute)
	for {
		err := store.Release(s.t.Context())
		if dead := s.dead(store); err == nil && len(dead) > 0 {
			_, err = store.Retry(s.t.Context(), dead...)
		}
		if err == nil {
			_, err = d.Cycle(s.t.Context())
		}
		if err != nil {
			s.t.Fatalf("drain after everything healed: %v", err)
		}
		left := s.onTheirWay(store)
		if len(left) == 0 {
			return
		}
		if time.Now().After(deadline) {
			s.t.Fatalf("%d deliveries are still on their way a minute after everything healed, %s",
				len(left), left[0])
		}
		pause(s.t.Context(), 100*time.Millisecond)
	}
}

func (s *soak) dead(store *outbox.Store) (ids []string) {
	for _, e := range s.entries(store) {
		isDead := func(name string) bool { return e.Deliveries[name].State == channels.StateDead }
		if slices.ContainsFunc(e.Owed(), isDead) {
			ids = append(ids, e.ID)
		}
	}
	return ids
}

func (s *soak) onTheirWay(store *outbox.Store) (left []string) {
	for _, e := range s.entries(store) {
		for _, name := range e.Owed() {
			if st := e.Deliveries[name].State; st != channels.StateUncertain && st != channels.StateLost {
				d := e.Deliveries[name]
				left = append(left, fmt.Sprintf("%s on %s is %s, %s %s, claim %q, due %s", e.ID, name, st,
					d.Reason, d.Code, d.Claim, d.At.Format(time.RFC3339)))
			}
		}
	}
	return left
}

func (s *soak) entries(store *outbox.Store) []*outbox.Entry {
	entries, bad, damaged, err := store.Entries()
	if err != nil || bad > 0 || damaged {
		s.t.Errorf("the outbox: %d bad entries, damaged %v, %v", bad, damaged, err)
	}
	return entries
}

// tally is what became of the deliveries of one class.
type tally struct{ owed, delivered, elsewhere, uncertain, reported, never, lost, doubled int }

// check accounts for every event by its id.
func (s *soak) check() {
	rows := map[string]*outbox.Entry{}
	for _, e := range s.entries(openStore(s.root)) {
		rows[e.ID] = e
		if e.SentAgainFrom != "" { // what was proven lost waits under a new id
			rows[e.SentAgainFrom] = e
		}
	}
	effects := map[string]map[string]int{
		onIdempotent: s.idempotent.effects, onPlain: s.plain.effects, onSlack: slackEffects(s.slack),
	}
	acked, killed := 0, 0
	tallies := map[string]*tally{onIdempotent: {}, onPlain: {}, onSlack: {}}
	for _, id := range slices.Sorted(maps.Keys(s.events)) {
		e := s.events[id]
		if e.result != nil {
			acked++
		} else if e.taken {
			killed++
		}
		for _, name := range soakTypes()[e.eventType] {
			s.account(tallies[name], id, name, e, rows[id], effects)
		}
	}
	s.table(acked, killed, tallies)
	if jobs := len(s.events); jobs < 20 || acked == 0 || killed == 0 {
		s.t.Errorf("%d events, %d acknowledged, %d of them killed: this proves nothing", jobs, acked, killed)
	}
	aside, err := outbox.SetAside(s.root)
	if err != nil || len(aside) > 0 {
		s.t.Errorf("set aside: %v, %v", aside, err)
	}
}

func (s *soak) account(
	n *tally, id, name string, e *soakEvent, row *outbox.Entry, effects map[string]map[string]int,
) {
	n.owed++
	got := effects[name][id]
	waits := row != nil && slices.Contains(row.Owed(), name)
	post := e.post(name)
	// What may have been kept and what was kept are both counted once at most,
	// where nobody drops repeats.
	open := s.fronts[name].open[id]
	if got > 1 || name == onPlain && open > 1 {
		n.doubled++
		s.t.Errorf("doubled: %s on %s: %d effects, %d requests that were not answered no", id, name, got, open)
	}
	if post == channels.StateAccepted && got == 0 {
		s.t.Errorf("%s: the publisher was told that %s accepted it, which has nothing", id, name)
	}
	switch {
	case got > 0:
		n.delivered++
	case waits:
		n.uncertain++
	case name != onIdempotent && settledElsewhere(id, name, e, effects):
		n.elsewhere++
	case e.result == nil && !e.taken:
		n.never++ // killed before it was taken: nothing was promised
	case e.result != nil && !e.result.Result.Queued && !e.result.Result.Stored && post != channels.StateAccepted:
		n.reported++
	default:
		n.lost++
		s.t.Errorf("lost: %s on %s (taken %v, result %+v)", id, name, e.taken, e.result)
	}
}

// post is what the publisher was told of a channel, "" when it was told nothing.
func (e *soakEvent) post(name string) channels.State {
	if e.result != nil {
		for _, p := range e.result.Result.Posts {
			if p.Channel == name {
				return p.State
			}
		}
	}
	return ""
}

// settledElsewhere: an acceptance on a channel that is not required settles the
// others that are not.
func settledElsewhere(id, name string, e *soakEvent, effects map[string]map[string]int) bool {
	for _, other := range soakTypes()[e.eventType] {
		if other != name && other != onIdempotent && effects[other][id] > 0 {
			return true
		}
	}
	return false
}

func (s *soak) table(acked, killed int, tallies map[string]*tally) {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 2, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(w, "events %d: %d acknowledged, %d taken from a process that died, %d never taken; times moved %d×\n",
		len(s.events), acked, killed, len(s.events)-acked-killed, s.jumps)
	var fates []string
	for _, name := range slices.Sorted(maps.Keys(s.fates)) {
		fates = append(fates, fmt.Sprintf("%s %d", name, s.fates[name]))
	}
	fmt.Fprintf(w, "processes: %s\n", strings.Join(fates, ", "))
	fmt.Fprintln(w, "channel\trequests\towed\tdelivered\tby another\tuncertain\treported\tnever taken\tlost\tdoubled\t")
	names := slices.SortedFunc(maps.Keys(tallies), cmp.Compare)
	for _, name := range names {
		n, f := tallies[name], s.fronts[name]
		fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t\n", name, f.requests,
			n.owed, n.delivered, n.elsewhere, n.uncertain, n.reported, n.never, n.lost, n.doubled)
	}
	_ = w.Flush()
	for _, name := range names {
		var kinds []string
		for _, kind := range slices.Sorted(maps.Keys(s.fronts[name].kinds)) {
			kinds = append(kinds, fmt.Sprintf("%s %d", kind, s.fronts[name].kinds[kind]))
		}
		fmt.Fprintf(&b, "%s did: %s\n", name, strings.Join(kinds, ", "))
	}
	s.t.Log("\n" + b.String())
}
