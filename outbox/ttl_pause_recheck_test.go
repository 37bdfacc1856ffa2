package outbox

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"the-loop/channels"
	"the-loop/state"
)

func TestTTLIsThatOfThePatternThatSaysTheMost(t *testing.T) {
	t.Parallel()
	ttl := TTL{"*": time.Hour, "work_item.*": 2 * time.Hour, "work_item.done": 3 * time.Hour}
	for eventType, want := range map[string]time.Duration{
		"work_item.done": 3 * time.Hour, "work_item.started": 2 * time.Hour, "session.awaiting_input": time.Hour,
	} {
		if got, ok := ttl.For(eventType); !ok || got != want {
			t.Errorf("%s: %v, %v, want %v", eventType, got, ok, want)
		}
	}
	if _, ok := (TTL{"work_item.*": 1}).For("session.awaiting_input"); ok {
		t.Error("what no pattern matches lives for ever")
	}
	if _, ok := TTL(nil).For("work_item.done"); ok {
		t.Error("without a time to live all live for ever")
	}
}

func TestTTLEndsOnlyWhatWaitsUnsent(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, root := store(t, Options{TTL: TTL{"work_item.*": time.Hour}})
		at := time.Now()
		hook := Lane{Channel: "hook", DropsRepeats: 24 * time.Hour}
		slack := Lane{Channel: "slack"}
		remember(t, s, "pending", at, asked("slack", held()))
		remember(t, s, "refused", at, asked("slack", refused(channels.ReasonOther, "odd")))
		remember(t, s, "uncertain", at, asked("slack", uncertain()))
		remember(t, s, "repeats", at, asked("hook", uncertain()))
		sweep(t, s, hook, slack)
		time.Sleep(time.Hour - time.Second)
		sweep(t, s, hook, slack)
		if e := entryOf(t, s, "pending"); e.State() != channels.StatePending {
			t.Errorf("before its time it is %s", e.State())
		}
		time.Sleep(time.Second)
		sweep(t, s, hook, slack)
		want := map[string]channels.State{
			"pending": channels.StateDead, "refused": channels.StateDead, "uncertain": channels.StateUncertain,
			"repeats": channels.StatePending, // it may have arrived: dead would say that it did not
		}
		for id, state := range want {
			e := entryOf(t, s, id)
			if e.State() != state {
				t.Errorf("%s is %s, want %s", id, e.State(), state)
			}
			for _, d := range e.Deliveries {
				if (d.Reason == channels.ReasonExpired) != (state == channels.StateDead) {
					t.Errorf("%s: reason %q", id, d.Reason)
				}
			}
		}
		if n := count(logged(t, root), "channel.dead slack"); n != 2 {
			t.Errorf("%d lines about the dead in %v", n, logged(t, root))
		}
	})
}

func TestTTLDoesNotTakeWhatIsInSomebodysHand(t *testing.T) {
	t.Parallel()
	e, err := NewEntry(channels.Event{ID: "a", Type: "work_item.done"}, time.Now().Add(-2*time.Hour),
		[]Attempted{asked("slack", held())})
	if err != nil {
		t.Fatal(err)
	}
	e.Deliveries["slack"].Claim = "c"
	if names, err := e.expire(time.Hour, time.Now()); err != nil || len(names) > 0 {
		t.Errorf("expired %v, %v", names, err)
	}
	if err := e.Deliveries["slack"].startSending(time.Now()); err != nil {
		t.Fatal(err)
	}
	e.Deliveries["slack"].Claim = ""
	if names, err := e.expire(time.Hour, time.Now()); err != nil || len(names) > 0 {
		t.Errorf("expired %v, %v", names, err)
	}
}

