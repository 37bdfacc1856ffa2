package outbox

import (
	"strings"
	"time"

	"the-loop/channels"
)

// TTL is how long events are worth delivering, by pattern of their type.
type TTL map[channels.Pattern]time.Duration

// For gives the time to live of a type by the pattern that says the most about
// it: the type itself, else the longest prefix, else "*". ok is false when no
// pattern matches: it lives for ever.
func (t TTL) For(eventType string) (ttl time.Duration, ok bool) {
	best := -1
	for p, d := range t {
		if !p.Match(eventType) {
			continue
		}
		says := len(strings.TrimSuffix(string(p), "*"))
		if string(p) == eventType {
			says = len(eventType) + 1
		}
		if says > best {
			best, ttl, ok = says, d, true
		}
	}
	return ttl, ok
}

// expire gives up the deliveries of an event that is past its time to live.
// It counts from when the event was taken, or when a person last asked for the
// delivery. What may have arrived stays, and so does what is in somebody's hand.
func (e *Entry) expire(ttl time.Duration, now time.Time) (names []string, err error) {
	for _, name := range e.Owed() {
		d := e.Deliveries[name]
		if now.Sub(e.At) < ttl || now.Sub(d.WantedAt) < ttl || d.Claim != "" || d.Repeats {
			continue
		}
		if d.State != channels.StatePending && d.State != channels.StateRefused {
			continue
		}
		if err := d.move(channels.StateDead); err != nil {
			return names, err
		}
		d.Reason, d.Code, d.Detail, d.At = channels.ReasonExpired, "expired", "", now
		e.LastError = name + ": expired"
		names = append(names, name)
	}
	return names, nil
}
