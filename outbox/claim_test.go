package outbox

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"the-loop/channels"
	"the-loop/state"
)

func TestClaimTakesTheOldestThatAreDue(t *testing.T) {
	s, _ := store(t, Options{})
	now := time.Now()
	remember(t, s, "C", now.Add(-time.Minute), asked("x", held()))
	remember(t, s, "B", now.Add(-3*time.Minute), asked("x", held()))
	remember(t, s, "A", now.Add(-2*time.Minute), asked("x", held()))
	remember(t, s, "not-due", now.Add(-time.Hour), asked("x", refused(channels.ReasonOther, "strange")))
	remember(t, s, "elsewhere", now.Add(-time.Hour), asked("y", held()))
	if n := s.Due(entriesOf(t, s), "x"); n != 3 {
		t.Errorf("%d are due", n)
	}
	claims, err := s.Claim(t.Context(), "x", 2, "")
	if err != nil || len(claims) != 2 || claims[0].Event.ID != "B" || claims[1].Event.ID != "A" {
		t.Fatalf("%+v, %v", claims, err)
	}
	if claims[0].ID == claims[1].ID || claims[0].ID == "" {
		t.Errorf("claim ids %q and %q", claims[0].ID, claims[1].ID)
	}
	if got := claims[0].Event.Text; got != "text of B" {
		t.Errorf("the event: %q", got)
	}
	e := entryOf(t, s, "B")
	if e.Claim == nil || e.Claim.By != s.By() || e.Claim.ID != claims[0].ID || e.Attempts != 0 {
		t.Errorf("%+v", e)
	}
	rest, err := s.Claim(t.Context(), "x", 5, "")
	if err != nil || len(rest) != 1 || rest[0].Event.ID != "C" {
		t.Errorf("what is claimed was claimed again: %+v, %v", rest, err)
	}
	if err := s.Unclaim(t.Context(), append(claims, rest...)); err != nil {
		t.Fatal(err)
	}
	if e := entryOf(t, s, "B"); e.Claim != nil || e.Attempts != 0 || e.inHand() {
		t.Errorf("given back: %+v", e)
	}
	if _, ok, err := s.Start(t.Context(), claims[0]); ok || err != nil {
		t.Errorf("a claim that was given back starts: %v, %v", ok, err)
	}
}

func TestClaimTakesAnotherThanTheLastProbe(t *testing.T) {
	s, _ := store(t, Options{})
	remember(t, s, "A", t0, asked("x", held()))
	for _, want := range []string{"A", "B"} {
		claims, err := s.Claim(t.Context(), "x", 1, "A")
		if err != nil || len(claims) != 1 || claims[0].Event.ID != want {
			t.Fatalf("%+v, %v, want %s", claims, err, want)
		}
		if err := s.Unclaim(t.Context(), claims); err != nil {
			t.Fatal(err)
		}
		if want == "A" {
			remember(t, s, "B", t0.Add(time.Hour), asked("x", held()))
		}
	}
}

func TestP3_SendingIsOnDiskBeforeTheFirstByte(t *testing.T) {
	s, root := store(t, Options{})
	remember(t, s, "A", t0, asked("x", held()))
	c := claimOne(t, s, "x")
	d := start(t, s, c)
	e := entryOf(t, Open(root, Options{}), "A")
	row := e.Deliveries["x"]
	if row.State != channels.StateSending || row.Attempts != 1 || e.Attempts != 1 || e.LastAttemptAt.IsZero() ||
		row.FirstSentAt.IsZero() || d.Attempt != 1 || !d.At.Equal(t0) {
		t.Errorf("%+v, %+v", e, row)
	}
	if _, ok, err := s.Start(t.Context(), c); ok || err == nil {
		t.Errorf("it was started twice: %v, %v", ok, err)
	}
}

