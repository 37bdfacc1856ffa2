package drain_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"the-loop/bus"
	"the-loop/channels"
	"the-loop/outbox"
)

// look is what a witness says.
type look func(ctx context.Context, d channels.Delivery) (channels.Sighting, error)

func complete(context.Context, channels.Delivery) (channels.Sighting, error) {
	return channels.Sighting{Complete: true}, nil
}

func partial(context.Context, channels.Delivery) (channels.Sighting, error) {
	return channels.Sighting{}, nil
}

func found(refs ...string) look {
	return func(context.Context, channels.Delivery) (channels.Sighting, error) {
		return channels.Sighting{Found: refs, Whole: true}, nil
	}
}

func parts(refs ...string) look {
	return func(context.Context, channels.Delivery) (channels.Sighting, error) {
		return channels.Sighting{Found: refs, Complete: true}, nil
	}
}

func fails(err error) look {
	return func(context.Context, channels.Delivery) (channels.Sighting, error) {
		return channels.Sighting{}, err
	}
}

// witness is a fake that can look up.
type witness struct {
	*fake
	mu     sync.Mutex
	sees   look
	looks  []time.Time
	since  []time.Time
	lookID []string
}

func newWitness(s say, l look) *witness { return &witness{fake: newFake("slack", s), sees: l} }

func (w *witness) Look(ctx context.Context, d channels.Delivery, since time.Time) (channels.Sighting, error) {
	w.mu.Lock()
	w.looks, w.since, w.lookID = append(w.looks, time.Now()), append(w.since, since), append(w.lookID, d.Event.ID)
	sees := w.sees
	w.mu.Unlock()
	return sees(ctx, d)
}

func (w *witness) nowSees(l look) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.sees = l
}

func (w *witness) looked() []time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.looks)
}

func auto(c channels.Channel) bus.Route {
	r := route(c)
	r.SendAgain = true
	return r
}

// doubt leaves one send without an answer: a publish's.
func (s *site) doubt(t *testing.T) string {
	t.Helper()
	res := s.bus().Publish(t.Context(), channels.Event{
		Type: "session.awaiting_input", WorkItem: "local:work#1", Text: "A or B?",
	})
	if !res.Queued || len(res.Posts) != 1 || res.Posts[0].State != channels.StateUncertain {
		t.Fatalf("%+v", res)
	}
	return res.ID
}

func (s *site) told(t *testing.T, id string) outbox.Left {
	t.Helper()
	l, ok, err := s.store.Left(id)
	if err != nil || !ok {
		t.Fatalf("nothing is told of %s: %v", id, err)
	}
	return l
}
