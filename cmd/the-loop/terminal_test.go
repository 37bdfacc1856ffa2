package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// terminal gives the two ends of a pseudo-terminal: what is written to tty can
// be read from the other end.
func terminal(t *testing.T) (master, tty *os.File) {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("this machine gives no pseudo-terminal: %v", err)
	}
	t.Cleanup(func() { _ = master.Close() })
	n, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Skipf("this machine gives no pseudo-terminal: %v", err)
	}
	if err := unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Skipf("this machine gives no pseudo-terminal: %v", err)
	}
	tty, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("this machine gives no pseudo-terminal: %v", err)
	}
	t.Cleanup(func() { _ = tty.Close() })
	return master, tty
}

// onTerminal runs the program with stderr on a terminal, and gives what stood there.
func onTerminal(t *testing.T, env map[string]string, args ...string) (stdout, shown string) {
	t.Helper()
	master, tty := terminal(t)
	var out bytes.Buffer
	w := world{
		stdin: strings.NewReader(""), stdout: &out, stderr: tty, getenv: func(k string) string { return env[k] },
	}
	run(t.Context(), append([]string{"the-loop"}, args...), w)
	const end = "<end>"
	_, _ = tty.WriteString(end)
	b := make([]byte, 64<<10)
	for !strings.Contains(shown, end) {
		n, err := master.Read(b)
		if err != nil {
			t.Fatal(err)
		}
		shown += string(b[:n])
	}
	return out.String(), strings.TrimSuffix(shown, end)
}

func roomConfig(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "c.yaml")
	text := "version: 1\nstate: {root: root}\nchannels:\n  room: {type: file, path: root/room.jsonl, subscribe: [\"*\"]}\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestTheLogIsColouredOnATerminalUnlessNO_COLORSaysNo(t *testing.T) {
	args := []string{"--config", roomConfig(t), "--log-level", "info", "publish", "--type", "job.failed", "--text", "x"}
	for _, tt := range []struct {
		env      map[string]string
		coloured bool
	}{
		{map[string]string{"TERM": "xterm"}, true},
		{map[string]string{"TERM": "xterm", "NO_COLOR": "1"}, false},
		{map[string]string{"TERM": "dumb"}, false},
	} {
		stdout, shown := onTerminal(t, tt.env, args...)
		if !strings.Contains(shown, "bus.published") || strings.Contains(shown, "\x1b[") != tt.coloured {
			t.Errorf("%v: the terminal shows %q", tt.env, shown)
		}
		if strings.Contains(stdout, "\x1b") {
			t.Errorf("%v: stdout holds escapes: %q", tt.env, stdout)
		}
	}
}

func TestDrainShowsItsProgressOnATerminalBesideTheJSON(t *testing.T) {
	config := roomConfig(t)
	pend(t, filepath.Join(filepath.Dir(config), "root"))
	stdout, shown := onTerminal(t, nil, "--config", config, "outbox", "drain", "--format", "json")
	if !strings.Contains(shown, "01KB3Z0000000000000000000A  room: accepted") {
		t.Errorf("the terminal shows %q", shown)
	}
	if !strings.Contains(stdout, `"accepted": 1`) || strings.Contains(stdout, "room") {
		t.Errorf("stdout: %q", stdout)
	}
}

// pend puts one entry for the channel "room" into the outbox of a root.
func pend(t *testing.T, root string) {
	t.Helper()
	pending := `{"version":1,"pending":{"01KB3Z0000000000000000000A":{"at":"2026-09-22T10:00:00Z","attempts":0,` +
		`"lastAttemptAt":"","lastError":"","channels":["room"],"event":{"eventType":"job.failed","text":"x"}}}}`
	dir := filepath.Join(root, "channels")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "undelivered.json"), []byte(pending), 0o600); err != nil {
		t.Fatal(err)
	}
}