func TestStartThatCannotBeWrittenSendsNothing(t *testing.T) {
	s, root := store(t, Options{})
	remember(t, s, "A", t0, asked("x", held()))
	c := claimOne(t, s, "x")
	full := errors.New("disk full")
	broken := Open(root.WithSteps(func(op state.Op, _ string) error {
		if op == state.OpWrite {
			return full
		}
		return nil
	}), Options{})
	if _, ok, err := broken.Start(t.Context(), c); ok || !errors.Is(err, full) {
		t.Errorf("%v, %v", ok, err)
	}
	if got := entryOf(t, s, "A").Deliveries["x"].State; got != channels.StatePending {
		t.Errorf("it is %s", got)
	}
}

// inTheAir gives an entry that is being sent under a claim that is then lost to
// another drainer's sweep, as when somebody deletes the role's lock file.
func inTheAir(t *testing.T) (*Store, *state.Root, Claimed) {
	s, root := store(t, Options{})
	remember(t, s, "A", t0, asked("x", held()))
	c := claimOne(t, s, "x")
	start(t, s, c)
	sweep(t, s, Lane{Channel: "x", DropsRepeats: time.Hour})
	return s, root, c
}

func TestP4_ALateRefusalOrUnknownIsIgnored(t *testing.T) {
	for _, o := range []channels.Outcome{down(), uncertain(), rate(time.Minute)} {
		s, root, old := inTheAir(t)
		start(t, s, claimOne(t, s, "x"))
		before := bytesOf(t, root, state.Outbox)
		out := settle(t, s, old, o)
		if out.Ours || string(before) != string(bytesOf(t, root, state.Outbox)) {
			t.Errorf("%s under an old claim changed what is in the air", o.State)
		}
	}
}

func TestP4_AnAcceptanceAlwaysCounts(t *testing.T) {
	s, root, old := inTheAir(t)
	c := claimOne(t, s, "x")
	start(t, s, c)
	if out := settle(t, s, old, accepted("late")); !out.Gone || !out.Ours {
		t.Errorf("%+v", out)
	}
	wantIDs(t, s)
	if out := settle(t, s, c, uncertain()); out.Ours || out.Gone {
		t.Errorf("the second sender's unknown brought it back: %+v", out)
	}
	wantIDs(t, s)
	if n := count(logged(t, root), "channel.accepted_out_of_claim x"); n != 1 {
		t.Errorf("logged %d times", n)
	}
}

func TestP4_AnAcceptanceCountsInEveryState(t *testing.T) {
	t.Parallel()
	for _, st := range states() {
		if st == channels.StateAccepted {
			continue
		}
		s, root := store(t, Options{})
		place(t, root, state.Outbox, `{"pending": {"A": {"event": {"eventType": "a.b"}, "channels": ["x", "y"],
			"deliveries": {"x": {"state": "`+string(st)+`"}, "y": {"state": "pending", "required": true}}}}}`)
		c := Claimed{Event: channels.Event{ID: "A"}, Channel: "x", ID: "long gone"}
		if out := settle(t, s, c, accepted("1")); !out.Ours || out.Gone {
			t.Errorf("%s: %+v", st, out)
		}
		e := entryOf(t, s, "A")
		got := e.Deliveries["x"]
		if got.State != channels.StateAccepted || got.Ref != "1" || !slices.Equal(e.Channels, []string{"y"}) {
			t.Errorf("%s: %+v, owed to %v", st, got, e.Channels)
		}
	}
}

func TestP2_APublishOfTheSameIDAddsWhatItLearned(t *testing.T) {
	s, _ := store(t, Options{})
	remember(t, s, "A", t0, required("x", uncertain()), required("y", down()), required("z", down()))
	remember(t, s, "A", t0, required("x", accepted("1")), required("y", uncertain()), required("z", held()))
	e := entryOf(t, s, "A")
	for name, want := range map[string]channels.State{
		"x": channels.StateAccepted, "y": channels.StateUncertain, "z": channels.StateRefused,
	} {
		if got := e.Deliveries[name].State; got != want {
			t.Errorf("%s is %s, want %s", name, got, want)
		}
	}
	if !slices.Equal(e.Channels, []string{"y", "z"}) {
		t.Errorf("owed to %v", e.Channels)
	}
	remember(t, s, "A", t0, required("y", accepted("2")), required("z", accepted("3")))
	wantIDs(t, s)
}

