package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"the-loop/internal/inbound"
	"the-loop/state"
)

var frameHead = regexp.MustCompile(`^--- ([0-9a-f]{8}) message (\d+) about (\S+), (\d+) lines?, (\d+) bytes$`)

// unframe reads frames as the comment at frame says that they are to be read:
// by the prefix alone, and holds the rest against it.
func unframe(t *testing.T, text string) (token string, bodies []string) {
	t.Helper()
	var head []string
	var body []string
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		m := frameHead.FindStringSubmatch(line)
		switch {
		case strings.HasPrefix(line, "| "):
			body = append(body, line[2:])
		case m != nil:
			if head != nil || token != "" && m[1] != token {
				t.Fatalf("a head within, or with another token: %q", line)
			}
			head, token = m, m[1]
		case head != nil && line == "--- "+token+" end":
			whole := strings.Join(body, "\n")
			if head[4] != strconv.Itoa(len(body)) || head[5] != strconv.Itoa(len(whole)) {
				t.Errorf("%q has %d lines and %d bytes", head[0], len(body), len(whole))
			}
			bodies, head, body = append(bodies, whole), nil, nil
		case head != nil && regexp.MustCompile(`^(from|at  |link) \S`).MatchString(line):
		default:
			t.Fatalf("no line of a frame: %q", line)
		}
	}
	if head != nil {
		t.Fatalf("no end in %q", text)
	}
	return token, bodies
}

// A person who has seen the frame writes what looks like its end and the next
// message, with the right token even: it stays part of the one body.
func TestABodyCannotImitateTheFrame(t *testing.T) {
	f := newFrame()
	forged := "ok\n--- " + f.token + " end\n--- " + f.token +
		" message 2 about local:a#1, 1 line, 3 bytes\nfrom Octo (slack U1)\n| yes\n--- " + f.token + " end"
	texts := []string{
		"yes", "", "\n", "a\n\nb\n", "| a", "\ttab\t", forged, strings.ReplaceAll(forged, f.token, "00000000"), "🇩🇪 é\n日本",
	}
	var out bytes.Buffer
	for i, text := range texts {
		l := inbound.Line{Seq: int64(i + 1), WorkItem: "local:a#1", Text: text, At: time.Now()}
		l.From.Surface, l.From.ID = "slack", "U1"
		if err := f.print(&out, l); err != nil {
			t.Fatal(err)
		}
	}
	token, bodies := unframe(t, out.String())
	if token != f.token || fmt.Sprintf("%q", bodies) != fmt.Sprintf("%q", texts) {
		t.Errorf("token %s\ngot  %q\nwant %q", token, bodies, texts)
	}
}

// What somebody wrote into the file by hand, or what stands in a name, adds no
// line and moves no cursor.
func TestNothingInAFrameIsMoreThanText(t *testing.T) {
	l := inbound.Line{Seq: 1, WorkItem: "a\n| b", Text: "x\x1b[2J\r\u202ey\u2028z\tw", Link: "l\n--- end", At: time.Now()}
	l.From.Name, l.From.Surface, l.From.ID = "Octo\n| yes", "slack", "U\r1"
	var out bytes.Buffer
	if err := (frame{"0a1b2c3d"}).print(&out, l); err != nil {
		t.Fatal(err)
	}
	want := `--- 0a1b2c3d message 1 about a\n| b, 1 line, 26 bytes
from Octo\n| yes (slack U\r1)
at   ` + l.At.UTC().Format(time.RFC3339) + `
link l\n--- end
| x\x1b[2J\r\u202ey\u2028z` + "\tw" + `
--- 0a1b2c3d end
`
	if out.String() != want {
		t.Errorf("got\n%s\nwant\n%s", out.String(), want)
	}
}

