package inbound

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"time"

	"the-loop/state"
)

// seenLimit is the size at which inbound/seen.jsonl is turned over. Two files of
// it hold what came in last, some fifty thousand messages: far more than a
// provider sends again, or a cursor is behind.
const seenLimit = 4 << 20

// seenLine is one line of inbound/seen.jsonl: what happened, without text.
type seenLine struct {
	Key string    `json:"key"`
	At  time.Time `json:"at"`
	Did string    `json:"did"` // what became of it, as in Counts.Taken
}

// seen knows what came in already, in whichever process. It is the log, and of
// each key eight bytes of a hash in memory. It is used under the pipeline's lock.
type seen struct {
	log  state.Log
	keys map[uint64]struct{} // nil: nothing was read yet
	file *os.File            // the one that grows, as far as it was read
	read int64
}

func newSeen(root *state.Root) seen {
	log := root.Log(state.Seen)
	log.Limit = seenLimit
	return seen{log: log}
}

func (s *seen) has(key string) bool {
	_, ok := s.keys[hashOf(key)]
	return ok
}

func hashOf(key string) uint64 {
	sum := sha256.Sum256([]byte(key))
	return binary.BigEndian.Uint64(sum[:])
}

// refresh reads what other processes added.
func (s *seen) refresh() error {
	if s.keys == nil {
		s.keys = map[uint64]struct{}{}
		if err := s.readFile(s.log.Path() + ".1"); err != nil {
			s.keys = nil
			return err
		}
	}
	if s.file != nil {
		if err := s.more(); err != nil {
			return err
		}
		now, err := os.Stat(s.log.Path())
		old, errOld := s.file.Stat()
		if err == nil && errOld == nil && os.SameFile(now, old) {
			return nil
		}
		s.close() // turned over: what was in it is read
	}
	f, err := os.Open(s.log.Path())
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	s.file, s.read = f, 0
	return s.more()
}

func (s *seen) readFile(path string) error {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = s.lines(f)
	return err
}

// more reads on from where it stopped.
func (s *seen) more() error {
	if _, err := s.file.Seek(s.read, io.SeekStart); err != nil {
		return err
	}
	n, err := s.lines(s.file)
	s.read += n
	return err
}

// lines takes note of the whole lines, and gives how long they are.
func (s *seen) lines(r io.Reader) (n int64, err error) {
	b, err := io.ReadAll(r)
	if err != nil {
		return 0, err
	}
	b = b[:bytes.LastIndexByte(b, '\n')+1]
	for line := range bytes.Lines(b) {
		var l seenLine
		if json.Unmarshal(line, &l) == nil && l.Key != "" {
			s.keys[hashOf(l.Key)] = struct{}{}
		}
	}
	return int64(len(b)), nil
}

// add writes lines down, durably.
func (s *seen) add(ctx context.Context, lines []seenLine) error {
	var raw [][]byte
	for _, l := range lines {
		b, err := json.Marshal(l)
		if err != nil {
			return err
		}
		raw = append(raw, b)
	}
	if err := s.log.AppendDurably(ctx, raw...); err != nil {
		return err
	}
	for _, l := range lines {
		s.keys[hashOf(l.Key)] = struct{}{}
	}
	return nil
}

func (s *seen) close() {
	if s.file != nil {
		_ = s.file.Close()
	}
	s.file, s.read = nil, 0
}
