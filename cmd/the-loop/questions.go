package main

import (
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"the-loop/internal/eventlog"
	"the-loop/internal/questions"
	"the-loop/internal/term"
)

func questionsCommand(w world) *cli.Command {
	return &cli.Command{
		Name:        "questions",
		Usage:       "look at what was asked, and withdraw it",
		Description: example("the-loop questions list", "the-loop questions withdraw 01KB3Z0000000000000000000A"),
		Subcommands: []*cli.Command{
			{
				Name: "list", Usage: "the open questions",
				Description: example("the-loop questions list --all"),
				Flags:       []cli.Flag{switchFlag("all", "closed ones too"), formatFlag()},
				Action:      withDeployment(w, questionsList),
			},
			{
				Name: "show", Usage: "one question, with its text", ArgsUsage: "ID",
				Description: example("the-loop questions show 01KB3Z0000000000000000000A"),
				Flags:       []cli.Flag{formatFlag()},
				Action:      withDeployment(w, questionsShow),
			},
			{
				Name: "withdraw", Usage: "close a question that nobody needs answered", ArgsUsage: "ID",
				Description: example("the-loop questions withdraw 01KB3Z0000000000000000000A"),
				Flags:       []cli.Flag{formatFlag()},
				Action:      withDeployment(w, questionsWithdraw),
			},
		},
	}
}

func questionsList(c *cli.Context, w world, d *deployment) error {
	asJSON, err := wantsJSON(c)
	if err != nil {
		return err
	}
	if err := noArguments(c); err != nil {
		return err
	}
	all, unreadable, err := questions.List(d.root)
	if err != nil {
		return failed(err)
	}
	if !c.Bool("all") {
		all = slices.DeleteFunc(all, func(q questions.Question) bool { return q.State != questions.Open })
	}
	for _, name := range unreadable {
		printf(w.stderr, "note: questions/%s cannot be read\n", term.Clean(name))
	}
	if asJSON {
		return printJSON(w.stdout, append([]questions.Question{}, all...))
	}
	if len(all) == 0 {
		printf(w.stdout, "no open questions\n")
		return nil
	}
	t := term.Table{Columns: []term.Column{
		{Title: "id"}, {Title: "asked"}, {Title: "state"}, {Title: "about", Flex: true}, {Title: "question", Flex: true},
	}}
	for _, q := range all {
		t.Row(q.ID, term.Ago(time.Now(), q.AskedAt), string(q.State), q.WorkItem, q.Text)
	}
	return t.Write(w.stdout)
}

// question finds the one question that was named.
func (d *deployment) question(c *cli.Context) (questions.Question, error) {
	if c.NArg() != 1 {
		return questions.Question{}, usage("%s wants one id", c.Command.Name).withHint("the-loop questions list")
	}
	id := c.Args().First()
	q, err := questions.Get(d.root, id)
	if errors.Is(err, questions.ErrNone) {
		q, err = questions.Get(d.root, strings.ToUpper(id))
	}
	switch {
	case errors.Is(err, questions.ErrNone):
		return q, usage("%w", err).withHint("the-loop questions list --all")
	case err != nil:
		return q, failed(err)
	}
	return q, nil
}

func questionsShow(c *cli.Context, w world, d *deployment) error {
	asJSON, err := wantsJSON(c)
	if err != nil {
		return err
	}
	q, err := d.question(c)
	if err != nil {
		return err
	}
	if asJSON {
		return printJSON(w.stdout, q)
	}
	row := rows(w)
	row("id", q.ID)
	row("state", string(q.State))
	row("about", q.WorkItem)
	row("asked", q.AskedAt.Format(time.RFC3339)+" ("+term.Ago(time.Now(), q.AskedAt)+")")
	if !q.ClosedAt.IsZero() {
		row("closed", q.ClosedAt.Format(time.RFC3339)+" ("+term.Ago(time.Now(), q.ClosedAt)+")")
	}
	for line := range strings.Lines(q.Text) {
		row("text", strings.TrimRight(line, "\r\n"))
	}
	return nil
}

func questionsWithdraw(c *cli.Context, w world, d *deployment) error {
	asJSON, err := wantsJSON(c)
	if err != nil {
		return err
	}
	q, err := d.question(c)
	if err != nil {
		return err
	}
	if q, err = questions.Close(c.Context, d.root, q.ID, questions.Withdrawn); err != nil {
		return failed(err)
	}
	_ = d.log.Withdrawn(c.Context, eventlog.Subject{
		EntryID: q.ID, EventType: "session.awaiting_input", WorkItem: q.WorkItem,
	})
	if asJSON {
		return printJSON(w.stdout, q)
	}
	printf(w.stdout, "%s is withdrawn\n", q.ID)
	return nil
}
