package main

import (
	"net/http"

	"github.com/urfave/cli/v2"

	"the-loop/internal/daemon"
)

func pollerCommand(w world) *cli.Command {
	return &cli.Command{
		Name:        "poller",
		Usage:       "run the poller in the foreground; it drains the outbox",
		Description: example("the-loop poller", "the-loop poller --log-level debug"),
		Action:      func(c *cli.Context) error { return runDaemon(c, w, "poller", nil) },
	}
}

func webhookCommand(w world) *cli.Command {
	return &cli.Command{
		Name:        "webhook",
		Usage:       "run the receiver in the foreground; it drains the outbox",
		Description: example("the-loop webhook", "curl -fsS http://127.0.0.1:8787/healthz"),
		Action:      func(c *cli.Context) error { return runDaemon(c, w, "webhook", receiver()) },
	}
}

// receiver serves what the webhook service answers.
func receiver() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(rw http.ResponseWriter, _ *http.Request) {
		rw.Header().Set("Content-Type", "text/plain; charset=utf-8")
		_, _ = rw.Write([]byte("ok\n"))
	})
	return mux
}

func runDaemon(c *cli.Context, w world, service string, handler http.Handler) error {
	reload := w.reload() // from the first moment on: whoever sends it early must not end us
	if err := noArguments(c); err != nil {
		return err
	}
	path, err := findConfig(c, w)
	if err != nil {
		return err
	}
	d, err := build(c, w, path, true)
	if err != nil {
		return err
	}
	first := d
	err = daemon.Run(c.Context, daemon.Options{
		Service: service, Version: version(), Root: d.root, Logger: d.logger, Log: d.log,
		Handler: handler, Reload: reload,
		Setup: func() (daemon.Setup, error) {
			now := first
			if first = nil; now == nil {
				if now, err = build(c, w, path, true); err != nil {
					return daemon.Setup{}, err
				}
				if now.root.Dir() != d.root.Dir() {
					return daemon.Setup{}, usage("state.root changed to %s: restart the %s", now.root.Dir(), service)
				}
			}
			return daemonSetup(now, service, handler != nil), nil
		},
	})
	if err != nil {
		return failed(err)
	}
	return nil
}

func daemonSetup(d *deployment, service string, listens bool) daemon.Setup {
	s := daemon.Setup{ConfigHash: d.configHash(), Missing: d.missing}
	if listens {
		s.Listen = d.config.Webhook.Listen
	}
	if len(d.routes) > 0 {
		opts := d.drain(service)
		s.Drain = &opts
	}
	return s
}
