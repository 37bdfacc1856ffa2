package outbox

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"math"
	"slices"
	"time"

	"the-loop/channels"
	"the-loop/internal/lazy"
	"the-loop/state"
)

// MaxRejections is how often a message may be refused as unacceptable before
// its delivery is dead.
const MaxRejections = 5

// Entry is one event that no channel has accepted, with all its deliveries.
type Entry struct {
	ID            string
	At            time.Time // when the event was taken, to the second
	Attempts      int       // of the delivery that was tried most often
	LastAttemptAt time.Time // zero: never
	LastError     string
	Channels      []string // still owed, in the config's order
	Claim         *Claim
	Deliveries    map[string]*Delivery
	// ResentAs is the entry that was made of its lost deliveries, and
	// SentAgainFrom the entry that this one was made of.
	ResentAs, SentAgainFrom string

	event json.RawMessage // as it was stored: never changed
	extra state.Extra
}

// Claim says who has an entry in hand for one attempt. The ID is random and
// never used again.
type Claim struct {
	ID string    `json:"id"`
	By string    `json:"by"` // host/pid
	At time.Time `json:"at"`

	extra state.Extra
}

// UnmarshalJSON keeps the members that this version does not know.
func (c *Claim) UnmarshalJSON(b []byte) (err error) {
	type plain Claim
	c.extra, err = state.UnmarshalKeeping(b, (*plain)(c))
	return err
}

// MarshalJSON gives them back.
func (c Claim) MarshalJSON() ([]byte, error) {
	type plain Claim
	return state.MarshalKeeping(plain(c), c.extra)
}

// Delivery is the entry's way to one channel.
type Delivery struct {
	State    channels.State  `json:"state"`
	Reason   channels.Reason `json:"reason,omitempty"`
	Code     string          `json:"code,omitempty"`
	Detail   string          `json:"detail,omitempty"`
	At       time.Time       `json:"at,omitzero"` // of the last change
	Attempts int             `json:"attempts"`    // sends, those that cost nothing left out
	// Failures counts refusals of the message itself; the backoff grows with it.
	Failures int `json:"failures,omitempty"`
	// Rejected counts refusals as unacceptable.
	Rejected int `json:"rejected,omitempty"`
	// FirstSentAt is when the first byte of the first attempt may have left.
	FirstSentAt time.Time `json:"firstSentAt,omitzero"`
	// Repeats: it is sent although an earlier attempt may have arrived, for the
	// receiver drops repeats. It must not be sent once it does not any more.
	Repeats  bool     `json:"repeats,omitempty"`
	Claim    string   `json:"claim,omitempty"` // the claim it is in hand under
	Required bool     `json:"required,omitempty"`
	Parts    []string `json:"parts,omitempty"` // accepted parts of a split message
	// WantedAt is when a person last asked for it: its time to live begins anew.
	WantedAt time.Time `json:"wantedAt,omitzero"`
	// Orphaned counts how often it was found in sending with nobody sending it.
	Orphaned int `json:"orphaned,omitempty"`
	// Looks counts the look-ups that told something, and Unjudgeable is the
	// code of why none can tell.
	Looks       int    `json:"looks,omitempty"`
	Unjudgeable string `json:"unjudgeable,omitempty"`
	// ResentAs is the entry that was made of it: it is not owed here any more.
	ResentAs string `json:"resentAs,omitempty"`
	Ref      string `json:"ref,omitempty"`
	Link     string `json:"link,omitempty"`

	extra state.Extra
}

// Event decodes the event. Its ID is the entry's.
func (e *Entry) Event() (channels.Event, error) {
	ev, err := channels.DecodeEvent(e.event)
	ev.ID = e.ID
	return ev, err
}

