package bus_test

import (
	"context"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"the-loop/bus"
	"the-loop/channels"
	"the-loop/channels/channelstest"
	"the-loop/channels/slack"
	"the-loop/channels/webhook"
	"the-loop/outbox"
	"the-loop/state"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// client keeps no connection, so that nothing is left of a test.
func client() *http.Client {
	return &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
}

func hook(name, url string) *webhook.Channel {
	return webhook.New(webhook.Options{Name: name, URL: url, Client: client()})
}

// room gives a Slack channel that speaks to the fake over loopback.
func room(t *testing.T, fake *channelstest.Slack) *slack.Channel {
	t.Helper()
	t.Setenv("ROOM_TOKEN", channelstest.SlackToken)
	return slack.New(slack.Options{
		Name: "slack", Channel: channelstest.SlackRoom, Token: channels.Secret{Env: "ROOM_TOKEN"},
		APIURL: fake.APIURL(), Client: client(),
	})
}

func newServer(t *testing.T) *channelstest.Server {
	t.Helper()
	s := channelstest.NewServer(nil)
	t.Cleanup(s.Close)
	return s
}

func TestL01_SlacksNoInsideA200IsARefusal(t *testing.T) {
	fake := channelstest.NewSlack(t)
	fake.Always(channelstest.SlackError("not_authed"))
	s := newSite(t, all(room(t, fake)))
	res := s.bus.Publish(t.Context(), question("A or B?"))
	wantPosts(t, res, "slack refused auth not_authed")
	if !res.Queued || res.Accepted() != 0 {
		t.Errorf("queued %v", res.Queued)
	}
	e := s.entry(t)
	if d := e.Deliveries["slack"]; d.State != channels.StateRefused || d.Reason != channels.ReasonAuth ||
		d.Code != "not_authed" || e.LastError != "slack: post failed: not_authed" {
		t.Errorf("entry %+v, delivery %+v", e, d)
	}
	raw, err := os.ReadFile(s.root.Path(state.Outbox))
	if err != nil || !strings.Contains(string(raw), "not_authed") {
		t.Errorf("%s (%v)", raw, err)
	}
}

func TestL13_PartlyDeliveredIsSaidByName(t *testing.T) {
	server, fake := newServer(t), channelstest.NewSlack(t)
	server.Always(channelstest.Answer(500, ""))
	s := newSite(t, all(hook("ops", server.URL())), all(room(t, fake)))
	res := s.bus.Publish(t.Context(), question("A or B?"))
	wantPosts(t, res, "ops uncertain unknown http_500; slack accepted  ")
	if res.Queued || len(s.entries(t)) > 0 {
		t.Error("queued, though Slack has it")
	}
	partly := s.lines(t, "channel.partly_delivered")
	if len(partly) != 1 || !slices.Equal(partly[0].Channels, []string{"ops"}) ||
		!strings.HasPrefix(partly[0].Error, "ops: outcome unknown: http_500") {
		t.Errorf("partly delivered: %+v", partly)
	}
	published := s.lines(t, "bus.published")
	if len(published) != 1 || *published[0].ChannelsPosted != 1 ||
		!slices.Equal(published[0].Channels, []string{"ops", "slack"}) {
		t.Errorf("published: %+v", published)
	}
}

func TestG03_MissingTokenIsNamedAndUsesNoAttempt(t *testing.T) {
	fake := channelstest.NewSlack(t)
	c := room(t, fake)
	t.Setenv("ROOM_TOKEN", "")
	s := newSite(t, all(c))
	res := s.bus.Publish(t.Context(), question("A or B?"))
	wantPosts(t, res, "slack refused auth no_secret")
	if want := "post failed: no_secret (variable ROOM_TOKEN is not set)"; res.Posts[0].Error != want {
		t.Errorf("error %q, want %q", res.Posts[0].Error, want)
	}
	if d := s.entry(t).Deliveries["slack"]; d.Attempts != 0 || s.entry(t).Attempts != 0 {
		t.Errorf("used %d attempts", d.Attempts)
	}
	if n := len(fake.Requests()); n > 0 {
		t.Errorf("%d requests", n)
	}
	t.Setenv("ROOM_TOKEN", channelstest.SlackToken)
	wantPosts(t, s.bus.Publish(t.Context(), question("again")), "slack accepted  ")
}

func TestM01_TheAddressIsASecret(t *testing.T) {
	const secret, path = "SECRET123", "/services/T0/B0/SECRET123"
	server := newServer(t)
	host := strings.TrimPrefix(server.URL(), "http://")
	for name, tt := range map[string]struct {
		fault *channelstest.Fault
		url   string
		want  string
	}{
		"refused":  {nil, "http://127.0.0.1:1" + path, "ops refused down refused"},
		"dns":      {nil, "http://nowhere.invalid" + path, "ops refused down dns"},
		"bad url":  {nil, "http://127.0.0.1:1:1" + path, "ops refused config bad_url"},
		"timeout":  {fault(channelstest.Hang()), server.URL() + path, "ops uncertain unknown timeout"},
		"429":      {fault(channelstest.Answer(429, "")), server.URL() + path, "ops refused rate http_429"},
		"redirect": {fault(channelstest.Redirect(302, "/"+secret)), server.URL() + path, "ops refused redirect http_302"},
		"500": {
			fault(channelstest.Answer(500, path, "X-Path: "+path)), server.URL() + path,
			"ops uncertain unknown http_500",
		},
	} {
		if tt.fault != nil {
			server.Always(*tt.fault)
		}
		r := all(hook("ops", tt.url))
		r.Timeout = 150 * time.Millisecond
		if name == "dns" {
			r.Timeout = 0 // a resolver that is not there takes its time
		}
		s := newSite(t, r)
		res := s.bus.Publish(t.Context(), question("A or B?"))
		if name == "dns" && posts(res) == "ops refused down timeout" {
			tt.want = posts(res)
		}
		wantPosts(t, res, tt.want)
		shown := map[string]string{
			"refused": "127.0.0.1:1", "dns": "nowhere.invalid", "bad url": "want an http or https address",
		}[name]
		if shown == "" {
			shown = host
		}
		if !strings.Contains(res.Posts[0].Error, shown) {
			t.Errorf("%s: %q does not show %s", name, res.Posts[0].Error, shown)
		}
		s.bus.Publish(t.Context(), question("held by now"))
		wantNowhere(t, s.root, secret, res)
	}
}

func fault(f channelstest.Fault) *channelstest.Fault { return &f }

func TestP05_AHangingServerCostsItsTimeoutAndIsUncertain(t *testing.T) {
	for name, f := range map[string]channelstest.Fault{
		"silence":           channelstest.Hang(),
		"one byte a moment": channelstest.Drip(200, 20*time.Millisecond),
		"half a body":       channelstest.HangInBody(200),
	} {
		hanging, healthy := newServer(t), newServer(t)
		hanging.Always(f)
		slow := required(hook("slow", hanging.URL()))
		slow.Timeout = 200 * time.Millisecond
		s := newSite(t, slow, all(hook("well", healthy.URL())))
		began := time.Now()
		res := s.bus.Publish(t.Context(), question("A or B?"))
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("%s: took %s", name, took)
		}
		wantPosts(t, res, "slow uncertain unknown timeout; well accepted  ")
		if e := s.entry(t); e.Deliveries["slow"].State != channels.StateUncertain || len(hanging.Requests()) != 1 {
			t.Errorf("%s: %d requests, delivery %+v", name, len(hanging.Requests()), e.Deliveries["slow"])
		}
	}
}

