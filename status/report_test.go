package status_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"the-loop/channels"
	"the-loop/outbox"
	"the-loop/state"
	"the-loop/status"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// site is a root as the report sees it.
type site struct {
	root  *state.Root
	store *outbox.Store
	src   status.Source
}

func newSite(t *testing.T) *site {
	t.Helper()
	root, err := state.Open(filepath.Join(t.TempDir(), "root"))
	if err != nil {
		t.Fatal(err)
	}
	return siteOn(root)
}

func siteOn(root *state.Root) *site {
	s := &site{root: root, store: outbox.Open(root, outbox.Options{})}
	s.src = status.Source{
		Root: root, Store: s.store, Interval: time.Minute,
		Services: []status.Service{{Name: "poller", Enabled: true}, {Name: "webhook"}},
		Askers:   []outbox.Asker{{Channel: "ops"}, {Channel: "slack"}},
	}
	return s
}

func refusal(reason channels.Reason, code string) channels.Outcome {
	return channels.OutcomeOf(channels.Receipt{}, &channels.Refusal{Reason: reason, Code: code})
}

func unknown() channels.Outcome {
	return channels.OutcomeOf(channels.Receipt{}, &channels.Uncertain{Code: "timeout"})
}

// put stores an entry whose channels were asked once, at the given time, or
// were not asked where the outcome says pending.
func (s *site) put(t *testing.T, id string, at time.Time, outcomes map[string]channels.Outcome) {
	t.Helper()
	var attempted []outbox.Attempted
	for _, name := range slices.Sorted(maps.Keys(outcomes)) {
		o := outcomes[name]
		o.At = at
		a := outbox.Attempted{Channel: name, Outcome: o}
		if o.State != channels.StatePending {
			a.At = at
		}
		attempted = append(attempted, a)
	}
	ev := channels.Event{ID: id, Type: "session.awaiting_input", Text: "PRIVATE"}
	e, err := outbox.NewEntry(ev, at, attempted)
	if err == nil {
		err = s.store.Remember(t.Context(), e, nil)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// observe gives the channel a standing, as of now.
func (s *site) observe(t *testing.T, channel string, o channels.Outcome) {
	t.Helper()
	if err := s.store.Observe(t.Context(), outbox.Asker{Channel: channel}, "", o); err != nil {
		t.Fatal(err)
	}
}

// run holds a service's run lock until the test is over.
func (s *site) run(t *testing.T, service string) {
	t.Helper()
	release, held, err := s.root.Role(state.RunRole(service)).Take(service + ", process 4711")
	if err != nil || !held {
		t.Fatal(held, err)
	}
	t.Cleanup(release)
}

// beat writes the heartbeat of the process that run pretends to be.
func (s *site) beat(t *testing.T, service string, h status.Heartbeat) {
	t.Helper()
	b, err := json.Marshal(h)
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, s.root.Path(state.Heartbeat(service)), string(b))
}

func (s *site) line() string {
	return status.Make(s.src).ChannelDelivery.Line(time.Now())
}

func writeFile(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestDrainingIsWhatTheHeartbeatsSay(t *testing.T) {
	ago := func(d time.Duration) time.Time { return time.Now().Add(-d) }
	const retried = "retried every 60s"
	for name, tt := range map[string]struct {
		poller, webhook *status.Heartbeat
		interval        time.Duration
		want            string
	}{
		"young": {poller: &status.Heartbeat{PID: 4711, LastCycleAt: ago(2 * time.Minute)}, want: retried},
		"hangs": {
			poller: &status.Heartbeat{PID: 4711, StartedAt: ago(time.Hour), LastCycleAt: ago(4 * time.Minute)},
			want:   "the poller has not answered for 4m",
		},
		"hangs, and its last cycle failed": {
			poller: &status.Heartbeat{PID: 4711, LastCycleAt: ago(4 * time.Minute), LastError: "disk full"},
			want:   "the poller has not answered for 4m",
		},
		"a short interval": {
			poller:   &status.Heartbeat{PID: 4711, LastCycleAt: ago(time.Minute)},
			interval: 2 * time.Second, want: "retried every 2s",
		},
		"a long interval": {
			poller:   &status.Heartbeat{PID: 4711, LastCycleAt: ago(25 * time.Minute)},
			interval: 10 * time.Minute, want: "retried every 10m",
		},
		"a long interval, and longer": {
			poller:   &status.Heartbeat{PID: 4711, LastCycleAt: ago(30 * time.Minute)},
			interval: 10 * time.Minute, want: "the poller has not answered for 30m",
		},
		"fails": {
			poller: &status.Heartbeat{PID: 4711, LastCycleAt: ago(time.Second), LastError: "disk full"},
			want:   "the poller's cycles fail: see above",
		},
		"in its first cycle": {poller: &status.Heartbeat{PID: 4711, StartedAt: ago(time.Minute)}, want: retried},
		"hangs in its first cycle": {
			poller: &status.Heartbeat{PID: 4711, StartedAt: ago(5 * time.Minute)},
			want:   "the poller has not answered for 5m",
		},
		"the heartbeat of the process before": {
			poller: &status.Heartbeat{PID: 7, LastCycleAt: ago(time.Hour), LastError: "disk full"}, want: retried,
		},
		"one fails, the other does not": {
			poller:  &status.Heartbeat{PID: 4711, LastCycleAt: ago(time.Second), LastError: "disk full"},
			webhook: &status.Heartbeat{PID: 4711, LastCycleAt: ago(time.Second)}, want: retried,
		},
		"the webhook receiver fails": {
			webhook: &status.Heartbeat{PID: 4711, LastCycleAt: ago(time.Second), LastError: "disk full"},
			want:    "the webhook's cycles fail: see above",
		},
	} {
		s := newSite(t)
		if tt.interval > 0 {
			s.src.Interval = tt.interval
		}
		for service, h := range map[string]*status.Heartbeat{"poller": tt.poller, "webhook": tt.webhook} {
			if h != nil {
				s.run(t, service)
				s.beat(t, service, *h)
			}
		}
		s.put(t, "e1", ago(time.Hour), map[string]channels.Outcome{"ops": refusal(channels.ReasonOther, "odd")})
		r := status.Make(s.src)
		if _, got, _ := strings.Cut(r.ChannelDelivery.Line(time.Now()), " — "); got != tt.want {
			t.Errorf("%s: got %q, want %q", name, got, tt.want)
		}
		if r.OK != (tt.poller != nil) || r.ChannelDelivery.Draining != strings.HasPrefix(tt.want, "retried") {
			t.Errorf("%s: ok %t, draining %t", name, r.OK, r.ChannelDelivery.Draining)
		}
	}
}

func TestEvictedAreCountedForThirtyDays(t *testing.T) {
	s := newSite(t)
	var lines strings.Builder
	for _, days := range []int{40, 31, 29, 0} {
		at := time.Now().Add(-time.Duration(days) * 24 * time.Hour).Format(time.RFC3339)
		lines.WriteString(`{"id":"e1","evictedAt":"` + at + `","entry":{}}` + "\n")
	}
	writeFile(t, s.root.Path(state.Evicted), lines.String())
	if r := status.Make(s.src); r.Evicted != 2 {
		t.Errorf("%d evicted, want 2", r.Evicted)
	}
}

func TestLine_Endings(t *testing.T) {
	type m = map[string]channels.Outcome
	held := channels.Outcome{State: channels.StatePending, Reason: channels.ReasonHeld, Code: "invalid_auth"}
	odd := refusal(channels.ReasonOther, "odd")
	for name, tt := range map[string]struct {
		prepare func(t *testing.T, s *site)
		want    string
	}{
		"nothing waits": {func(t *testing.T, s *site) { s.run(t, "poller") }, ""},
		"one event, nobody drains": {func(t *testing.T, s *site) {
			s.put(t, "e1", time.Now().Add(-time.Hour), m{"slack": refusal(channels.ReasonConfig, "channel_not_found")})
		}, "1 event undelivered, oldest 1h ago (slack: channel_not_found)" +
			" — nothing is draining them: start the poller or the webhook receiver"},
		"only a person can move it, and nobody drains": {func(t *testing.T, s *site) {
			s.put(t, "e1", time.Now(), m{"ops": unknown()})
		}, "1 event undelivered, oldest just now (ops: outcome unknown: timeout)" +
			" — waiting for a person: the-loop outbox list"},
		"the seed's own": {func(t *testing.T, s *site) {
			s.run(t, "webhook")
			for i, id := range []string{"e1", "e2", "e3"} {
				at := time.Now().Add(time.Duration(i-2) * time.Hour)
				s.put(t, id, at, m{"slack": refusal(channels.ReasonConfig, "channel_not_found")})
			}
		}, "3 events undelivered, oldest 2h ago (slack: channel_not_found) — retried every 60s"},
		"the latest error is shown": {func(t *testing.T, s *site) {
			s.run(t, "poller")
			s.put(t, "e1", time.Now().Add(-2*time.Hour), m{"ops": refusal(channels.ReasonDown, "refused")})
			s.put(t, "e2", time.Now().Add(-time.Hour), m{"slack": unknown()})
			s.put(t, "e3", time.Now(), m{"slack": held})
		}, "3 events undelivered, oldest 2h ago (slack: outcome unknown: timeout) — retried every 60s"},
		"backing off": {func(t *testing.T, s *site) {
			s.run(t, "poller")
			s.put(t, "e1", time.Now(), m{"ops": odd})
			s.fail(t, "e1", "ops", odd, 3)
		}, "1 event undelivered, oldest 6h ago (ops: odd) — next try in …"},
		"parked": {func(t *testing.T, s *site) {
			s.run(t, "poller")
			s.put(t, "e1", time.Now(), m{"slack": held})
			s.park(t, m{"slack": refusal(channels.ReasonAuth, "invalid_auth")})
		}, "1 event undelivered, oldest 50m ago (slack: invalid_auth) — waiting for slack (invalid_auth)"},
		"all parked": {func(t *testing.T, s *site) {
			s.run(t, "poller")
			s.put(t, "e1", time.Now(), m{"slack": held})
			s.put(t, "e2", time.Now(), m{"ops": refusal(channels.ReasonConfig, "http_404")})
			s.park(t, m{
				"slack": refusal(channels.ReasonAuth, "invalid_auth"), "ops": refusal(channels.ReasonConfig, "http_404"),
			})
		}, "2 events undelivered, oldest 50m ago (ops: http_404) — waiting for ops (http_404), slack (invalid_auth)"},
		"one parked, one backing off": {func(t *testing.T, s *site) {
			s.run(t, "poller")
			s.put(t, "e1", time.Now(), m{"slack": held})
			s.put(t, "e2", time.Now(), m{"ops": odd})
			s.fail(t, "e2", "ops", odd, 9)
			s.park(t, m{"slack": refusal(channels.ReasonAuth, "invalid_auth")})
		}, "2 events undelivered, oldest 18h ago (ops: odd) — next try in 5m"},
		"cooling": {func(t *testing.T, s *site) {
			s.run(t, "poller")
			s.put(t, "e1", time.Now(), m{"slack": held})
			o := refusal(channels.ReasonRate, "ratelimited")
			o.RetryAfter = 20 * time.Minute
			s.observe(t, "slack", o)
		}, "1 event undelivered, oldest just now (slack: invalid_auth) — next try in 20m"},
		"uncertain": {func(t *testing.T, s *site) {
			s.run(t, "poller")
			s.put(t, "e1", time.Now(), m{"ops": unknown()})
		}, "1 event undelivered, oldest just now (ops: outcome unknown: timeout)" +
			" — waiting for a person: the-loop outbox list"},
		"uncertain, and repeated by id": {func(t *testing.T, s *site) {
			s.run(t, "poller")
			s.src.Lane = func(string) outbox.Lane { return outbox.Lane{DropsRepeats: time.Hour} }
			s.put(t, "e1", time.Now(), m{"ops": unknown()})
		}, "1 event undelivered, oldest just now (ops: outcome unknown: timeout) — retried every 60s"},
		"uncertain here, parked there": {func(t *testing.T, s *site) {
			s.run(t, "poller")
			s.put(t, "e1", time.Now(), m{"ops": unknown(), "slack": held})
			s.park(t, m{"slack": refusal(channels.ReasonAuth, "invalid_auth")})
		}, "1 event undelivered, oldest 50m ago (slack: invalid_auth) — waiting for slack (invalid_auth)"},
		"in the air": {func(t *testing.T, s *site) {
			s.run(t, "poller")
			s.put(t, "e1", time.Now(), m{"slack": held})
			s.start(t, "e1", "slack")
		}, "1 event undelivered, oldest just now (slack: invalid_auth) — retried every 60s"},
		"dead": {func(t *testing.T, s *site) {
			s.run(t, "poller")
			s.put(t, "e1", time.Now(), m{"ops": refusal(channels.ReasonUnacceptable, "http_422")})
			s.fail(t, "e1", "ops", refusal(channels.ReasonUnacceptable, "http_422"), 4)
		}, "1 event undelivered, oldest 8h ago (ops: http_422) — waiting for a person: the-loop outbox list"},
		"an entry without a time": {func(t *testing.T, s *site) {
			s.run(t, "poller")
			writeFile(t, s.root.Path(state.Outbox),
				`{"version":1,"pending":{"e1":{"channels":["slack"],"event":{"eventType":"job.failed"}}}}`)
		}, "1 event undelivered, oldest just now — retried every 60s"},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := newSite(t)
			tt.prepare(t, s)
			got := s.line()
			if next := status.Make(s.src).ChannelDelivery.NextTryAt; next != nil && next.Year() < 1999 {
				t.Errorf("%s: next try at %s", name, next)
			}
			want, open := strings.CutSuffix(tt.want, "…") // the rest has a share of chance
			if got != want && !(open && strings.HasPrefix(got, want)) {
				t.Errorf("%s:\ngot  %s\nwant %s", name, got, tt.want)
			}
		})
	}
}

