package webhook_test

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"the-loop/channels"
	"the-loop/channels/channelstest"
	"the-loop/channels/internal/wire"
	"the-loop/channels/webhook"
)

const (
	path = "/services/T0/B0/SECRET123"
	key1 = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	key2 = "C2FVsBQIhrscChlQIMV+b5sSYspob7oD" // without the prefix
)

func TestSuite(t *testing.T) {
	channelstest.Run(t, func(t *testing.T) channelstest.Kind {
		server, o := setup(t, key1)
		return channelstest.Kind{
			Channel: webhook.New(o),
			Server:  server,
			Secrets: []string{"SECRET123", path, strings.TrimPrefix(key1, "whsec_")},
			Received: func() (all []channelstest.Received) {
				for _, r := range server.Requests() {
					e, err := channels.DecodeEvent(r.Body)
					if err != nil || r.Header.Get("webhook-id") != e.ID {
						t.Errorf("request with webhook-id %q: %v", r.Header.Get("webhook-id"), err)
					}
					all = append(all, channelstest.Received{ID: e.ID, Text: e.Text})
				}
				return all
			},
		}
	})
}

// setup starts a server and gives options for a webhook to it, signed with the
// secrets if there are any.
func setup(t *testing.T, secrets ...string) (*channelstest.Server, webhook.Options) {
	server := channelstest.NewServer(nil)
	t.Cleanup(server.Close)
	client := wire.NewClient()
	t.Cleanup(client.CloseIdleConnections)
	o := webhook.Options{Name: "ops", URL: server.URL() + path, Client: client}
	if len(secrets) > 0 {
		o.Secret.File = filepath.Join(t.TempDir(), "ops.secret")
		writeSecrets(t, o.Secret.File, secrets...)
	}
	return server, o
}