// entryJSON is the entry as it stands in the file; the first six keys are the
// Python program's.
type entryJSON struct {
	At            stamp                      `json:"at"`
	Attempts      int                        `json:"attempts"`
	LastAttemptAt stamp                      `json:"lastAttemptAt"`
	LastError     string                     `json:"lastError"`
	Channels      []string                   `json:"channels"`
	Event         json.RawMessage            `json:"event"`
	Claim         *Claim                     `json:"claim,omitempty"`
	Deliveries    map[string]json.RawMessage `json:"deliveries,omitempty"`
	ResentAs      string                     `json:"resentAs,omitempty"`
	SentAgainFrom string                     `json:"sentAgainFrom,omitempty"`
}

// stamp is a time that the file writes as "" when there is none.
type stamp time.Time

func (s stamp) MarshalJSON() ([]byte, error) {
	if time.Time(s).IsZero() {
		return []byte(`""`), nil
	}
	return json.Marshal(time.Time(s).UTC())
}

func (s *stamp) UnmarshalJSON(b []byte) error {
	if string(b) == `""` || string(b) == "null" {
		*s = stamp{}
		return nil
	}
	var t time.Time
	if err := json.Unmarshal(b, &t); err != nil {
		return err
	}
	t = t.UTC()
	if t.Year() < 0 || t.Year() > 9999 {
		return errors.New("a time that could not be written again")
	}
	*s = stamp(t)
	return nil
}

// entryID is what may be a key of the file: it goes into an HTTP header.
var entryID = lazy.Regexp(`^[A-Za-z0-9._:-]{1,128}$`)

var errBadID = errors.New("the id has characters that no header can carry, or is too long")

// decodeEntry reads one entry. Missing keys are defaulted; what cannot be an
// entry at all (no event, a value of the wrong type) is an error.
func decodeEntry(id string, raw []byte) (*Entry, error) {
	if !entryID().MatchString(id) {
		return nil, errBadID
	}
	var j entryJSON
	extra, err := state.UnmarshalKeeping(raw, &j)
	if err != nil {
		return nil, err
	}
	if _, err := channels.DecodeEvent(j.Event); err != nil {
		return nil, err
	}
	e := &Entry{
		ID: id, At: time.Time(j.At), Attempts: j.Attempts, LastAttemptAt: time.Time(j.LastAttemptAt),
		LastError: j.LastError, Channels: j.Channels, Claim: j.Claim, Deliveries: map[string]*Delivery{},
		ResentAs: j.ResentAs, SentAgainFrom: j.SentAgainFrom, event: j.Event, extra: extra,
	}
	for name, raw := range j.Deliveries {
		d := &Delivery{}
		if d.extra, err = state.UnmarshalKeeping(raw, d); err != nil {
			return nil, fmt.Errorf("delivery %q: %w", name, err)
		}
		switch d.State {
		case "":
			d.State = channels.StatePending
		case "expired": // the name that a neighbouring program gives it
			d.State = channels.StateLost
		}
		if !slices.Contains(states(), d.State) {
			return nil, fmt.Errorf("delivery %q: no such state: %q", name, d.State)
		}
		e.Deliveries[name] = d
	}
	for _, name := range e.Channels {
		if e.Deliveries[name] == nil {
			e.Deliveries[name] = e.seedDelivery()
		}
	}
	if e.At.IsZero() {
		e.At = e.LastAttemptAt
	}
	return e, nil
}

// seedDelivery is the delivery of an entry that knows none: one of the Python
// program's, whose attempts and last error were the entry's.
func (e *Entry) seedDelivery() *Delivery {
	if e.Attempts == 0 {
		return &Delivery{State: channels.StatePending, At: e.At}
	}
	return &Delivery{
		State: channels.StateRefused, Reason: channels.ReasonOther, Code: "other",
		At: e.LastAttemptAt, Attempts: e.Attempts, Failures: e.Attempts,
	}
}