func TestSettleOneAcceptanceSettlesTheRest(t *testing.T) {
	s, _ := store(t, Options{})
	remember(t, s, "A", t0, asked("x", held()), asked("y", down()), required("z", down()))
	c := claimOne(t, s, "x")
	start(t, s, c)
	if out := settle(t, s, c, accepted("1")); out.Gone || !out.Ours {
		t.Errorf("%+v", out)
	}
	if e := entryOf(t, s, "A"); !slices.Equal(e.Channels, []string{"z"}) {
		t.Errorf("owed to %v", e.Channels)
	}
	c = claimOne(t, s, "z")
	start(t, s, c)
	out := settle(t, s, c, accepted("2"))
	if !out.Gone || !slices.Equal(out.Missed, []string{"y"}) || !strings.Contains(out.Error, "connection_refused") ||
		out.Attempts != 2 || out.Waited < time.Hour {
		t.Errorf("%+v", out)
	}
}

func TestSettleWaitsForWhatIsInTheAir(t *testing.T) {
	s, _ := store(t, Options{})
	remember(t, s, "A", t0, asked("x", held()), asked("y", held()))
	x, y := claimOne(t, s, "x"), claimOne(t, s, "y")
	start(t, s, x)
	start(t, s, y)
	if out := settle(t, s, x, accepted("1")); out.Gone {
		t.Error("it left while it is being sent to y")
	}
	if out := settle(t, s, y, down()); !out.Gone || !slices.Equal(out.Missed, []string{"y"}) {
		t.Errorf("%+v", out)
	}
}

func TestPartsAreRecordedAndGoneOnFrom(t *testing.T) {
	s, _ := store(t, Options{})
	remember(t, s, "A", t0, asked("x", held()), asked("y", held()))
	c := claimOne(t, s, "x")
	start(t, s, c)
	for _, ref := range []string{"1", "2"} {
		if err := s.RecordPart(t.Context(), c, ref); err != nil {
			t.Fatal(err)
		}
	}
	stranger := c
	stranger.ID = "another"
	if err := s.RecordPart(t.Context(), stranger, "3"); err == nil {
		t.Error("a part was recorded under another claim")
	}
	settle(t, s, c, down())
	e := entryOf(t, s, "A")
	if !slices.Equal(e.Owed(), []string{"x"}) || !slices.Equal(e.Deliveries["x"].Parts, []string{"1", "2"}) {
		t.Errorf("owed %v, parts %v", e.Owed(), e.Deliveries["x"].Parts)
	}
	if d := start(t, s, claimOne(t, s, "x")); !slices.Equal(d.Parts, []string{"1", "2"}) {
		t.Errorf("asked to go on after %v", d.Parts)
	}
}

func TestUnacceptableFiveTimesIsDead(t *testing.T) {
	t.Parallel()
	s, _ := store(t, Options{})
	synctest.Test(t, func(t *testing.T) {
		remember(t, s, "A", time.Now(), asked("x", held()))
		attempt := func() Settled {
			time.Sleep(2 * time.Hour) // longer than any backoff
			c := claimOne(t, s, "x")
			start(t, s, c)
			return settle(t, s, c, refused(channels.ReasonUnacceptable, "msg_too_long"))
		}
		for n := 1; n <= MaxRejections; n++ {
			if out := attempt(); out.Dead != (n == MaxRejections) || out.Attempts != n {
				t.Errorf("refusal %d: %+v", n, out)
			}
		}
		time.Sleep(2 * time.Hour)
		if claims, err := s.Claim(t.Context(), "x", 1, ""); err != nil || len(claims) > 0 {
			t.Errorf("it is still tried: %v, %v", claims, err)
		}
		got, err := s.Retry(t.Context(), "A")
		if err != nil || len(got) != 1 || !slices.Equal(got[0].Due, []string{"x"}) {
			t.Errorf("%+v, %v", got, err)
		}
		if out := attempt(); out.Dead {
			t.Error("a person's retry gives it one attempt only")
		}
	})
}

