// Command the-loop carries messages between work and the people around it.
package main

import (
	"context"
	"io"
	"os"
	"os/signal"
	"syscall"
)

// world is everything outside of the program that a command may touch.
type world struct {
	stdin          io.Reader
	stdout, stderr io.Writer
	getenv         func(string) string
	// reload makes SIGHUP ask for the config to be read anew, from then on. Until
	// it is called SIGHUP ends the program, as it ends any other.
	reload func() <-chan os.Signal
}

// signalled is why the context of an interrupted command ended.
type signalled struct{ signal syscall.Signal }

func (s signalled) Error() string { return s.signal.String() }

func main() {
	ctx, cancel := context.WithCancelCause(context.Background())
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGINT, syscall.SIGTERM)
	go func() {
		s := <-stop
		cancel(signalled{s.(syscall.Signal)})
		signal.Reset(syscall.SIGINT, syscall.SIGTERM) // a second one ends us at once
	}()
	reload := func() <-chan os.Signal {
		c := make(chan os.Signal, 1)
		signal.Notify(c, syscall.SIGHUP)
		return c
	}
	os.Exit(run(ctx, os.Args, world{os.Stdin, os.Stdout, os.Stderr, os.Getenv, reload}))
}
