package main

import (
	"errors"
	"fmt"
	"os"
	"os/user"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"the-loop/channels"
	"the-loop/internal/inbound"
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
				Name: "answer", Usage: "answer a question at the terminal", ArgsUsage: "ID TEXT",
				Description: example(`the-loop questions answer 7K2 "after lunch"`),
				Flags:       []cli.Flag{formatFlag()},
				Action:      withDeployment(w, questionsAnswer),
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
		all = slices.DeleteFunc(all, func(q questions.Question) bool { return q.State != questions.StateOpen })
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
		{Title: "id"},
		{Title: "code"},
		{Title: "asked"},
		{Title: "state"},
		{Title: "about", Flex: true},
		{Title: "question", Flex: true},
	}}
	for _, q := range all {
		t.Row(q.ID, q.Code, term.Ago(time.Now(), q.AskedAt), string(q.State), q.WorkItem, q.Text)
	}
	return t.Write(w.stdout)
}

// question finds the one question that was named.
func (d *deployment) question(c *cli.Context) (questions.Question, error) {
	if c.NArg() != 1 {
		return questions.Question{}, usage("%s wants one id", c.Command.Name).withHint("the-loop questions list")
	}
	return d.questionNamed(c.Args().First())
}

// questionNamed finds a question by its id, or else by its code: the open one
// that has it, or the one that had it last.
func (d *deployment) questionNamed(name string) (questions.Question, error) {
	q, err := questions.Get(d.root, name)
	if errors.Is(err, questions.ErrNone) {
		if q, ok := d.questionOfCode(name); ok {
			return q, nil
		}
		q, err = questions.Get(d.root, strings.ToUpper(name))
	}
	switch {
	case errors.Is(err, questions.ErrNone):
		return q, usage("%w", err).withHint("the-loop questions list --all")
	case err != nil:
		return q, failed(err)
	}
	return q, nil
}

func (d *deployment) questionOfCode(code string) (found questions.Question, ok bool) {
	all, _, _ := questions.List(d.root) // what cannot be read has no code
	for _, q := range all {
		if q.Code == "" || !strings.EqualFold(q.Code, code) {
			continue
		}
		found, ok = q, true
		if q.State == questions.StateOpen {
			break
		}
	}
	return found, ok
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
	row("code", q.Code)
	row("state", string(q.State))
	row("about", q.WorkItem)
	row("asked", q.AskedAt.Format(time.RFC3339)+" ("+term.Ago(time.Now(), q.AskedAt)+")")
	if !q.ClosedAt.IsZero() {
		row("closed", q.ClosedAt.Format(time.RFC3339)+" ("+term.Ago(time.Now(), q.ClosedAt)+")")
	}
	if q.State == questions.StateOpen && !q.ExpiresAt.IsZero() {
		row("expires", q.ExpiresAt.Format(time.RFC3339))
	}
	if q.Link != "" {
		row("record", q.Link)
	}
	for line := range strings.Lines(q.Text) {
		row("text", strings.TrimRight(line, "\r\n"))
	}
	for i, choice := range q.Choices {
		row("choice", fmt.Sprintf("%d. %s", i+1, choice))
	}
	if q.Answer != nil {
		for line := range strings.Lines(q.Answer.Text) {
			row("answer", strings.TrimRight(line, "\r\n"))
		}
		row("by", fmt.Sprintf("%s, via %s, %s", firstOf(q.Answer.By.Name, q.Answer.By.Login, q.Answer.By.ID, "nobody"),
			q.Answer.Via, q.Answer.At.Format(time.RFC3339)))
	}
	return nil
}

func questionsAnswer(c *cli.Context, w world, d *deployment) error {
	asJSON, err := wantsJSON(c)
	if err != nil {
		return err
	}
	if c.NArg() < 2 {
		return usage("answer wants an id and a text").withHint("the-loop questions answer ID TEXT")
	}
	q, err := d.questionNamed(c.Args().First())
	if err != nil {
		return err
	}
	text, _ := channels.CleanText(strings.Join(c.Args().Slice()[1:], " "))
	text, _ = q.TakeCode(text) // as a reply may have it
	answer, choice, ok := q.Match(text)
	switch {
	case q.State != questions.StateOpen: // Reply says how it ended
	case questions.IsTalk(text):
		return usage("%q begins with //, and is no answer", text)
	case !ok && len(q.Choices) > 0:
		return usage("%q is none of the choices: %s", text, strings.Join(q.Choices, ", "))
	case !ok:
		return usage("the answer is empty")
	}
	q, err = questions.Reply(c.Context, d.root, q.ID, questions.Answer{
		Text: answer, Choice: choice, Via: questions.ViaTerminal, By: atTheTerminal(), Mirror: d.mirror(q),
	})
	var closed *questions.ClosedError
	switch {
	case errors.As(err, &closed):
		return failed(fmt.Errorf("question %s is closed: %s", closed.ID, inbound.Ending(closed.Question)))
	case err != nil:
		return failed(err)
	}
	_ = d.log.Answered(c.Context, subjectOf(q), questions.ViaTerminal)
	d.closed(c.Context, q)
	if asJSON {
		return printJSON(w.stdout, q)
	}
	printf(w.stdout, "%s is answered: %s\n", q.ID, term.Clean(answer))
	return nil
}

// atTheTerminal is the account that types. It is who ran the command and no
// more: an agent that runs under the same account is the same.
func atTheTerminal() questions.Person {
	p := questions.Person{ID: strconv.Itoa(os.Getuid())}
	if u, err := user.LookupId(p.ID); err == nil {
		p.Name = u.Username
	}
	return p
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
	_ = d.log.Withdrawn(c.Context, subjectOf(q))
	d.closed(c.Context, q)
	if asJSON {
		return printJSON(w.stdout, q)
	}
	printf(w.stdout, "%s is withdrawn\n", q.ID)
	return nil
}
