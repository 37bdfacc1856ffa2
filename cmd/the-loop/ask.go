package main

import (
	"context"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/urfave/cli/v2"

	"the-loop/bus"
	"the-loop/channels"
	"the-loop/channels/github"
	"the-loop/internal/config"
	"the-loop/internal/eventlog"
	"the-loop/internal/lazy"
	"the-loop/internal/questions"
	"the-loop/internal/term"
	"the-loop/state"
)

const (
	expiresAfter  = 7 * 24 * time.Hour
	longestChoice = 200 // characters

	askCodes = `

Exit codes:

   0    the question is recorded; with a wait, there is an answer, on stdout
   1    it is not kept or not recorded, or was closed without an answer
   2    the flags, the config or the reference are wrong; nobody was asked
   124  nobody answered within --wait; the question stays open: ask wait ID
   130  interrupted; the question stays open: ask wait ID`

	askWaitCodes = `

Exit codes:

   0    there is an answer, on stdout
   1    the question was closed without an answer, or cannot be read
   2    the flags or the config are wrong, or there is no such question
   124  nobody answered within --wait; the question stays open
   130  interrupted; the question stays open`
)

func askCommand(w world) *cli.Command {
	return &cli.Command{
		Name:  "ask",
		Usage: "record a question and send it to whoever can answer",
		Description: example(
			`the-loop ask --work-item github:octo/app#7 --question "Ship it?"`,
			`the-loop ask --work-item local:release#3 --question-file question.txt`,
			`the-loop ask --work-item local:a#1 --question "Ok?" --choice y --choice n`,
			`the-loop ask --work-item local:a#1 --question "Which tag?" --wait 30m`,
			"the-loop ask wait 7K2 --wait 30m",
		) + askCodes,
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "work-item", Usage: "about `REF`: github:owner/repo#7 or local:name#1"},
			&cli.StringFlag{Name: "question", Usage: "the question, `TEXT`"},
			&cli.StringFlag{Name: "question-file", Usage: "read the question from `FILE`, - for stdin"},
			listFlag{&cli.StringSliceFlag{Name: "choice", Usage: "one of two to four `TEXT`s to choose from"}},
			switchFlag("free-text", "with choices, let any other text count too"),
			&cli.StringFlag{Name: "wait", Usage: "print the answer, or exit 124 after `D` (30s, 5m)"},
			&cli.StringFlag{Name: "default", Usage: "after the wait, `TEXT` is the answer"},
			&cli.StringFlag{Name: "expires", Value: "7d", Usage: "close the question after `D`, or never"},
			&cli.StringFlag{Name: "id", Usage: "name it `ID`, and ask it under that id only once"},
			switchFlag("again", "ask anew although the same is being asked"),
			formatFlag(),
		},
		Action: func(c *cli.Context) error { return ask(c, w) },
		Subcommands: []*cli.Command{{
			Name: "wait", Usage: "wait for the answer to a question that was asked", ArgsUsage: "ID",
			Description: example(
				"the-loop ask wait 01KB3Z0000000000000000000A",
				"the-loop ask wait 7K2 --wait 30m --format json",
			) + askWaitCodes,
			Flags: []cli.Flag{
				&cli.StringFlag{Name: "wait", Usage: "no longer than `D`; until it is closed if not given"},
				formatFlag(),
			},
			Action: withDeployment(w, askWait),
		}},
	}
}

// asked is what one `ask` asks, and how.
type asked struct {
	questions.Question
	// raw is the text as it was given: the bus says what it must change in it.
	raw    string
	again  bool
	named  bool // --id
	wait   time.Duration
	orElse *questions.Answer // --default
}

