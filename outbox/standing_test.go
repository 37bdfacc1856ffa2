package outbox

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"the-loop/channels"
	"the-loop/state"
)

const botToken = "xoxb-secret-token"

var slack = Asker{Channel: "slack", Credential: botToken, Timeout: 10 * time.Second}

// mayAsk and observe work in a bubble: they wait for nobody.
func mayAsk(t *testing.T, s *Store, a Asker) (bool, *Standing) {
	t.Helper()
	ok, st, err := s.MayAsk(t.Context(), a)
	if err != nil {
		t.Fatal(err)
	}
	return ok, st
}

func observe(t *testing.T, s *Store, a Asker, entry string, o channels.Outcome) {
	t.Helper()
	if err := s.Observe(t.Context(), a, entry, o); err != nil {
		t.Fatal(err)
	}
}

// untilAsked passes time, second by second, until the channel may be asked.
func untilAsked(t *testing.T, s *Store, a Asker) time.Duration {
	t.Helper()
	for began := time.Now(); time.Since(began) < 26*time.Hour; time.Sleep(time.Second) {
		if ok, _ := mayAsk(t, s, a); ok {
			return time.Since(began)
		}
	}
	t.Fatal("never asked again")
	return 0
}

func TestGoodStandingWritesNothing(t *testing.T) {
	s, root := store(t, Options{})
	for _, o := range []channels.Outcome{
		accepted("1"), refused(channels.ReasonUnacceptable, "no_text"), refused(channels.ReasonOther, "strange"),
	} {
		if ok, st := mayAsk(t, s, slack); !ok || st != nil {
			t.Errorf("%v, %+v", ok, st)
		}
		observe(t, s, slack, "A", o)
	}
	if err := s.Release(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(root.Dir()); !errors.Is(err, fs.ErrNotExist) {
		t.Error("something was written")
	}
}

func TestP6_TheProbeClock(t *testing.T) {
	t.Parallel()
	s, root := store(t, Options{})
	synctest.Test(t, func(t *testing.T) {
		observe(t, s, slack, "A", down())
		for i, want := range []time.Duration{1, 2, 4, 5, 5, 5} {
			if got := untilAsked(t, s, slack); got != want*time.Minute {
				t.Errorf("probe %d after %v, want %v minutes", i+1, got, int64(want))
			}
			if ok, st := mayAsk(t, s, slack); ok || st == nil || st.Probes != i+1 {
				t.Errorf("a second probe beside it: %v, %+v", ok, st)
			}
			observe(t, s, slack, fmt.Sprint("B", i), down())
		}
		if st := s.Standing(slack); st.LastEntry != "B5" || st.Verdict != Failing || st.Reason != channels.ReasonDown {
			t.Errorf("%+v", st)
		}
		observe(t, s, slack, "C", accepted("1"))
		if ok, st := mayAsk(t, s, slack); !ok || st != nil {
			t.Errorf("recovered, and: %v, %+v", ok, st)
		}
		observe(t, s, slack, "D", accepted("2"))
		observe(t, s, slack, "A", down())
		if got := untilAsked(t, s, slack); got != time.Minute {
			t.Errorf("the clock does not begin anew: %v", got)
		}
	})
	log := logged(t, root)
	if count(log, "channel.failing slack") != 2 || count(log, "channel.recovered slack") != 1 {
		t.Errorf("logged %v", log)
	}
}

func TestAProbeWhoseProcessDiesIsMadeAgain(t *testing.T) {
	s, _ := store(t, Options{})
	synctest.Test(t, func(t *testing.T) {
		observe(t, s, slack, "A", down())
		untilAsked(t, s, slack)
		if got := untilAsked(t, s, slack); got != 2*time.Minute {
			t.Errorf("after %v", got)
		}
		long := slack
		long.Timeout = 20 * time.Minute // no second probe while the first may be in the air
		time.Sleep(time.Hour)
		untilAsked(t, s, long)
		if got := untilAsked(t, s, long); got < 20*time.Minute {
			t.Errorf("with a long timeout after %v", got)
		}
	})
}

func TestOneProbeAtATimeUnderFiftyAskers(t *testing.T) {
	t.Parallel()
	s, _ := store(t, Options{})
	o := down()
	o.At = time.Now().Add(-time.Hour)
	observe(t, s, slack, "A", o)
	var asked atomic.Int32
	var wg sync.WaitGroup
	for range 50 {
		wg.Go(func() {
			if ok, _, err := s.MayAsk(t.Context(), slack); err != nil {
				t.Error(err)
			} else if ok {
				asked.Add(1)
			}
		})
	}
	wg.Wait()
	if n := asked.Load(); n != 1 {
		t.Errorf("%d probes at once", n)
	}
}

func TestP5_ToldToWaitIsWaitedForAndRaisesNoBackoff(t *testing.T) {
	t.Parallel()
	s, _ := store(t, Options{})
	synctest.Test(t, func(t *testing.T) {
		for range 6 {
			observe(t, s, slack, "A", rate(30*time.Minute))
			if err := s.Release(t.Context()); err != nil { // told to wait: not even a command shortens it
				t.Fatal(err)
			}
			if st := s.Standing(slack); st.Verdict != Cooling || st.Reason != channels.ReasonRate {
				t.Errorf("%+v", st)
			}
			if got := untilAsked(t, s, slack); got != 30*time.Minute {
				t.Errorf("asked after %v", got)
			}
			if ok, _ := mayAsk(t, s, slack); ok {
				t.Error("a second one is asked beside the first")
			}
		}
		observe(t, s, slack, "A", down())
		if got := untilAsked(t, s, slack); got != time.Minute {
			t.Errorf("then it fails, and is probed after %v: being told to wait raised the backoff", got)
		}
		observe(t, s, slack, "A", rate(240*time.Hour))
		if got := untilAsked(t, s, slack); got != MaxCooling {
			t.Errorf("an absurd time to wait was believed for %v", got)
		}
	})
}

func TestANewCredentialIsANewChance(t *testing.T) {
	s, _ := store(t, Options{})
	observe(t, s, slack, "A", refused(channels.ReasonAuth, "invalid_auth"))
	rotated, other := slack, slack
	rotated.Credential, other.Channel = "xoxb-new", "ops"
	for _, a := range []Asker{rotated, other} {
		if ok, st := mayAsk(t, s, a); !ok || st != nil {
			t.Errorf("%+v is held for what another was told: %+v", a, st)
		}
	}
	observe(t, s, rotated, "A", accepted("1"))
	if ok, _ := mayAsk(t, s, slack); ok {
		t.Error("the old token is asked again because the new one works")
	}
}

func TestRotatedCredentialsAreForgotten(t *testing.T) {
	s, root := store(t, Options{})
	synctest.Test(t, func(t *testing.T) {
		for i := range 5 {
			a := slack
			a.Credential = fmt.Sprint("token", i)
			observe(t, s, a, "A", down())
			time.Sleep(25 * time.Hour)
		}
	})
	var h struct{ Channels map[string]map[string]any }
	if err := json.Unmarshal(bytesOf(t, root, state.Health), &h); err != nil || len(h.Channels["slack"]) != 1 {
		t.Errorf("%v, %v", h, err)
	}
}

func TestAPublishDoesNotAskAChannelWhoseAnswerIsUnknown(t *testing.T) {
	s, _ := store(t, Options{})
	publishing := slack
	publishing.Publishing = true
	synctest.Test(t, func(t *testing.T) {
		observe(t, s, slack, "A", uncertain())
		time.Sleep(24 * time.Hour)
		if ok, st := mayAsk(t, s, publishing); ok || st == nil {
			t.Error("a publish asks a black hole")
		}
		if ok, _ := mayAsk(t, s, slack); !ok {
			t.Error("a drain does not")
		}
		observe(t, s, slack, "B", down())
		time.Sleep(24 * time.Hour)
		if ok, _ := mayAsk(t, s, publishing); !ok {
			t.Error("the last verdict is known, and a publish does not probe")
		}
	})
}

// Between reading the standing and taking the slot another process may learn
// that the channel gives no answer.
func TestAPublishLooksAgainUnderTheLock(t *testing.T) {
	s, root := store(t, Options{})
	o := down()
	o.At = time.Now().Add(-time.Hour)
	observe(t, s, slack, "A", o)
	once := false
	racing := Open(root.WithSteps(func(op state.Op, path string) error {
		if op == state.OpLock && !once {
			once = true
			unknown := uncertain()
			unknown.At = o.At
			return s.Observe(t.Context(), slack, "B", unknown)
		}
		return nil
	}), Options{})
	publishing := slack
	publishing.Publishing = true
	if ok, st := mayAsk(t, racing, publishing); ok || !once || st.Reason != channels.ReasonUnknown {
		t.Errorf("%v, %+v", ok, st)
	}
}

func TestReleaseLetsFailingChannelsBeProbedAtOnce(t *testing.T) {
	s, _ := store(t, Options{})
	ops := Asker{Channel: "ops"}
	observe(t, s, slack, "A", down())
	observe(t, s, ops, "A", down())
	if err := s.Release(t.Context(), "ops", "no-such-channel"); err != nil {
		t.Fatal(err)
	}
	if ok, _ := mayAsk(t, s, slack); ok {
		t.Error("slack was not named")
	}
	if ok, _ := mayAsk(t, s, ops); !ok {
		t.Error("ops was")
	}
	if err := s.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, a := range []Asker{slack, ops} {
		if ok, st := mayAsk(t, s, a); !ok || st == nil {
			t.Errorf("%s: %v, %+v", a.Channel, ok, st)
		}
	}
}

func TestAClockThatWasWrongHoldsNoChannelForAYear(t *testing.T) {
	s, _ := store(t, Options{})
	for _, o := range []channels.Outcome{down(), rate(time.Hour)} {
		o.At = time.Now().AddDate(1, 0, 0)
		observe(t, s, slack, "A", o)
		if ok, _ := mayAsk(t, s, slack); !ok {
			t.Errorf("%s a year ahead is believed", o.Reason)
		}
	}
}

func TestK01_DamagedHealthIsSetAside(t *testing.T) {
	t.Parallel()
	for name, text := range damage {
		if strings.HasPrefix(name, "pending") {
			continue
		}
		s, root := store(t, Options{})
		place(t, root, state.Health, text)
		if ok, st := mayAsk(t, s, slack); !ok || st != nil {
			t.Errorf("%s: %v, %+v", name, ok, st)
		}
		if len(setAside(t, root)) > 0 {
			t.Errorf("%s: reading set it aside", name)
		}
		observe(t, s, slack, "A", down())
		if ok, st := mayAsk(t, s, slack); ok || st == nil {
			t.Errorf("%s: afterwards: %v, %+v", name, ok, st)
		}
		aside := setAside(t, root)
		for file, kept := range aside {
			if kept != text || !strings.HasPrefix(file, state.Health) {
				t.Errorf("%s: %s holds %q", name, file, kept)
			}
		}
		if len(aside) != 1 || count(logged(t, root), "state.set_aside") != 1 {
			t.Errorf("%s: %v", name, aside)
		}
	}
}

func TestP10_NewerOrUnreadableHealthIsLeftAlone(t *testing.T) {
	s, root := store(t, Options{})
	text := `{"version": 2, "channels": {}}`
	place(t, root, state.Health, text)
	if ok, _ := mayAsk(t, s, slack); !ok {
		t.Error("it must not stop a message")
	}
	if err := s.Observe(t.Context(), slack, "A", down()); !errors.Is(err, errNewerHealth) {
		t.Errorf("%v", err)
	}
	unreadable := Open(root.WithSteps(func(op state.Op, path string) error {
		if op == state.OpRead {
			return &fs.PathError{Op: "open", Path: path, Err: syscall.EACCES}
		}
		return nil
	}), Options{})
	if err := unreadable.Observe(t.Context(), slack, "A", down()); !errors.Is(err, fs.ErrPermission) {
		t.Errorf("%v", err)
	}
	if got := string(bytesOf(t, root, state.Health)); got != text || len(setAside(t, root)) > 0 {
		t.Errorf("it was touched: %s", got)
	}
}

func TestP9_HealthHoldsNoCredentialAndKeepsUnknownKeys(t *testing.T) {
	s, root := store(t, Options{})
	observe(t, s, slack, "A", down())
	var file map[string]any
	if err := json.Unmarshal(bytesOf(t, root, state.Health), &file); err != nil {
		t.Fatal(err)
	}
	file["extra"] = "top"
	for _, st := range file["channels"].(map[string]any)["slack"].(map[string]any) {
		st.(map[string]any)["extra"] = "standing"
	}
	b, err := json.Marshal(file)
	if err != nil {
		t.Fatal(err)
	}
	place(t, root, state.Health, string(b))
	observe(t, s, slack, "B", rate(time.Minute))
	got := string(bytesOf(t, root, state.Health))
	for _, want := range []string{`"extra":"top"`, `"extra":"standing"`, `"cooling"`, `"lastEntry":"B"`} {
		if !strings.Contains(got, want) {
			t.Errorf("%s is not kept:\n%s", want, got)
		}
	}
	if strings.Contains(got, botToken) || strings.Contains(got, "xoxb") {
		t.Errorf("it holds the token:\n%s", got)
	}
	// Two roots hash one token differently: there is no list to try tokens against.
	other, otherRoot := store(t, Options{})
	observe(t, other, slack, "A", down())
	var h struct{ Channels map[string]map[string]any }
	if err := json.Unmarshal(bytesOf(t, otherRoot, state.Health), &h); err != nil {
		t.Fatal(err)
	}
	for hash := range h.Channels["slack"] {
		if strings.Contains(got, hash) {
			t.Error("the hash has no key")
		}
	}
}

func TestASlotThatCannotBeTakenIsAnError(t *testing.T) {
	s, root := store(t, Options{})
	o := down()
	o.At = time.Now().Add(-time.Hour)
	observe(t, s, slack, "A", o)
	full := errors.New("disk full")
	broken := Open(root.WithSteps(func(op state.Op, _ string) error {
		if op == state.OpReplace {
			return full
		}
		return nil
	}), Options{})
	if ok, st, err := broken.MayAsk(t.Context(), slack); ok || st == nil || !errors.Is(err, full) {
		t.Errorf("%v, %+v, %v", ok, st, err)
	}
}

func TestQ07_AGuessedWaitRises(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := store(t, Options{})
		a := Asker{Channel: "github"}
		limited := channels.Outcome{
			State: channels.StateRefused, Reason: channels.ReasonRate, RetryAfter: time.Minute, Guessed: true,
		}
		for _, want := range []time.Duration{time.Minute, 2 * time.Minute, 4 * time.Minute} {
			limited.At = time.Now()
			if err := s.Observe(t.Context(), a, "e", limited); err != nil {
				t.Fatal(err)
			}
			time.Sleep(want - time.Second)
			if ok, _, err := s.MayAsk(t.Context(), a); ok || err != nil {
				t.Fatalf("asked before %s: %v", want, err)
			}
			time.Sleep(2 * time.Second)
			if ok, _, err := s.MayAsk(t.Context(), a); !ok || err != nil {
				t.Fatalf("not asked after %s: %v", want, err)
			}
		}
	})
}