// unwritable gives roots that cannot be written, as root too.
func unwritable(t *testing.T) map[string]*state.Root {
	t.Helper()
	open := func(dir string) *state.Root {
		root, err := state.Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		return root
	}
	inTheWay := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(inTheWay, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	roots := map[string]*state.Root{
		"every write fails": open(filepath.Join(t.TempDir(), "root")).WithSteps(readOnly),
		"a foreign folder":  open("/proc/self/the-loop"),
		"a file in the way": open(filepath.Join(inTheWay, "root")),
	}
	if os.Geteuid() != 0 {
		dir := t.TempDir()
		if err := os.Chmod(dir, 0o500); err != nil {
			t.Fatal(err)
		}
		roots["read-only folder"] = open(dir)
	}
	return roots
}

func readOnly(op state.Op, _ string) error {
	if op == state.OpRead {
		return nil
	}
	return syscall.EROFS
}

func TestF09_UnwritableRootStopsNoMessage(t *testing.T) {
	for name, root := range unwritable(t) {
		c := &fake{name: "room"}
		res := siteOn(root, all(c)).bus.Publish(t.Context(), question("A or B?"))
		if c.calls() != 1 || res.Accepted() != 1 || res.Stored || res.Queued || len(res.Notes) == 0 || res.Lost() {
			t.Errorf("%s: asked %d times, result %+v", name, c.calls(), res)
		}
		for _, refuses := range []*fake{
			refusing("room", channels.ReasonAuth, "invalid_auth"), silentNow("room"), panicking("room"),
		} {
			res := siteOn(root, all(refuses)).bus.Publish(t.Context(), question("A or B?"))
			if refuses.calls() != 1 || !res.Lost() || res.Stored || res.Queued {
				t.Errorf("%s: asked %d times, result %+v", name, refuses.calls(), res)
			}
			if !strings.Contains(strings.Join(res.Notes, "\n"), "the event could not be kept: ") {
				t.Errorf("%s: notes %q", name, res.Notes)
			}
		}
	}
}

func TestF09_OnlyTheEventLogIsUnwritable(t *testing.T) {
	root, err := state.Open(filepath.Join(t.TempDir(), "root"))
	if err != nil {
		t.Fatal(err)
	}
	root = root.WithSteps(func(_ state.Op, path string) error {
		if strings.Contains(path, "logs") {
			return syscall.ENOSPC
		}
		return nil
	})
	res := siteOn(root, all(silentNow("room"))).bus.Publish(t.Context(), question("A or B?"))
	if !res.Queued || !res.Stored || len(res.Notes) != 1 {
		t.Errorf("an event that is in the outbox: %+v", res)
	}
}

// brokenStore fails in every way that there is.
type brokenStore struct{ fail func() error }

func (s brokenStore) MayAsk(context.Context, outbox.Asker) (bool, *outbox.Standing, error) {
	return false, nil, s.fail()
}

func (s brokenStore) Observe(context.Context, outbox.Asker, string, channels.Outcome) error {
	return s.fail()
}

func (s brokenStore) Pace(context.Context, string, time.Duration, time.Time) (time.Time, bool, error) {
	return time.Time{}, false, s.fail()
}

func (s brokenStore) Begin(
	context.Context, channels.Event, time.Time, []outbox.Planned, bool,
) (*outbox.Intent, error) {
	return nil, s.fail()
}

func (s brokenStore) Remember(context.Context, *outbox.Entry, *outbox.Intent) error { return s.fail() }

func TestP7_NothingBreaksThePublisher(t *testing.T) {
	for name, fail := range map[string]func() error{
		"error": func() error { return errors.New("broken") },
		"panic": func() error { panic("SECRET123") },
	} {
		b := bus.Bus{
			Routes: []bus.Route{required(panicking("bad")), all(&fake{name: "good"}), all(credulous{panicking("worse")})},
			Store:  brokenStore{fail}, Standing: brokenStore{fail},
			Ledger: ledgerFunc(func(context.Context, channels.Event) (string, error) { return "", fail() }),
		}
		res := b.Publish(t.Context(), question("A or B?"))
		wantPosts(t, res, "bad uncertain unknown panic; good accepted  ; worse uncertain unknown panic")
		if res.Recorded != bus.RecordedNo || res.Stored || res.Queued || len(res.Notes) != 2 {
			t.Errorf("%s: %+v", name, res)
		}
		root, err := state.Open(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		wantNowhere(t, root, "SECRET123", res)
	}
	var zero bus.Bus
	if res := zero.Publish(t.Context(), question("?")); res.Err != nil || res.Lost() || len(res.Posts) > 0 {
		t.Errorf("the zero bus: %+v", res)
	}
	if res := zero.PostTo(t.Context(), question("?"), bus.Route{Channel: panicking("bad")}); res.Accepted() > 0 {
		t.Errorf("PostTo: %+v", res)
	}
}

// credulous panics when it is asked for its credential.
type credulous struct{ *fake }

func (credulous) Credential() string { panic("SECRET123") }

func TestP7_PanickingChannelIsKeptAndWaitsForAPerson(t *testing.T) {
	s := newSite(t, all(panicking("room")))
	res := s.bus.Publish(t.Context(), question("A or B?"))
	wantPosts(t, res, "room uncertain unknown panic")
	e := s.entry(t)
	if !res.Queued || !e.NeedsPerson(time.Now(), func(string) outbox.Lane { return outbox.Lane{} }) {
		t.Errorf("queued %v, %+v", res.Queued, e.Deliveries["room"])
	}
	wantNowhere(t, s.root, "SECRET123", res)
}

func TestP9_TextAndTokenStayOutOfTheEventLog(t *testing.T) {
	fake := channelstest.NewSlack(t)
	fake.Queue(channelstest.SlackError("channel_not_found"))
	s := newSite(t, all(room(t, fake)), all(refusing("b", channels.ReasonOther, "Text of PRIVATE message")))
	s.bus.Ledger = ledgerFunc(func(context.Context, channels.Event) (string, error) { return "", errors.New("PRIVATE") })
	for range 2 {
		ev := question("PRIVATE")
		ev.Summary, ev.Detail = "PRIVATE", map[string]any{"k": "PRIVATE"}
		s.bus.Publish(t.Context(), ev)
	}
	if len(s.lines(t, "channel.undelivered")) != 2 {
		t.Fatal("not two undelivered events")
	}
	for _, path := range files(t, s.root.Path("logs")) {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, secret := range []string{"PRIVATE", channelstest.SlackToken} {
			if strings.Contains(string(b), secret) {
				t.Errorf("%s stands in the event log", secret)
			}
		}
	}
	wantNowhere(t, s.root, channelstest.SlackToken)
}
