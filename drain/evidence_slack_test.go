package drain_test

import (
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"the-loop/channels"
	"the-loop/channels/channelstest"
	"the-loop/channels/slack"
	"the-loop/drain"
	"the-loop/outbox"
)

func slackSite(t *testing.T, again bool) (*channelstest.Slack, *site) {
	t.Helper()
	fake := channelstest.NewSlack(t)
	fake.SetPace(0)
	token := filepath.Join(t.TempDir(), "slack.token")
	if err := os.WriteFile(token, []byte(channelstest.SlackToken+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	r := route(slack.New(slack.Options{
		Name: "slack", Channel: channelstest.SlackRoom, Token: channels.Secret{File: token},
		APIURL: fake.APIURL(), Client: client,
	}))
	r.SendAgain = again
	return fake, newSite(t, r)
}

// drainUntil runs cycles, one after the other, until done or the limit.
func (s *site) drainUntil(t *testing.T, done func() bool) {
	t.Helper()
	o := s.options()
	o.Interval, o.EvidenceAfter = 40*time.Millisecond, 40*time.Millisecond
	d := drain.New(o)
	for limit := time.Now().Add(20 * time.Second); !done(); {
		if time.Now().After(limit) {
			t.Fatalf("not after 20 s: %v", s.entries(t))
		}
		if err := s.store.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, err := d.Cycle(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

func TestD01_SlackKeptTheMessageAndDroppedTheConnection(t *testing.T) {
	fake, s := slackSite(t, true)
	fake.Queue(fake.StoreThen(channelstest.DropRead()))
	id := s.doubt(t)
	s.drainUntil(t, func() bool { return len(s.entries(t)) == 0 })
	if n := len(fake.Messages(channelstest.SlackRoom)); n != 1 {
		t.Errorf("%d messages", n)
	}
	if n := len(fake.Forms("chat.postMessage")); n != 1 {
		t.Errorf("%d requests", n)
	}
	l := s.told(t, id)
	if d := l.Deliveries["slack"]; l.How != outbox.LeftDelivered || d.Reason != channels.ReasonFound || d.Ref == "" {
		t.Errorf("%+v, %+v", l, d)
	}
	if lines := s.lines(t, id); lines["channel.uncertain"] != 1 || lines["channel.found"] != 1 {
		t.Errorf("the story is %v", lines)
	}
}

func TestD01_SlackDroppedTheConnectionBeforeItKeptTheMessage(t *testing.T) {
	fake, s := slackSite(t, true)
	fake.Queue(channelstest.DropRead())
	id := s.doubt(t)
	s.drainUntil(t, func() bool { return len(s.entries(t)) == 0 })
	messages := fake.Messages(channelstest.SlackRoom)
	if len(messages) != 1 || len(fake.Forms("chat.postMessage")) != 2 {
		t.Fatalf("%d messages by %d requests", len(messages), len(fake.Forms("chat.postMessage")))
	}
	l := s.told(t, id)
	if l.How != outbox.LeftResent || l.Deliveries["slack"].Reason != channels.ReasonLost {
		t.Errorf("%+v", l)
	}
	again := s.told(t, l.ResentAs)
	if again.How != outbox.LeftDelivered || again.Deliveries["slack"].Ref != messages[0].TS {
		t.Errorf("%+v", again)
	}
}

func TestD01_SlackLostItAndSendAgainIsAPersons(t *testing.T) {
	fake, s := slackSite(t, false)
	fake.Queue(channelstest.DropRead())
	id := s.doubt(t)
	lost := func() bool { return s.delivery(t, id, "slack").State == channels.StateLost }
	s.drainUntil(t, lost)
	for range 20 {
		s.cycle(t, s.drainer())
	}
	if n := len(fake.Forms("chat.postMessage")); n != 1 {
		t.Errorf("%d requests", n)
	}
	newID, err := s.store.SendAgain(t.Context(), id, false, func(string) bool { return true })
	if err != nil {
		t.Fatal(err)
	}
	s.drainUntil(t, func() bool { return len(s.entries(t)) == 0 })
	if n := len(fake.Messages(channelstest.SlackRoom)); n != 1 {
		t.Errorf("%d messages", n)
	}
	if l := s.told(t, id); l.ResentAs != newID || slices.Contains([]string{"", id}, newID) {
		t.Errorf("%+v, sent again as %q", l, newID)
	}
}
