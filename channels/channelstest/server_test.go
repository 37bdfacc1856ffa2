package channelstest_test

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"syscall"
	"testing"

	"the-loop/channels"
	"the-loop/channels/channelstest"
)

func TestServerMisbehavesAndHeals(t *testing.T) {
	server := channelstest.NewServer(nil)
	defer server.Close()
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	get := func() string {
		resp, err := client.Post(server.URL()+"/hook", "text/plain", strings.NewReader("hello"))
		if err != nil {
			if errors.Is(err, syscall.ECONNREFUSED) {
				return "refused"
			}
			return "failed"
		}
		defer resp.Body.Close()
		return fmt.Sprint(resp.StatusCode)
	}
	var got []string
	server.Queue(channelstest.Answer(500, ""), channelstest.DropRead())
	got = append(got, get(), get(), get())
	server.Always(channelstest.Answer(429, ""))
	got = append(got, get(), get())
	server.Down()
	got = append(got, get())
	server.Up()
	server.Heal()
	got = append(got, get())
	if want := "500 failed 200 429 429 refused 200"; strings.Join(got, " ") != want {
		t.Errorf("got %v, want %s", got, want)
	}
	if requests := server.Requests(); len(requests) != 6 || string(requests[5].Body) != "hello" {
		t.Errorf("requests: %+v", requests)
	}
}

func TestNoLeakLooksEverywhere(t *testing.T) {
	secret := errors.New("Post http://127.0.0.1/SECRET123")
	for name, r := range map[string]struct {
		receipt channels.Receipt
		err     error
	}{
		"receipt": {receipt: channels.Receipt{Link: "http://127.0.0.1/SECRET123"}},
		"text":    {err: secret},
		"detail":  {err: &channels.Refusal{Code: "http_404", Detail: "SECRET123"}},
		"cause":   {err: &channels.Uncertain{Code: "eof", Err: secret}},
		"joined":  {err: &channels.Uncertain{Code: "eof", Err: errors.Join(errors.New("a"), secret)}},
	} {
		var rec recorder
		channelstest.NoLeak(&rec, r.receipt, r.err, "SECRET123")
		if !rec.failed {
			t.Errorf("%s: the secret was not found", name)
		}
	}
}

// recorder is a test that only remembers that it failed.
type recorder struct {
	testing.TB
	failed bool
}

func (r *recorder) Helper()               {}
func (r *recorder) Errorf(string, ...any) { r.failed = true }
