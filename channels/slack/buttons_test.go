package slack

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"the-loop/channels"
	"the-loop/channels/channelstest"
)

// inquiry is a question with a code and, if any are given, choices as buttons.
func inquiry(text string, choices ...string) channels.Delivery {
	d := question(text)
	d.Event.Detail = channels.Asked{Code: "7K2", Choices: choices, Buttons: len(choices) > 0}.Detail()
	return d
}

// block is what a test looks at in a block.
type block struct {
	Type    string `json:"type"`
	BlockID string `json:"block_id"`
	Text    struct {
		Type     string `json:"type"`
		Text     string `json:"text"`
		Verbatim bool   `json:"verbatim"`
	} `json:"text"`
	Elements []struct {
		Type     string `json:"type"`
		ActionID string `json:"action_id"`
		Value    string `json:"value"`
		Text     struct {
			Type string `json:"type"`
			Text string `json:"text"`
		} `json:"text"`
	} `json:"elements"`
}

func blocksOf(t *testing.T, m channelstest.SlackMessage) (blocks []block) {
	t.Helper()
	if len(m.Blocks) > 0 {
		if err := json.Unmarshal(m.Blocks, &blocks); err != nil {
			t.Fatal(err)
		}
	}
	return blocks
}

func TestButtons_StandBelowTheSameText(t *testing.T) {
	s := newSlack(t)
	d := inquiry("Ship <it>?", "yes", "no & never", "later")
	post(t, newChannel(t, s), d)
	m := s.Messages(room)[0]
	blocks := blocksOf(t, m)
	if len(blocks) != 2 || blocks[0].Type != "section" || blocks[1].Type != "actions" {
		t.Fatalf("blocks %s", m.Blocks)
	}
	if text := blocks[0].Text; text.Text != m.Text || text.Type != "mrkdwn" || !text.Verbatim {
		t.Errorf("the section is %+v, the text %q", text, m.Text)
	}
	if !strings.Contains(m.Text, "Ship &lt;it&gt;?\n1. yes\n2. no &amp; never\n3. later\nReply with") {
		t.Errorf("text %q", m.Text)
	}
	actions := blocks[1]
	if actions.BlockID != "the_loop_question" || len(actions.Elements) != 3 {
		t.Fatalf("actions %+v", actions)
	}
	for i, label := range []string{"yes", "no & never", "later"} {
		b := actions.Elements[i]
		if b.Type != "button" || b.ActionID != fmt.Sprint("the_loop_choice_", i) || b.Text.Type != "plain_text" ||
			b.Text.Text != label || b.Value != fmt.Sprintf(`{"q":%q,"c":%d}`, d.Event.ID, i) {
			t.Errorf("button %d is %+v", i, b)
		}
	}
}

func TestButtons_OnlyWhereAPressCanComeBack(t *testing.T) {
	for name, a := range map[string]channels.Asked{
		"no way back":      {Code: "7K2", Choices: []string{"yes", "no"}},
		"no choices":       {Code: "7K2", Buttons: true},
		"one choice":       {Code: "7K2", Buttons: true, Choices: []string{"yes"}},
		"too many choices": {Code: "7K2", Buttons: true, Choices: strings.Split("abcde", "")},
		"no code":          {Choices: []string{"yes", "no"}, Buttons: true},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSlack(t)
			d := question("Ship it?")
			d.Event.Detail = a.Detail()
			post(t, newChannel(t, s), d)
			if form := s.Forms("chat.postMessage")[0]; form.Has("blocks") {
				t.Errorf("blocks %s", form.Get("blocks"))
			}
		})
	}
}

