package docs_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"
)

const (
	tourHome = "/home/octo"
	tourPort = "28099"
)

// step is one typed line of the tour and what it printed.
type step struct{ command, output string }

// TestGeneratedTour types the README's tour. With -update it writes down what
// was printed.
func TestGeneratedTour(t *testing.T) {
	page := read(t, "README.md")
	before, rest, ok := strings.Cut(page, "## Five minutes\n")
	tour, after, closed := strings.Cut(rest, "\n## ")
	if !ok || !closed {
		t.Fatal("the README has no tour")
	}
	bin(t) // so that the tour's own build is quick
	sh := newShell(t)
	blocks := strings.Split(tour, "```")
	for i := 1; i < len(blocks); i += 2 {
		text, isConsole := strings.CutPrefix(blocks[i], "console\n")
		if !isConsole {
			continue
		}
		var now strings.Builder
		now.WriteString("console\n")
		for _, s := range steps(text) {
			got := sh.typed(s)
			fmt.Fprintf(&now, "$ %s\n%s", s.command, got)
			if !*update && plain(got) != plain(s.output) {
				t.Errorf("$ %s\n%s", s.command, firstDifferences(plain(s.output), plain(got)))
			}
		}
		blocks[i] = now.String()
	}
	if now := before + "## Five minutes\n" + strings.Join(blocks, "```") + "\n## " + after; *update && now != page {
		if err := os.WriteFile("README.md", []byte(now), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func steps(text string) []step {
	var out []step
	for line := range strings.Lines(text) {
		if command, ok := strings.CutPrefix(line, "$ "); ok {
			out = append(out, step{command: strings.TrimSuffix(command, "\n")})
		} else if len(out) > 0 {
			out[len(out)-1].output += line
		}
	}
	return out
}

var changing = []struct {
	pattern *regexp.Regexp
	with    string
}{
	{regexp.MustCompile(`\b01[0-9A-HJKMNP-TV-Z]{24}\b`), "ID"},
	{regexp.MustCompile(`(?m)^question ID \([A-Z2-9]{3,4}\)$`), "question ID (CODE)"},
	{regexp.MustCompile(`\d{4}-\d\d-\d\d \d\d:\d\d:\d\d`), "TIME"},
	{regexp.MustCompile(`just now|\d+[smh] ago`), "AGO"},
	{regexp.MustCompile(`process \d+`), "process N"},
	{regexp.MustCompile(`, last cycle AGO`), ""},
	{regexp.MustCompile(`in \d+s`), "in SPAN"},
	{regexp.MustCompile(` waited=\d+s`), ""},
	{regexp.MustCompile(` +`), " "},
}

// plain replaces what differs from run to run.
func plain(s string) string {
	for _, c := range changing {
		s = c.pattern.ReplaceAllString(s, c.with)
	}
	return s
}

// shell is one sh for the whole tour, in a home folder of its own.
type shell struct {
	t    *testing.T
	home string
	port string
	in   io.Writer
	out  *bufio.Reader
}

func newShell(t *testing.T) *shell {
	t.Helper()
	s := &shell{t: t, home: t.TempDir(), port: quietPort(t)}
	cmd := exec.Command("sh")
	cmd.Env = []string{"HOME=" + s.home, "PATH=" + os.Getenv("PATH"), "TZ=UTC"}
	for _, name := range []string{"GOCACHE", "GOMODCACHE", "GOPATH", "GOPROXY", "GOTOOLCHAIN"} {
		value, err := exec.Command("go", "env", name).Output()
		if err != nil {
			t.Fatal(err)
		}
		cmd.Env = append(cmd.Env, name+"="+strings.TrimSpace(string(value)))
	}
	cmd.Env = append(cmd.Env, "GOFLAGS=-buildvcs=false")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdout, cmd.Stderr = w, w
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_ = w.Close()
	_ = r.SetReadDeadline(time.Now().Add(3 * time.Minute))
	s.in, s.out = in, bufio.NewReader(r)
	t.Cleanup(func() { // what runs in the background first
		fmt.Fprintln(in, `kill $pids 2>/dev/null; wait`)
		_ = in.Close()
		_ = cmd.Wait()
		_ = r.Close()
	})
	return s
}

// quietPort gives a port on which nobody listens, and that no other test is
// given meanwhile: those come from the range above.
func quietPort(t *testing.T) string {
	t.Helper()
	for i := range 100 {
		port := fmt.Sprint(20000 + (os.Getpid()+97*i)%12000)
		if l, err := net.Listen("tcp", "127.0.0.1:"+port); err == nil {
			_ = l.Close()
			return port
		}
	}
	t.Fatal("no port is free")
	return ""
}

// typed runs one line. Who starts something in the background looks a moment
// later, and so do we: what only looks is typed again, for five seconds, until
// it shows what the page has.
func (s *shell) typed(st step) string {
	looks := regexp.MustCompile(`^(cat|the-loop (status|events|outbox list))\b`).MatchString(st.command)
	until := time.Now().Add(5 * time.Second)
	if *update && looks {
		s.run("sleep 1")
	}
	for {
		got := s.run(st.command)
		if !looks || *update || plain(got) == plain(st.output) || time.Now().After(until) {
			return got
		}
		s.run("sleep 0.05")
	}
}

const endMark = "-- end of the output --"

func (s *shell) run(command string) string {
	s.t.Helper()
	line := strings.ReplaceAll(command, tourPort, s.port)
	if strings.HasSuffix(line, "&") {
		line += "\npids=\"$pids $!\"" // the shell's own variable stays as it is
		if file := regexp.MustCompile(`> (\S+) &`).FindStringSubmatch(line); file != nil {
			line += "\nuntil [ -s " + file[1] + " ]; do sleep 0.02; done"
		}
	}
	if strings.HasPrefix(line, "kill ") {
		line += "\nwait $! 2>/dev/null"
	}
	fmt.Fprintf(s.in, "%s\necho '%s'\n", line, endMark)
	var out strings.Builder
	for {
		got, err := s.out.ReadString('\n')
		if got == endMark+"\n" {
			break
		}
		out.WriteString(got)
		if err != nil {
			s.t.Fatalf("$ %s\n%s%v", command, out.String(), err)
		}
	}
	shown := strings.ReplaceAll(out.String(), s.home, tourHome)
	return strings.ReplaceAll(shown, s.port, tourPort)
}