// TestTTLBeginsAnewWhenAPersonAsks: retry and send again are a person's word;
// the next sweep does not overrule them, and they do not last for ever.
func TestTTLBeginsAnewWhenAPersonAsks(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, _ := store(t, Options{TTL: TTL{"*": time.Hour}})
		lane := Lane{Channel: "slack"}
		remember(t, s, "expired", time.Now(), asked("slack", held()))
		remember(t, s, "lost", time.Now(), asked("slack", uncertain()))
		time.Sleep(2 * time.Hour)
		sweep(t, s, lane)
		if _, err := s.Lost(t.Context(), doubtOf(t, s, "slack"), false); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Retry(t.Context(), "expired"); err != nil {
			t.Fatal(err)
		}
		again, err := s.SendAgain(t.Context(), "lost", false, never)
		if err != nil {
			t.Fatal(err)
		}
		for wait, want := range []channels.State{channels.StatePending, channels.StateDead} {
			time.Sleep(time.Duration(wait) * time.Hour)
			sweep(t, s, lane)
			for _, id := range []string{"expired", again} {
				if got := entryOf(t, s, id).State(); got != want {
					t.Errorf("%d h after a person asked, %s is %s, want %s", wait, id, got, want)
				}
			}
		}
	})
}

func TestTTLHoldsForWhatIsSentAgainByItself(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, _ := store(t, Options{TTL: TTL{"*": time.Hour}})
		remember(t, s, "a", time.Now(), asked("slack", uncertain()))
		time.Sleep(2 * time.Hour)
		r, err := s.Lost(t.Context(), doubtOf(t, s, "slack"), true)
		if err != nil {
			t.Fatal(err)
		}
		sweep(t, s, Lane{Channel: "slack"})
		if d := entryOf(t, s, r.ResentAs).Deliveries["slack"]; d.Reason != channels.ReasonExpired {
			t.Errorf("it is %s, %s", d.State, d.Reason)
		}
	})
}

func TestPauseHoldsEverybodyAndEndsByItself(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, root := store(t, Options{})
		remember(t, s, "a", time.Now(), asked("slack", held()))
		before := string(bytesOf(t, root, state.Outbox))
		if err := s.Pause(t.Context(), "slack", time.Now().Add(8*time.Hour)); err != nil {
			t.Fatal(err)
		}
		other := Open(root, Options{})
		mayAsk := func(credential string, publishing bool) (bool, *Standing) {
			ok, st, err := other.MayAsk(t.Context(), Asker{
				Channel: "slack", Credential: credential, Timeout: time.Second, Publishing: publishing,
			})
			if err != nil {
				t.Fatal(err)
			}
			return ok, st
		}
		for _, credential := range []string{"old", "new"} {
			for _, publishing := range []bool{true, false} {
				ok, st := mayAsk(credential, publishing)
				if ok || st.Verdict != Paused || !st.Ends() {
					t.Errorf("%s credential, publishing %v: %v, %+v", credential, publishing, ok, st)
				}
			}
		}
		if err := s.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := s.Release(t.Context(), "slack"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(8*time.Hour - time.Second)
		if ok, _ := mayAsk("old", false); ok {
			t.Error("asked a second before its end")
		}
		time.Sleep(time.Second)
		if ok, st := mayAsk("old", true); !ok || st != nil {
			t.Errorf("after its end: %v, %+v", ok, st)
		}
		if after := string(bytesOf(t, root, state.Outbox)); after != before {
			t.Errorf("waiting changed the entry:\n%s\n%s", before, after)
		}
		if was, err := s.Resume(t.Context(), "slack"); was || err != nil {
			t.Errorf("it was over already: %v, %v", was, err)
		}
	})
}

func TestPauseWithoutAnEndLastsUntilResume(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, _ := store(t, Options{})
		a := Asker{Channel: "slack", Timeout: time.Second}
		if err := s.Observe(t.Context(), a, "e", down()); err != nil {
			t.Fatal(err)
		}
		if err := s.Pause(t.Context(), "slack", time.Time{}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(1000 * time.Hour)
		if ok, st, err := s.MayAsk(t.Context(), a); ok || err != nil || st.Ends() {
			t.Errorf("%v, %+v, %v", ok, st, err)
		}
		if ok, _, err := s.MayAsk(t.Context(), Asker{Channel: "hook"}); !ok || err != nil {
			t.Errorf("another channel: %v, %v", ok, err)
		}
		if was, err := s.Resume(t.Context(), "slack"); !was || err != nil {
			t.Errorf("resume: %v, %v", was, err)
		}
		if st := s.Standing(a); st == nil || st.Verdict != Failing {
			t.Errorf("its own standing is %+v", st)
		}
		if ok, _, err := s.MayAsk(t.Context(), a); !ok || err != nil {
			t.Errorf("its probe is long due: %v, %v", ok, err)
		}
	})
}