// start leaves a delivery as it stands while it is being sent.
func (s *site) start(t *testing.T, id, channel string) outbox.Claimed {
	t.Helper()
	claims, err := s.store.Claim(t.Context(), channel, 10, "")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range claims {
		if c.Event.ID == id {
			if _, ok, err := s.store.Start(t.Context(), c); !ok || err != nil {
				t.Fatal(ok, err)
			}
			return c
		}
	}
	t.Fatalf("%s is not due", id)
	return outbox.Claimed{}
}

// fail lets n more attempts be refused, as soon as each is due.
func (s *site) fail(t *testing.T, id, channel string, o channels.Outcome, n int) {
	t.Helper()
	for range n {
		time.Sleep(2 * time.Hour)
		o.At = time.Now()
		if _, err := s.store.Settle(t.Context(), s.start(t, id, channel), o); err != nil {
			t.Fatal(err)
		}
	}
}

// park lets channels fail until their probes are five minutes apart.
func (s *site) park(t *testing.T, outcomes map[string]channels.Outcome) {
	t.Helper()
	for range 5 {
		time.Sleep(10 * time.Minute)
		for channel, o := range outcomes {
			if ok, _, err := s.store.MayAsk(t.Context(), outbox.Asker{Channel: channel}); !ok || err != nil {
				t.Fatal(ok, err)
			}
			o.At = time.Now()
			s.observe(t, channel, o)
		}
	}
}

