package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"the-loop/bus"
	"the-loop/channels"
	"the-loop/channels/webhook"
)

func healthyRows() []row {
	return []row{
		{
			name: "publish to a webhook that accepts", limit: 1.5,
			what: "a small file written durably, and the HTTP exchange", measure: accepted,
		},
		{
			name: "fan-out to 10 channels of 20 ms", limit: 1.1, what: "the slowest of them alone",
			measure: fanOut,
		},
	}
}

func accepted(b *bench) (figures, error) {
	s, err := newSink(http.StatusOK, 0)
	if err != nil {
		return figures{}, err
	}
	defer s.close()
	dir, err := b.fresh()
	if err != nil {
		return figures{}, err
	}
	bs, err := newBus(dir, to(webhook.New(webhook.Options{Name: "hook", URL: s.url})))
	if err != nil {
		return figures{}, err
	}
	defer bs.store.Close()
	deliver := func() error {
		if res := bs.Publish(b.ctx, event()); res.Accepted() != 1 {
			return fmt.Errorf("not delivered: %+v", res)
		}
		return nil
	}
	body, err := json.Marshal(event())
	if err != nil {
		return figures{}, err
	}
	c := &http.Client{}
	defer c.CloseIdleConnections()
	bare := func() error {
		if err := smallFile(b.dir); err != nil {
			return err
		}
		return post(b.ctx, c, s.url, body)
	}
	if err := deliver(); err != nil { // its journal and its connection are there from now on
		return figures{}, err
	}
	if err := bare(); err != nil {
		return figures{}, err
	}
	return inTurn(50,
		func() (time.Duration, error) { return timed(deliver) },
		func() (time.Duration, error) { return timed(bare) })
}

// slowly takes a message after a while.
type slowly struct {
	name  string
	after time.Duration
}

func (s slowly) Name() string { return s.name }

func (s slowly) Post(ctx context.Context, _ channels.Delivery) (channels.Receipt, error) {
	t := time.NewTimer(s.after)
	defer t.Stop()
	select {
	case <-t.C:
		return channels.Receipt{Ref: "1"}, nil
	case <-ctx.Done():
		return channels.Receipt{}, context.Cause(ctx)
	}
}

func fanOut(b *bench) (figures, error) {
	const after = 20 * time.Millisecond
	dir, err := b.fresh()
	if err != nil {
		return figures{}, err
	}
	var routes []bus.Route
	for n := range 10 {
		routes = append(routes, to(slowly{fmt.Sprintf("slow%d", n), after}))
	}
	bs, err := newBus(dir, routes...)
	if err != nil {
		return figures{}, err
	}
	defer bs.store.Close()
	return inTurn(20,
		func() (time.Duration, error) {
			return timed(func() error {
				if res := bs.Publish(b.ctx, event()); res.Accepted() != 10 {
					return fmt.Errorf("not delivered: %+v", res)
				}
				return nil
			})
		},
		func() (time.Duration, error) {
			return timed(func() error {
				_, err := slowly{"alone", after}.Post(b.ctx, channels.Delivery{})
				return err
			})
		})
}
