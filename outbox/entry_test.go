package outbox

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"the-loop/channels"
)

func TestBackoffIsBoundedAndDoubles(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := Backoff{
			Base: time.Duration(rapid.Int64Range(1, math.MaxInt64).Draw(t, "base")),
			Max:  time.Duration(rapid.Int64Range(1, math.MaxInt64).Draw(t, "max")),
		}
		n := rapid.OneOf(rapid.IntRange(-5, 70), rapid.IntRange(0, 1<<30)).Draw(t, "n")
		seed := rapid.String().Draw(t, "seed")
		got := b.Wait(n, seed)
		if got != b.Wait(n, seed) {
			t.Fatal("the same question got two answers")
		}
		if n <= 0 {
			if got != 0 {
				t.Fatalf("%v before the first refusal", got)
			}
			return
		}
		// min(base*2^(n-1), max) ±10 %, worked out in floating point.
		want := math.Min(float64(b.Base)*math.Pow(2, float64(n-1)), float64(b.Max))
		want = math.Min(want, math.MaxInt64/2)
		if f := float64(got); got < 0 || f < want*0.899-2 || f > want*1.101+2 {
			t.Fatalf("%v, want %v ±10 %%", got, time.Duration(want))
		}
	})
}

func TestBackoffACapIsACap(t *testing.T) {
	b := Backoff{Base: time.Minute, Max: time.Hour}
	for n := 1; n <= 100; n++ {
		low := min(time.Minute<<min(n-1, 20), time.Hour) * 9 / 10
		if got := b.Wait(n, "seed"); got < low || got > 66*time.Minute {
			t.Errorf("%v after refusal %d", got, n)
		}
	}
	if a, b := b.Wait(3, "one"), b.Wait(3, "another"); a == b {
		t.Error("entries that were refused together come back together")
	}
	for _, b := range []Backoff{{}, {Base: -1, Max: time.Hour}, {Base: time.Hour, Max: -1}} {
		if got := b.Wait(1<<30, ""); got < 0 || got > 66*time.Minute {
			t.Errorf("%v: %v", b, got)
		}
	}
}

type way = map[string]*Delivery

func is(s channels.State) *Delivery { return &Delivery{State: s} }

func entryWith(deliveries way) *Entry {
	return &Entry{ID: "A", At: t0, Deliveries: deliveries}
}

func TestOwed(t *testing.T) {
	const (
		pending, sending, took = channels.StatePending, channels.StateSending, channels.StateAccepted
		no, unknown, dead      = channels.StateRefused, channels.StateUncertain, channels.StateDead
	)
	part := []string{"1"}
	mustNot := &Delivery{State: no, Required: true}
	begun := &Delivery{State: no, Parts: part, Required: true}
	for name, c := range map[string]struct {
		deliveries way
		want       []string
	}{
		"none took it":                    {way{"a": is(no), "b": is(unknown)}, []string{"a", "b"}},
		"one took it":                     {way{"a": is(took), "b": is(no)}, nil},
		"beside an uncertain one":         {way{"a": is(took), "b": is(unknown)}, nil},
		"beside a held one":               {way{"a": is(took), "b": is(pending)}, nil},
		"beside a vanished one":           {way{"a": is(took), "b": is(dead)}, nil},
		"beside a claimed one":            {way{"a": is(took), "b": {State: pending, Claim: "c"}}, nil},
		"one in the air is waited for":    {way{"a": is(took), "b": is(sending)}, []string{"b"}},
		"required wants its own":          {way{"a": is(took), "b": {State: no, Required: true}}, []string{"b"}},
		"required settles no other":       {way{"a": {State: took, Required: true}, "b": is(no)}, []string{"b"}},
		"two required":                    {way{"a": {State: took, Required: true}, "b": mustNot}, []string{"b"}},
		"both took it":                    {way{"a": {State: took, Required: true}, "b": is(took)}, nil},
		"the rest of a split message":     {way{"a": {State: no, Parts: part}, "b": is(no)}, []string{"a"}},
		"the rest, where another took it": {way{"a": {State: unknown, Parts: part}, "b": is(took)}, []string{"a"}},
		"begun by a required one":         {way{"a": begun, "b": is(no)}, []string{"a", "b"}},
	} {
		if got := entryWith(c.deliveries).Owed(); !slices.Equal(got, c.want) {
			t.Errorf("%s: owed %v, want %v", name, got, c.want)
		}
	}
}