func TestReport_JSON(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t)
		s.src.Config, s.src.Missing = "/etc/the-loop.yaml", []string{"variable OPS_TOKEN is not set"}
		s.put(t, "e1", time.Now().Add(-90*time.Second), map[string]channels.Outcome{
			"slack": refusal(channels.ReasonConfig, "channel_not_found"),
		})
		s.put(t, "e2", time.Now().Add(-30*time.Second), map[string]channels.Outcome{"ops": unknown()})
		s.observe(t, "slack", refusal(channels.ReasonConfig, "channel_not_found"))
		s.run(t, "poller")
		writeFile(t, s.root.Path(state.Heartbeat("poller")), `{"version":"v1","pid":4711,
			"startedAt":"2026-01-01T00:00:00Z","lastCycleAt":"2026-01-01T00:01:00Z","lastError":"disk full",
			"configHash":"abc","listen":"127.0.0.1:8787","missing":["variable X is not set"]}`)
		checkGolden(t, "report.json", status.Make(s.src), s.root.Dir())
		empty := newSite(t)
		empty.src.Services = nil
		checkGolden(t, "empty.json", status.Make(empty.src), empty.root.Dir())
	})
}

func checkGolden(t *testing.T, name string, r status.Report, root string) {
	t.Helper()
	free := int64(1 << 40) // it is another one in each run
	r.Disk.FreeBytes = &free
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetIndent("", "  ")
	if err := enc.Encode(r); err != nil {
		t.Fatal(err)
	}
	got := strings.ReplaceAll(b.String(), root, "ROOT")
	if strings.Contains(got, "PRIVATE") {
		t.Error("the message's text is in the report")
	}
	path := filepath.Join("testdata", name)
	if *update {
		writeFile(t, path, got)
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", name, diff)
	}
}

