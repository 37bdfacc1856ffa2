package outbox

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"the-loop/channels"
	"the-loop/internal/eventlog"
	"the-loop/state"
)

// Lane is what the outbox has to know of a configured channel.
type Lane struct {
	Channel  string
	Required bool
	// DropsRepeats is how long the receiver promised to drop repeated ids.
	DropsRepeats time.Duration
	// Witness: the channel can look up what became of a send.
	Witness bool
	// Owes reports whether the channel is owed an event. It is asked for
	// entries that name no channels at all.
	Owes func(channels.Event) bool
}

// Sweep prepares the outbox for a cycle. The caller must hold the drain role:
// whatever is claimed is then a dead drainer's. Claims are cleared; what was
// being sent is uncertain, and due again where the receiver drops repeats;
// deliveries to channels that are gone are dead, and alive again when the
// channel is back; times that lie in the future are brought back to now; bad
// entries are set aside. The file is written only when something changed.
func (s *Store) Sweep(ctx context.Context, lanes []Lane) error {
	byName := map[string]Lane{}
	for _, l := range lanes {
		byName[l.Channel] = l
	}
	return s.updateAll(ctx, func(f *file) (dirty bool, err error) {
		now := time.Now().UTC().Truncate(time.Millisecond)
		for _, e := range f.entries() {
			changed, err := s.sweepEntry(ctx, e, lanes, byName, now)
			if err != nil {
				return false, fmt.Errorf("entry %s: %w", e.ID, err)
			}
			if changed {
				dirty = true
				if err := s.putOrRemove(f, e); err != nil {
					return false, err
				}
			}
		}
		return dirty, nil
	})
}

func (s *Store) sweepEntry(
	ctx context.Context, e *Entry, lanes []Lane, byName map[string]Lane, now time.Time,
) (changed bool, err error) {
	ev, err := e.Event()
	if err != nil {
		return false, err
	}
	if len(e.Deliveries) == 0 {
		changed = e.address(ev, lanes, now)
	}
	if e.correctTimes(now) {
		changed = true
		_ = s.opts.Log.ClockMoved(ctx, subject(e.ID, ev))
	}
	if ttl, ok := s.opts.TTL.For(ev.Type); ok {
		expired, err := e.expire(ttl, now)
		if err != nil {
			return false, err
		}
		for _, name := range expired {
			d := e.Deliveries[name]
			_ = s.opts.Log.Dead(ctx, subject(e.ID, ev), name, string(d.Reason), d.Code, d.Attempts)
			changed = true
		}
	}
	for _, name := range e.names() {
		lane, known := byName[name]
		c, err := s.sweepDelivery(ctx, e, name, lane, known, now, subject(e.ID, ev))
		if err != nil {
			return false, err
		}
		changed = changed || c
	}
	return changed, nil
}

func (s *Store) sweepDelivery(
	ctx context.Context, e *Entry, name string, lane Lane, known bool, now time.Time, sub eventlog.Subject,
) (changed bool, err error) {
	d := e.Deliveries[name]
	if d.State == channels.StateSending {
		o := channels.Outcome{
			State: channels.StateUncertain, Reason: channels.ReasonUnknown, Code: "process_died", At: now,
		}
		if err := d.apply(o); err != nil {
			return false, err
		}
		e.note(name, o)
		_ = s.opts.Log.Uncertain(ctx, sub, name, o.Code)
		d.Orphaned++
		changed = true
	}
	if d.Claim != "" {
		d.Claim, changed = "", true
	}
	if !slices.Contains(e.Owed(), name) {
		return changed, nil
	}
	gone := d.State == channels.StateDead && d.Reason == channels.ReasonGone
	waits := d.State == channels.StatePending || d.State == channels.StateRefused
	switch {
	case !known && waits && !d.Repeats: // what may have arrived stays uncertain: the channel may come back
		d.Reason, d.Code, d.Detail, d.At = channels.ReasonGone, "no_such_channel", "", now
		_ = s.opts.Log.Dead(ctx, sub, name, string(d.Reason), d.Code, d.Attempts)
		return true, d.move(channels.StateDead)
	case known && d.State == channels.StateUncertain && d.Orphaned >= maxOrphaned && lane.DropsRepeats > 0:
		// whatever it is that kills us, it is not asked for a third time
		d.Reason, d.Code, d.Detail, d.At = channels.ReasonCrashed, "crashed_twice", "", now
		_ = s.opts.Log.Dead(ctx, sub, name, string(d.Reason), d.Code, d.Attempts)
		return true, d.move(channels.StateDead)
	case d.Repeats && waits && !d.mayRepeat(now, lane.DropsRepeats):
		return true, d.stopRepeating()
	case known && gone, known && d.State == channels.StateUncertain && d.mayRepeat(now, lane.DropsRepeats):
		d.At, d.Repeats = now, d.Repeats || d.State == channels.StateUncertain
		return true, d.move(channels.StatePending)
	}
	return changed, nil
}