func TestP5_G03_WhatCostsNothingUsesNoAttempt(t *testing.T) {
	t.Parallel()
	for name, o := range map[string]channels.Outcome{
		"told to wait":     rate(time.Minute),
		"no secret is set": refused(channels.ReasonAuth, "no_secret"),
	} {
		s, _ := store(t, Options{})
		remember(t, s, "A", t0, asked("x", o))
		for range 3 {
			e := entryOf(t, s, "A")
			if d := e.Deliveries["x"]; e.Attempts != 0 || d.Attempts != 0 || d.Failures != 0 || d.Rejected != 0 {
				t.Fatalf("%s: it cost the entry %d and its delivery %+v", name, e.Attempts, d)
			}
			c := claimOne(t, s, "x") // due at once, as far as the message is concerned
			if d := start(t, s, c); d.Attempt != 1 {
				t.Errorf("%s: attempt %d", name, d.Attempt)
			}
			settle(t, s, c, o)
		}
	}
}

func TestSweepADeadProcessLeavesTheDeliveryUncertain(t *testing.T) {
	s, root := store(t, Options{})
	remember(t, s, "claimed", t0, asked("x", held()))
	remember(t, s, "sending", t0, asked("x", held()))
	remember(t, s, "repeats", t0, asked("hook", held()))
	claims, err := s.Claim(t.Context(), "x", 2, "")
	if err != nil {
		t.Fatal(err)
	}
	start(t, s, claims[1])
	start(t, s, claimOne(t, s, "hook"))
	lanes := []Lane{{Channel: "x"}, {Channel: "hook", DropsRepeats: time.Hour}}
	for range 2 {
		sweep(t, s, lanes...)
		for id, want := range map[string]channels.State{
			"claimed": channels.StatePending, "sending": channels.StateUncertain, "repeats": channels.StatePending,
		} {
			e := entryOf(t, s, id)
			for name, d := range e.Deliveries {
				if d.State != want || e.inHand() || e.Claim != nil {
					t.Errorf("%s on %s is %s, want %s", id, name, d.State, want)
				}
			}
		}
	}
	if d := entryOf(t, s, "sending").Deliveries["x"]; d.Attempts != 1 || d.Code != "process_died" {
		t.Errorf("%+v", d)
	}
	if n := count(logged(t, root), "channel.uncertain x"); n != 1 {
		t.Errorf("logged %d times", n)
	}
	if d := start(t, s, claimOne(t, s, "hook")); d.Attempt != 2 {
		t.Errorf("attempt %d", d.Attempt)
	}
	got, err := s.Retry(t.Context())
	if err != nil || len(got) != 3 {
		t.Fatal(got, err)
	}
	for _, r := range got {
		if r.ID != "claimed" && (len(r.Due) > 0 || len(r.Left) != 1) {
			t.Errorf("retry made %+v due", r)
		}
	}
}

func TestSweepAnUncertainDeliveryIsNotRepeatedPastItsWindow(t *testing.T) {
	s, _ := store(t, Options{})
	o := uncertain()
	a := asked("hook", o)
	a.At = time.Now().Add(-2 * time.Hour)
	remember(t, s, "A", t0, a)
	sweep(t, s, Lane{Channel: "hook", DropsRepeats: time.Hour})
	if got := entryOf(t, s, "A").Deliveries["hook"].State; got != channels.StateUncertain {
		t.Errorf("it is %s", got)
	}
	sweep(t, s, Lane{Channel: "hook", DropsRepeats: 3 * time.Hour})
	if got := entryOf(t, s, "A").Deliveries["hook"].State; got != channels.StatePending {
		t.Errorf("within its window it is %s", got)
	}
}

