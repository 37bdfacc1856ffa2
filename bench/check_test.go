package main

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

// fake is a row whose ratios are given: the last one for ever.
func fake(limit float64, least bool, ratios ...float64) (r row, taken *int) {
	taken = new(int)
	return row{name: "a row", limit: limit, least: least, measure: func(*bench) (figures, error) {
		f := figures{ratio: ratios[min(*taken, len(ratios)-1)]}
		*taken++
		return f, nil
	}}, taken
}

func testBench(t *testing.T, runs int, slow string) *bench {
	t.Helper()
	s, err := parseSlowdown(slow)
	if err != nil {
		t.Fatal(err)
	}
	return &bench{ctx: t.Context(), dir: t.TempDir(), runs: runs, slow: s}
}

func TestVerdictIsOfTheMedian(t *testing.T) {
	for _, tc := range []struct {
		limit  float64
		least  bool
		ratios []float64
		ok     bool
	}{
		{1.5, false, []float64{1.1, 9, 1.2, 1.5, 9}, true},
		{1.5, false, []float64{1.1, 9, 1.2, 1.51, 9}, false},
		{0.6, true, []float64{0.1, 0.6, 0.7, 0.1, 0.9}, true},
		{0.6, true, []float64{0.1, 0.59, 0.7, 0.1, 0.9}, false},
	} {
		r, _ := fake(tc.limit, tc.least, tc.ratios...)
		if l := testBench(t, 5, "").measure(r, 1); l.within() != tc.ok {
			t.Errorf("%v, limit %s: %s", tc.ratios, l.limitText(), l.verdict())
		}
	}
}

// A busy machine is slow in one try.
func TestCheckIsGreenWhenATryIsSlow(t *testing.T) {
	r, taken := fake(1.5, false, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 1.2)
	if l := testBench(t, 5, "").measure(r, checkTries); !l.within() || *taken != 15 {
		t.Errorf("%s after %d", l.verdict(), *taken)
	}
}

// A program that became twice as slow is slow in all of them.
func TestCheckIsRedOnADoubledCost(t *testing.T) {
	for _, tc := range []struct {
		limit, ratio float64
		least        bool
	}{{1.5, 1.1, false}, {2, 1.2, false}, {0.6, 0.8, true}, {10, 15, true}} {
		r, taken := fake(tc.limit, tc.least, tc.ratio)
		if l := testBench(t, 5, "").measure(r, checkTries); !l.within() || *taken != 5 {
			t.Errorf("%v: %s after %d", tc, l.verdict(), *taken)
		}
		r, taken = fake(tc.limit, tc.least, tc.ratio)
		l := testBench(t, 5, "^a row$=2").measure(r, checkTries)
		if l.within() || *taken != 5*checkTries || over([]line{l}) != 1 {
			t.Errorf("%v doubled: %s after %d", tc, l.verdict(), *taken)
		}
		if l := testBench(t, 5, "another=2").measure(r, checkTries); !l.within() {
			t.Errorf("%v while another is doubled: %s", tc, l.verdict())
		}
	}
}

func TestWhatTheMachineLacksBreaksNoLimit(t *testing.T) {
	r := row{name: "a row", limit: 1, measure: func(*bench) (figures, error) {
		return figures{}, fmt.Errorf("look: %w", missing{"there is no apprise here"})
	}}
	l := testBench(t, 5, "").measure(r, checkTries)
	if over([]line{l}) != 0 || !strings.Contains(l.verdict(), "no apprise") {
		t.Error(l.verdict())
	}
}

// Else a change that breaks a row would turn the check green.
func TestWhatFailsIsOver(t *testing.T) {
	r := row{name: "a row", limit: 1, measure: func(*bench) (figures, error) {
		return figures{}, errors.New("exit status 2")
	}}
	l := testBench(t, 5, "").measure(r, checkTries)
	if over([]line{l}) != 1 || !strings.Contains(l.verdict(), "exit status 2") {
		t.Error(l.verdict())
	}
}

func TestSlowdownIsARegexpAndAFactor(t *testing.T) {
	if s, err := parseSlowdown("a=b=2.5"); err != nil || s.rows.String() != "a=b" || s.factor != 2.5 {
		t.Error(s, err)
	}
	for _, text := range []string{"2", "a=", "a=x", "a=0", "a=-1", "(=2"} {
		if _, err := parseSlowdown(text); err == nil {
			t.Errorf("%q was taken", text)
		}
	}
}

// Each row looks at each measurement once, whoever took it.
func TestRowsShareMeasurements(t *testing.T) {
	taken := 0
	s := &shared[int]{take: func(*bench) (int, error) { taken++; return taken, nil }}
	show := func(n int) figures { return figures{ratio: float64(n)} }
	first, second := s.by(show), s.by(show)
	for _, tc := range []struct {
		measure func(*bench) (figures, error)
		want    float64
	}{{first, 1}, {first, 2}, {second, 1}, {second, 2}, {second, 3}, {first, 3}} {
		if f, err := tc.measure(nil); err != nil || f.ratio != tc.want {
			t.Fatal(f, err, tc.want)
		}
	}
	if taken != 3 {
		t.Error(taken)
	}
}
