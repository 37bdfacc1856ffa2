package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// otherRows are what people would use instead.
func otherRows() []row {
	return []row{
		{
			name: "publish, beside curl", limit: 1.3, what: "curl, the same POST with no durability",
			measure: func(b *bench) (figures, error) {
				return b.beside("curl", func(url, body string) []string {
					return []string{"-fsS", "-X", "POST", "-H", "Content-Type: application/json", "-d", body, url}
				})
			},
		},
		{
			name: "publish, beside apprise", limit: 1, what: "apprise, the same text to the same address",
			measure: func(b *bench) (figures, error) {
				return b.beside("apprise", func(url, _ string) []string {
					return []string{"-b", event().Text, "json" + url[len("http"):]}
				})
			},
		},
		{name: "publish, beside sendmail", limit: 1, what: "Postfix' sendmail, its destination down", measure: sendmail},
	}
}

// beside compares `the-loop publish` with another program that posts, as whole
// processes.
func (b *bench) beside(name string, args func(url, body string) []string) (figures, error) {
	path, err := exec.LookPath(name)
	if err != nil {
		return figures{}, missing{"there is no " + name + " here"}
	}
	s, err := newSink(http.StatusOK, 0)
	if err != nil {
		return figures{}, err
	}
	defer s.close()
	body, err := json.Marshal(event())
	if err != nil {
		return figures{}, err
	}
	ours, err := b.publisherTo(s.url)
	if err != nil {
		return figures{}, err
	}
	f, err := inTurn(10, ours, func() (time.Duration, error) {
		p, err := b.wholeProcess(nil, path, args(s.url, string(body))...)
		return p.took, err
	})
	if n := s.got.Load(); err == nil && n != 20 {
		err = fmt.Errorf("the sink got %d of 20", n)
	}
	return f, err
}

// publisherTo gives one `the-loop publish` to an address, as a whole process.
func (b *bench) publisherTo(url string) (func() (time.Duration, error), error) {
	dir, err := b.fresh()
	if err != nil {
		return nil, err
	}
	env, err := configured(dir, fmt.Sprintf(
		"channels:\n  hook: {type: webhook, url: %q, subscribe: [\"*\"], rate: 0}\n", url))
	if err != nil {
		return nil, err
	}
	e := event()
	return func() (time.Duration, error) {
		p, err := b.process(env, "the-loop", "publish", "--type", e.Type,
			"--work-item", e.WorkItem, "--text", e.Text)
		return p.took, err
	}, nil
}

// sendmail compares taking a message whose destination is down. Postfix gets a
// queue of its own, so that nothing is left in the machine's, and none of its
// daemons runs: no destination is any further down.
func sendmail(b *bench) (figures, error) {
	conf, err := b.postfix()
	if err != nil {
		return figures{}, err
	}
	ours, err := b.publisherTo("http://127.0.0.1:9/")
	if err != nil {
		return figures{}, err
	}
	const times = 10
	f, err := inTurn(times, ours, func() (time.Duration, error) {
		cmd := exec.CommandContext(b.ctx, "sendmail", "-C", conf, "-oi", "bench@[127.0.0.1]")
		cmd.Stdin = strings.NewReader("Subject: bench\n\n" + event().Text + "\n")
		return timed(cmd.Run)
	})
	if err != nil {
		return figures{}, err
	}
	queued, err := filepath.Glob(filepath.Join(conf, "queue", "maildrop", "*"))
	if err == nil && len(queued) != times {
		err = fmt.Errorf("the queue has %d of %d", len(queued), times)
	}
	return f, err
}

// postfix gives the folder of a configuration with an empty queue on the disk that
// is measured.
func (b *bench) postfix() (conf string, err error) {
	for _, name := range []string{"sendmail", "postfix"} {
		if _, err := exec.LookPath(name); err != nil {
			return "", missing{"there is no Postfix here"}
		}
	}
	if os.Geteuid() != 0 {
		return "", missing{"only root may give Postfix a queue of its own"}
	}
	dir, err := b.fresh()
	if err != nil {
		return "", err
	}
	queue, data := filepath.Join(dir, "queue"), filepath.Join(dir, "data")
	text := fmt.Sprintf("compatibility_level = 3.6\nqueue_directory = %s\ndata_directory = %s\n"+
		"myhostname = bench.invalid\ninet_interfaces = 127.0.0.1\n", queue, data)
	return dir, errors.Join(
		os.Chmod(dir, 0o755), os.Mkdir(queue, 0o755), os.Mkdir(data, 0o700),
		os.WriteFile(filepath.Join(dir, "main.cf"), []byte(text), 0o644),
		os.WriteFile(filepath.Join(dir, "master.cf"), nil, 0o644),
		b.quietly("postfix", "-c", dir, "check"))
}

func (b *bench) quietly(name string, args ...string) error {
	path, err := exec.LookPath(name)
	if err != nil {
		return err
	}
	_, err = b.wholeProcess(nil, path, args...)
	return err
}
