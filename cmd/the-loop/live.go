package main

import (
	"context"
	"sync"
	"time"

	"the-loop/channels"
	"the-loop/channels/slack"
	"the-loop/state"
)

// live is the socket of one Slack app. Of all processes of a root one listens.
type live struct {
	r     *replies
	name  string
	url   string
	token channels.Secret
	rooms []*slack.Channel

	mu     sync.Mutex
	socket *slack.Socket // nil: another process listens
}

// readInsteadEvery is how often is read while the socket is not connected.
const readInsteadEvery = 5 * time.Second

// roleAgain is how often is looked whether the socket's role is free.
const roleAgain = 3 * time.Second

func (l *live) run(ctx context.Context) {
	role := l.r.d.root.Role(state.SocketRole(l.name))
	tick := time.NewTicker(roleAgain)
	defer tick.Stop()
	for {
		release, held, err := role.Take(signed(l.r.who))
		if err == nil && held {
			l.listen(ctx)
			release()
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

func (l *live) listen(ctx context.Context) {
	var caught sync.WaitGroup
	defer caught.Wait()
	s := slack.NewSocket(slack.SocketOptions{AppToken: l.token, APIURL: l.url, Rooms: l.rooms, Log: l.r.d.logger})
	l.set(s)
	defer l.set(nil)
	caught.Go(func() { l.readInstead(ctx, s) })
	s.Run(ctx, func(ctx context.Context, a channels.Arrival) error {
		return l.r.pipeline.Take(ctx, a.Messages...)
	}, func() { caught.Go(func() { l.r.catchUpOnce(ctx) }) })
}

// readInstead reads the threads with open questions while there is no connection.
func (l *live) readInstead(ctx context.Context, s *slack.Socket) {
	tick := time.NewTicker(readInsteadEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if !s.State().Connected {
			l.r.reader.Wake()
		}
	}
}

func (l *live) set(s *slack.Socket) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.socket = s
}

func (l *live) state() (slack.SocketState, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.socket == nil {
		return slack.SocketState{}, false
	}
	return l.socket.State(), true
}

// loop makes a daemon.Runner of a function that returns when its context ends.
type loop struct {
	run    func(ctx context.Context)
	cancel context.CancelFunc
	done   chan struct{}
}

func (l *loop) Start(ctx context.Context) {
	ctx, l.cancel = context.WithCancel(ctx)
	l.done = make(chan struct{})
	go func() {
		defer close(l.done)
		l.run(ctx)
	}()
}

func (l *loop) Stop() {
	if l.done == nil {
		return
	}
	l.cancel()
	<-l.done
}