func ask(c *cli.Context, w world) error {
	asJSON, err := wantsJSON(c)
	if err != nil {
		return err
	}
	if err := noArguments(c); err != nil {
		return err
	}
	a, err := askedFromFlags(c)
	if err != nil {
		return err
	}
	d, err := open(c, w)
	if err != nil {
		return err
	}
	if a.raw, err = textFromFlags(c, w, "question", "question-file", d.config.Limits.Text); err != nil {
		return err
	}
	if strings.TrimSpace(a.raw) == "" {
		return usage("the question is empty").withHint("%s --help", c.Command.HelpName)
	}
	a.Text, _ = channels.CleanText(a.raw)

	began := time.Now()
	o, err := d.openQuestion(c.Context, a)
	if err != nil {
		return err
	}
	defer o.release()
	if a.named && o.ID != a.ID {
		return usage("--id %s: just that is being asked as %s", a.ID, o.ID).
			withHint("the-loop ask wait %s, or --again to ask it anew", o.ID)
	}
	if o.there {
		what := "it is not asked again"
		if o.send {
			what = "nobody was sent it yet, so it is sent now"
		}
		printf(w.stderr, "note: %s asks just that since %s; %s\n", o.ID, term.Ago(began, o.AskedAt), what)
	}
	if a.wait > 0 {
		sayWaiting(w, d, o.Question)
	} else {
		printf(w.stderr, "question %s\n", nameOf(o.Question))
	}
	res := bus.Result{ID: o.ID, Recorded: bus.RecordedUnneeded, Record: o.Link, Posts: []bus.Post{}, Stored: true}
	switch {
	case o.send:
		res = d.publish(c.Context, a.event(o.Question, d.buttons()))
	case o.record:
		res = d.recordOnly(c.Context, a.event(o.Question, false))
	case o.Link != "":
		res.Recorded = bus.RecordedYes
	}
	if res.Err != nil {
		return &failure{code: exitUsage, err: res.Err}
	}
	d.noteAsked(c.Context, o, res)
	o.release()
	if o.send {
		printNotes(w, d, res)
		printUnanswerable(w, d, res)
	} else {
		res.Queued = d.waits(o.ID)
	}
	if a.wait > 0 && res.Recorded != bus.RecordedNo {
		return awaitAnswer(c, w, d, waiting{Question: o.Question, limit: a.wait, orElse: a.orElse, asJSON: asJSON})
	}
	if a.wait == 0 { // else stdout is for the answer alone
		printAsked(w, res, asJSON)
	}
	if res.Recorded == bus.RecordedNo {
		return notRecorded(w, a, o, res)
	}
	return nil
}

// nameOf is a question's id, and its code when it has one.
func nameOf(q questions.Question) string {
	if q.Code == "" {
		return q.ID
	}
	return q.ID + " (" + q.Code + ")"
}

// printAsked prints what became of the question. Its text is in its file, so
// that it is not lost even where its event is.
func printAsked(w world, res bus.Result, asJSON bool) {
	if asJSON {
		_ = printPublishJSON(w, res)
	} else {
		printf(w.stdout, "%s\n", term.Clean(firstOf(res.Record, res.ID)))
	}
	besideThePoint(w)
}

// notRecorded ends an ask whose record failed: who has been asked all the same,
// and how to make up for it.
func notRecorded(w world, a asked, o opened, res bus.Result) error {
	var took []string
	for _, p := range res.Posts {
		if p.State == channels.StateAccepted {
			took = append(took, p.Channel)
		}
	}
	switch {
	case len(took) > 0:
		printf(w.stderr, "note: it was sent to %s all the same, and stays open\n", term.Clean(strings.Join(took, ", ")))
	case o.record && res.Queued:
		printf(w.stderr, "note: it is queued for redelivery, and stays open\n")
	case o.record:
		printf(w.stderr, "note: it was sent before, and stays open\n")
	default: // printNotes and printUnanswerable have said that nobody has it
		printf(w.stderr, "note: it stays open\n")
	}
	same := "run the same again"
	if a.again {
		same = "run it again with --id " + o.ID + " instead of --again"
	}
	return failed(fmt.Errorf("the question could not be recorded: %w", res.RecordErr)).
		withHint("%s, which records it,\nor wait for the answer without: the-loop ask wait %s", same, o.ID)
}

var givenID = lazy.Regexp(`^[a-z0-9][a-z0-9._-]{0,63}$`)

// askedFromFlags reads all flags but the text's.
func askedFromFlags(c *cli.Context) (a asked, err error) {
	a.WorkItem = c.String("work-item")
	if a.WorkItem == "" {
		return a, usage("--work-item is needed").withHint("github:owner/repo#7 or local:name#1")
	}
	if _, err := channels.ParseWorkItem(a.WorkItem); err != nil {
		return a, usage("--work-item: %w", err)
	}
	a.Choices, a.again = c.StringSlice("choice"), c.Bool("again")
	a.FreeText = c.Bool("free-text")
	if err := checkChoices(a.Choices); err != nil {
		return a, err
	}
	if a.FreeText && len(a.Choices) == 0 {
		return a, usage("--free-text goes with --choice: without choices any text counts")
	}
	a.ID, a.named = state.NewID(), c.IsSet("id")
	if a.named {
		if a.ID = c.String("id"); !givenID().MatchString(a.ID) && !isULID().MatchString(a.ID) {
			return a, usage("--id %q: want lower-case letters, digits, dots, dashes and underscores, 64 at most", a.ID)
		}
	}
	a.AskedAt = time.Now().UTC().Truncate(time.Second)
	if text := c.String("expires"); text != "never" {
		after, err := positive("expires", text)
		if err != nil {
			return a, err.withHint("or never")
		}
		a.ExpiresAt = a.AskedAt.Add(after)
	}
	if c.IsSet("wait") {
		wait, err := positive("wait", c.String("wait"))
		if err != nil {
			return a, err
		}
		a.wait = wait
	}
	if c.IsSet("default") {
		a.orElse, err = a.otherwise(c.String("default"))
	}
	return a, err
}