// stopRepeating makes a delivery uncertain again that waited to be repeated.
func (d *Delivery) stopRepeating() error {
	if d.State == channels.StateRefused {
		if err := d.move(channels.StatePending); err != nil {
			return err
		}
	}
	d.Repeats, d.Reason, d.Code = false, channels.ReasonUnknown, "repeats_over"
	return d.move(channels.StateUncertain)
}

// names lists the deliveries' channels in a fixed order.
func (e *Entry) names() []string {
	names := make([]string, 0, len(e.Deliveries))
	for name := range e.Deliveries {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// address gives an entry that names no channel to those that are owed it.
func (e *Entry) address(ev channels.Event, lanes []Lane, now time.Time) bool {
	for _, l := range lanes {
		if l.Owes != nil && l.Owes(ev) {
			e.Channels = append(e.Channels, l.Channel)
			e.Deliveries[l.Channel] = &Delivery{State: channels.StatePending, At: now, Required: l.Required}
		}
	}
	return len(e.Channels) > 0
}

// correctTimes brings times that lie more than a minute ahead back to now: the
// clock was wrong then or is now, and nobody may wait for a year because of it.
func (e *Entry) correctTimes(now time.Time) (changed bool) {
	limit := now.Add(time.Minute)
	fix := func(t *time.Time) {
		if t.After(limit) {
			*t, changed = now, true
		}
	}
	if e.At.IsZero() {
		e.At, changed = now.Truncate(time.Second), true
	}
	fix(&e.At)
	fix(&e.LastAttemptAt)
	for _, d := range e.Deliveries {
		fix(&d.At)
		if d.FirstSentAt.After(limit) { // moved to now it would open the time to repeat anew
			d.FirstSentAt, changed = e.At, true
		}
		fix(&d.WantedAt)
	}
	return changed
}

// maxOrphaned is how often a delivery may be found orphaned in sending.
const maxOrphaned = 2

// Claimed is one delivery in our hand.
type Claimed struct {
	Event   channels.Event
	At      time.Time // when the event was taken
	Channel string
	ID      string // of the claim
	// RepeatOf is when the first byte of the first attempt may have left, where
	// an earlier attempt may have arrived: the receiver must still drop repeats
	// when this one does. Zero where none may have.
	RepeatOf time.Time
}

// Claim takes the n oldest deliveries to a channel that are due, durably.
// Nothing is sent by that, and a claim that dies with us is simply cleared.
// The entry named by last comes only when there is no other: it was the last
// probe, and another one tells more.
func (s *Store) Claim(ctx context.Context, channel string, n int, last string) ([]Claimed, error) {
	var out []Claimed
	err := s.updateAll(ctx, func(f *file) (bool, error) {
		now := time.Now().UTC().Truncate(time.Millisecond)
		for _, e := range s.due(f.entries(), channel, now, n, last) {
			ev, err := e.Event()
			if err != nil {
				return false, err
			}
			d := e.Deliveries[channel]
			if d.State == channels.StateRefused {
				if err := d.move(channels.StatePending); err != nil {
					return false, err
				}
			}
			d.Claim = state.NewID()
			e.Claim = &Claim{ID: d.Claim, By: s.by, At: now}
			if err := f.put(e); err != nil {
				return false, err
			}
			c := Claimed{Event: ev, At: e.At, Channel: channel, ID: d.Claim}
			if d.Repeats {
				c.RepeatOf = d.FirstSentAt
			}
			out = append(out, c)
		}
		return len(out) > 0, nil
	})
	if err != nil {
		return nil, fmt.Errorf("claim: %w", err)
	}
	return out, nil
}

// Due counts the deliveries to a channel that are due.
func (s *Store) Due(entries []*Entry, channel string) int {
	return len(s.due(entries, channel, time.Now(), len(entries), ""))
}

func (s *Store) due(entries []*Entry, channel string, now time.Time, n int, last string) []*Entry {
	var out []*Entry
	var spare *Entry
	for _, e := range entries {
		at, ok := e.DueAt(channel, s.opts.Backoff)
		if !ok || at.After(now) || e.Deliveries[channel].Claim != "" {
			continue
		}
		if e.ID == last {
			spare = e
			continue
		}
		if len(out) == n {
			return out
		}
		out = append(out, e)
	}
	if len(out) == 0 && spare != nil && n > 0 {
		out = append(out, spare)
	}
	return out
}

// errNotOurs stops an update that has found the claim to be somebody else's.
var errNotOurs = errors.New("not our claim")

// Start writes down that the delivery is being sent, durably, just before its
// first byte, and gives what the channel is asked. ok is false when it is not
// ours to send any more.
func (s *Store) Start(ctx context.Context, c Claimed) (d channels.Delivery, ok bool, err error) {
	err = s.update(ctx, func(f *file) (bool, error) {
		e, found := f.entry(c.Event.ID)
		if !found || !e.holds(c) || !slices.Contains(e.Owed(), c.Channel) {
			return false, errNotOurs
		}
		row := e.Deliveries[c.Channel]
		if err := row.startSending(time.Now()); err != nil {
			return false, err
		}
		e.countAttempts()
		e.LastAttemptAt = row.At.Truncate(time.Second)
		d = channels.Delivery{Event: c.Event, At: e.At, Attempt: row.Attempts, Parts: row.Parts}
		return true, f.put(e)
	})
	if errors.Is(err, errNotOurs) {
		return d, false, nil
	}
	if err != nil {
		return d, false, fmt.Errorf("mark as sending: %w", err)
	}
	return d, true, nil
}

func (e *Entry) holds(c Claimed) bool {
	d := e.Deliveries[c.Channel]
	return d != nil && d.Claim == c.ID
}

// LeaveUncertain gives a claim back on a repeat that came too late: an earlier
// attempt may have arrived, and the receiver would not drop this one.
func (s *Store) LeaveUncertain(ctx context.Context, c Claimed) error {
	return s.update(ctx, func(f *file) (bool, error) {
		e, found := f.entry(c.Event.ID)
		if !found || !e.holds(c) || e.Deliveries[c.Channel].State != channels.StatePending {
			return false, nil
		}
		e.Deliveries[c.Channel].Claim = ""
		if err := e.Deliveries[c.Channel].stopRepeating(); err != nil {
			return false, err
		}
		return true, s.putOrRemove(f, e)
	})
}

// RecordPart writes down, durably, that one more part of a split message was
// accepted, before the next one is sent.
func (s *Store) RecordPart(ctx context.Context, c Claimed, ref string) error {
	return s.update(ctx, func(f *file) (bool, error) {
		e, found := f.entry(c.Event.ID)
		if !found || !e.holds(c) {
			return false, errNotOurs
		}
		d := e.Deliveries[c.Channel]
		d.Parts = append(d.Parts, ref)
		return true, f.put(e)
	})
}

// Settled is what became of an entry when an attempt was settled.
type Settled struct {
	Gone     bool // nothing is owed any more: the entry left
	Ours     bool // the result was applied
	Dead     bool // the delivery will not be tried again by itself
	Attempts int
	Missed   []string // channels that did not take it, when it left
	Error    string   // the last error of those
	Waited   time.Duration
}

// Settle applies what came of an attempt, durably. A refusal or an unknown
// counts only under the claim that it was made under. An acceptance is a fact:
// it settles its delivery whatever the claim says.
func (s *Store) Settle(ctx context.Context, c Claimed, o channels.Outcome) (Settled, error) {
	var out Settled
	sub := subject(c.Event.ID, c.Event)
	err := s.update(ctx, func(f *file) (bool, error) {
		out = Settled{}
		e, found := f.entry(c.Event.ID)
		if !found || e.Deliveries[c.Channel] == nil {
			return false, nil
		}
		d, ours := e.Deliveries[c.Channel], e.holds(c)
		if !ours && o.State != channels.StateAccepted || d.State == channels.StateAccepted {
			return false, nil
		}
		if !ours {
			_ = s.opts.Log.AcceptedOutOfClaim(ctx, sub, c.Channel)
		}
		if err := d.apply(o); err != nil {
			return false, err
		}
		e.note(c.Channel, o)
		out = Settled{Ours: true, Attempts: d.Attempts, Waited: time.Since(e.At), Gone: len(e.Owed()) == 0}
		out.Dead = d.State == channels.StateDead
		for _, name := range e.names() {
			if out.Gone && !e.Deliveries[name].took() {
				out.Missed, out.Error = append(out.Missed, name), e.LastError
			}
		}
		return true, s.putOrRemove(f, e)
	})
	if err != nil {
		return out, fmt.Errorf("settle: %w", err)
	}
	return out, nil
}

// Unclaim gives claims back that were not used.
func (s *Store) Unclaim(ctx context.Context, claims []Claimed) error {
	if len(claims) == 0 {
		return nil
	}
	return s.update(ctx, func(f *file) (dirty bool, err error) {
		for _, c := range claims {
			e, found := f.entry(c.Event.ID)
			if !found || !e.holds(c) || e.Deliveries[c.Channel].State == channels.StateSending {
				continue
			}
			e.Deliveries[c.Channel].Claim = ""
			dirty = true
			if err := s.putOrRemove(f, e); err != nil {
				return false, err
			}
		}
		return dirty, nil
	})
}