func (e *Entry) encode() ([]byte, error) {
	j := entryJSON{
		At: stamp(e.At), Attempts: e.Attempts, LastAttemptAt: stamp(e.LastAttemptAt), LastError: e.LastError,
		Channels: e.Channels, Event: e.event, Claim: e.Claim, Deliveries: map[string]json.RawMessage{},
		ResentAs: e.ResentAs, SentAgainFrom: e.SentAgainFrom,
	}
	if j.Channels == nil {
		j.Channels = []string{}
	}
	for name, d := range e.Deliveries {
		raw, err := state.MarshalKeeping(d, d.extra)
		if err != nil {
			return nil, err
		}
		j.Deliveries[name] = raw
	}
	return state.MarshalKeeping(j, e.extra)
}

// took reports whether the channel has the event: all of it, or the first part
// of a message that had to be split.
func (d *Delivery) took() bool { return d.State == channels.StateAccepted || len(d.Parts) > 0 }

// Unsent reports whether nothing of the event can have reached the channel: it
// waits, or was refused, each time that it was tried.
func (d *Delivery) Unsent() bool {
	switch d.State {
	case channels.StatePending, channels.StateRefused:
	case channels.StateDead:
		if d.Orphaned > 0 {
			return false
		}
	default:
		return false
	}
	return len(d.Parts) == 0 && !d.Repeats
}

// Owed lists the channels for which something is still to be done, by name.
// One acceptance by a channel that is not required settles all that are not;
// a required channel is owed its own; the rest of a split message is owed to
// whoever has its beginning. What is in the air is waited for.
func (e *Entry) Owed() []string {
	settled := false
	for _, d := range e.Deliveries {
		settled = settled || !d.Required && d.took()
	}
	var owed []string
	for name, d := range e.Deliveries {
		switch {
		case d.State == channels.StateAccepted, d.ResentAs != "":
		case d.State != channels.StateSending && settled && !d.Required && len(d.Parts) == 0:
		default:
			owed = append(owed, name)
		}
	}
	slices.Sort(owed)
	return owed
}

// origin is the id under which the event was first taken.
func (e *Entry) origin() string {
	if e.SentAgainFrom != "" {
		return e.SentAgainFrom
	}
	return e.ID
}

// inHand reports whether a drainer has claimed, or is sending, any delivery.
func (e *Entry) inHand() bool {
	for _, d := range e.Deliveries {
		if d.Claim != "" || d.State == channels.StateSending {
			return true
		}
	}
	return false
}

// State sums the deliveries that are still owed up in one word: sending before
// pending, pending before refused, and what needs a person last. An entry that
// has not been addressed to any channel yet is pending.
func (e *Entry) State() channels.State {
	if len(e.Deliveries) == 0 {
		return channels.StatePending
	}
	order := []channels.State{
		channels.StateSending, channels.StatePending, channels.StateRefused,
		channels.StateUncertain, channels.StateLost, channels.StateDead,
	}
	best := len(order) - 1
	for _, name := range e.Owed() {
		if i := slices.Index(order, e.Deliveries[name].State); i >= 0 && i < best {
			best = i
		}
	}
	return order[best]
}

// NeedsPerson reports whether nothing that is still owed will move by itself.
// lane gives what is known of a channel, its zero value where it is not
// configured: an uncertain delivery goes out again by itself where the receiver
// drops repeats, and is looked up where the channel can.
func (e *Entry) NeedsPerson(now time.Time, lane func(channel string) Lane) bool {
	if len(e.Deliveries) == 0 {
		return false // the next drain addresses it
	}
	for _, name := range e.Owed() {
		d := e.Deliveries[name]
		switch d.State {
		case channels.StatePending, channels.StateRefused, channels.StateSending:
			return false
		case channels.StateUncertain:
			if d.Repeatable(now, lane(name)) || d.Judgeable(lane(name)) {
				return false
			}
		}
	}
	return true
}

// Repeatable reports whether an uncertain delivery goes out again by itself.
func (d *Delivery) Repeatable(now time.Time, l Lane) bool { return d.mayRepeat(now, l.DropsRepeats) }

