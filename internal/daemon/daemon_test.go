package daemon_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"the-loop/bus"
	"the-loop/channels"
	"the-loop/internal/daemon"
	"the-loop/internal/eventlog"
	"the-loop/state"
	"the-loop/status"
)

func TestSecondInstanceIsRefusedAndNamesTheFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, nil)
		stop := s.run(t)
		synctest.Wait()
		err := daemon.Run(t.Context(), s.opts)
		if !errors.Is(err, daemon.ErrRunning) || !strings.Contains(err.Error(), "(poller, process ") {
			t.Errorf("error %v", err)
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
		stop = s.run(t) // the lock is free again
		synctest.Wait()
		if err := stop(); err != nil {
			t.Error(err)
		}
		want := []string{"service.started", "service.stopped", "service.started", "service.stopped"}
		if got := s.services(t); !slices.Equal(got, want) {
			t.Errorf("logged %v", got)
		}
	})
}

// Whoever looks whether a daemon lives holds its lock for an instant.
func TestALookAtTheRunLockStopsNoDaemon(t *testing.T) {
	s := newSite(t, nil)
	if err := os.MkdirAll(s.root.Path("run"), 0o700); err != nil {
		t.Fatal(err)
	}
	f, err := os.Create(s.root.Path(state.RunRole("poller")))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	fd, done := int(f.Fd()), make(chan error)
	if err := syscall.Flock(fd, syscall.LOCK_SH); err != nil {
		t.Fatal(err)
	}
	time.AfterFunc(30*time.Millisecond, func() { done <- syscall.Flock(fd, syscall.LOCK_UN) })
	stop := s.run(t)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	eventually(t, "the daemon's start", func() bool { return len(s.logged.with("service.started")) == 1 })
	if err := stop(); err != nil {
		t.Error(err)
	}
}

func TestHeartbeatTells(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, post(refuse))
		began := time.Now().UTC()
		stop := s.run(t)
		defer stop()
		synctest.Wait()
		h := s.beat(t)
		want := status.Heartbeat{
			Version: "v1.2.3", PID: os.Getpid(), StartedAt: began, LastCycleAt: began, ConfigHash: "one",
			Missing: []string{"variable X is not set"},
		}
		got, _ := json.Marshal(h)
		wanted, _ := json.Marshal(want)
		if string(got) != string(wanted) {
			t.Errorf("got  %s\nwant %s", got, wanted)
		}
		fi, err := os.Stat(s.root.Path(state.Heartbeat("poller")))
		if err != nil || fi.Mode().Perm() != 0o600 {
			t.Errorf("%v (%v)", fi, err)
		}
		time.Sleep(10*time.Minute + time.Second)
		if h := s.beat(t); began.Add(10*time.Minute).Sub(h.LastCycleAt) > time.Minute {
			t.Errorf("after ten minutes the last cycle was at %s", h.LastCycleAt)
		}
	})
}

// writes counts the operations that change the disk, by file.
type writes struct {
	mu    sync.Mutex
	count map[string]int
	fail  atomic.Bool // the outbox cannot be read
}

func (w *writes) step(op state.Op, path string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if op == state.OpReplace || op == state.OpAppend {
		w.count[filepath.Base(path)]++
	}
	if op == state.OpRead && filepath.Base(path) == "undelivered.json" && w.fail.Load() {
		return syscall.EIO
	}
	return nil
}

func (w *writes) take() map[string]int {
	w.mu.Lock()
	defer w.mu.Unlock()
	count := w.count
	w.count = map[string]int{}
	return count
}

