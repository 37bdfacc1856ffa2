package outbox

import (
	"context"
	"fmt"
	"time"

	"the-loop/channels"
	"the-loop/state"
)

// MaxProbe is the longest a failing channel is left alone between two probes.
const MaxProbe = 5 * time.Minute

// MaxCooling is the longest that a provider's word to wait is believed.
const MaxCooling = time.Hour

// Asker names a channel as it is configured right now. Its standing belongs to
// both: what a channel refused under another credential says nothing.
type Asker struct {
	Channel    string
	Credential string // see channels.Credentialed; only a keyed hash is written
	Timeout    time.Duration
	// Publishing: it is a publish that asks. After an attempt that nobody
	// answered only a drain asks again, so that a black hole costs one
	// uncertain row a probe, and not one an event.
	Publishing bool
}

// Standing is why a channel is not simply asked.
type Standing struct {
	Verdict string          `json:"verdict"` // failing or cooling
	Reason  channels.Reason `json:"reason"`
	Code    string          `json:"code,omitempty"`
	Detail  string          `json:"detail,omitempty"`
	Since   time.Time       `json:"since"`
	// Until is when it may be asked again: the end of the cooling, or the
	// next probe.
	Until time.Time `json:"until"`
	// Probes counts the attempts since it began to fail.
	Probes int `json:"probes"`
	// Guesses counts how often in a row it told us to wait and not how long.
	Guesses int `json:"guesses,omitempty"`
	// Superseded: another credential was good meanwhile, and that was said. It
	// goes on holding those back that still have this one.
	Superseded bool `json:"superseded,omitempty"`
	// LastEntry is the entry that the last probe carried.
	LastEntry string `json:"lastEntry,omitempty"`

	extra state.Extra
}

// The verdicts.
const (
	Failing = "failing" // refused for its own reasons, or gave no answer
	Cooling = "cooling" // told us to wait
)

// Standing reads a channel's standing, without a lock. nil means that nothing
// speaks against asking it; so does a file that cannot be read.
func (s *Store) Standing(a Asker) *Standing {
	h, err := s.readHealth()
	if err != nil {
		return nil
	}
	return h.standing(a)
}

// standing is what speaks against asking a channel: that it is paused, else its
// own last words.
func (h *health) standing(a Asker) *Standing {
	if p, ok := h.Paused[a.Channel]; ok && time.Now().Before(p.Until) {
		return p.standing()
	}
	if st, ok := h.Channels[a.Channel][h.hash(a.Credential)]; ok {
		return &st
	}
	return nil
}

// MayAsk decides whether a channel is asked now. One in good standing always
// is. Any other is asked once its time has come, by one process at a time: the
// slot is taken, durably, by moving its time on. st is the standing, if there
// is one. An error means that the slot could not be taken.
func (s *Store) MayAsk(ctx context.Context, a Asker) (ok bool, st *Standing, err error) {
	if st = s.Standing(a); st == nil {
		return true, nil, nil
	}
	if !st.mayProbe(a) {
		return false, st, nil
	}
	err = s.changeHealth(ctx, func(h *health) bool {
		if st = h.standing(a); st == nil {
			ok = true
			return false
		}
		now := *st
		st = &now
		if ok = now.mayProbe(a); !ok {
			return false
		}
		if now.Verdict == Failing { // having been told to wait raises no backoff
			now.Probes++
		}
		now.Until = time.Now().Add(max(s.probeDelay(now.Probes), a.Timeout)).UTC()
		h.Channels[a.Channel][h.hash(a.Credential)] = now
		return true
	})
	if err != nil {
		return false, st, fmt.Errorf("take the probe of %s: %w", a.Channel, err)
	}
	return ok, st, nil
}

// mayProbe reports whether the channel's time has come. No rule sets a time
// further ahead than the limits here: one that is was written by a clock that
// was wrong, and nobody waits for a year because of it.
func (st *Standing) mayProbe(a Asker) bool {
	if st.Verdict == Paused || a.Publishing && st.Reason == channels.ReasonUnknown {
		return false
	}
	limit := max(MaxProbe, a.Timeout)
	if st.Verdict == Cooling {
		limit = max(MaxCooling, a.Timeout)
	}
	wait := time.Until(st.Until)
	return wait <= 0 || wait > limit+time.Minute
}

// probeDelay doubles from Options.Probe to MaxProbe.
func (s *Store) probeDelay(probes int) time.Duration {
	d := s.opts.Probe
	for range min(probes, 32) {
		d = min(2*d, MaxProbe)
	}
	return min(d, MaxProbe)
}