func TestServicesLiveByTheirLocks(t *testing.T) {
	s := newSite(t)
	if r := status.Make(s.src); r.OK || r.Services[0].Running || r.Services[1].Running {
		t.Errorf("nothing runs: %+v", r)
	}
	release, held, err := s.root.Role(state.RunRole("poller")).Take("poller, process 4711")
	if err != nil || !held {
		t.Fatal(held, err)
	}
	r := status.Make(s.src)
	if !r.OK || !r.Services[0].Running || r.Services[0].Process != "poller, process 4711" {
		t.Errorf("the poller runs: %+v", r)
	}
	release()
	if r := status.Make(s.src); r.OK || r.Services[0].Running || r.Services[0].Process != "" {
		t.Errorf("its lock file is left, and nobody has it: %+v", r)
	}
}

func TestBacklogNeverMovesOK(t *testing.T) {
	s := newSite(t)
	s.run(t, "poller")
	s.put(t, "e1", time.Now(), map[string]channels.Outcome{"ops": unknown()})
	writeFile(t, s.root.Path(state.Health), "{")
	if r := status.Make(s.src); !r.OK || r.ChannelDelivery.Pending != 1 {
		t.Errorf("%+v", r)
	}
}

func TestNeedsPersonCountsWhatWillNotMove(t *testing.T) {
	s := newSite(t)
	s.put(t, "e1", time.Now(), map[string]channels.Outcome{"ops": unknown()})
	s.put(t, "e2", time.Now(), map[string]channels.Outcome{
		"slack": unknown(), "ops": refusal(channels.ReasonOther, "odd"),
	})
	s.put(t, "e3", time.Now(), map[string]channels.Outcome{"slack": unknown()})
	d := status.Make(s.src).ChannelDelivery
	if d.Pending != 3 || d.NeedsPerson != 2 || !slices.Equal(d.Channels, []string{"ops", "slack"}) {
		t.Errorf("%+v", d)
	}
	s.src.Lane = func(name string) outbox.Lane {
		return map[string]outbox.Lane{"slack": {DropsRepeats: time.Hour}}[name]
	}
	if d := status.Make(s.src).ChannelDelivery; d.NeedsPerson != 1 {
		t.Errorf("with a receiver that drops repeats: %+v", d)
	}
}

