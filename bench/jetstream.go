package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// stream is a JetStream in this process that has each message on disk before it
// says so.
type stream struct {
	server *server.Server
	conn   *nats.Conn
	js     jetstream.JetStream
	body   []byte
}

func (b *bench) jetStream() (_ *stream, err error) {
	dir, err := b.fresh()
	if err != nil {
		return nil, err
	}
	s := &stream{}
	if s.body, err = event().Encode(); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			s.close()
		}
	}()
	s.server, err = server.NewServer(&server.Options{
		JetStream: true, StoreDir: dir, SyncAlways: true, DontListen: true, NoSigs: true, NoLog: true,
	})
	if err != nil {
		return nil, err
	}
	s.server.Start()
	if !s.server.ReadyForConnections(10 * time.Second) {
		return nil, errors.New("the NATS server did not start within 10s")
	}
	if s.conn, err = nats.Connect("", nats.InProcessServer(s.server)); err != nil {
		return nil, err
	}
	if s.js, err = jetstream.New(s.conn); err != nil {
		return nil, err
	}
	_, err = s.js.CreateStream(b.ctx, jetstream.StreamConfig{
		Name: "events", Subjects: []string{"events"}, Storage: jetstream.FileStorage,
	})
	return s, err
}

func (s *stream) close() {
	if s.conn != nil {
		s.conn.Close()
	}
	if s.server != nil {
		s.server.Shutdown()
		s.server.WaitForShutdown()
	}
}

func (s *stream) publish(ctx context.Context) error {
	_, err := s.js.Publish(ctx, "events", s.body)
	return err
}

// besideJetStream compares keeping events that no channel takes with publishing
// the same bytes to a stream, by so many goroutines, each so often in one turn.
func (b *bench) besideJetStream(goroutines, each, turns int) (figures, error) {
	s, err := b.jetStream()
	if err != nil {
		return figures{}, err
	}
	defer s.close()
	dir, err := b.fresh()
	if err != nil {
		return figures{}, err
	}
	bs, err := newBus(dir, to(refuser{}))
	if err != nil {
		return figures{}, err
	}
	defer bs.store.Close()
	ours := func() error { _, err := publish(b.ctx, bs); return err }
	theirs := func() error { return s.publish(b.ctx) }
	if err := errors.Join(ours(), theirs()); err != nil { // their files are there from now on
		return figures{}, err
	}
	many := func(do func() error) func() (time.Duration, error) {
		return func() (time.Duration, error) {
			took, err := timed(func() error { return together(goroutines, each, do) })
			return took / time.Duration(goroutines*each), err
		}
	}
	return inTurn(turns, many(ours), many(theirs))
}

// together does something in each of so many goroutines so often.
func together(goroutines, each int, do func() error) error {
	errs := make(chan error, goroutines)
	var wg sync.WaitGroup
	for range goroutines {
		wg.Go(func() {
			for range each {
				if err := do(); err != nil {
					errs <- err
					return
				}
			}
		})
	}
	wg.Wait()
	close(errs)
	return <-errs
}

func jetStreamRows() []row {
	const name = "keep an event, %s, beside JetStream"
	return []row{
		{
			name: fmt.Sprintf(name, "one goroutine"), limit: 1, what: "JetStream in this process, synced writes",
			measure: func(b *bench) (figures, error) { return b.besideJetStream(1, 1, 30) },
		},
		{
			name: fmt.Sprintf(name, "64 goroutines"), limit: 1, what: "JetStream in this process, synced writes",
			measure: func(b *bench) (figures, error) { return b.besideJetStream(64, 5, 3) },
		},
	}
}
