package main

import (
	"cmp"
	"errors"
	"maps"
	"os"
	"slices"
	"time"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/plotutil"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// points is what remembering one more event cost, by how many there were.
type points struct{ ours, whole map[int][]time.Duration }

func (p *points) add(n int, ours, whole time.Duration) {
	if p.ours == nil {
		p.ours, p.whole = map[int][]time.Duration{}, map[int][]time.Duration{}
	}
	p.ours[n], p.whole[n] = append(p.ours[n], ours), append(p.whole[n], whole)
}

// series gives the median in milliseconds of each size.
func series(of map[int][]time.Duration) (xys plotter.XYs) {
	for _, n := range slices.SortedFunc(maps.Keys(of), cmp.Compare) {
		xys = append(xys, plotter.XY{X: float64(n), Y: median(of[n]).Seconds() * 1000})
	}
	return xys
}

// draw writes the plot of the cost per remember against the size of the backlog.
func (p *points) draw(path string) error {
	if len(p.ours) < 2 {
		return errors.New("no plot without the rows about one more event")
	}
	pl := plot.New()
	pl.Title.Text = "To remember one more event"
	pl.X.Label.Text, pl.Y.Label.Text = "entries in the outbox", "milliseconds"
	pl.X.Scale, pl.Y.Scale = plot.LogScale{}, plot.LogScale{}
	pl.X.Tick.Marker, pl.Y.Tick.Marker = plot.LogTicks{Prec: -1}, plot.LogTicks{Prec: -1}
	pl.Legend.Top, pl.Legend.Left = true, true
	pl.Add(plotter.NewGrid())
	err := plotutil.AddLinePoints(pl, "the-loop", series(p.ours), "the whole outbox written durably", series(p.whole))
	if err != nil {
		return err
	}
	const width, height = 16 * vg.Centimeter, 10 * vg.Centimeter
	c := vgsvg.New(width, height)
	pl.Draw(draw.New(c))
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	_, err = c.WriteTo(f)
	return errors.Join(err, f.Close())
}