func TestSweepAVanishedChannelsDeliveriesAreDeadUntilItIsBack(t *testing.T) {
	s, root := store(t, Options{})
	remember(t, s, "A", t0, asked("x", down()))
	remember(t, s, "B", t0, asked("x", held()), asked("y", down()))
	for range 2 {
		sweep(t, s, Lane{Channel: "y"})
		for _, id := range []string{"A", "B"} {
			if d := entryOf(t, s, id).Deliveries["x"]; d.State != channels.StateDead || d.Reason != channels.ReasonGone {
				t.Errorf("%s: %+v", id, d)
			}
		}
	}
	if n := count(logged(t, root), "channel.dead x"); n != 2 {
		t.Errorf("logged %d times", n)
	}
	if got := entryOf(t, s, "B").State(); got != channels.StateRefused {
		t.Errorf("with the other channel still owed it is %s", got)
	}
	sweep(t, s, Lane{Channel: "x"}, Lane{Channel: "y"})
	if claims, err := s.Claim(t.Context(), "x", 9, ""); err != nil || len(claims) != 2 {
		t.Errorf("back again: %v, %v", claims, err)
	}
}

func TestSweepAGoneChannelDoesNotReviveWhatIsDeadForAnotherReason(t *testing.T) {
	s, root := store(t, Options{})
	place(t, root, state.Outbox, `{"pending": {"A": {"event": {"eventType": "a.b"}, "channels": ["x"],
		"deliveries": {"x": {"state": "dead", "reason": "unacceptable"}}}}}`)
	sweep(t, s)
	sweep(t, s, Lane{Channel: "x"})
	got := entryOf(t, s, "A").Deliveries["x"]
	if got.State != channels.StateDead || got.Reason != channels.ReasonUnacceptable {
		t.Errorf("%+v", got)
	}
}

// What may have arrived must not come back as never sent only because its
// channel was away for one reload.
func TestP2_UncertainOnAVanishedChannelIsNotRepeatedWhenItIsBack(t *testing.T) {
	t.Parallel()
	for _, st := range []string{"uncertain", "lost", "sending"} {
		s, root := store(t, Options{})
		place(t, root, state.Outbox, `{"pending": {"A": {"event": {"eventType": "a.b"}, "channels": ["x"],
			"deliveries": {"x": {"state": "`+st+`"}}}, "B": {"event": {"eventType": "a.b"}, "channels": ["y"]}}}`)
		sweep(t, s, Lane{Channel: "y"})
		sweep(t, s, Lane{Channel: "x"}, Lane{Channel: "y"})
		if claims, err := s.Claim(t.Context(), "x", 1, ""); err != nil || len(claims) > 0 {
			t.Errorf("%s: sent again: %v, %v", st, claims, err)
		}
		if !entryOf(t, s, "A").NeedsPerson(time.Now(), func(string) Lane { return Lane{} }) {
			t.Errorf("%s: and nobody is told", st)
		}
	}
}

func TestSweepAddressesEntriesThatNameNoChannel(t *testing.T) {
	s, root := store(t, Options{})
	place(t, root, state.Outbox, `{"pending": {"A": {"event": {"eventType": "a.b", "source": "cli"}},
		"B": {"event": {"eventType": "c.d"}, "channels": []}}}`)
	owes := func(want string) func(channels.Event) bool {
		return func(ev channels.Event) bool { return ev.Type == want }
	}
	sweep(t, s, Lane{Channel: "x", Owes: owes("a.b"), Required: true},
		Lane{Channel: "y", Owes: owes("e.f")}, Lane{Channel: "z"})
	e := entryOf(t, s, "A")
	if !slices.Equal(e.Channels, []string{"x"}) || len(e.Deliveries) != 1 || !e.Deliveries["x"].Required || e.At.IsZero() {
		t.Errorf("%+v", e)
	}
	if e := entryOf(t, s, "B"); len(e.Deliveries) > 0 {
		t.Errorf("nobody is owed it: %+v", e)
	}
	start(t, s, claimOne(t, s, "x"))
}

