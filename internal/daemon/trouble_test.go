package daemon

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestTroubleIsSaidWhenItIsNewOnceAnHourAndWhenItIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b bytes.Buffer
		logger := slog.New(slog.NewTextHandler(&b, nil))
		var tr trouble
		said := func(err error) int {
			b.Reset()
			tr.report(logger, "cycle failed", err)
			return strings.Count(b.String(), "\n")
		}
		full, other := errors.New("open .undelivered.json18: no space"), errors.New("no such folder")
		for i, step := range []struct {
			err  error
			wait time.Duration
			want int
		}{
			{nil, 0, 0},
			{full, 0, 1},
			{full, time.Minute, 0},
			{errors.New("open .undelivered.json90071: no space"), time.Minute, 0}, // another temporary name
			{other, time.Minute, 1},
			{full, time.Minute, 1},
			{full, 59 * time.Minute, 0},
			{full, 2 * time.Minute, 1},
			{nil, time.Minute, 1},
			{nil, time.Minute, 0},
			{full, time.Minute, 1},
		} {
			time.Sleep(step.wait)
			if got := said(step.err); got != step.want {
				t.Errorf("step %d: %d lines, want %d", i, got, step.want)
			}
		}
	})
}