func TestP11_WhatCannotBeReadIsNamed(t *testing.T) {
	broken := map[string]struct {
		name, text, want string
	}{
		"outbox, newer":        {state.Outbox, `{"version":9}`, state.Outbox + ": undelivered.json was written by a newer"},
		"heartbeat, damaged":   {state.Heartbeat("poller"), "\x00\x00", "run/poller.json: damaged"},
		"standing, damaged":    {state.Health, "[", state.Health + ": damaged"},
		"standing, newer":      {state.Health, `{"version":2}`, state.Health + ": written by a newer version"},
		"folder for a file":    {state.Outbox + "/x", "", state.Outbox + ": is a directory"},
		"folder for a beat":    {state.Heartbeat("webhook") + "/x", "", "run/webhook.json: is a directory"},
		"folder for standing":  {state.Health + "/x", "", state.Health + ": is a directory"},
		"file for a folder":    {"channels", "", "set-aside files: not a directory"},
		"a file for all locks": {"run", "", "run/poller.lock: not a directory"},
	}
	for name, tt := range broken {
		s := newSite(t)
		writeFile(t, s.root.Path(tt.name), tt.text)
		r := status.Make(s.src)
		if !slices.ContainsFunc(r.Unreadable, func(u string) bool { return strings.HasPrefix(u, tt.want) }) {
			t.Errorf("%s: unreadable %q, want %q", name, r.Unreadable, tt.want)
		}
	}
}