func TestNeedsPersonAndState(t *testing.T) {
	now := t0.Add(time.Hour)
	remembers := func(channel string) Lane {
		return map[string]Lane{"hook": {DropsRepeats: 2 * time.Hour}, "room": {Witness: true}}[channel]
	}
	const (
		pending, sending, refused = channels.StatePending, channels.StateSending, channels.StateRefused
		unknown, lost, dead       = channels.StateUncertain, channels.StateLost, channels.StateDead
	)
	for name, c := range map[string]struct {
		deliveries way
		needs      bool
		state      channels.State
	}{
		"not addressed":             {nil, false, pending},
		"pending":                   {way{"a": is(pending)}, false, pending},
		"refused":                   {way{"a": is(refused)}, false, refused},
		"sending":                   {way{"a": is(sending)}, false, sending},
		"uncertain":                 {way{"a": {State: unknown, FirstSentAt: t0}}, true, unknown},
		"repeats are dropped":       {way{"hook": {State: unknown, FirstSentAt: t0}}, false, unknown},
		"no more":                   {way{"hook": {State: unknown, FirstSentAt: t0.Add(-2 * time.Hour)}}, true, unknown},
		"sent nobody knows when":    {way{"hook": is(unknown)}, true, unknown},
		"can be looked up":          {way{"room": is(unknown)}, false, unknown},
		"cannot be judged":          {way{"room": {State: unknown, Unjudgeable: "missing_scope"}}, true, unknown},
		"dead":                      {way{"a": is(dead)}, true, dead},
		"lost":                      {way{"a": is(lost)}, true, lost},
		"dead beside a refused one": {way{"a": is(dead), "b": is(refused)}, false, refused},
		"dead and uncertain":        {way{"a": is(dead), "b": is(unknown)}, true, unknown},
		"settled ones do not count": {way{
			"a": is(channels.StateAccepted), "b": is(pending), "c": {State: dead, Required: true},
		}, true, dead},
	} {
		e := entryWith(c.deliveries)
		if got := e.NeedsPerson(now, remembers); got != c.needs {
			t.Errorf("%s: needs a person: %v", name, got)
		}
		if got := e.State(); got != c.state {
			t.Errorf("%s: state %s, want %s", name, got, c.state)
		}
	}
}

func TestDueAt(t *testing.T) {
	b := Backoff{Base: time.Minute, Max: time.Hour}
	third := func(r channels.Reason) *Delivery {
		return &Delivery{State: channels.StateRefused, Reason: r, At: t0, Failures: 3}
	}
	for name, c := range map[string]struct {
		d        *Delivery
		min, max time.Duration
		ok       bool
	}{
		"pending":               {&Delivery{State: channels.StatePending, At: t0}, 0, 0, true},
		"refused":               {third(channels.ReasonOther), 216 * time.Second, 264 * time.Second, true},
		"the channel is down":   {third(channels.ReasonDown), 0, 0, true},
		"it told us to wait":    {third(channels.ReasonRate), 0, 0, true},
		"uncertain":             {&Delivery{State: channels.StateUncertain, At: t0}, 0, 0, false},
		"dead":                  {&Delivery{State: channels.StateDead, At: t0}, 0, 0, false},
		"sending":               {&Delivery{State: channels.StateSending, At: t0}, 0, 0, false},
		"accepted":              {&Delivery{State: channels.StateAccepted, At: t0}, 0, 0, false},
		"there is none of that": {nil, 0, 0, false},
	} {
		e := entryWith(way{})
		if c.d != nil {
			e.Deliveries["a"] = c.d
		}
		at, ok := e.DueAt("a", b)
		if wait := at.Sub(t0); ok != c.ok || ok && (wait < c.min || wait > c.max) {
			t.Errorf("%s: %v, %v", name, at.Sub(t0), ok)
		}
	}
}

// Every state can only become another by a row of the table.
func TestMovesAreTheOnlyWay(t *testing.T) {
	rows := map[string]bool{}
	for _, m := range Moves() {
		key := fmt.Sprintf("%s %s", m.From, m.To)
		if rows[key] || m.Why == "" || !slices.Contains(states(), m.From) || !slices.Contains(states(), m.To) {
			t.Errorf("row %+v", m)
		}
		rows[key] = true
	}
	for _, from := range states() {
		for _, to := range states() {
			d := is(from)
			err := d.move(to)
			switch allowed := rows[fmt.Sprintf("%s %s", from, to)]; {
			case allowed != (err == nil):
				t.Errorf("%s to %s: %v", from, to, err)
			case err != nil && d.State != from:
				t.Errorf("%s to %s is refused, and done", from, to)
			}
		}
	}
	if err := (&Delivery{State: channels.StateAccepted}).move(channels.StatePending); err == nil {
		t.Error("what was accepted can be sent again")
	}
	for _, from := range states() {
		if from != channels.StateAccepted && !rows[fmt.Sprintf("%s accepted", from)] {
			t.Errorf("an acceptance is a fact, and %s cannot become accepted", from)
		}
	}
}

// Nothing but move and the decoder sets a delivery's state.
func TestMovesAreTheOnlyAssignments(t *testing.T) {
	files, err := filepath.Glob("*.go")
	if err != nil || len(files) < 7 {
		t.Fatal(files, err)
	}
	found := map[string]int{}
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, decl := range file.Decls {
			f, ok := decl.(*ast.FuncDecl)
			if !ok {
				continue
			}
			ast.Inspect(f, func(n ast.Node) bool {
				if a, ok := n.(*ast.AssignStmt); ok {
					for _, left := range a.Lhs {
						if sel, ok := left.(*ast.SelectorExpr); ok && sel.Sel.Name == "State" {
							found[f.Name.Name]++
						}
					}
				}
				return true
			})
		}
	}
	if want := map[string]int{"move": 1, "decodeEntry": 2}; !maps.Equal(found, want) {
		t.Errorf("a delivery's state is assigned in %v, want %v", found, want)
	}
}
