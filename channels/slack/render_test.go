package slack

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"the-loop/channels"
	"the-loop/channels/channelstest"
)

// posted gives the texts of what the delivery puts into the room.
func posted(t *testing.T, d channels.Delivery, change ...func(o *Options)) []string {
	t.Helper()
	s := newSlack(t)
	if _, err := newChannel(t, s, change...).Post(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	var texts []string
	for _, m := range s.Messages(channelstest.SlackRoom) {
		texts = append(texts, m.Text)
	}
	return texts
}

func TestRender(t *testing.T) {
	full := channels.Event{
		ID: "01KB3Z0000000000000000000A", Type: "session.awaiting_input", WorkItem: "github:o/r#7",
		Text: "A or B?", URL: "https://github.com/o/r/issues/7?a=1&b=2#c", Summary: "choose",
		Detail: map[string]any{"z": "last", "a": map[string]any{"n": 1}}, Actor: &channels.Actor{Name: "Octo"},
	}
	const title = "*<https://github.com/o/r/issues/7?a=1&amp;b=2#c|Question · github:o/r#7>*"
	tests := map[string]struct {
		verbosity channels.Verbosity
		mention   string
		change    func(d *channels.Delivery)
		want      string
	}{
		"quiet":   {verbosity: channels.Quiet, want: title},
		"normal":  {want: title + " · Octo\nchoose\nA or B?"},
		"verbose": {verbosity: channels.Verbose, want: title + " · Octo\nchoose\nA or B?\na: {\"n\":1}\nz: last"},
		"mention": {mention: "<!here>", verbosity: channels.Quiet, want: "<!here> " + title},
		"late": {
			change: func(d *channels.Delivery) { d.At = d.At.Add(-7*time.Hour - time.Minute) },
			want:   title + " · Octo · asked 7h ago\nchoose\nA or B?",
		},
		"no link": {
			change: func(d *channels.Delivery) { d.Event.URL = "javascript:alert(1)" },
			want:   "*Question · github:o/r#7* · Octo\njavascript:alert(1)\nchoose\nA or B?",
		},
		"link with a bar": {
			verbosity: channels.Quiet,
			change:    func(d *channels.Delivery) { d.Event.URL = "https://x.example/?q=|<@U1>" },
			want:      "*<https://x.example/?q=%7C&lt;@U1&gt;|Question · github:o/r#7>*",
		},
		"link that feigns a host": {
			verbosity: channels.Quiet,
			change:    func(d *channels.Delivery) { d.Event.URL = "https://slack.com@evil.example/" },
			want:      "*Question · github:o/r#7*\nhttps://slack.com@evil.example/",
		},
		"nothing but a type": {
			change: func(d *channels.Delivery) { d.Event = channels.Event{Type: "job.failed"} },
			want:   "*Job failed*",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			d := channels.Delivery{Event: full, At: time.Now()}
			if tt.change != nil {
				tt.change(&d)
			}
			texts := posted(t, d, func(o *Options) { o.Verbosity, o.Mention = tt.verbosity, tt.mention })
			if len(texts) != 1 || texts[0] != tt.want {
				t.Errorf("got  %q\nwant %q", texts, tt.want)
			}
		})
	}
}

func TestE01_OnlySlacksThreeCharactersAreEscaped(t *testing.T) {
	texts := posted(t, question("if a < b && b > c: <@U12345>\n*bold* `code` \"'ü\\|"))
	want := "if a &lt; b &amp;&amp; b &gt; c: &lt;@U12345&gt;\n*bold* `code` \"'ü\\|"
	if _, got, _ := strings.Cut(texts[0], "\n"); got != want {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

func TestE04_MentionsAreLiteral(t *testing.T) {
	const evil = "<!channel> <!here> <!everyone> <!subteam^S1> <@U1> <#C1> @channel"
	d := question(evil)
	d.Event.Summary = "summary " + evil
	d.Event.Detail = map[string]any{evil: evil, "nested": []any{evil}}
	d.Event.Actor = &channels.Actor{Name: evil}
	d.Event.WorkItem = evil
	d.Event.Type = "x." + evil
	d.Event.URL = "https://example.com/" + evil
	texts := posted(t, d, func(o *Options) { o.Verbosity, o.Mention = channels.Verbose, "<!subteam^SOPS>" })
	rest, ours := strings.CutPrefix(strings.Join(texts, ""), "<!subteam^SOPS> ")
	if !ours {
		t.Errorf("the operator's mention is not there: %q", texts)
	}
	if strings.ContainsAny(rest, "<>") {
		t.Errorf("markup that is not ours: %q", rest)
	}
	if !strings.Contains(rest, "&lt;!channel&gt; &lt;!here&gt; &lt;!everyone&gt; &lt;!subteam^S1&gt; &lt;@U1&gt;") {
		t.Errorf("the text is not shown as it was: %q", rest)
	}
}

func TestZ02_LongTextInParts(t *testing.T) {
	for _, n := range []int{2_500, 3_001, 13_500, 45_000} {
		units := map[string]string{"letters": "x", "lines": "0123456\n", "escapes": "<>&", "emoji": "👩‍🚀 "}
		for name, unit := range units {
			t.Run(fmt.Sprintf("%d %s", n, name), func(t *testing.T) {
				text := strings.Repeat(unit, n/escapedLen(unit))
				s := newSlack(t)
				d := question(text)
				r, err := newChannel(t, s).Post(t.Context(), d)
				if err != nil {
					t.Fatal(err)
				}
				messages := wantThread(t, s, max(1, len(r.Parts)))
				var got strings.Builder
				for i, m := range messages {
					_, body, _ := strings.Cut(m.Text, "\n")
					got.WriteString(body)
					if n := len([]rune(m.Text)); n > 3000 {
						t.Errorf("part %d has %d characters", i+1, n)
					}
					meta := m.Metadata.Payload
					if meta["id"] != d.Event.ID || meta["part"] != float64(i+1) || meta["parts"] != float64(len(messages)) {
						t.Errorf("part %d has metadata %v", i+1, meta)
					}
				}
				if got.String() != escape(text) {
					t.Error("the text is not complete")
				}
			})
		}
	}
}

func TestZ02_TooLongIsCutWithANotice(t *testing.T) {
	d := question(strings.Repeat("0123456789\n", 100_000))
	texts := posted(t, d)
	if len(texts) != maxParts {
		t.Fatalf("%d parts, want %d", len(texts), maxParts)
	}
	shown := 0
	for _, text := range texts {
		shown += strings.Count(text, "0123456789\n")
	}
	last := texts[maxParts-1]
	want := fmt.Sprintf("_… cut here: %d more characters, event %s_", 1_100_000-11*shown, d.Event.ID)
	if !strings.HasSuffix(last, want) || escapedLen(last) > maxMessage {
		t.Errorf("%d characters, ending in %q, want %q", escapedLen(last), last[len(last)-100:], want)
	}
}

// wantThread checks that the room holds n messages, all of one thread.
func wantThread(t *testing.T, s *channelstest.Slack, n int) []channelstest.SlackMessage {
	t.Helper()
	messages := s.Messages(channelstest.SlackRoom)
	if len(messages) != n {
		t.Fatalf("%d messages in the room, want %d", len(messages), n)
	}
	for _, m := range messages[1:] {
		if m.ThreadTS != messages[0].TS {
			t.Errorf("message %s is in thread %q, want %q", m.TS, m.ThreadTS, messages[0].TS)
		}
	}
	return messages
}
