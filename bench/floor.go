package main

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"
)

// durably writes a file so that it is there after a power cut: written, flushed,
// renamed, and its folder flushed. No program that keeps its word does less.
func durably(dir, name string, b []byte) error {
	tmp := filepath.Join(dir, "."+name)
	f, err := os.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err := f.Write(b); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	if err := os.Rename(tmp, filepath.Join(dir, name)); err != nil {
		return err
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}

// smallFile is the floor of writing a few hundred bytes durably.
func smallFile(dir string) error { return durably(dir, "small", bytes.Repeat([]byte("x"), 400)) }

// sink is an HTTP server that takes whatever is posted, and counts.
type sink struct {
	url    string
	got    atomic.Int64
	server *http.Server
	ended  chan struct{}
}

// newSink starts one that answers after a while with that status.
func newSink(status int, after time.Duration) (*sink, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s := &sink{url: "http://" + l.Addr().String() + "/", ended: make(chan struct{})}
	s.server = &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		if after > 0 {
			t := time.NewTimer(after)
			defer t.Stop()
			<-t.C
		}
		s.got.Add(1)
		w.WriteHeader(status)
		_, _ = io.WriteString(w, "ok")
	})}
	go func() {
		defer close(s.ended)
		_ = s.server.Serve(l)
	}()
	return s, nil
}

func (s *sink) close() {
	_ = s.server.Close()
	<-s.ended
}

// post is one bare exchange.
func post(ctx context.Context, c *http.Client, url string, body []byte) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := c.Do(req)
	if err != nil {
		return err
	}
	_, _ = io.Copy(io.Discard, resp.Body)
	return resp.Body.Close()
}

// postAll posts n times, so many at a time, and nothing else.
func postAll(ctx context.Context, url string, n, atATime int, body []byte) error {
	c := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: atATime}}
	defer c.CloseIdleConnections()
	var next atomic.Int64
	var wg sync.WaitGroup
	errs := make(chan error, atATime)
	for range atATime {
		wg.Go(func() {
			for next.Add(1) <= int64(n) {
				if err := post(ctx, c, url, body); err != nil {
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
