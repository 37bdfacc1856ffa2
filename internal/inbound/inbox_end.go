package inbound

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"strconv"

	"the-loop/state"
)

// window is the end of an inbox: its last whole lines, as far as they fit into
// inboxWindow. Right after a turn-over it begins in the older file.
type window []byte

// inboxEnd reads the end of an inbox, without a lock: whoever appends holds the
// one that keeps others from doing so. The turned-over file is asked only for
// what the newer one is too short for.
func inboxEnd(log state.Log) (window, error) {
	newer, err := fileEnd(log.Path(), inboxWindow)
	if err != nil || len(newer) >= inboxWindow/2 {
		return newer, err
	}
	older, err := fileEnd(log.Path()+".1", inboxWindow-len(newer))
	return append(older, newer...), err
}

// fileEnd gives the last whole lines of a file in at most size bytes, nothing
// of one that is not there.
func fileEnd(path string, size int) ([]byte, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	fi, err := f.Stat()
	if err != nil {
		return nil, err
	}
	from := max(0, fi.Size()-int64(size))
	b := make([]byte, fi.Size()-from)
	if n, err := f.ReadAt(b, from); err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	} else if b = b[:n]; from > 0 {
		_, b, _ = bytes.Cut(b, []byte("\n")) // the first line is not whole
	}
	return b[:bytes.LastIndexByte(b, '\n')+1], nil
}

// has reports whether a whole line with that key is in sight. A text cannot
// imitate it: in JSON its quotes are escaped.
func (w window) has(key string) bool {
	quoted, err := encodeKey(key)
	if err != nil {
		return false
	}
	for rest := []byte(w); ; {
		at := bytes.Index(rest, quoted)
		if at < 0 {
			return false
		}
		begin := bytes.LastIndexByte(rest[:at], '\n') + 1
		line, after, _ := bytes.Cut(rest[begin:], []byte("\n"))
		if l, ok := decodeLine(line); ok && l.Key == key { // not the torn half of one
			return true
		}
		rest = after
	}
}

func encodeKey(key string) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	err := enc.Encode(key)
	return append([]byte(`,"key":`), bytes.TrimSuffix(b.Bytes(), []byte("\n"))...), err
}

// lastSeq is the number of the last line in sight that is one.
func (w window) lastSeq() (int64, bool) {
	for rest := bytes.TrimSuffix(w, []byte("\n")); len(rest) > 0; {
		at := bytes.LastIndexByte(rest, '\n')
		if l, ok := decodeLine(rest[at+1:]); ok {
			return l.Seq, true
		}
		rest = rest[:max(at, 0)]
	}
	return 0, false
}

func decodeLine(b []byte) (l Line, ok bool) {
	err := json.Unmarshal(b, &l)
	return l, err == nil && l.Seq > 0
}

// seqOf reads a line's number without decoding it. ok is false for a line that
// does not begin as we write them.
func seqOf(b []byte) (seq int64, ok bool) {
	digits, ok := bytes.CutPrefix(b, []byte(`{"seq":`))
	end := bytes.IndexByte(digits, ',')
	if !ok || end < 0 {
		return 0, false
	}
	seq, err := strconv.ParseInt(string(digits[:end]), 10, 64)
	return seq, err == nil
}