func TestIdleDaemonWritesOnceAMinuteAndNewsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &writes{count: map[string]int{}}
		bare := newSite(t, nil)
		s := siteOn(bare.root.WithSteps(w.step), post(refuse))
		s.setup.Drain.Interval = time.Second
		stop := s.run(t)
		defer stop()
		time.Sleep(100 * time.Millisecond)
		if n := w.take()["poller.json"]; n < 1 || n > 2 {
			t.Errorf("%d heartbeats at the start", n)
		}
		time.Sleep(10 * time.Minute)
		if got := w.take(); !maps.Equal(got, map[string]int{"poller.json": 10}) {
			t.Errorf("writes of ten idle minutes: %v", got)
		}
		w.fail.Store(true)
		time.Sleep(1500 * time.Millisecond)
		if h := s.beat(t); !strings.Contains(h.LastError, "input/output error") {
			t.Errorf("last error %q", h.LastError)
		}
		w.take()
		time.Sleep(10 * time.Minute)
		if n := w.take()["poller.json"]; n != 10 {
			t.Errorf("%d heartbeats in ten minutes of the same trouble", n)
		}
		w.fail.Store(false)
		time.Sleep(1500 * time.Millisecond)
		if h := s.beat(t); h.LastError != "" || h.LastCycleAt.Before(time.Now().Add(-3*time.Second)) {
			t.Errorf("after the repair: %+v", h)
		}
		if n := len(s.logged.with("drain cycle failed")); n != 1 {
			t.Errorf("logged %d times", n)
		}
		if got := s.logged.with("recovered"); len(got) != 1 || !strings.Contains(got[0], "after_attempts=60") {
			t.Errorf("recovered: %q", got)
		}
	})
}

func TestBrokenConfigIsRefusedAndTheOldOneStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked atomic.Int32
		s := newSite(t, post(func(ctx context.Context, d channels.Delivery) (channels.Receipt, error) {
			asked.Add(1)
			return refuse(ctx, d)
		}))
		s.seed(t)
		stop := s.run(t)
		defer stop()
		time.Sleep(time.Second)
		for name, change := range map[string]struct {
			do  func(*daemon.Setup)
			err error
		}{
			"unreadable":  {func(s *daemon.Setup) { s.ConfigHash = "two" }, errors.New("line 3: no such key")},
			"bad address": {func(s *daemon.Setup) { s.ConfigHash, s.Listen = "two", "127.0.0.1:99999" }, nil},
		} {
			before, refused := asked.Load(), len(s.services(t))
			s.becomes(change.do, change.err)
			s.reload <- syscall.SIGHUP
			time.Sleep(10 * time.Minute)
			if h := s.beat(t); h.ConfigHash != "one" || h.Listen != "" {
				t.Errorf("%s: heartbeat %+v", name, h)
			}
			if got := s.services(t)[refused:]; !slices.Equal(got, []string{"service.config_refused"}) {
				t.Errorf("%s: logged %v", name, got)
			}
			if asked.Load() == before {
				t.Errorf("%s: the old drainer has stopped", name)
			}
		}
		if got := s.logged.with("new config refused"); len(got) != 2 {
			t.Errorf("said %q", got)
		}
	})
}

// noted is a Runner that notes what is done with it.
type noted struct {
	name string
	add  func(string)
}

func (n noted) Start(context.Context) { n.add("start " + n.name) }
func (n noted) Stop()                 { n.add("stop " + n.name) }

func TestNothingOfARefusedConfigIsStarted(t *testing.T) {
	var mu sync.Mutex
	var did []string
	add := func(what string) {
		mu.Lock()
		defer mu.Unlock()
		did = append(did, what)
	}
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	s := newSite(t, nil)
	s.setup.Runs = []daemon.Runner{noted{"a", add}, noted{"b", add}}
	stop := s.run(t)
	defer stop()
	eventually(t, "the start", func() bool { return len(s.logged.with("service.started")) == 1 })
	s.becomes(func(setup *daemon.Setup) {
		setup.Listen, setup.Handler = taken.Addr().String(), http.NotFoundHandler()
		setup.Runs = []daemon.Runner{noted{"refused", add}}
	}, nil)
	s.reload <- syscall.SIGHUP
	eventually(t, "the refusal", func() bool { return len(s.logged.with("new config refused")) == 1 })
	if err := stop(); err != nil {
		t.Error(err)
	}
	if want := []string{"start a", "start b", "stop b", "stop a"}; !slices.Equal(did, want) {
		t.Errorf("%v", did)
	}
}