func TestRecheckDoubtsAllThatWouldBeSent(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, _ := store(t, Options{})
		taken := time.Now().Add(-time.Hour).Truncate(time.Second)
		at := func(o channels.Outcome) channels.Outcome { o.At = taken.Add(time.Minute); return o }
		remember(t, s, "pending", taken, asked("hook", held()), asked("slack", held()))
		remember(t, s, "refused", taken, asked("slack", at(down())))
		remember(t, s, "sending", taken, asked("plain", held()))
		start(t, s, claimOne(t, s, "plain"))
		remember(t, s, "gone", taken, asked("away", held()))
		remember(t, s, "dead", taken, asked("slack", at(down())))
		change(t, s, "dead", func(d *Delivery) { d.State, d.Reason = channels.StateDead, channels.ReasonUnacceptable })
		sent := entryOf(t, s, "sending").Deliveries["plain"].FirstSentAt
		sweepGone(t, s, "gone")
		n, err := s.Recheck(t.Context())
		if err != nil || n != 5 {
			t.Errorf("%d rows, %v, want 5", n, err)
		}
		for _, e := range entriesOf(t, s) {
			for name, d := range e.Deliveries {
				if e.ID == "dead" {
					if d.State != channels.StateDead {
						t.Errorf("what nobody sends by himself became %s", d.State)
					}
					continue
				}
				want := taken
				switch e.ID {
				case "refused":
					want = taken.Add(time.Minute)
				case "sending":
					want = sent
				}
				if d.State != channels.StateUncertain || d.Reason != channels.ReasonMoved || d.Claim != "" ||
					!d.FirstSentAt.Equal(want) {
					t.Errorf("%s %s: %+v, first sent %v, want %v", e.ID, name, d, d.FirstSentAt, want)
				}
			}
		}
		if n, err = s.Recheck(t.Context()); err != nil || n != 0 {
			t.Errorf("a second time: %d rows, %v", n, err)
		}
		sweep(t, s, Lane{Channel: "hook", DropsRepeats: 24 * time.Hour}, Lane{Channel: "slack", Witness: true},
			Lane{Channel: "plain"}, Lane{Channel: "away"})
		for id, want := range map[string]map[string]channels.State{
			"pending": {"hook": channels.StatePending, "slack": channels.StateUncertain},
			"sending": {"plain": channels.StateUncertain}, "gone": {"away": channels.StateUncertain},
		} {
			for name, state := range want {
				if d := entryOf(t, s, id).Deliveries[name]; d.State != state || d.Repeats != (name == "hook") {
					t.Errorf("%s %s is %s (repeats %v), want %s", id, name, d.State, d.Repeats, state)
				}
			}
		}
		if got := doubted(Doubts(entriesOf(t, s), "slack")); !slices.Equal(got, []string{"pending", "refused"}) {
			t.Errorf("looked up are %v", got)
		}
	})
}

// sweepGone marks an entry's deliveries as those of a channel that is gone.
func sweepGone(t *testing.T, s *Store, id string) {
	t.Helper()
	err := s.update(t.Context(), func(f *file) (bool, error) {
		e, _ := f.entry(id)
		for _, d := range e.Deliveries {
			d.State, d.Reason = channels.StateDead, channels.ReasonGone
		}
		return true, f.put(e)
	})
	if err != nil {
		t.Fatal(err)
	}
}

func doubted(doubts []Doubt) (out []string) {
	for _, d := range doubts {
		out = append(out, d.Event.ID)
	}
	return out
}

