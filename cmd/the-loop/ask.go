package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"the-loop/bus"
	"the-loop/channels"
	"the-loop/internal/eventlog"
	"the-loop/internal/questions"
	"the-loop/internal/term"
	"the-loop/state"
)

func askCommand(w world) *cli.Command {
	return &cli.Command{
		Name:  "ask",
		Usage: "record a question and send it to whoever can answer",
		Description: example(
			`the-loop ask --work-item github:octo/app#7 --question "Ship it?"`,
			`the-loop ask --work-item local:release#3 --question-file question.txt`,
		),
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "work-item", Usage: "about `REF`: github:owner/repo#7 or local:name#1"},
			&cli.StringFlag{Name: "question", Usage: "the question, `TEXT`"},
			&cli.StringFlag{Name: "question-file", Usage: "read the question from `FILE`, - for stdin"},
			formatFlag(),
		},
		Action: func(c *cli.Context) error { return ask(c, w) },
	}
}

func ask(c *cli.Context, w world) error {
	asJSON, err := wantsJSON(c)
	if err != nil {
		return err
	}
	if err := noArguments(c); err != nil {
		return err
	}
	item := c.String("work-item")
	if item == "" {
		return usage("--work-item is needed").withHint("github:owner/repo#7 or local:name#1")
	}
	if _, err := channels.ParseWorkItem(item); err != nil {
		return usage("--work-item: %w", err)
	}
	d, err := open(c, w)
	if err != nil {
		return err
	}
	question, err := textFromFlags(c, w, "question", "question-file", d.config.Limits.Text)
	if err != nil {
		return err
	}
	if strings.TrimSpace(question) == "" {
		return usage("the question is empty").withHint("%s --help", c.Command.HelpName)
	}
	id := state.NewID()
	text, _ := channels.CleanText(question)
	opened := questions.Ask(c.Context, d.root, questions.Question{
		ID: id, WorkItem: item, Text: text, AskedAt: time.Now().UTC().Truncate(time.Second),
	})
	res := d.publish(c.Context, channels.Event{
		ID: id, Type: "session.awaiting_input", WorkItem: item, Text: question, Source: "cli", Detail: map[string]any{},
	})
	if opened != nil { // it is asked all the same
		res.Notes = append(res.Notes, fmt.Sprintf("the question is not in the list of open ones: %v", opened))
	}
	if res.Err != nil {
		return &failure{code: exitUsage, err: res.Err}
	}
	if res.Recorded != bus.RecordedNo {
		sub := eventlog.Subject{EntryID: res.ID, EventType: res.Event.Type, WorkItem: item}
		_ = d.log.Asked(c.Context, sub, res.Accepted())
	}
	printNotes(w, d, res)
	printUnanswerable(w, d, res)
	switch {
	case asJSON:
		err = printPublishJSON(w, res)
	case res.Recorded == bus.RecordedNo && res.Lost():
		err = printEvent(w.stdout, res.Event)
	case res.Record != "":
		printf(w.stdout, "%s\n", term.Clean(res.Record))
	default:
		printf(w.stdout, "%s\n", res.ID)
	}
	if res.Recorded == bus.RecordedNo && res.Lost() {
		if err := rescue(w, res.Event, err); err != nil {
			return failed(err)
		}
	} else {
		besideThePoint(w)
	}
	if res.Recorded == bus.RecordedNo {
		return failed(fmt.Errorf("the question could not be recorded: %w", res.RecordErr))
	}
	return nil
}

// printUnanswerable tells the asking session that nobody has seen the question
// yet. It changes neither the outcome nor the exit code: the record decides.
func printUnanswerable(w world, d *deployment, res bus.Result) {
	if len(res.Posts) == 0 || res.Accepted() > 0 {
		return
	}
	var why []string
	redelivered := false // by itself
	for _, p := range res.Posts {
		why = append(why, fmt.Sprintf("%s: %s", p.Channel, p.Code))
		redelivered = redelivered || p.State != channels.StateUncertain || d.redelivers(p.Channel)
	}
	reasons := term.Clean(strings.Join(why, ", "))
	switch {
	case res.Queued && redelivered:
		printf(w.stderr, "note: no channel took this question (%s); it is queued for\n"+
			"redelivery and `the-loop status` counts it until it lands\n", reasons)
	case res.Queued:
		printf(w.stderr, "note: no answer says whether this question arrived (%s); it is not sent\n"+
			"again by itself, and `the-loop status` counts it until a person has looked\n", reasons)
	default:
		printf(w.stderr, "note: no channel took this question (%s), and it could not\n"+
			"be kept for redelivery\n", reasons)
	}
}

// redelivers reports whether a send without an answer is settled by itself: the
// receiver drops repeats, or the channel can be looked up.
func (d *deployment) redelivers(channel string) bool {
	l := d.lane(channel)
	return l.DropsRepeats > 0 || l.Witness
}