func TestSweepBringsTimesInTheFutureBackAndSaysSoOnce(t *testing.T) {
	s, root := store(t, Options{})
	place(t, root, state.Outbox, `{"pending": {"A": {"at": "2126-01-01T00:00:00Z", "lastAttemptAt": "2126-01-01T00:00:00Z",
		"attempts": 1, "event": {"eventType": "a.b"}, "channels": ["x"],
		"deliveries": {"x": {"state": "pending", "at": "2126-01-01T00:00:00Z", "firstSentAt": "2126-01-01T00:00:00Z"}}}}}`)
	for range 2 {
		sweep(t, s, Lane{Channel: "x"})
	}
	e := entryOf(t, s, "A")
	d := e.Deliveries["x"]
	for what, at := range map[string]time.Time{
		"at": e.At, "lastAttemptAt": e.LastAttemptAt, "the delivery's at": d.At, "firstSentAt": d.FirstSentAt,
	} {
		if at.After(time.Now()) || time.Since(at) > time.Hour {
			t.Errorf("%s is %v", what, at)
		}
	}
	if n := count(logged(t, root), "outbox.time_corrected"); n != 1 {
		t.Errorf("said %d times", n)
	}
	claimOne(t, s, "x")
}

func TestRetryAndDrop(t *testing.T) {
	s, root := store(t, Options{})
	remember(t, s, "A", t0, asked("x", refused(channels.ReasonOther, "strange")))
	remember(t, s, "B", t0, asked("x", refused(channels.ReasonOther, "strange")), asked("y", uncertain()))
	if n := s.Due(entriesOf(t, s), "x"); n != 0 {
		t.Errorf("%d are due", n)
	}
	before := bytesOf(t, root, state.Outbox)
	_, err := s.Retry(t.Context(), "A", "nothing")
	if !errors.Is(err, ErrNoEntry) || !strings.Contains(err.Error(), "nothing") {
		t.Errorf("%v", err)
	}
	if string(before) != string(bytesOf(t, root, state.Outbox)) {
		t.Error("an unknown id, and something was changed")
	}
	got, err := s.Retry(t.Context())
	if err != nil || len(got) != 2 || len(got[1].Left) != 1 || !slices.Equal(got[1].Due, []string{"x"}) {
		t.Errorf("%+v, %v", got, err)
	}
	c := claimOne(t, s, "x")
	for range 2 {
		if _, err := s.Drop(t.Context(), c.Event.ID); !errors.Is(err, ErrInHand) {
			t.Errorf("%v", err)
		}
		got, err := s.Retry(t.Context(), c.Event.ID)
		if err != nil || len(got) != 1 || len(got[0].Due) > 0 || got[0].Left["x"] == "" {
			t.Errorf("%+v, %v", got, err)
		}
		if entryOf(t, s, c.Event.ID).Deliveries["x"].Claim != c.ID {
			t.Error("the claim is gone")
		}
		if _, ok, _ := s.Start(t.Context(), c); !ok {
			break
		}
	}
	e, err := s.Drop(t.Context(), "B")
	if err != nil || e.ID != "B" {
		t.Fatal(e, err)
	}
	if _, err := s.Drop(t.Context(), "B"); !errors.Is(err, ErrNoEntry) {
		t.Errorf("%v", err)
	}
	if n := count(logged(t, root), "outbox.dropped"); n != 1 {
		t.Errorf("logged %d times", n)
	}
	wantIDs(t, s, "A")
}
