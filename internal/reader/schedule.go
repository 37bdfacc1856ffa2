package reader

import (
	"slices"
	"time"
)

// maxStreak is how many places with an open question are read in a row while
// another place is due: they come first, and must not starve the others.
const maxStreak = 8

// openAtMost is how long a place with an open question is left alone at most
// because it fails.
const openAtMost = 30 * time.Second

// schedule says which place is read when.
type schedule struct {
	interval, urgent, most time.Duration
	retry, retryOpen       time.Duration // after a failure: the first wait
	places                 []*place      // in the source's order
	streak                 int
}

type place struct {
	ReadPlace
	open  bool // a question is
	due   time.Time
	tried time.Time     // zero: never
	quiet time.Duration // how long it was left alone last because nothing came; 0: it was not
	again time.Duration // the same because it failed
	err   error         // of the last read
}

// newSchedule gives the schedule of places that are read every interval, every
// urgent while a question is open there, and never more rarely than every most. A
// read that failed is made again at the reader's own pace, and then ever more
// rarely: what is only caught up with cannot wait until it is caught up with next.
func newSchedule(interval, urgent, most time.Duration, pace Options) schedule {
	return schedule{
		interval: interval, urgent: urgent, most: most,
		retry: min(pace.Interval, interval), retryOpen: min(pace.Urgent, interval),
	}
}

// take makes the schedule that of these places, and gives the keys of those
// that left. A new place is due at once, and so is one in which a question was
// opened.
func (s *schedule) take(list []ReadPlace, watched []Watched, now time.Time) (gone []string) {
	old := make(map[string]*place, len(s.places))
	for _, p := range s.places {
		old[p.Key] = p
	}
	var places []*place
	seen := make(map[string]bool, len(list))
	for _, l := range list {
		if seen[l.Key] {
			continue
		}
		seen[l.Key] = true
		p := old[l.Key]
		if p == nil {
			p = &place{due: now}
		}
		was := p.open
		p.ReadPlace = l
		p.open = slices.ContainsFunc(watched, func(w Watched) bool { return w.Open && l.Covers(w.WorkItem) })
		if p.open && !was {
			p.due = earlier(p.due, p.tried.Add(s.urgent))
		}
		places = append(places, p)
	}
	for _, p := range s.places {
		if !seen[p.Key] {
			gone = append(gone, p.Key)
		}
	}
	s.places = places
	return gone
}

// listed gives the places by their keys.
func (s *schedule) listed() map[string]ReadPlace {
	places := make(map[string]ReadPlace, len(s.places))
	for _, p := range s.places {
		places[p.Key] = p.ReadPlace
	}
	return places
}

// next gives the place to read now; with none, how long there is none to read.
func (s *schedule) next(now time.Time) (p *place, wait time.Duration) {
	isDue := func(p *place) bool { return !p.due.After(now) }
	p = s.first(isDue)
	if p == nil {
		wait = s.most
		for _, p := range s.places {
			wait = min(wait, p.due.Sub(now))
		}
		return nil, wait
	}
	if s.streak++; p.open && s.streak <= maxStreak {
		return p, 0
	}
	s.streak = 0
	if other := s.first(func(p *place) bool { return isDue(p) && !p.open }); other != nil {
		p = other
	}
	return p, 0
}

// first gives, of the places that match, one with an open question before any
// other, and of several the one whose last read is longest ago.
func (s *schedule) first(match func(p *place) bool) (best *place) {
	for _, p := range s.places {
		if match(p) && (best == nil || p.open && !best.open || p.open == best.open && p.tried.Before(best.tried)) {
			best = p
		}
	}
	return best
}

// answered settles a read that went well.
func (s *schedule) answered(p *place, came bool, now time.Time) {
	p.tried, p.err, p.again = now, nil, 0
	switch {
	case p.open:
		p.quiet = 0
		p.due = now.Add(s.urgent)
		return
	case came:
		p.quiet = s.interval
	default:
		p.quiet = s.longer(p.quiet, s.interval)
	}
	p.due = now.Add(p.quiet)
}

// failed settles one that did not.
func (s *schedule) failed(p *place, err error, now time.Time) {
	p.tried, p.err = now, err
	if p.open { // somebody waits
		p.again = min(s.longer(p.again, s.retryOpen), max(openAtMost, s.retryOpen))
	} else {
		p.again = s.longer(p.again, s.retry)
	}
	p.due = now.Add(p.again)
}

// told settles one at which the provider told us to wait, which is no failure of
// the place's.
func (s *schedule) told(p *place, until time.Time, err error, now time.Time) {
	p.tried, p.err, p.due = now, err, until
}

func (s *schedule) longer(d, first time.Duration) time.Duration {
	if d == 0 {
		return first
	}
	return min(2*d, s.most)
}

func (s *schedule) allDue(now time.Time) {
	for _, p := range s.places {
		p.due = earlier(p.due, now)
	}
}

// openDue makes the places with an open question due, but those that fail.
func (s *schedule) openDue(now time.Time) {
	for _, p := range s.places {
		if p.open && p.err == nil {
			p.due = earlier(p.due, now)
		}
	}
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}