func writeSecrets(t *testing.T, file string, secrets ...string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(strings.Join(secrets, "\n")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestD06_IDAndBodyAreTheSameInEveryAttempt(t *testing.T) {
	server, o := setup(t, key1)
	server.Queue(channelstest.Answer(500, ""))
	d := channelstest.Delivery("A or B?\nÄ <&> \u2028")
	_, err := webhook.New(o).Post(t.Context(), d)
	var u *channels.Uncertain
	if !errors.As(err, &u) || u.Code != "http_500" {
		t.Fatalf("first attempt: %v", err)
	}
	// The second attempt is another process, which read the event from a file.
	stored, err := d.Event.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if d.Event, err = channels.DecodeEvent(stored); err != nil {
		t.Fatal(err)
	}
	d.Attempt = 2
	if _, err := webhook.New(o).Post(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	r := server.Requests()
	if len(r) != 2 || !bytes.Equal(r[0].Body, r[1].Body) || !bytes.Equal(r[0].Body, stored) {
		t.Errorf("bodies differ: %+v", r)
	}
	for _, req := range r {
		if got := req.Header.Get("webhook-id"); got != d.Event.ID {
			t.Errorf("webhook-id %q, want %q", got, d.Event.ID)
		}
		if got := req.Header.Get("Content-Type"); got != "application/json" {
			t.Errorf("content type %q", got)
		}
		if got := req.Header.Get("User-Agent"); got != "the-loop" {
			t.Errorf("user agent %q", got)
		}
		if req.URI != path || req.Method != http.MethodPost {
			t.Errorf("%s %s", req.Method, req.URI)
		}
	}
}

func TestSignatureIsThatOfStandardWebhooks(t *testing.T) {
	server, o := setup(t, key1, key2) // key1 is being replaced by key2
	if _, err := webhook.New(o).Post(t.Context(), channelstest.Delivery("A or B?")); err != nil {
		t.Fatal(err)
	}
	req := server.Requests()[0]
	for _, key := range []string{key1, key2} {
		verifier, err := standardwebhooks.NewWebhook(key)
		if err != nil {
			t.Fatal(err)
		}
		if err := verifier.Verify(req.Body, req.Header); err != nil {
			t.Errorf("with %s: %v", key, err)
		}
		if err := verifier.Verify(append(req.Body, ' '), req.Header); err == nil {
			t.Errorf("with %s: another body passes", key)
		}
	}
}

func TestWithoutSecretNothingIsSigned(t *testing.T) {
	server, o := setup(t)
	if _, err := webhook.New(o).Post(t.Context(), channelstest.Delivery("A or B?")); err != nil {
		t.Fatal(err)
	}
	if got := server.Requests()[0].Header.Values("webhook-signature"); got != nil {
		t.Errorf("webhook-signature %q", got)
	}
}

func TestRotatedSecretIsTakenUp(t *testing.T) {
	server, o := setup(t, key1)
	hook := webhook.New(o)
	before := hook.Credential()
	writeSecrets(t, o.Secret.File, key2)
	if hook.Credential() == before {
		t.Error("the credential did not change with the secret")
	}
	if _, err := hook.Post(t.Context(), channelstest.Delivery("A or B?")); err != nil {
		t.Fatal(err)
	}
	verifier, err := standardwebhooks.NewWebhook(key2)
	if err != nil {
		t.Fatal(err)
	}
	if req := server.Requests()[0]; verifier.Verify(req.Body, req.Header) != nil {
		t.Error("still signed with the old secret")
	}
}

func TestUnusableOptionsRefuseAndSendNothing(t *testing.T) {
	tests := []struct {
		name   string
		change func(t *testing.T, o *webhook.Options)
		reason channels.Reason
		names  string // what the error has to name
	}{
		{"file is missing", func(_ *testing.T, o *webhook.Options) {
			o.Secret.File += "-gone"
		}, channels.ReasonAuth, "file ops.secret-gone"},
		{"variable is not set", func(_ *testing.T, o *webhook.Options) {
			o.Secret = channels.Secret{Env: "WEBHOOK_TEST_UNSET"}
		}, channels.ReasonAuth, "variable WEBHOOK_TEST_UNSET"},
		{"secret is no base64", func(t *testing.T, o *webhook.Options) {
			writeSecrets(t, o.Secret.File, key1, "whsec_SECRET123!")
		}, channels.ReasonAuth, "secret 2 of 2"},
		{"secret is a prefix alone", func(t *testing.T, o *webhook.Options) {
			writeSecrets(t, o.Secret.File, "whsec_")
		}, channels.ReasonAuth, "secret 1 of 1"},
		{"address does not parse", func(_ *testing.T, o *webhook.Options) {
			o.URL = "http://127.0.0.1:%zz" + path
		}, channels.ReasonConfig, "http"},
		{"address has no host", func(_ *testing.T, o *webhook.Options) { o.URL = path }, channels.ReasonConfig, "http"},
		{"address is no http", func(_ *testing.T, o *webhook.Options) {
			o.URL = "ftp://127.0.0.1" + path
		}, channels.ReasonConfig, "http"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			server, o := setup(t, key1)
			tt.change(t, &o)
			hook := webhook.New(o)
			_ = hook.Credential()
			receipt, err := hook.Post(t.Context(), channelstest.Delivery("A or B?"))
			var r *channels.Refusal
			if !errors.As(err, &r) || r.Reason != tt.reason || !strings.Contains(err.Error(), tt.names) {
				t.Errorf("got %v, want reason %s naming %q", err, tt.reason, tt.names)
			}
			channelstest.NoLeak(t, receipt, err, "SECRET123", path)
			if n := server.Connections(); n != 0 {
				t.Errorf("%d connections were made", n)
			}
		})
	}
}

func TestConnectionsAreReused(t *testing.T) {
	server, o := setup(t)
	hook := webhook.New(o)
	for range 5 {
		if _, err := hook.Post(t.Context(), channelstest.Delivery("A or B?")); err != nil {
			t.Fatal(err)
		}
	}
	if n := server.Connections(); n != 1 {
		t.Errorf("5 posts took %d connections, want 1", n)
	}
}

func TestRedirectWithinTheHostIsFollowed(t *testing.T) {
	server, o := setup(t, key1)
	server.Queue(channelstest.Redirect(307, "/moved"), channelstest.Redirect(308, server.URL()+"/moved/again"))
	if _, err := webhook.New(o).Post(t.Context(), channelstest.Delivery("A or B?")); err != nil {
		t.Fatal(err)
	}
	r := server.Requests()
	if len(r) != 3 || r[1].URI != "/moved" || r[2].URI != "/moved/again" {
		t.Fatalf("requests: %+v", r)
	}
	if !bytes.Equal(r[0].Body, r[2].Body) || r[0].Header.Get("webhook-id") != r[2].Header.Get("webhook-id") {
		t.Error("body or id changed on the way")
	}
}

func TestTimestampIsThatOfTheAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var stamps []string
		hook := webhook.New(webhook.Options{URL: "http://ops.example/hook", Client: &http.Client{
			Transport: roundTripper(func(req *http.Request) *http.Response {
				stamps = append(stamps, req.Header.Get("webhook-timestamp"))
				return &http.Response{StatusCode: 200, Body: io.NopCloser(strings.NewReader(""))}
			}),
		}})
		d := channelstest.Delivery("A or B?")
		for range 2 {
			if _, err := hook.Post(t.Context(), d); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Hour)
		}
		if stamps[0] != "946684800" || stamps[1] != "946688400" { // the bubble begins with the year 2000
			t.Errorf("webhook-timestamp %q", stamps)
		}
	})
}

type roundTripper func(*http.Request) *http.Response

func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req), nil }

func TestDropsRepeats(t *testing.T) {
	var hook channels.Idempotent = webhook.New(webhook.Options{Idempotent: 24 * time.Hour})
	if got := hook.DropsRepeats(); got != 24*time.Hour {
		t.Errorf("DropsRepeats() = %v", got)
	}
}
