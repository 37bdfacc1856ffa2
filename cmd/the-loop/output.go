package main

import (
	"io"
	"os"
	"sync"
)

// output is stdout, and remembers the first error in writing to it.
type output struct {
	w io.Writer

	mu     sync.Mutex
	err    error
	beside bool
}

func (o *output) Write(b []byte) (int, error) {
	n, err := o.w.Write(b)
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.err == nil {
		o.err = err
	}
	return n, err
}

// failure is why output is missing that the exit code has to tell of.
func (o *output) failure() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.beside {
		return nil
	}
	return o.err
}

// besideThePoint says of a command that has acted that its exit code tells what
// became of that, and not of the output: whoever believes that it did not
// happen does it again. What could not be written is said on stderr.
func besideThePoint(w world) {
	o, ok := w.stdout.(*output)
	if !ok {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.err != nil && !o.beside {
		printf(w.stderr, "note: stdout: %v\n", o.err)
	}
	o.beside = true
}

// discards reports whether all that is written is gone: to the null device,
// which Go also puts in the place of a descriptor that is closed.
func discards(w io.Writer) bool {
	if o, ok := w.(*output); ok {
		w = o.w
	}
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	here, err := f.Stat()
	if err != nil {
		return true
	}
	null, err := os.Stat(os.DevNull)
	return err == nil && os.SameFile(here, null)
}
