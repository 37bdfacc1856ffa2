package slack

import (
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf16"

	"github.com/rivo/uniseg"
	slackapi "github.com/slack-go/slack"

	"the-loop/channels"
)

// What the metadata of a question's first part says of it.
const (
	stateOpen   = "open"
	stateClosed = "closed"
)

// A question's buttons stand in one block. What a button sends back when it is
// pressed is its value, a buttonValue as JSON.
const (
	questionBlock = "the_loop_question"
	choiceAction  = "the_loop_choice_" // and the choice, from 0
)

// maxLabel is how many characters a button's text may have.
const maxLabel = 75

// buttonValue is well below the 2,000 characters that a button's value may
// have: an event's id has 64 at most.
type buttonValue struct {
	Question string `json:"q"` // the event's id
	Choice   int    `json:"c"` // from 0
}

// withButtons gives the blocks of a message that ends in the choices as
// buttons: text, and below it a button for each. None when there are no two to
// four choices, or a press cannot come back.
func withButtons(text, id string, asked channels.Asked) []slackapi.Block {
	if n := len(asked.Choices); !asked.Buttons || n < 2 || n > 4 {
		return nil
	}
	buttons := make([]slackapi.BlockElement, len(asked.Choices))
	for i, choice := range asked.Choices {
		value, _ := json.Marshal(buttonValue{id, i}) // cannot fail
		label := slackapi.NewTextBlockObject(slackapi.PlainTextType, buttonLabel(choice, i), false, false)
		buttons[i] = slackapi.NewButtonBlockElement(fmt.Sprint(choiceAction, i), string(value), label)
	}
	return []slackapi.Block{
		// verbatim: Slack is to make no mention or link of its own out of it.
		slackapi.NewSectionBlock(slackapi.NewTextBlockObject(slackapi.MarkdownType, text, false, true), nil, nil),
		slackapi.NewActionBlock(questionBlock, buttons...),
	}
}

// buttonLabel is the choice on one line, cut between two grapheme clusters
// when it is too long. Plain text is not escaped.
func buttonLabel(choice string, i int) string {
	text := channels.OneLine(choice)
	if text == "" {
		return fmt.Sprint(i + 1)
	}
	if utf16Len(text) <= maxLabel {
		return text
	}
	var b strings.Builder
	used, state := 0, -1
	for rest := text; rest != ""; {
		var cluster string
		cluster, rest, _, state = uniseg.FirstGraphemeClusterInString(rest, state)
		if used += utf16Len(cluster); used > maxLabel-1 {
			break
		}
		b.WriteString(cluster)
	}
	return strings.TrimRight(b.String(), " ") + "…"
}

func utf16Len(s string) int { return len(utf16.Encode([]rune(s))) }

// maxHint bounds what a question's hint takes of each part. With longer choices
// each of them is cut to maxChoice; a button, or its number, still means all
// of it.
const (
	maxHint   = 1000
	maxChoice = 180
)

// hintOf gives how to answer, escaped; "" for what is no question with a code.
func hintOf(e channels.Event) string {
	asked, ok := channels.AskedOf(e)
	if !ok {
		return ""
	}
	if hint := escape(asked.Hint()); escapedLen(asked.Hint()) <= maxHint {
		return hint
	}
	short := make([]string, len(asked.Choices))
	for i, choice := range asked.Choices {
		choice = channels.OneLine(choice)
		pieces, left := cutText(choice, 1, maxChoice, 0)
		short[i] = strings.Join(pieces, "")
		if left != "" {
			short[i] += "…"
		}
	}
	asked.Choices = short
	return escape(asked.Hint())
}
