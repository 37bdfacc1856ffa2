package main

import (
	"fmt"
	"strconv"
	"time"
)

const (
	rememberTimes = 50
	// rememberFor bounds how long one size is measured, for a program that writes
	// all of a big outbox each time.
	rememberFor = 10 * time.Second
)

func growthRows() []row {
	var rows []row
	for _, n := range []int{1_000, 10_000, 100_000} {
		rows = append(rows, row{
			name: fmt.Sprintf("one more event beside %s entries", thousands(n)), limit: 2, what: "the same beside 100",
			measure: func(b *bench) (figures, error) { return b.growth(n) },
		})
	}
	status := &shared[process]{take: func(b *bench) (process, error) { return b.statusBeside(100_000) }}
	return append(rows,
		row{
			name: "status, 100,000 entries", limit: 1, what: "at most",
			measure: status.by(func(p process) figures { return compared(p.took, 60*time.Millisecond) }),
		},
		row{
			name: "status, 100,000 entries, memory", limit: 1, what: "at most",
			measure: status.by(func(p process) figures { return megabytes(p.rss, 30) }),
		})
}

func thousands(n int) string { return strconv.Itoa(n/1000) + ",000" }

func megabytes(n int64, most float64) figures {
	mb := float64(n) / 1e6
	return figures{fmt.Sprintf("%.1f MB", mb), fmt.Sprintf("%g MB", most), mb / most}
}

// remembering gives what one more event costs beside n, amortised.
func (b *bench) remembering(n int) (time.Duration, error) {
	dir, _, err := b.filled(n)
	if err != nil {
		return 0, err
	}
	bs, err := newBus(dir, to(refuser{}))
	if err != nil {
		return 0, err
	}
	defer bs.store.Close()
	if _, err := publish(b.ctx, bs); err != nil { // the outbox is the program's own from now on
		return 0, err
	}
	var all time.Duration
	var times time.Duration
	for times < rememberTimes && all < rememberFor {
		took, err := publish(b.ctx, bs)
		if err != nil {
			return 0, err
		}
		all += took
		times++
	}
	same, err := b.sameBytes(dir)
	if err != nil {
		return 0, err
	}
	whole, err := timed(func() error { return durably(b.dir, "floor", same) })
	b.cost.add(n, all/times, whole)
	return all / times, err
}

func (b *bench) growth(n int) (figures, error) {
	few, err := b.remembering(100)
	if err != nil {
		return figures{}, err
	}
	many, err := b.remembering(n)
	if err != nil {
		return figures{}, err
	}
	return compared(many, few), nil
}

// statusBeside runs status once on an outbox of n that the program itself wrote
// last.
func (b *bench) statusBeside(n int) (process, error) {
	dir, _, err := b.filled(n)
	if err != nil {
		return process{}, err
	}
	bs, err := newBus(dir, to(refuser{}))
	if err != nil {
		return process{}, err
	}
	defer bs.store.Close()
	if _, err := publish(b.ctx, bs); err != nil {
		return process{}, err
	}
	if err := bs.store.Close(); err != nil {
		return process{}, err
	}
	return b.peak(time.Minute, []string{"THE_LOOP_STATE=" + dir}, "the-loop", "status")
}
