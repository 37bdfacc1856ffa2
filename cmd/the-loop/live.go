package main

import (
	"context"
	"sync"
	"time"

	"the-loop/channels"
	"the-loop/channels/slack"
)

// live is the socket of one Slack app. Who reads for the root listens, too.
type live struct {
	r     *replies
	name  string
	url   string
	token channels.Secret
	rooms []*slack.Channel

	mu     sync.Mutex
	socket *slack.Socket // nil: we do not listen
}

// readInsteadEvery is how often is read while the socket is not connected.
const readInsteadEvery = 5 * time.Second

// listen listens until ctx ends. The reader runs beside it.
func (l *live) listen(ctx context.Context) {
	var caught sync.WaitGroup
	defer caught.Wait()
	s := slack.NewSocket(slack.SocketOptions{AppToken: l.token, APIURL: l.url, Rooms: l.rooms, Log: l.r.d.logger})
	l.set(s)
	defer l.set(nil)
	caught.Go(func() { l.readInstead(ctx, s) })
	s.Run(ctx, func(ctx context.Context, a channels.Arrival) error {
		return l.r.pipeline.Take(ctx, a.Messages...)
	}, func() { caught.Go(func() { l.catchUp(ctx) }) })
}

// catchUp reads what came while there was no connection.
func (l *live) catchUp(ctx context.Context) {
	if err := l.r.reader.CatchUp(ctx); err != nil && ctx.Err() == nil {
		l.r.d.logger.WarnContext(ctx, "not all could be read that may have been missed", "error", err)
	}
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