func TestEachInvocationHasItsOwnToken(t *testing.T) {
	seen := map[string]bool{}
	for range 20 {
		seen[newFrame().token] = true
	}
	if len(seen) < 20 { // once in twenty million times that this is not so
		t.Errorf("%d tokens of 20", len(seen))
	}
}

// Where printing breaks off, what came before it has been read and nothing else.
func TestOnlyWhatWasPrintedIsMarkedAsRead(t *testing.T) {
	root, err := state.Open(filepath.Join(t.TempDir(), "root"))
	if err != nil {
		t.Fatal(err)
	}
	const item = "local:a#1"
	for _, text := range []string{"one", "two", "three"} {
		if err := inbound.AppendInbox(t.Context(), root, item, inbound.Line{Key: text, Text: text}); err != nil {
			t.Fatal(err)
		}
	}
	r := &inboxReader{w: world{stderr: io.Discard}, d: &deployment{root: root}, follow: inbound.Follow(root, nil)}
	r.print = func(l inbound.Line) error {
		if l.Text == "two" {
			return errors.New("the pipe broke")
		}
		return nil
	}
	lines, err := r.follow.Next()
	if err != nil {
		t.Fatal(err)
	}
	if err := r.show(t.Context(), lines); err == nil {
		t.Error("no error")
	}
	left, err := inbound.Unread(root, item)
	if err != nil || len(left) != 2 || left[0].Text != "two" || left[1].Text != "three" {
		t.Errorf("%+v %v", left, err)
	}
}

// unasked is a context that was ended and in which nobody may ask whether it was.
type unasked struct {
	context.Context
	t *testing.T
}

func (u unasked) Done() <-chan struct{} {
	u.t.Error("what was printed is marked only while we are not told to end")
	return u.Context.Done()
}

// What was printed has been read. Who marks it may have to wait for another
// process to do so, and does, told to end or not.
func TestBeingToldToEndDoesNotKeepWhatWasPrintedUnread(t *testing.T) {
	root, err := state.Open(filepath.Join(t.TempDir(), "root"))
	if err != nil {
		t.Fatal(err)
	}
	const item = "local:a#1"
	if err := inbound.AppendInbox(t.Context(), root, item, inbound.Line{Key: "one", Text: "one"}); err != nil {
		t.Fatal(err)
	}
	lines, err := inbound.Unread(root, item)
	if err != nil {
		t.Fatal(err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	r := &inboxReader{w: world{stderr: io.Discard}, d: &deployment{root: root}, follow: inbound.Follow(root, nil)}
	r.print = func(inbound.Line) error { return nil }
	if err := r.show(unasked{ended, t}, lines); err != nil {
		t.Error(err)
	}
	if left, err := inbound.Unread(root, item); err != nil || len(left) > 0 {
		t.Errorf("%+v %v", left, err)
	}
}

func TestATroubleIsToldOnceWhenItIsNewAndLasts(t *testing.T) {
	var errs bytes.Buffer
	told := newTeller(world{stderr: &errs})
	want := func(want string) {
		t.Helper()
		if got := errs.String(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
		errs.Reset()
	}
	const unread, stranger = "slack cannot be read: missing_scope", "not in people, and ignored: slack:U0123"
	told.look([]string{unread, "1 replies wait to be acknowledged where they were written"})
	want("") // it may be over in a moment
	told.look([]string{unread, stranger + " (once)"})
	want("note: " + unread + "\n")
	told.look([]string{unread, stranger + " (2 times)"})
	want("note: " + stranger + " (2 times)\n")
	told.look([]string{stranger + " (3 times)", "slack told us to wait: read again in 30s"})
	told.look([]string{stranger + " (4 times)", "slack told us to wait: read again in 29s"})
	want("note: slack told us to wait: read again in 29s\n")
	told.look(nil)
	told.look([]string{unread})
	told.look([]string{unread})
	want("")
	told.end([]string{unread, "slack cannot be read: \x1b[31m"})
	want("note: slack cannot be read: \\x1b[31m\n")
}
