package slack

import (
	"encoding/json"
	"testing"
	"time"

	"the-loop/channels"
	"the-loop/channels/channelstest"
)

// decoded gives what message makes of one of Slack's messages.
func decoded(t *testing.T, c *Channel, raw string) (channels.Message, bool) {
	t.Helper()
	var r rawMessage
	if err := json.Unmarshal([]byte(raw), &r); err != nil {
		t.Fatal(err)
	}
	return c.message(r, "github:o/r#7", "1699999999.000100")
}

// introduced is a channel that knows who it posts as.
func introduced(t *testing.T) *Channel {
	t.Helper()
	c := newChannel(t, newSlack(t))
	if _, err := c.whoAmI(t.Context(), channelstest.SlackToken); err != nil {
		t.Fatal(err)
	}
	return c
}

func TestMessage_IsWhatSlackSaysOfIt(t *testing.T) {
	got, ok := decoded(t, introduced(t), `{"type":"message","user":"U7","text":"yes","ts":"1700000000.123456",
		"thread_ts":"1699999999.000100","attachments":[{"text":"a forward"}],"blocks":[{"text":{"text":"no"}}]}`)
	want := channels.Message{
		Key: "slack:C0123456:1700000000.123456", Surface: "slack", Channel: "slack", WorkItem: "github:o/r#7",
		Place: channels.Place{Conversation: room, Thread: "1699999999.000100", ID: "1700000000.123456"},
		From:  channels.Author{ID: "U7", Person: true},
		At:    time.Date(2023, 11, 14, 22, 13, 20, 123456000, time.UTC), Text: "yes",
	}
	if !ok || got != want {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

func TestP12_OnlyAPersonsOwnMessageIsAPersons(t *testing.T) {
	c := introduced(t)
	for rest, want := range map[string]bool{
		`"user":"U7"`: true,
		`"user":"U7","subtype":"thread_broadcast"`:               true,
		`"user":"U7","subtype":"file_share"`:                     true,
		`"user":"U7","subtype":"me_message"`:                     false,
		`"user":"U7","subtype":"channel_join"`:                   false,
		`"user":"U7","subtype":"bot_message"`:                    false,
		`"user":"U7","bot_id":"B7"`:                              false,
		`"user":"U7","app_id":"A7"`:                              false,
		`"user":"U7","subtype":"file_share","bot_id":"B7"`:       false,
		`"subtype":"bot_message","username":"Octo"`:              false,
		`"user":"USLACKBOT"`:                                     false,
		`"username":"Octo"`:                                      false,
		`"user":"U7","subtype":"a_subtype_of_tomorrow"`:          false,
		`"user":"U7","bot_profile":{"id":"B7"},"app_id":"A0123"`: false,
	} {
		m, ok := decoded(t, c, `{"type":"message","text":"yes","ts":"1700000000.123456",`+rest+`}`)
		if !ok || m.From.Person != want || m.From.Us {
			t.Errorf("%s: %+v, %v, want a person: %v", rest, m.From, ok, want)
		}
	}
}

func TestP12_NewsOfAnotherMessageIsNone(t *testing.T) {
	c := introduced(t)
	for _, raw := range []string{
		`{"type":"message","user":"U7","text":"yes"}`,
		`{"type":"message","user":"U7","text":"yes","ts":"soon"}`,
		`{"type":"message","user":"U7","text":"yes","ts":"99999999999999999999.1"}`,
		`{"type":"reaction_added","user":"U7","ts":"1700000000.123456"}`,
		`{"type":"message","hidden":true,"user":"U7","text":"yes","ts":"1700000000.123456"}`,
		`{"type":"message","subtype":"message_changed","ts":"1700000000.123456"}`,
		`{"type":"message","subtype":"message_deleted","ts":"1700000000.123456"}`,
		`{"type":"message","subtype":"message_replied","ts":"1700000000.123456"}`,
		`{"type":"message","subtype":"tombstone","user":"USLACKBOT","ts":"1700000000.123456"}`,
	} {
		if m, ok := decoded(t, c, raw); ok {
			t.Errorf("%s is the message %+v", raw, m)
		}
	}
}

func TestMessage_EditedIsSaid(t *testing.T) {
	c := introduced(t)
	for rest, want := range map[string]bool{`{"user":"U7","ts":"1700000001.000000"}`: true, `null`: false} {
		raw := `{"user":"U7","text":"yes","ts":"1700000000.123456","edited":` + rest + `}`
		if m, ok := decoded(t, c, raw); !ok || m.Edited != want {
			t.Errorf("edited %s: %+v, %v", rest, m, ok)
		}
	}
}

func TestMessage_OurOwnIsKnownByItsBotAndTellsByItsMarker(t *testing.T) {
	const meta = `"metadata":{"event_type":"the_loop_event","event_payload":{"id":"A","part":1,"parts":1`
	c := introduced(t)
	for name, tt := range map[string]struct {
		rest string
		us   bool
		mark *channels.Mark
	}{
		"ours": {
			`"user":"U1","bot_id":"B1",` + meta + `,"code":"7K2","state":"open"}}`,
			true, &channels.Mark{ID: "A", Code: "7K2", Ours: true},
		},
		"closed, and so edited": {
			`"user":"U1","bot_id":"B1","edited":{"ts":"1"},` + meta + `,"code":"7K2","state":"closed"}}`,
			true, &channels.Mark{ID: "A", Code: "7K2", Closed: true, Ours: true},
		},
		"no question": {`"user":"U1","bot_id":"B1",` + meta + `}}`, true, &channels.Mark{ID: "A", Ours: true}},
		"unmarked":    {`"user":"U1","bot_id":"B1"`, true, nil},
		"another's": {
			`"user":"U7","bot_id":"B7",` + meta + `,"code":"7K2"}}`, false, &channels.Mark{ID: "A", Code: "7K2"},
		},
		"another's metadata": {
			`"user":"U1","bot_id":"B1","metadata":{"event_type":"e","event_payload":{"id":"A"}}`, true, nil,
		},
		"strange metadata": {`"user":"U1","bot_id":"B1","metadata":["the_loop_event"]`, true, nil},
		"said in our name": {`"user":"U1","bot_id":"B1","subtype":"channel_join"`, false, nil},
	} {
		t.Run(name, func(t *testing.T) {
			m, ok := decoded(t, c, `{"text":"x","ts":"1700000000.123456",`+tt.rest+`}`)
			same := (m.Mark == nil) == (tt.mark == nil) && (m.Mark == nil || *m.Mark == *tt.mark)
			if !ok || m.From.Us != tt.us || m.From.Person || !same {
				t.Errorf("from %+v with mark %+v, want us %v, %+v", m.From, m.Mark, tt.us, tt.mark)
			}
		})
	}
	stranger := newChannel(t, newSlack(t))
	if m, _ := decoded(t, stranger, `{"text":"x","ts":"1.2","bot_id":"B1",`+meta+`}}}`); m.From.Us || m.Mark.Ours {
		t.Errorf("who never asked who they are takes %+v for their own", m)
	}
}

func TestMessage_TextIsWhatThePersonTyped(t *testing.T) {
	for text, want := range map[string]string{
		"yes":                                     "yes",
		"a &lt; b &amp;&amp; b &gt; c":            "a < b && b > c",
		"&amp;lt;":                                "&lt;",
		"<https://x.example/?a=1&amp;b=2>":        "https://x.example/?a=1&b=2",
		"see <http://x.example|x.example> now":    "see x.example now",
		"<mailto:o@x.example|o@x.example>":        "o@x.example",
		"<https://x.example/1|the ticket>":        "the ticket (https://x.example/1)",
		"<@U123> <@U123|octo> <#C1|room> <#C1|>":  "@U123 @octo #room #C1",
		"<!here> <!subteam^S1|@team> <!channel>":  "@here @team @channel",
		"<!subteam^S1> <!date^1^{date}|18 April>": "@S1 18 April",
		"half <open":                              "half <open",
		"*bold* :+1: `x`":                         "*bold* :+1: `x`",
		"<https://x.example|a &lt;b&gt;>":         "a <b> (https://x.example)",
	} {
		if got := plainText(text); got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
}

// What was escaped comes back as it was, whatever it is.
func FuzzMessage_Text(f *testing.F) {
	for _, s := range []string{"yes", "a<b&&b>c", "&lt;", "<@U1>", "👩‍🚀 <", "|"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if got := plainText(escape(s)); got != s {
			t.Errorf("%q came back as %q", s, got)
		}
		_ = plainText(s) // whatever comes, it ends
	})
}