var isULID = lazy.Regexp(`^[0-9A-HJKMNP-TV-Z]{26}$`)

// otherwise is the answer that counts when nobody gives one.
func (a asked) otherwise(text string) (*questions.Answer, error) {
	if a.wait == 0 {
		return nil, usage("--default counts after the wait: give --wait too")
	}
	answer, choice, ok := a.Match(text)
	switch {
	case !ok && len(a.Choices) > 0:
		return nil, usage("--default %q is none of the choices", text).
			withHint("a choice, or any text with --free-text: %s", strings.Join(a.Choices, ", "))
	case !ok:
		return nil, usage("--default is empty")
	}
	return &questions.Answer{Text: answer, Choice: choice, Via: questions.ViaTimeout}, nil
}

// checkChoices says what is wrong with the choices: a person must be able to
// reply with each, and tell it from the others.
func checkChoices(choices []string) error {
	if n := len(choices); n == 1 || n > 4 {
		return usage("%s: give two to four, or none for any text", counted(n, "--choice", "--choice flags"))
	}
	for i, c := range choices {
		switch {
		case strings.TrimSpace(c) == "" || questions.Alike(c, ""):
			return usage("--choice %q: nobody can reply with that", c)
		case c != strings.TrimSpace(c) || c != term.Clean(c):
			return usage("--choice %q: one line, without blanks around it", c)
		case utf8.RuneCountInString(c) > longestChoice:
			return usage("--choice %s…: longer than %d characters", term.Cut(c, 40), longestChoice)
		case questions.IsTalk(c):
			return usage("--choice %q: a reply that begins with // is no answer", c)
		}
		for _, other := range choices[:i] {
			if questions.Alike(c, other) {
				return usage("--choice %q: a reply could not be told from %q", c, other)
			}
		}
	}
	return nil
}

// positive reads a flag's duration.
func positive(flag, text string) (time.Duration, *failure) {
	d, err := config.ParseDuration(text)
	switch {
	case err != nil:
		return 0, usage("--%s: %w", flag, err)
	case d <= 0:
		return 0, usage("--%s %s: must be more than zero", flag, text)
	}
	return d, nil
}

// event is what is published to ask q.
func (a asked) event(q questions.Question, buttons bool) channels.Event {
	detail := channels.Asked{
		Code: q.Code, Choices: q.Choices, FreeText: q.FreeText, Buttons: buttons && len(q.Choices) > 0,
	}
	return channels.Event{
		ID: q.ID, Type: "session.awaiting_input", WorkItem: q.WorkItem, Text: a.raw, Source: "cli", Detail: detail.Detail(),
	}
}

func subjectOf(q questions.Question) eventlog.Subject {
	return eventlog.Subject{EntryID: q.ID, EventType: "session.awaiting_input", WorkItem: q.WorkItem}
}

// printUnanswerable tells the asking session that nobody has seen the question
// yet. It changes neither the outcome nor the exit code: the record decides.
func printUnanswerable(w world, d *deployment, res bus.Result) {
	if len(res.Posts) == 0 {
		return
	}
	if res.Accepted() > 0 {
		for _, p := range res.Posts {
			if p.State == channels.StateRefused && !res.Queued {
				printf(w.stderr, "note: %s did not take it (%s); others have\n", term.Clean(p.Channel), term.Clean(p.Code))
			}
		}
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
	case nowhere(res):
		printf(w.stderr, "note: no channel took this question (%s), and it could not\n"+
			"be kept for redelivery; ask it again to send it again\n", reasons)
	default:
		printf(w.stderr, "note: no answer says whether this question arrived (%s), and it\n"+
			"could not be kept for redelivery\n", reasons)
	}
}

// redelivers reports whether a send without an answer is settled by itself: the
// receiver drops repeats, or the channel can be looked up.
func (d *deployment) redelivers(channel string) bool {
	l := d.lane(channel)
	return l.DropsRepeats > 0 || l.Witness
}

// recordOnly records a question that was sent and could not be recorded then.
func (d *deployment) recordOnly(ctx context.Context, ev channels.Event) bus.Result {
	b := d.bus()
	b.Routes, b.Store = nil, nil
	if item, err := channels.ParseWorkItem(ev.WorkItem); err == nil && item.Kind == "github" && d.recordedOnTicket(ev) {
		b.Ledger = lookedFor{github.NewLedger(d.github)}
	}
	res := b.Publish(ctx, ev)
	res.Stored = true
	return res
}

// lookedFor is the ledger of an event that may stand there already: it was
// written once, and nobody can tell whether that arrived.
type lookedFor struct{ *github.Ledger }

func (l lookedFor) Record(ctx context.Context, ev channels.Event) (string, error) {
	if link, found, err := l.Find(ctx, ev); found || err != nil {
		return link, err
	}
	return l.Ledger.Record(ctx, ev)
}