func TestReloadTakesUpChannels(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, nil)
		s.seed(t)
		stop := s.run(t)
		defer stop()
		time.Sleep(10 * time.Minute)
		if h := s.beat(t); !h.LastCycleAt.IsZero() {
			t.Errorf("drains without a channel: %+v", h)
		}
		if _, err := os.Stat(s.root.Path(state.DrainRole)); !os.IsNotExist(err) {
			t.Errorf("drain.lock: %v", err)
		}
		took := make(chan string, 1)
		c := post(func(_ context.Context, d channels.Delivery) (channels.Receipt, error) {
			took <- d.Event.ID
			return channels.Receipt{}, nil
		})
		s.becomes(func(setup *daemon.Setup) {
			setup.ConfigHash = "two"
			setup.Drain = s.draining(func() []bus.Route { return []bus.Route{{Channel: c}} })
		}, nil)
		s.reload <- syscall.SIGHUP
		if id := <-took; id != "e1" {
			t.Errorf("took %s", id)
		}
		synctest.Wait()
		if h := s.beat(t); h.ConfigHash != "two" || h.LastCycleAt.IsZero() {
			t.Errorf("heartbeat %+v", h)
		}
		if got := s.services(t); !slices.Equal(got, []string{"service.started", "service.reloaded"}) {
			t.Errorf("logged %v", got)
		}
	})
}

func TestStopGivesAHangingSendFourSeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, post(func(ctx context.Context, _ channels.Delivery) (channels.Receipt, error) {
			<-ctx.Done()
			return channels.Receipt{}, &channels.Uncertain{Code: "timeout"}
		}))
		s.seed(t)
		stop := s.run(t)
		time.Sleep(time.Second)
		began := time.Now()
		if err := stop(); err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took != 4*time.Second {
			t.Errorf("stopped after %s", took)
		}
		entries, _, _, err := s.store.Entries()
		if err != nil || len(entries) != 1 || entries[0].State() != channels.StateUncertain {
			t.Errorf("entries %v (%v)", entries, err)
		}
		var order []string
		err = eventlog.Read(s.root, func(l eventlog.Line) bool { order = append(order, l.Event); return true })
		want := []string{"service.started", "channel.uncertain", "service.stopped"}
		if err != nil || !slices.Equal(order, want) {
			t.Errorf("logged %v (%v)", order, err)
		}
		if got := s.logged.with("drain cycle failed"); len(got) > 0 {
			t.Errorf("said %q", got)
		}
	})
}

func TestPanickingCycleIsSurvivedAndSaidOnceAnHour(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, post(refuse))
		var broken atomic.Bool
		broken.Store(true)
		routes := s.setup.Drain.Routes
		s.setup.Drain.Routes = func() []bus.Route {
			if broken.Load() {
				panic("PRIVATE")
			}
			return routes()
		}
		s.seed(t)
		stop := s.run(t)
		defer stop()
		time.Sleep(2*time.Hour + 30*time.Minute + time.Second)
		got := s.logged.with("drain cycle failed")
		if len(got) != 3 || !strings.Contains(got[0], "panic: string < daemon_test.go:") ||
			strings.Contains(strings.Join(got, ""), "PRIVATE") {
			t.Errorf("said %d times: %q", len(got), got)
		}
		if h := s.beat(t); !strings.HasPrefix(h.LastError, "panic: string") {
			t.Errorf("heartbeat %+v", h)
		}
		broken.Store(false)
		time.Sleep(time.Minute)
		if h := s.beat(t); h.LastError != "" || len(s.logged.with("recovered")) != 1 {
			t.Errorf("heartbeat %+v, logged %q", h, s.logged.with("recovered"))
		}
	})
}

