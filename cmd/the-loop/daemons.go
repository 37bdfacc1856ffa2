package main

import (
	"github.com/urfave/cli/v2"

	"the-loop/internal/daemon"
)

func pollerCommand(w world) *cli.Command {
	return &cli.Command{
		Name:        "poller",
		Usage:       "run the poller in the foreground: it reads and drains",
		Description: example("the-loop poller", "the-loop poller --log-level debug"),
		Action:      func(c *cli.Context) error { return runDaemon(c, w, "poller") },
	}
}

func webhookCommand(w world) *cli.Command {
	return &cli.Command{
		Name:        "webhook",
		Usage:       "run the receiver in the foreground: it is told, and drains",
		Description: example("the-loop webhook", "curl -fsS http://127.0.0.1:8787/healthz"),
		Action:      func(c *cli.Context) error { return runDaemon(c, w, "webhook") },
	}
}

func runDaemon(c *cli.Context, w world, service string) error {
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
		Reload: reload,
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
			return daemonSetup(now, service)
		},
	})
	if err != nil {
		return failed(err)
	}
	return nil
}

// daemonSetup is what the config asks of a service. They differ in how replies
// come to them: the poller asks, and the receiver is told.
func daemonSetup(d *deployment, service string) (daemon.Setup, error) {
	r := newReplies(d, service, service == "webhook")
	s := daemon.Setup{ConfigHash: d.configHash(), Missing: d.missing, Inbound: r.state}
	if service == "webhook" {
		handler, err := r.receive()
		if err != nil {
			return s, err
		}
		s.Listen, s.Handler = d.config.Webhook.Listen, handler
	}
	s.Runs = r.runs()
	if len(d.routes) > 0 {
		opts := d.drain(service)
		s.Drain = &opts
	}
	return s, nil
}