func TestButtons_LabelsAreCutBetweenGraphemeClusters(t *testing.T) {
	const astronaut = "👩‍🚀" // five UTF-16 units
	for choice, want := range map[string]string{
		"yes":                              "yes",
		strings.Repeat("x", 75):            strings.Repeat("x", 75),
		strings.Repeat("x", 76):            strings.Repeat("x", 74) + "…",
		strings.Repeat("x", 73) + " yes":   strings.Repeat("x", 73) + "…",
		strings.Repeat("<&>", 25):          strings.Repeat("<&>", 25), // nothing is escaped here
		strings.Repeat(astronaut, 15):      strings.Repeat(astronaut, 15),
		strings.Repeat(astronaut, 16):      strings.Repeat(astronaut, 14) + "…",
		"two\nlines":                       "two lines",
		" \n ":                             "2",
		"e" + strings.Repeat("\u0301", 80): "…",
	} {
		if got := buttonLabel(choice, 1); got != want || utf16Len(got) > maxLabel || !utf8.ValidString(got) {
			t.Errorf("%q: got %q, want %q", choice, got, want)
		}
	}
}

// Whatever the length: the hint ends the last part, the buttons stand on it and
// nowhere else, and only the first part tells the code.
func TestZ02_TheHintEndsTheLastPart(t *testing.T) {
	for _, verbosity := range []channels.Verbosity{channels.Quiet, channels.Normal, channels.Verbose} {
		for _, n := range []int{1, 2_400, 2_700, 2_800, 5_400, 13_500, 45_000, 200_000} {
			t.Run(fmt.Sprintf("%d %s", n, verbosity), func(t *testing.T) {
				s := newSlack(t)
				d := inquiry(strings.Repeat("x", n), "yes", "no")
				d.Event.URL = "https://x.example/" + strings.Repeat("a", 900)
				post(t, newChannel(t, s, func(o *Options) { o.Verbosity = verbosity }), d)
				messages := s.Messages(room)
				const hint = "\n1. yes\n2. no\nReply with a choice or its number; " +
					"begin with 7K2 if more than one question is open here."
				for i, m := range messages {
					last := i == len(messages)-1
					if strings.HasSuffix(m.Text, hint) != last || (len(blocksOf(t, m)) > 0) != last {
						t.Errorf("part %d of %d ends in %q with blocks %.30s", i+1, len(messages), tail(m.Text), m.Blocks)
					}
					if escapedLen(m.Text) > maxMessage {
						t.Errorf("part %d has %d characters", i+1, escapedLen(m.Text))
					}
					meta := m.Metadata.Payload
					if (meta["code"] == "7K2") != (i == 0) || (meta["state"] == "open") != (i == 0) {
						t.Errorf("part %d has metadata %v", i+1, meta)
					}
				}
				last := messages[len(messages)-1].Text
				if cut := strings.Contains(last, "cut here"); cut != (n == 200_000 && verbosity != channels.Quiet) {
					t.Errorf("cut: %v: %q", cut, tail(last))
				}
			})
		}
	}
}

func tail(s string) string { return s[max(0, len(s)-150):] }

func TestZ02_LongChoicesLeaveRoomForTheQuestion(t *testing.T) {
	s := newSlack(t)
	long := strings.Repeat("&", 5_000)
	d := inquiry("Ship it?", long, long, "no", "later")
	post(t, newChannel(t, s), d)
	messages := s.Messages(room)
	text := messages[len(messages)-1].Text
	if len(messages) != 1 || !strings.Contains(text, "Ship it?") || !strings.Contains(text, ";…\n2. &amp;") ||
		!strings.HasSuffix(text, "begin with 7K2 if more than one question is open here.") ||
		utf8.RuneCountInString(text) > 3000 {
		t.Errorf("%d messages, %d characters, %q", len(messages), utf8.RuneCountInString(text), tail(text))
	}
}

// An event's detail that was written to the outbox and read again.
func TestButtons_SurviveTheOutbox(t *testing.T) {
	d := inquiry("Ship it?", "yes", "no")
	b, err := d.Event.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if d.Event, err = channels.DecodeEvent(b); err != nil {
		t.Fatal(err)
	}
	s := newSlack(t)
	post(t, newChannel(t, s), d)
	if blocks := blocksOf(t, s.Messages(room)[0]); len(blocks) != 2 {
		t.Errorf("%d blocks", len(blocks))
	}
}