// Observe keeps a channel's standing up with what an attempt showed. It writes
// only when the standing changed, and logs a change once.
func (s *Store) Observe(ctx context.Context, a Asker, entryID string, o channels.Outcome) error {
	good := o.State == channels.StateAccepted ||
		o.State == channels.StateRefused && !o.Reason.Standing() && o.Reason != channels.ReasonRate
	if known, err := s.readHealth(); good && err == nil && !known.news(a) {
		return nil
	}
	return s.changeHealth(ctx, func(h *health) bool {
		key := h.hash(a.Credential)
		old, had := h.Channels[a.Channel][key]
		if good {
			return s.recovered(ctx, h, a.Channel, key)
		}
		st := s.worse(old, had, entryID, o)
		if !had || old.Verdict != st.Verdict || old.Code != st.Code {
			_ = s.opts.Log.Failing(ctx, a.Channel, string(st.Reason), st.Code)
		}
		h.Channels[a.Channel] = onlyFresh(h.Channels[a.Channel])
		h.Channels[a.Channel][key] = st
		return true
	})
}

// news reports whether a good outcome changes anything.
func (h *health) news(a Asker) bool {
	for key, st := range h.Channels[a.Channel] {
		if key == h.hash(a.Credential) || !st.Superseded {
			return true
		}
	}
	return false
}

// recovered takes note that a channel is good under a credential, and says so
// once. What it refused under others, a token that was rotated for one, stands
// for whoever still has those.
func (s *Store) recovered(ctx context.Context, h *health, channel, good string) (dirty bool) {
	attempts, since := 0, time.Time{}
	for key, st := range h.Channels[channel] {
		if key != good && st.Superseded {
			continue
		}
		if attempts += st.Probes; since.IsZero() || st.Since.Before(since) {
			since = st.Since
		}
		if st.Superseded = true; key == good {
			delete(h.Channels[channel], key)
		} else {
			h.Channels[channel][key] = st
		}
		dirty = true
	}
	if dirty {
		_ = s.opts.Log.Recovered(ctx, channel, attempts, time.Since(since))
	}
	return dirty
}

// worse is the standing after an attempt that the channel did not answer well.
func (s *Store) worse(old Standing, had bool, entryID string, o channels.Outcome) Standing {
	st := Standing{Since: o.At.UTC(), extra: old.extra}
	if had {
		st.Since, st.Probes, st.Superseded = old.Since, old.Probes, old.Superseded
	}
	st.Reason, st.Code, st.Detail, st.LastEntry = o.Reason, o.Code, o.Detail, entryID
	if o.Reason == channels.ReasonRate {
		st.Verdict = Cooling
		wait := o.RetryAfter
		if o.Guessed {
			for range min(old.Guesses, 16) {
				wait = min(2*wait, MaxCooling)
			}
			st.Guesses = old.Guesses + 1
		}
		st.Until = o.At.Add(min(wait, MaxCooling)).UTC()
		return st
	}
	st.Verdict = Failing
	st.Until = o.At.Add(s.probeDelay(st.Probes)).UTC()
	return st
}

// onlyFresh forgets credentials that were last heard of long ago: rotated
// tokens would otherwise stay for ever.
func onlyFresh(m map[string]Standing) map[string]Standing {
	out := map[string]Standing{}
	for key, st := range m {
		if time.Since(st.Until) < 24*time.Hour {
			out[key] = st
		}
	}
	return out
}

// Release lets failing channels be probed at once: after a command, a start, a
// sleep. A channel that told us to wait is waited for all the same. No names
// mean all channels.
func (s *Store) Release(ctx context.Context, names ...string) error {
	h, err := s.readHealth()
	if err == nil && len(h.Channels) == 0 {
		return nil
	}
	return s.changeHealth(ctx, func(h *health) (dirty bool) {
		for _, name := range names {
			dirty = h.release(name) || dirty
		}
		if len(names) == 0 {
			for name := range h.Channels {
				dirty = h.release(name) || dirty
			}
		}
		return dirty
	})
}

func (h *health) release(name string) (dirty bool) {
	for key, st := range h.Channels[name] {
		if st.Verdict == Failing && st.Until.After(time.Now()) {
			st.Until, dirty = time.Now().UTC(), true
			h.Channels[name][key] = st
		}
	}
	return dirty
}