func TestP11_DamagedOutboxIsSaidAndLeftAlone(t *testing.T) {
	for text, want := range map[string]status.Delivery{
		"[]":                         {Damaged: true},
		"null":                       {Damaged: true},
		strings.Repeat("\x00", 4096): {Damaged: true},
		`{"pending":{"e1":{"event":{"eventType":"job.failed"}},"e2":7}}`: {Pending: 1, BadEntries: 1},
		"": {},
	} {
		s := newSite(t)
		writeFile(t, s.root.Path(state.Outbox), text)
		d := status.Make(s.src).ChannelDelivery
		if d.Pending != want.Pending || d.Damaged != want.Damaged || d.BadEntries != want.BadEntries {
			t.Errorf("%.20q: %+v", text, d)
		}
		if b, err := os.ReadFile(s.root.Path(state.Outbox)); err != nil || string(b) != text {
			t.Errorf("%.20q: the file is now %.20q (%v)", text, b, err)
		}
	}
}

func TestP11_ReportCreatesNothing(t *testing.T) {
	s := newSite(t)
	status.Make(s.src)
	if _, err := os.Stat(s.root.Dir()); !os.IsNotExist(err) {
		t.Errorf("the root is there: %v", err)
	}
	s.put(t, "e1", time.Now(), map[string]channels.Outcome{"ops": unknown()})
	s.observe(t, "ops", unknown())
	readOnly := siteOn(s.root.WithSteps(func(op state.Op, path string) error {
		if op != state.OpRead {
			t.Errorf("%s %s", op, path)
			return syscall.EROFS
		}
		return nil
	}))
	before := listing(t, s.root.Dir())
	if r := status.Make(readOnly.src); r.ChannelDelivery.Pending != 1 || len(r.Unreadable) > 0 {
		t.Errorf("%+v", r)
	}
	if after := listing(t, s.root.Dir()); !slices.Equal(before, after) {
		t.Errorf("before %v, after %v", before, after)
	}
}

func listing(t *testing.T, dir string) (names []string) {
	t.Helper()
	for _, pattern := range []string{"*", "*/*"} {
		list, err := filepath.Glob(filepath.Join(dir, pattern))
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, list...)
	}
	return names
}

func TestP11_NothingCanBeRead(t *testing.T) {
	s := newSite(t)
	s.put(t, "e1", time.Now(), map[string]channels.Outcome{"ops": unknown()})
	s.observe(t, "ops", unknown())
	blind := siteOn(s.root.WithSteps(func(state.Op, string) error { return syscall.EACCES }))
	r := status.Make(blind.src)
	for _, name := range []string{state.Outbox, state.Health, state.Heartbeat("poller")} {
		if !slices.Contains(r.Unreadable, name+": permission denied") {
			t.Errorf("%s is not among the unreadable: %q", name, r.Unreadable)
		}
	}
}

func TestP11_ReportWaitsForNoLock(t *testing.T) {
	s := newSite(t)
	s.put(t, "e1", time.Now(), map[string]channels.Outcome{"ops": unknown()})
	s.observe(t, "ops", unknown())
	for _, name := range []string{state.Outbox, state.Health} {
		f, err := os.Open(s.root.Path(name + ".lock"))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
			t.Fatal(err)
		}
	}
	done := make(chan status.Report)
	go func() { done <- status.Make(s.src) }()
	select {
	case r := <-done:
		if r.ChannelDelivery.Pending != 1 || len(r.Unreadable) > 0 {
			t.Errorf("%+v", r)
		}
	case <-time.After(3 * time.Second):
		t.Fatal("the report waits for a lock")
	}
}

func TestSetAsideFilesAreListed(t *testing.T) {
	s := newSite(t)
	names := []string{
		"channels/undelivered.json.corrupt-01a", "delivery/health.json.corrupt-01b", "inbound/pins.json.corrupt-01c",
		"questions/ship-1.json.corrupt-01d",
	}
	for _, name := range names {
		writeFile(t, s.root.Path(name), "damaged")
	}
	writeFile(t, s.root.Path("channels/slack.json"), "{}")
	if r := status.Make(s.src); !slices.Equal(r.SetAside, names) {
		t.Errorf("set aside %q", r.SetAside)
	}
}
