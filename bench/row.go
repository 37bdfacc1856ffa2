package main

import (
	"fmt"
	"slices"
	"time"
)

// row is one figure with its limit.
type row struct {
	name string
	what string // what the ratio is of what
	// limit is the most that the ratio may be or, with least, the least.
	limit   float64
	least   bool
	measure func(b *bench) (figures, error)
}

// figures are what one run of a row gave, in the row's own words, and the ratio.
type figures struct {
	ours, floor string
	ratio       float64
}

// rows are all of them, in the order of the table.
func rows() []row {
	return slices.Concat(publishRows(), growthRows(), healthyRows(), drainRows(), startRows(),
		otherRows(), jetStreamRows())
}

// shared are measurements that several rows show something of.
type shared[T any] struct {
	take func(b *bench) (T, error)
	all  []T
}

// by gives a measure that looks at each measurement once, and takes one more when
// it has seen all that there are.
func (s *shared[T]) by(show func(T) figures) func(b *bench) (figures, error) {
	seen := 0
	return func(b *bench) (figures, error) {
		if seen == len(s.all) {
			v, err := s.take(b)
			if err != nil {
				return figures{}, err
			}
			s.all = append(s.all, v)
		}
		seen++
		return show(s.all[seen-1]), nil
	}
}

// inTurn measures two things n times, one after the other, and gives the medians
// and the median of the ratios of each pair.
func inTurn(n int, ours, floor func() (time.Duration, error)) (figures, error) {
	var a, b []time.Duration
	var ratios []float64
	for range n {
		x, err := ours()
		if err != nil {
			return figures{}, err
		}
		y, err := floor()
		if err != nil {
			return figures{}, err
		}
		a, b, ratios = append(a, x), append(b, y), append(ratios, float64(x)/float64(y))
	}
	return figures{span(median(a)), span(median(b)), median(ratios)}, nil
}

// compared are figures of two durations.
func compared(ours, floor time.Duration) figures {
	return figures{span(ours), span(floor), float64(ours) / float64(floor)}
}

func median[T int64 | float64 | time.Duration](list []T) T {
	list = slices.Clone(list)
	slices.Sort(list)
	return list[len(list)/2]
}

// span is a duration in three digits.
func span(d time.Duration) string {
	switch ms := float64(d) / 1e6; {
	case ms >= 100:
		return fmt.Sprintf("%.0f ms", ms)
	case ms >= 10:
		return fmt.Sprintf("%.1f ms", ms)
	case ms >= 1:
		return fmt.Sprintf("%.2f ms", ms)
	default:
		return fmt.Sprintf("%.0f µs", ms*1000)
	}
}

// timed says how long do took.
func timed(do func() error) (time.Duration, error) {
	began := time.Now()
	err := do()
	return time.Since(began), err
}
