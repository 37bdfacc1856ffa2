package bus

import (
	"context"
	"fmt"
	"time"

	"the-loop/channels"
	"the-loop/outbox"
)

// DefaultTimeout is how long one attempt at one channel may take.
const DefaultTimeout = 10 * time.Second

// Route is a channel as it is configured: what it is owed, and how it is asked.
type Route struct {
	Channel   channels.Channel
	Subscribe []channels.Pattern
	// Required: an acceptance by another channel does not settle this one.
	Required bool
	// Timeout bounds one attempt. Defaults to DefaultTimeout.
	Timeout time.Duration
	// Rate is how many messages a second the processes of one root send at
	// most, 0 for no limit.
	Rate float64
	// SendAgain: proof that a send never arrived, and only that, makes the one
	// second attempt by itself. Without it a person does.
	SendAgain bool
}

// Owes reports whether the channel is owed an event: it subscribes to the type,
// can carry the event, and is not where it came from.
func (r Route) Owes(ev channels.Event) bool {
	if ev.Source == r.Channel.Name() {
		return false
	}
	if c, ok := r.Channel.(channels.Selective); ok && !c.Carries(ev) {
		return false
	}
	for _, p := range r.Subscribe {
		if p.Match(ev.Type) {
			return true
		}
	}
	return false
}

// Asker is the route as the outbox's standing knows it.
func (r Route) Asker() outbox.Asker {
	a := outbox.Asker{Channel: r.Channel.Name(), Timeout: r.timeout()}
	if c, ok := r.Channel.(channels.Credentialed); ok {
		a.Credential = c.Credential()
	}
	return a
}

// Lane is the route as the outbox knows it.
func (r Route) Lane() outbox.Lane {
	l := outbox.Lane{Channel: r.Channel.Name(), Required: r.Required, Owes: r.Owes}
	if c, ok := r.Channel.(channels.Idempotent); ok {
		l.DropsRepeats = c.DropsRepeats()
	}
	_, l.Witness = r.Channel.(channels.Witness)
	return l
}

// Apart is the time between two sends that the rate asks for.
func (r Route) Apart() time.Duration {
	if r.Rate <= 0 {
		return 0
	}
	return time.Duration(float64(time.Second) / r.Rate)
}

func (r Route) timeout() time.Duration {
	if r.Timeout > 0 {
		return r.Timeout
	}
	return DefaultTimeout
}

// Attempt is the one try that Publish and the drain both make: it asks the
// channel to post, under the route's timeout, and turns whatever comes of it
// into an Outcome. A channel that panics leaves the outcome unknown.
func Attempt(ctx context.Context, r Route, d channels.Delivery) (o channels.Outcome) {
	defer func() {
		if p := recover(); p != nil { // nobody knows how far it got
			o = channels.OutcomeOf(channels.Receipt{}, &channels.Uncertain{Code: "panic"})
		}
	}()
	cause := fmt.Errorf("no answer from %s within %s", r.Channel.Name(), r.timeout())
	ctx, cancel := context.WithTimeoutCause(ctx, r.timeout(), cause)
	defer cancel()
	return channels.OutcomeOf(r.Channel.Post(ctx, d))
}
