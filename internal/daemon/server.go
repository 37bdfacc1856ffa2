package daemon

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"time"
)

// server is an HTTP server with its one listener.
type server struct {
	http http.Server
	done chan struct{} // closed when it serves no more
}

func serve(l net.Listener, handler http.Handler, logger *slog.Logger) *server {
	s := &server{done: make(chan struct{}), http: http.Server{
		Handler: handler, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 30 * time.Second,
		WriteTimeout: 30 * time.Second, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 64 << 10,
		ErrorLog: slog.NewLogLogger(logger.Handler(), slog.LevelDebug),
	}}
	go func() {
		defer close(s.done)
		if err := s.http.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			logger.Error("the listener failed", "error", err)
		}
	}()
	return s
}

// close gives the requests at hand a second, and waits until nothing is served
// any more. A nil server is closed.
func (s *server) close() {
	if s == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if s.http.Shutdown(ctx) != nil {
		_ = s.http.Close()
	}
	<-s.done
}
