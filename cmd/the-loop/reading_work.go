package main

import (
	"context"
	"errors"
	"sync"
	"time"

	"the-loop/channels/slack"
	"the-loop/internal/questions"
)

const (
	// housework is how often old debts are looked for, and what failed is tried
	// again.
	housework = 15 * time.Second
	// expiryLook is how often it is looked whether a question's time is over.
	expiryLook = time.Second
	// heldOpen is for how long a question stays open after its time because what
	// may answer it cannot be read.
	heldOpen = 24 * time.Hour
	// onItsWay is how long a press may be on its way to us: it cannot be read.
	onItsWay = 2 * time.Second
	// introduceFor bounds asking Slack who our bot is.
	introduceFor = 10 * time.Second
	// payFor is how long a command that ends pays what is owed.
	payFor = 5 * time.Second
)

// work settles whenever something is owed, closes what has expired, and does the
// housework. Where it lasts, what is owed when ctx ends is paid before it
// returns.
func (r *replies) work(ctx context.Context) {
	defer r.pipeline.Close()
	var beside sync.WaitGroup
	defer beside.Wait()
	beside.Go(func() { r.expireAll(ctx) })
	for _, c := range r.d.rooms() {
		beside.Go(func() { introduce(ctx, c) })
	}
	paying, end := r.paying(ctx)
	defer end()
	tick := time.NewTicker(housework)
	defer tick.Stop()
	for {
		r.settle(paying)
		select {
		case <-ctx.Done():
			r.settle(paying)
			return
		case <-r.pipeline.Owes():
		case <-tick.C:
		}
	}
}

// paying gives the context under which is paid: it ends with ctx or, where the
// work lasts, payFor later.
func (r *replies) paying(ctx context.Context) (paying context.Context, end func()) {
	if r.lasting == nil {
		return ctx, func() {}
	}
	paying, cancel := context.WithCancelCause(r.lasting)
	stop := context.AfterFunc(ctx, func() {
		late := time.NewTimer(payFor)
		defer late.Stop()
		select {
		case <-paying.Done():
		case <-late.C:
			cancel(errors.New(payFor.String() + " have passed"))
		}
	})
	return paying, func() {
		stop()
		cancel(nil)
	}
}

// settle pays what is owed.
func (r *replies) settle(ctx context.Context) {
	if ctx.Err() != nil {
		return
	}
	if _, err := r.settler.Settle(ctx); err != nil && ctx.Err() == nil {
		r.d.logger.WarnContext(ctx, "what became of replies is not shown yet", "error", err)
	}
}

// introduce asks Slack who our bot is, until it is known. That makes its markers
// worth something. Without it they are not counted, and everything that a bot
// wrote is dropped all the same.
func introduce(ctx context.Context, c *slack.Channel) {
	tick := time.NewTicker(housework)
	defer tick.Stop()
	for {
		limited, cancel := context.WithTimeoutCause(ctx, introduceFor, errors.New(introduceFor.String()+" have passed"))
		err := c.Introduce(limited)
		cancel()
		if err == nil {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// expireAll closes questions whose time is over, until ctx ends.
func (r *replies) expireAll(ctx context.Context) {
	tick := time.NewTicker(expiryLook)
	defer tick.Stop()
	e := expiry{r: r}
	for {
		e.look(ctx, time.Now())
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// expiry closes questions whose time is over, once everything has been read in
// which somebody may have answered them in time.
type expiry struct {
	r      *replies
	read   time.Time // when it was asked to be read
	until  time.Time // the latest end of a question for which it was
	failed time.Time
}

func (e *expiry) look(ctx context.Context, now time.Time) {
	if d := now.Sub(e.failed); d >= 0 && d < housework {
		return
	}
	all, _ := e.r.pipeline.Questions() // what cannot be read is named where questions are listed
	may := map[string]bool{}
	var unread time.Time
	for _, q := range all {
		switch {
		case q.State != questions.StateOpen || !q.PastAt(now.Add(-onItsWay)):
		case now.Sub(q.ExpiresAt) > heldOpen || e.r.reader.ReadSince(q.WorkItem, q.ExpiresAt):
			may[q.ID] = true
		case q.ExpiresAt.After(unread):
			unread = q.ExpiresAt
		}
	}
	if len(may) > 0 {
		e.close(ctx, now, may)
	}
	if !unread.IsZero() && (unread.After(e.until) || now.Sub(e.read) >= housework) {
		e.read, e.until = now, unread
		e.r.reader.Wake()
	}
}

func (e *expiry) close(ctx context.Context, now time.Time, may map[string]bool) {
	expired, err := e.r.pipeline.Expire(ctx, now, func(q questions.Question) bool { return may[q.ID] })
	for _, q := range expired {
		_ = e.r.d.log.Expired(ctx, subjectOf(q))
	}
	if err != nil && ctx.Err() == nil {
		e.failed = now
		e.r.d.logger.WarnContext(ctx, "not all questions could be closed whose time is over", "error", err)
	}
}