func TestHeartbeatThatCannotBeWrittenStopsNothingAndIsSaidOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bare := newSite(t, nil)
		s := siteOn(bare.root.WithSteps(func(op state.Op, path string) error {
			if op == state.OpCreate && filepath.Base(path) == "poller.json" {
				return syscall.ENOSPC
			}
			return nil
		}), post(refuse))
		stop := s.run(t)
		time.Sleep(30 * time.Minute)
		if err := stop(); err != nil {
			t.Error(err)
		}
		if got := s.logged.with("heartbeat cannot be written"); len(got) != 1 {
			t.Errorf("said %q", got)
		}
	})
}

func TestConfigThatIsWrongAtTheStartStopsTheStart(t *testing.T) {
	s := newSite(t, nil)
	s.becomes(func(*daemon.Setup) {}, errors.New("line 3: no such key"))
	if err := daemon.Run(t.Context(), s.opts); err == nil || err.Error() != "line 3: no such key" {
		t.Errorf("error %v", err)
	}
	if _, err := os.Stat(s.root.Dir()); !os.IsNotExist(err) {
		t.Errorf("the root is there: %v", err)
	}
}

func TestListenerServesAndMovesWithTheConfig(t *testing.T) {
	s := newSite(t, nil)
	s.opts.Service = "webhook"
	s.setup.Handler = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") })
	s.setup.Listen = "127.0.0.1:0"
	stop := s.run(t)
	defer stop()
	listen := func() string {
		b, err := os.ReadFile(s.root.Path(state.Heartbeat("webhook")))
		var h status.Heartbeat
		if err != nil || json.Unmarshal(b, &h) != nil {
			return ""
		}
		return h.Listen
	}
	eventually(t, "a heartbeat with the address", func() bool { return listen() != "" })
	first := listen()
	if _, port, err := net.SplitHostPort(first); err != nil || port == "0" {
		t.Fatalf("address %q (%v)", first, err)
	}
	if got := get(first); got != "ok" {
		t.Errorf("%s answers %q", first, got)
	}
	s.becomes(func(setup *daemon.Setup) { setup.Listen = "localhost:0" }, nil)
	s.reload <- syscall.SIGHUP
	eventually(t, "another address", func() bool { return listen() != first })
	second := listen()
	if old, now := get(first), get(second); old != "nobody" || now != "ok" {
		t.Errorf("after the reload the old address answers %q and the new one %q", old, now)
	}
	// An address that is taken is refused, and the old one goes on.
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	s.becomes(func(setup *daemon.Setup) { setup.Listen = taken.Addr().String() }, nil)
	s.reload <- syscall.SIGHUP
	eventually(t, "the refusal", func() bool { return len(s.logged.with("new config refused")) == 1 })
	if got := get(second); got != "ok" || listen() != second {
		t.Errorf("after the refusal %s answers %q, and the heartbeat says %s", second, got, listen())
	}
	s.becomes(func(setup *daemon.Setup) { setup.Listen = "" }, nil)
	s.reload <- syscall.SIGHUP
	eventually(t, "no address", func() bool { return listen() == "" })
	if got := get(second); got != "nobody" {
		t.Errorf("after the listener was taken out %s answers %q", second, got)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
}

func TestAddressThatIsTakenStopsTheStartAndFreesTheLock(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	s := newSite(t, post(refuse))
	s.setup.Listen = taken.Addr().String()
	if err := daemon.Run(t.Context(), s.opts); !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("error %v", err)
	}
	if who, err := s.root.Role(state.RunRole("poller")).Holder(); who != "" || err != nil {
		t.Errorf("held by %q (%v)", who, err)
	}
}

func TestDaemonNeedsNoLogger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, post(refuse))
		s.opts.Logger, s.opts.Log = nil, nil
		stop := s.run(t)
		time.Sleep(time.Minute)
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}
