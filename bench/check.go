package main

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// checkTries is how often a row may be measured before it counts as over: a busy
// machine is slow once, and a slow program always.
const checkTries = 3

// line is a row that was measured, or could not be.
type line struct {
	row
	figures
	spread [2]float64 // the least and the greatest ratio of the runs
	absent string     // what the machine lacks for it
	failed string     // what went wrong when it was measured
}

// missing says that the machine lacks what a row needs. Any other error of a row
// is a failure: what cannot be measured any more is not within its limit.
type missing struct{ what string }

func (m missing) Error() string { return m.what }

// within reports whether the row keeps its limit. What the machine lacks breaks
// none.
func (l line) within() bool {
	switch {
	case l.absent != "":
		return true
	case l.failed != "":
		return false
	case l.least:
		return l.ratio >= l.limit
	}
	return l.ratio <= l.limit
}

func (l line) verdict() string {
	switch {
	case l.absent != "":
		return "not measured: " + l.absent
	case l.failed != "":
		return "failed: " + l.failed
	case l.within():
		return "ok"
	}
	return "over"
}

// measured reports whether there are figures.
func (l line) measured() bool { return l.absent == "" && l.failed == "" }

func over(lines []line) (n int) {
	for _, l := range lines {
		if !l.within() {
			n++
		}
	}
	return n
}

// slowdown makes our own side of some rows look slower than it is, to see a check
// go red.
type slowdown struct {
	rows   *regexp.Regexp
	factor float64
}

// parseSlowdown reads REGEXP=FACTOR. No text slows nothing down.
func parseSlowdown(text string) (s slowdown, err error) {
	if text == "" {
		return s, nil
	}
	at := strings.LastIndexByte(text, '=')
	if at < 0 {
		return s, fmt.Errorf("%q: want REGEXP=FACTOR", text)
	}
	if s.factor, err = strconv.ParseFloat(text[at+1:], 64); err != nil {
		return s, err
	}
	if s.factor <= 0 {
		return s, fmt.Errorf("%q: a factor is above 0", text)
	}
	s.rows, err = regexp.Compile(text[:at])
	return s, err
}

// of gives the ratio as it would be with our side slowed down.
func (s slowdown) of(r row, ratio float64) float64 {
	switch {
	case s.rows == nil || !s.rows.MatchString(r.name):
		return ratio
	case r.least:
		return ratio / s.factor
	}
	return ratio * s.factor
}

// measure takes the row's figures so often, and gives the run with the median
// ratio. One that is over its limit is tried again.
func (b *bench) measure(r row, tries int) (l line) {
	for range tries {
		var all []figures
		for range b.runs {
			f, err := r.measure(b)
			b.clear()
			var lack missing
			switch {
			case errors.As(err, &lack):
				return line{row: r, absent: lack.Error()}
			case err != nil:
				return line{row: r, failed: err.Error()}
			}
			f.ratio = b.slow.of(r, f.ratio)
			all = append(all, f)
		}
		if l = judge(r, all); l.within() || b.ctx.Err() != nil {
			break
		}
	}
	return l
}

// judge gives the run with the median ratio for all of them.
func judge(r row, all []figures) line {
	all = slices.Clone(all)
	slices.SortFunc(all, func(x, y figures) int { return cmp.Compare(x.ratio, y.ratio) })
	return line{row: r, figures: all[len(all)/2], spread: [2]float64{all[0].ratio, all[len(all)-1].ratio}}
}
