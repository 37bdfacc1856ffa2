package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"the-loop/channels"
	"the-loop/internal/inbound"
	"the-loop/internal/questions"
	"the-loop/internal/term"
	"the-loop/state"
)

func questionsCommand(w world) *cli.Command {
	return &cli.Command{
		Name:        "questions",
		Usage:       "look at what was asked, answer it or withdraw it",
		Description: example("the-loop questions list", `the-loop questions answer 7K2 "after lunch"`),
		Subcommands: []*cli.Command{
			{
				Name: "list", Usage: "the open questions",
				Description: example("the-loop questions list --all"),
				Flags:       []cli.Flag{switchFlag("all", "closed ones too, with their answers"), formatFlag()},
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
				Name: "withdraw", Usage: "close a question, or set a damaged one aside", ArgsUsage: "ID",
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
		d.printUnreadable(w, name)
	}
	if asJSON {
		return printJSON(w.stdout, append([]questions.Question{}, all...))
	}
	if len(all) == 0 && c.Bool("all") {
		printf(w.stdout, "no questions\n")
		return nil
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
	if c.Bool("all") {
		t.Columns[3] = term.Column{Title: "outcome", Flex: true}
	}
	for _, q := range all {
		how := string(q.State)
		if c.Bool("all") {
			how = outcomeOf(q)
		}
		t.Row(q.ID, q.Code, term.Ago(time.Now(), q.AskedAt), how, q.WorkItem, q.Text)
	}
	return t.Write(w.stdout)
}

// outcomeOf is a question's answer and who gave it, or else its state.
func outcomeOf(q questions.Question) string {
	if q.Answer == nil {
		return string(q.State)
	}
	return q.Answer.Text + " (" + answeredBy(*q.Answer) + ")"
}

func answeredBy(a questions.Answer) string {
	return firstOf(a.By.Name, a.By.Login, a.By.ID, "nobody")
}

// printUnreadable says of a file among the questions why it cannot be read, and
// what to do about that.
func (d *deployment) printUnreadable(w world, name string) {
	id := strings.TrimSuffix(name, ".json")
	file := term.Clean("questions/" + name)
	switch _, err := questions.Get(d.root, id); {
	case errors.Is(err, questions.ErrNewer):
		printf(w.stderr, "note: %s %v\n", file, questions.ErrNewer)
	case errors.Is(err, questions.ErrDamaged):
		printf(w.stderr, "note: %s is damaged: %s;\n`the-loop questions withdraw %s` sets it aside\n",
			file, term.Clean(whyDamaged(err)), id)
	case err != nil:
		printf(w.stderr, "note: %s cannot be read: %s\n", file, term.Clean(err.Error()))
	}
}

// whyDamaged leaves out what has been said: which question it is, and that it
// is damaged.
func whyDamaged(err error) string {
	var kind *json.UnmarshalTypeError
	if errors.As(err, &kind) {
		return eventTrouble(err)
	}
	_, why, _ := strings.Cut(err.Error(), questions.ErrDamaged.Error()+": ")
	return firstOf(why, err.Error())
}

// unusable is the end of a command whose question cannot be read.
func unusable(id string, err error) *failure {
	f := failed(err)
	if errors.Is(err, questions.ErrDamaged) {
		return f.withHint("the-loop questions withdraw %s sets it aside, and keeps its bytes", id)
	}
	return f
}

// question finds the one question that was named.
func (d *deployment) question(c *cli.Context) (questions.Question, error) {
	if c.NArg() != 1 {
		return questions.Question{}, usage("%s wants one id", c.Command.Name).withHint("the-loop questions list")
	}
	return d.questionNamed(c.Args().First())
}

// questionNamed finds a question by its id, or else by its code: the open one
// that has it, or the one that had it last. With an error of its file it gives
// the id alone.
func (d *deployment) questionNamed(name string) (questions.Question, error) {
	id := name
	q, err := questions.Get(d.root, id)
	if none := err; errors.Is(err, questions.ErrNone) {
		if q, ok := d.questionOfCode(name); ok {
			return q, nil
		}
		id = strings.ToUpper(name)
		if q, err = questions.Get(d.root, id); errors.Is(err, questions.ErrNone) {
			return q, usage("%w", none).withHint("the-loop questions list --all")
		}
	}
	if err != nil {
		return questions.Question{ID: id}, unusable(id, err)
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
	row("record", q.Link)
	row("posted", strings.Join(slices.Sorted(maps.Keys(q.Refs)), ", "))
	if d.waits(q.ID) {
		row("queued", "the-loop outbox show "+q.ID)
	}
	for line := range strings.Lines(q.Text) {
		row("text", strings.TrimRight(line, "\r\n"))
	}
	for i, choice := range q.Choices {
		row("choice", fmt.Sprintf("%d. %s", i+1, choice))
	}
	row("counts", countsFor(q))
	if q.Answer != nil {
		for line := range strings.Lines(q.Answer.Text) {
			row("answer", strings.TrimRight(line, "\r\n"))
		}
		row("by", fmt.Sprintf("%s, via %s, %s", answeredBy(*q.Answer), q.Answer.Via, q.Answer.At.Format(time.RFC3339)))
	}
	return nil
}

// countsFor says what is an answer to it.
func countsFor(q questions.Question) string {
	switch {
	case len(q.Choices) == 0:
		return "any text"
	case q.FreeText:
		return "a choice, or any other text"
	}
	return "a choice"
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
	q, err = d.pipeline().Answer(c.Context, q.ID, questions.Answer{
		Text: answer, Choice: choice, Via: questions.ViaTerminal, By: atTheTerminal(), Mirror: d.mirror(q),
	})
	var closed *questions.ClosedError
	switch {
	case errors.As(err, &closed):
		return failed(fmt.Errorf("question %s is closed: %s", closed.ID, inbound.Ending(closed.Question)))
	case err != nil:
		return d.unkept(fmt.Errorf("the answer is not taken, for it cannot be kept: %w", err))
	}
	_ = d.log.Answered(c.Context, subjectOf(q), questions.ViaTerminal)
	d.pay(c.Context)
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
	if errors.Is(err, questions.ErrDamaged) {
		return setAside(c, w, d, q.ID, asJSON)
	}
	if err != nil {
		return err
	}
	q, err = d.pipeline().Withdraw(c.Context, q.ID)
	var closed *questions.ClosedError
	switch {
	case errors.As(err, &closed):
		return failed(err)
	case err != nil:
		return d.unkept(fmt.Errorf("the question is not withdrawn, for that cannot be kept: %w", err))
	}
	_ = d.log.Withdrawn(c.Context, subjectOf(q))
	d.pay(c.Context)
	if asJSON {
		return printJSON(w.stdout, q)
	}
	printf(w.stdout, "%s is withdrawn\n", q.ID)
	return nil
}

// setAside puts a damaged question out of the way of the others, keeping its
// bytes. What a newer version wrote is left alone.
func setAside(c *cli.Context, w world, d *deployment, id string, asJSON bool) error {
	var aside string
	err := d.root.Document(state.Question(id)).Update(c.Context, func(tx *state.Tx) (err error) {
		switch _, err := questions.Get(d.root, id); {
		case err == nil:
			return fmt.Errorf("question %s is whole again", id)
		case !errors.Is(err, questions.ErrDamaged):
			return err
		}
		aside, err = tx.SetAside()
		return err
	})
	if err != nil {
		return failed(err)
	}
	_ = d.log.SetAside(c.Context, filepath.Base(aside))
	if asJSON {
		return printJSON(w.stdout, map[string]string{"id": id, "setAside": aside})
	}
	printf(w.stdout, "%s is damaged, and set aside: %s\n", id, term.Clean(aside))
	return nil
}