func TestD03_CrashedTwiceIsDeadAndNeverSentAThirdTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, _ := store(t, Options{})
		lane := Lane{Channel: "hook", DropsRepeats: 1000 * time.Hour}
		remember(t, s, "a", time.Now(), asked("hook", held()))
		for range 2 {
			sweep(t, s, lane)
			start(t, s, claimOne(t, s, "hook"))
		}
		for range 100 {
			time.Sleep(time.Hour)
			sweep(t, s, lane)
			if claims, err := s.Claim(t.Context(), "hook", 10, ""); err != nil || len(claims) > 0 {
				t.Fatalf("claimed %d, %v", len(claims), err)
			}
		}
		d := entryOf(t, s, "a").Deliveries["hook"]
		if d.State != channels.StateDead || d.Reason != channels.ReasonCrashed || d.Attempts != 2 {
			t.Errorf("%+v", d)
		}
		if _, err := s.Retry(t.Context(), "a"); err != nil { // a person's word begins anew
			t.Fatal(err)
		}
		start(t, s, claimOne(t, s, "hook"))
		sweep(t, s, lane)
		if d := entryOf(t, s, "a").Deliveries["hook"]; d.State != channels.StatePending {
			t.Errorf("after retry and one more crash it is %s", d.State)
		}
	})
}

func TestAVanishedChannelsRepeatStaysUncertain(t *testing.T) {
	t.Parallel()
	s, _ := store(t, Options{})
	remember(t, s, "a", time.Now(), asked("hook", uncertain()))
	sweep(t, s, Lane{Channel: "hook", DropsRepeats: time.Hour})
	sweep(t, s)
	if d := entryOf(t, s, "a").Deliveries["hook"]; d.State != channels.StateUncertain {
		t.Errorf("it may have arrived, and is %s (%s)", d.State, d.Reason)
	}
}

func TestRetrySaysWhyALostRowIsLeft(t *testing.T) {
	t.Parallel()
	s, _ := store(t, Options{})
	remember(t, s, "a", time.Now(), asked("slack", uncertain()))
	if _, err := s.Lost(t.Context(), doubtOf(t, s, "slack"), false); err != nil {
		t.Fatal(err)
	}
	done, err := s.Retry(t.Context(), "a")
	if err != nil || done[0].Left["slack"] != channels.ReasonLost.Words() {
		t.Errorf("%+v, %v", done, err)
	}
}

// TestUnknownKeysOfEverythingNewAreKept: a newer version's keys survive us.
func TestUnknownKeysOfEverythingNewAreKept(t *testing.T) {
	t.Parallel()
	s, root := store(t, Options{})
	at := time.Now().UTC().Format(time.RFC3339)
	place(t, root, state.Outbox, fmt.Sprintf(`{"version":1,"k0":1,"pending":{"a":{"at":%q,"attempts":1,
		"lastAttemptAt":%[1]q,"lastError":"","channels":["slack","hook"],"event":{"eventType":"work_item.done","k1":1},
		"sentAgainFrom":"z","resentAs":"y","k2":1,"claim":{"id":"c","by":"h/1","at":%[1]q,"k3":1},"deliveries":{
		"slack":{"state":"uncertain","at":%[1]q,"attempts":1,"orphaned":1,"looks":2,"unjudgeable":"too_old","k4":1},
		"hook":{"state":"pending","at":%[1]q,"attempts":0,"required":true,"wantedAt":%[1]q,"k5":1}}}}}`, at))
	place(t, root, state.Health, fmt.Sprintf(`{"version":1,"key":"k","channels":{},"k6":1,
		"paused":{"slack":{"since":%q,"until":"9999-01-01T00:00:00Z","k7":1}}}`, at))
	if err := os.Chmod(root.Path(state.Health), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Recheck(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := s.Pause(t.Context(), "hook", time.Time{}); err != nil {
		t.Fatal(err)
	}
	all := string(bytesOf(t, root, state.Outbox)) + string(bytesOf(t, root, state.Health))
	for _, want := range []string{
		`"k0":1`, `"k1":1`, `"k2":1`, `"k4":1`, `"k5":1`, `"k6":1`, `"k7":1`, `"orphaned":1`, `"looks":2`,
		`"unjudgeable":"too_old"`, `"resentAs":"y"`, `"sentAgainFrom":"z"`, `"wantedAt":`,
	} {
		if !strings.Contains(all, want) {
			t.Errorf("%s is gone from %s", want, all)
		}
	}
}