// Judgeable reports whether look-ups may still tell what became of it.
func (d *Delivery) Judgeable(l Lane) bool { return l.Witness && d.Unjudgeable == "" }

func (d *Delivery) mayRepeat(now time.Time, window time.Duration) bool {
	age := now.Sub(d.FirstSentAt)
	return window > 0 && age >= 0 && age < window
}

// DueAt is when the delivery may be tried next as far as the message is
// concerned; the channel's standing may put it off. ok is false when it will
// not be tried by itself.
func (e *Entry) DueAt(channel string, b Backoff) (at time.Time, ok bool) {
	d := e.Deliveries[channel]
	if d == nil || !slices.Contains(e.Owed(), channel) {
		return time.Time{}, false
	}
	switch d.State {
	case channels.StatePending:
		return d.At, true
	case channels.StateRefused:
		if d.Reason.Standing() || d.Reason == channels.ReasonRate {
			return d.At, true // the channel's own clock decides
		}
		return d.At.Add(b.Wait(d.Failures, e.ID+channel)), true
	}
	return time.Time{}, false
}

// apply writes what came of an attempt into the delivery that made it.
func (d *Delivery) apply(o channels.Outcome) error {
	if err := d.move(o.State); err != nil {
		return err
	}
	d.Claim, d.At = "", o.At.UTC().Truncate(time.Millisecond)
	d.Reason, d.Code, d.Detail = o.Reason, o.Code, o.Detail
	if len(o.Receipt.Parts) > 0 {
		d.Parts = o.Receipt.Parts
	}
	switch {
	case o.State == channels.StateAccepted:
		d.Ref, d.Link = o.Receipt.Ref, o.Receipt.Link
	case o.State == channels.StateRefused && costsNothing(o):
		d.Attempts--
	case o.State == channels.StateRefused && !o.Reason.Standing():
		d.Failures++
		if o.Reason == channels.ReasonUnacceptable {
			d.Rejected++
		}
		if d.Rejected >= MaxRejections {
			return d.move(channels.StateDead)
		}
	}
	return nil
}

// costsNothing reports whether a refusal uses up no attempt: the provider told
// us to wait, or nothing could be sent for want of a token.
func costsNothing(o channels.Outcome) bool {
	return o.Reason == channels.ReasonRate || o.Code == "no_secret"
}

// note copies the delivery's last attempt to the entry's own keys, which are
// what an older program reads.
func (e *Entry) note(channel string, o channels.Outcome) {
	e.countAttempts()
	if o.State != channels.StateAccepted {
		e.LastError = channel + ": " + o.Error()
	}
	if o.State != channels.StatePending {
		e.LastAttemptAt = o.At.UTC().Truncate(time.Second)
	}
}

// countAttempts sums the deliveries up in the entry's own key. A refusal that
// costs no attempt brings it down again.
func (e *Entry) countAttempts() {
	e.Attempts = 0
	for _, d := range e.Deliveries {
		e.Attempts = max(e.Attempts, d.Attempts)
	}
}

// Backoff is how long a refused message waits.
type Backoff struct{ Base, Max time.Duration }

// Wait is min(Base*2^(n-1), Max) after the n-th refusal, ±10 % by a hash of
// seed: the same question gets the same answer, and entries that were refused
// together do not come back together. Never negative, never past Max + 10 %.
func (b Backoff) Wait(n int, seed string) time.Duration {
	if n <= 0 {
		return 0
	}
	wait := b.Base
	for i := 1; i < n && wait < b.Max; i++ {
		wait *= 2
		if wait <= 0 { // overflown
			wait = b.Max
		}
	}
	wait = max(min(wait, b.Max, math.MaxInt64/2), 0) // half: the jitter must not overflow
	h := fnv.New32a()
	fmt.Fprintf(h, "%s %d", seed, n)
	jitter := float64(h.Sum32())/float64(1<<32)*0.2 - 0.1
	return wait + time.Duration(float64(wait)*jitter)
}
