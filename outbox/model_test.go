package outbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"the-loop/channels"
	"the-loop/state"
)

// The model says in plain maps what DESIGN says in words. It shares no code
// with the store, so that one mistake is not made in both.
type modelDelivery struct {
	state            channels.State
	reason           channels.Reason
	claim            string
	attempts, parts  int
	failed, rejected int
	at, first        time.Time
	required         bool
	repeats          bool // an earlier attempt may have arrived
	orphaned         int
}

type modelEntry struct {
	at  time.Time
	way map[string]*modelDelivery
}

type model struct {
	t       *rapid.T
	root    *state.Root
	store   *Store
	entries map[string]*modelEntry
	made    int
	claims  []Claimed // every claim there ever was
}

// The channels: a plain one, one whose receiver drops repeats for an hour, and
// one that is required.
var modelChannels = []string{"plain", "hook", "must"}

func standing(r channels.Reason) bool {
	return r == channels.ReasonDown || r == channels.ReasonAuth || r == channels.ReasonConfig ||
		r == channels.ReasonUnknown
}

func (e *modelEntry) owed() (out []string) {
	settled := false
	for _, d := range e.way {
		if !d.required && (d.state == "accepted" || d.parts > 0) {
			settled = true
		}
	}
	for name, d := range e.way {
		if d.state == "accepted" {
			continue
		}
		if d.state == "sending" || d.required || d.parts > 0 || !settled {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

func (m *model) outcome(pending bool) channels.Outcome {
	// rapid draws the first ones more often.
	all := []channels.Outcome{
		down(), uncertain(), refused(channels.ReasonUnacceptable, "no_text"), rate(time.Minute), accepted("ref"),
		refused(channels.ReasonOther, "strange"), refused(channels.ReasonAuth, "no_secret"),
		refused(channels.ReasonAuth, "invalid_auth"),
	}
	if pending {
		all = append([]channels.Outcome{held(), held(), held()}, all...)
	}
	return rapid.SampledFrom(all).Draw(m.t, "outcome")
}

// result is what one attempt makes of a delivery.
func (d *modelDelivery) result(o channels.Outcome) {
	d.state, d.reason, d.claim, d.at = o.State, o.Reason, "", o.At
	if o.State != "refused" {
		return
	}
	switch {
	case o.Reason == channels.ReasonRate, o.Code == "no_secret":
		d.attempts--
	case !standing(o.Reason):
		d.failed++
		if o.Reason == channels.ReasonUnacceptable {
			d.rejected++
		}
		if d.rejected >= 5 {
			d.state = "dead"
		}
	}
}

func (m *model) leaveIfDone(id string) {
	if len(m.entries[id].owed()) == 0 {
		delete(m.entries, id)
	}
}

func (m *model) ok(err error) {
	if err != nil {
		m.t.Fatal(err)
	}
}

func (m *model) remember(t *rapid.T) {
	m.made++
	id := fmt.Sprintf("e%02d", m.made*37%100) // in no order
	at := time.Now().Add(-time.Duration(rapid.IntRange(0, 3).Draw(t, "age")) * time.Second)
	e := &modelEntry{at: at, way: map[string]*modelDelivery{}}
	var tried []Attempted
	for _, name := range modelChannels {
		if rapid.IntRange(0, 3).Draw(t, "not owed") == 3 {
			continue
		}
		o := m.outcome(true)
		tried = append(tried, Attempted{Channel: name, Required: name == "must", At: time.Now(), Outcome: o})
		d := &modelDelivery{required: name == "must"}
		if o.State == "pending" {
			d.state, d.at, d.reason = o.State, o.At, o.Reason
		} else {
			d.attempts, d.first = 1, time.Now()
			d.result(o)
		}
		e.way[name] = d
	}
	entry, err := NewEntry(channels.Event{ID: id, Type: "work_item.done", Text: id}, at, tried)
	m.ok(err)
	if owed := e.owed(); len(owed) > 0 {
		m.ok(m.store.Remember(context.Background(), entry, nil))
		m.entries[id] = e
	} else if len(entry.Owed()) > 0 {
		t.Fatalf("owed %v, and by the model nothing", entry.Owed())
	}
}

func (m *model) some(t *rapid.T) (string, *modelEntry) {
	if len(m.entries) == 0 {
		t.Skip("empty")
	}
	var names []string
	for id := range m.entries {
		names = append(names, id)
	}
	slices.Sort(names)
	id := rapid.SampledFrom(names).Draw(t, "entry")
	return id, m.entries[id]
}

// acceptedElsewhere: the same event is published again, and one channel takes it.
func (m *model) acceptedElsewhere(t *rapid.T) {
	id, e := m.some(t)
	name := rapid.SampledFrom(modelChannels).Draw(t, "channel")
	other := "must"
	if name == "must" {
		other = "plain"
	}
	tried := []Attempted{
		{Channel: name, Required: name == "must", At: time.Now(), Outcome: accepted("again")},
		{Channel: other, Required: other == "must", At: time.Now(), Outcome: uncertain()},
	}
	entry, err := NewEntry(channels.Event{ID: id, Type: "work_item.done"}, time.Now(), tried)
	m.ok(err)
	m.ok(m.store.Remember(context.Background(), entry, nil))
	m.published(e, name, "accepted")
	m.published(e, other, "uncertain")
	m.leaveIfDone(id)
}

// published: what a second publish learned of one channel.
func (m *model) published(e *modelEntry, name string, learned channels.State) {
	d := e.way[name]
	switch {
	case d == nil:
		d = &modelDelivery{state: learned, attempts: 1, required: name == "must", at: time.Now(), first: time.Now()}
		if learned == "uncertain" {
			d.reason = channels.ReasonUnknown
		}
		e.way[name] = d
	case learned == "accepted" && d.state != "accepted":
		d.state, d.claim = "accepted", ""
	case learned == "uncertain" && d.claim == "" && (d.state == "pending" || d.state == "refused"):
		d.state, d.reason, d.repeats = "uncertain", channels.ReasonUnknown, false
		d.attempts, d.first, d.at = d.attempts+1, time.Now(), time.Now()
	}
}

func (m *model) claim(t *rapid.T) {
	channel := rapid.SampledFrom(modelChannels).Draw(t, "channel")
	n := rapid.IntRange(1, 3).Draw(t, "n")
	got, err := m.store.Claim(context.Background(), channel, n, "")
	m.ok(err)
	now := time.Now()
	var want []string
	vague := false
	for id, e := range m.entries {
		d := e.way[channel]
		if d == nil || d.claim != "" || !slices.Contains(e.owed(), channel) {
			continue
		}
		age := now.Sub(d.at)
		counted := d.state == "refused" && !standing(d.reason) && d.reason != channels.ReasonRate
		switch { // the backoff here is a minute ±10 %
		case d.state == "pending" && age >= 0, d.state == "refused" && !counted, counted && age > 66*time.Second:
			want = append(want, id)
		case counted && age >= 54*time.Second:
			vague = true
		}
	}
	slices.SortFunc(want, func(a, b string) int {
		if c := m.entries[a].at.Compare(m.entries[b].at); c != 0 {
			return c
		}
		return cmp.Compare(a, b)
	})
	want = want[:min(n, len(want))]
	var ids []string
	for _, c := range got {
		ids = append(ids, c.Event.ID)
		d := m.entries[c.Event.ID].way[channel]
		d.state, d.claim = "pending", c.ID
	}
	if !vague && !slices.Equal(ids, want) {
		t.Fatalf("claimed %v for %s, want %v", ids, channel, want)
	}
	m.claims = append(m.claims, got...)
}

// attempt claims, starts and settles, as a lane does.
func (m *model) attempt(t *rapid.T) {
	m.claim(t)
	m.start(t)
	m.settle(t)
}

// anyClaim draws a claim, one in hand or one long gone.
func (m *model) anyClaim(t *rapid.T) (c Claimed, d *modelDelivery, ours bool) {
	if len(m.claims) == 0 {
		t.Skip("no claims")
	}
	c = m.claims[len(m.claims)-1-rapid.IntRange(0, min(len(m.claims)-1, 8)).Draw(t, "claim")]
	if e := m.entries[c.Event.ID]; e != nil {
		d = e.way[c.Channel]
	}
	return c, d, d != nil && d.claim == c.ID
}

func (m *model) start(t *rapid.T) {
	c, d, ours := m.anyClaim(t)
	if ours && d.state == "sending" {
		t.Skip("started already")
	}
	want := ours && slices.Contains(m.entries[c.Event.ID].owed(), c.Channel)
	got, ok, err := m.store.Start(context.Background(), c)
	m.ok(err)
	if ok != want {
		t.Fatalf("start: %v, want %v", ok, want)
	}
	if !ok {
		return
	}
	d.state, d.at = "sending", time.Now()
	d.attempts++
	if d.first.IsZero() {
		d.first = time.Now()
	}
	if got.Attempt != d.attempts || len(got.Parts) != d.parts {
		t.Fatalf("asked with attempt %d and %d parts, want %+v", got.Attempt, len(got.Parts), d)
	}
}

func (m *model) part(t *rapid.T) {
	c, d, ours := m.anyClaim(t)
	if ours && d.state != "sending" {
		t.Skip("not started")
	}
	err := m.store.RecordPart(context.Background(), c, "part")
	if (err == nil) != ours {
		t.Fatalf("record a part under our claim %v: %v", ours, err)
	}
	if ours {
		d.parts++
	}
}

func (m *model) settle(t *rapid.T) {
	c, d, ours := m.anyClaim(t)
	o := m.outcome(false)
	if ours && d.state != "sending" && o.State != "accepted" {
		t.Skip("nothing was sent")
	}
	out, err := m.store.Settle(context.Background(), c, o)
	m.ok(err)
	applied := d != nil && d.state != "accepted" && (ours || o.State == "accepted")
	if applied {
		d.result(o)
		m.leaveIfDone(c.Event.ID)
	}
	if gone := applied && m.entries[c.Event.ID] == nil; out.Ours != applied || out.Gone != gone {
		t.Fatalf("settled %+v, want applied %v and gone %v", out, applied, gone)
	}
}

func (m *model) unclaim(t *rapid.T) {
	c, d, ours := m.anyClaim(t)
	m.ok(m.store.Unclaim(context.Background(), []Claimed{c}))
	if ours && d.state != "sending" {
		d.claim = ""
		m.leaveIfDone(c.Event.ID)
	}
}

func (m *model) retry(t *rapid.T) {
	id, e := m.some(t)
	got, err := m.store.Retry(context.Background(), id)
	m.ok(err)
	var due []string
	for _, name := range e.owed() {
		d := e.way[name]
		if d.claim == "" && (d.state == "pending" || d.state == "refused" || d.state == "dead") {
			due = append(due, name)
			d.state, d.at, d.rejected, d.orphaned = "pending", time.Now(), 0, 0
		}
	}
	if !slices.Equal(got[0].Due, due) || len(due)+len(got[0].Left) != len(e.owed()) {
		t.Fatalf("retry %+v, want %v of %v", got, due, e.owed())
	}
}

func (m *model) drop(t *rapid.T) {
	id, e := m.some(t)
	inHand := false
	for _, d := range e.way {
		inHand = inHand || d.claim != "" || d.state == "sending"
	}
	_, err := m.store.Drop(context.Background(), id)
	if inHand != errors.Is(err, ErrInHand) || !inHand && err != nil {
		t.Fatalf("in hand %v, and drop says %v", inHand, err)
	}
	if !inHand {
		delete(m.entries, id)
	}
}

// die: the process is gone, another one opens the root and sweeps. Sometimes a
// channel is not configured then.
func (m *model) die(t *rapid.T) {
	m.store = Open(m.root, Options{Backoff: m.store.Backoff()})
	missing := rapid.SampledFrom([]string{"", "", "", "plain", "hook", "must"}).Draw(t, "missing")
	var lanes []Lane
	for _, name := range modelChannels {
		if name != missing {
			lane := Lane{Channel: name, Required: name == "must"}
			if name == "hook" {
				lane.DropsRepeats = time.Hour
			}
			lanes = append(lanes, lane)
		}
	}
	m.ok(m.store.Sweep(context.Background(), lanes))
	for id, e := range m.entries {
		for name, d := range e.way {
			if d.state == "sending" {
				d.state, d.reason = "uncertain", channels.ReasonUnknown
				d.orphaned++
			}
			d.claim = ""
			if !slices.Contains(e.owed(), name) {
				continue
			}
			switch {
			case name == missing && !d.repeats && (d.state == "pending" || d.state == "refused"):
				d.state, d.reason = "dead", channels.ReasonGone
			case name == "hook" && name != missing && d.state == "uncertain" && d.orphaned >= 2:
				d.state, d.reason, d.at = "dead", channels.ReasonCrashed, time.Now()
			case d.repeats && (d.state == "pending" || d.state == "refused") &&
				(name == missing || time.Since(d.first) >= time.Hour):
				d.state, d.reason, d.repeats = "uncertain", channels.ReasonUnknown, false
			case name == missing:
			case d.state == "dead" && d.reason == channels.ReasonGone,
				d.state == "uncertain" && name == "hook" && time.Since(d.first) < time.Hour:
				d.repeats = d.repeats || d.state == "uncertain"
				d.state, d.at = "pending", time.Now()
			}
		}
		m.leaveIfDone(id)
	}
}

func (m *model) wait(t *rapid.T) {
	time.Sleep(rapid.SampledFrom([]time.Duration{2 * time.Minute, time.Second, 2 * time.Hour}).Draw(t, "wait"))
}

// check holds what is on disk against the model.
func (m *model) check(t *rapid.T) {
	entries, bad, damaged, err := m.store.Entries()
	if err != nil || bad > 0 || damaged {
		t.Fatalf("%d bad, damaged %v, %v", bad, damaged, err)
	}
	if len(entries) != len(m.entries) {
		t.Fatalf("%d entries, want %d", len(entries), len(m.entries))
	}
	for _, e := range entries {
		want := m.entries[e.ID]
		if want == nil || len(want.way) != len(e.Deliveries) || !slices.Equal(e.Owed(), want.owed()) {
			t.Fatalf("%s: owed %v, want %+v", e.ID, e.Owed(), want)
		}
		most, claimed := 0, false
		for name, d := range e.Deliveries {
			w := want.way[name]
			most, claimed = max(most, w.attempts), claimed || w.claim != ""
			got := modelDelivery{
				d.State, w.reason, d.Claim, d.Attempts, len(d.Parts), d.Failures, d.Rejected, w.at, w.first, d.Required,
				d.Repeats, d.Orphaned,
			}
			if got != *w {
				t.Fatalf("%s on %s: %+v\nwant %+v", e.ID, name, got, *w)
			}
		}
		for _, name := range e.Owed() {
			if !slices.Contains(e.Channels, name) {
				t.Fatalf("%s is owed to %s, and its channels are %v", e.ID, name, e.Channels)
			}
		}
		if e.Attempts != most || claimed && e.Claim == nil {
			t.Fatalf("%s: %d attempts, want %d; claim %v", e.ID, e.Attempts, most, e.Claim)
		}
	}
	files, err := os.ReadDir(m.root.Path("channels"))
	if err == nil {
		for _, f := range files {
			if strings.HasPrefix(f.Name(), ".") || strings.Contains(f.Name(), ".corrupt-") {
				t.Fatalf("left behind: %s", f.Name())
			}
		}
	}
}

// inBubble runs f in a bubble of its own: rapid itself counts the real time. A
// failed property comes out as the panic that rapid knows.
func inBubble(t *testing.T, f func()) {
	var failure any
	synctest.Test(t, func(*testing.T) {
		defer func() { failure = recover() }()
		f()
	})
	if failure != nil {
		panic(failure)
	}
}

func TestStoreIsItsModel(t *testing.T) {
	t.Parallel()
	top, n := t.TempDir(), 0
	rapid.Check(t, func(rt *rapid.T) {
		n++
		root, err := state.Open(fmt.Sprintf("%s/%d", top, n))
		if err != nil {
			rt.Fatal(err)
		}
		m := &model{
			t: rt, root: root, entries: map[string]*modelEntry{},
			store: Open(root, Options{Backoff: Backoff{Base: time.Minute, Max: time.Minute}}),
		}
		inBubble(t, func() {
			rt.Repeat(map[string]func(*rapid.T){
				"": m.check, "remember": m.remember, "remember more": m.remember, "remember most": m.remember,
				"claim": m.claim, "claim more": m.claim, "attempt": m.attempt, "attempt more": m.attempt,
				"start": m.start, "start more": m.start, "part": m.part, "settle": m.settle, "settle more": m.settle,
				"unclaim": m.unclaim, "retry": m.retry, "drop": m.drop, "die": m.die, "wait": m.wait,
				"accepted elsewhere": m.acceptedElsewhere,
			})
		})
	})
}
