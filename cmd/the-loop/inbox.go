package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"the-loop/channels"
	"the-loop/internal/inbound"
	"the-loop/internal/term"
)

const waitCodes = `

Exit codes:

   0    there was something, and it is printed
   1    it could not be read, printed or marked as read
   2    the flags, the config or the reference are wrong
   124  nothing came within --wait
   130  interrupted; nothing came`

func inboxCommand(w world) *cli.Command {
	item := func() cli.Flag {
		return &cli.StringFlag{Name: "work-item", Usage: "only what is about `REF`, like github:o/r#7"}
	}
	return &cli.Command{
		Name:        "inbox",
		Usage:       "read what people wrote that answered no question",
		Description: example("the-loop inbox tail --once", "the-loop inbox wait --work-item github:octo/app#7 --wait 30m"),
		Subcommands: []*cli.Command{
			{
				Name: "tail", Usage: "print what is unread, and what comes in",
				Description: example("the-loop inbox tail --once", "the-loop inbox tail --work-item local:release#3"),
				Flags: []cli.Flag{
					switchFlag("once", "print what is unread now, and end"), item(), formatFlag(),
				},
				Action: withDeployment(w, inboxTail),
			},
			{
				Name: "wait", Usage: "wait until something is unread, print it all, and end",
				Description: example("the-loop inbox wait --work-item github:octo/app#7 --wait 30m") + waitCodes,
				Flags: []cli.Flag{
					&cli.StringFlag{Name: "wait", Usage: "at most `D`; until something came if not given"},
					item(), formatFlag(),
				},
				Action: withDeployment(w, inboxWait),
			},
			{
				Name: "listen", Usage: "print each message as one line of JSON",
				Description: example("the-loop inbox listen | my-agent"),
				Flags:       []cli.Flag{item()},
				Action:      withDeployment(w, inboxListen),
			},
			{
				Name: "list", Usage: "how many messages there are for each work item",
				Description: example("the-loop inbox list"),
				Flags:       []cli.Flag{formatFlag()},
				Action:      withDeployment(w, inboxList),
			},
		},
	}
}

var (
	errNothingCame = errors.New("nothing came in")
	errToNowhere   = errors.New("standard output leads nowhere, so that the messages stay unread")
)

// inboxReader prints messages and marks them as read.
type inboxReader struct {
	w       world
	d       *deployment
	follow  *inbound.Follower
	print   func(inbound.Line) error
	missing int64 // that were told of
}

// newInboxReader checks the flags. Whether there ever was such a work item
// does not matter: it may come.
func newInboxReader(c *cli.Context, w world, d *deployment, asJSON bool) (*inboxReader, error) {
	if err := noArguments(c); err != nil {
		return nil, err
	}
	var wants func(string) bool
	if ref := c.String("work-item"); c.IsSet("work-item") {
		if _, err := channels.ParseWorkItem(ref); err != nil {
			return nil, usage("--work-item: %w", err)
		}
		wants = func(item string) bool { return strings.EqualFold(item, ref) } // as GitHub has it
	}
	if discards(w.stdout) {
		return nil, failed(errToNowhere)
	}
	r := &inboxReader{w: w, d: d, follow: inbound.Follow(d.root, wants)}
	if asJSON {
		r.print = func(l inbound.Line) error { return printLine(w.stdout, l) }
	} else {
		f := newFrame()
		r.print = func(l inbound.Line) error { return f.print(w.stdout, l) }
	}
	return r, nil
}

// show prints the lines in order, each in one write, and marks as read what was
// printed. Who is killed in between gets some of them once more.
func (r *inboxReader) show(ctx context.Context, lines []inbound.Line) error {
	if more := r.follow.Missed - r.missing; more > 0 {
		printf(r.w.stderr, "note: %d unread messages are gone: the inbox was turned over, or is damaged\n", more)
		r.missing = r.follow.Missed
	}
	printed := map[string]int64{}
	var broken error
	for _, l := range lines {
		if broken = r.print(l); broken != nil {
			break
		}
		printed[l.WorkItem] = l.Seq
	}
	// What was printed has been read, also when we are told to end meanwhile.
	ctx = context.WithoutCancel(ctx)
	var unmarked error
	for item, seq := range printed {
		unmarked = errors.Join(unmarked, inbound.MarkRead(ctx, r.d.root, item, seq))
	}
	switch {
	case broken != nil:
		return &failure{code: exitDidNotHappen} // run says why, as for all output that is lost
	case unmarked != nil:
		return failed(fmt.Errorf("what was printed will be printed again: %w", unmarked))
	}
	return nil
}

// troublesEvery is how often is looked what keeps messages from coming in.
const troublesEvery = time.Second

// run shows what comes in until ctx ends, and says what keeps messages from
// coming in.
func (r *inboxReader) run(ctx context.Context) error {
	serving, told := r.d.serve(ctx, nil), newTeller(r.w)
	defer func() {
		told.end(serving.troubles())
		serving.stop()
	}()
	for {
		look, cancel := context.WithTimeoutCause(ctx, troublesEvery, errNothingCame)
		lines, err := r.follow.Wait(look)
		cancel()
		if ctx.Err() != nil {
			return nil // the signal decides the exit code
		}
		told.look(serving.troubles())
		if errors.Is(err, errNothingCame) {
			continue
		}
		if err != nil {
			return failed(err)
		}
		if err := r.show(ctx, lines); err != nil {
			return err
		}
	}
}

func inboxTail(c *cli.Context, w world, d *deployment) error {
	asJSON, err := wantsJSON(c)
	if err != nil {
		return err
	}
	r, err := newInboxReader(c, w, d, asJSON)
	if err != nil {
		return err
	}
	if !c.Bool("once") {
		return r.run(c.Context)
	}
	lines, err := r.follow.Next()
	if err != nil {
		return failed(err)
	}
	return r.show(c.Context, lines)
}

func inboxListen(c *cli.Context, w world, d *deployment) error {
	r, err := newInboxReader(c, w, d, true)
	if err != nil {
		return err
	}
	return r.run(c.Context)
}

func inboxWait(c *cli.Context, w world, d *deployment) error {
	asJSON, err := wantsJSON(c)
	if err != nil {
		return err
	}
	r, err := newInboxReader(c, w, d, asJSON)
	if err != nil {
		return err
	}
	ctx := c.Context
	limit := time.Duration(0)
	if c.IsSet("wait") {
		var bad *failure
		if limit, bad = positive("wait", c.String("wait")); bad != nil {
			return bad
		}
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, limit, errNothingCame)
		defer cancel()
	}
	lines, err := r.follow.Next() // without a network when there is something already
	var troubles []string
	if err == nil && len(lines) == 0 {
		stop := d.serveWhileWaiting(ctx)
		lines, err = r.follow.Wait(ctx)
		troubles = stop()
	}
	if errors.Is(err, errNothingCame) {
		// What was being taken in when the time was over counts.
		if lines, err = r.follow.Next(); err == nil && len(lines) == 0 {
			notes(w, troubles)
			return &failure{code: exitNobody, err: fmt.Errorf("nothing came in within %s", term.Span(limit))}
		}
	}
	if err != nil {
		return failed(err)
	}
	return r.show(c.Context, lines)
}

func inboxList(c *cli.Context, w world, d *deployment) error {
	asJSON, err := wantsJSON(c)
	if err != nil {
		return err
	}
	if err := noArguments(c); err != nil {
		return err
	}
	boxes, err := inbound.WorkItems(d.root)
	if err != nil {
		return failed(err)
	}
	if asJSON {
		return printJSON(w.stdout, append([]inbound.Inbox{}, boxes...))
	}
	if len(boxes) == 0 {
		printf(w.stdout, "nothing came in\n")
		return nil
	}
	t := term.Table{Columns: []term.Column{
		{Title: "about", Flex: true}, {Title: "unread"}, {Title: "messages"}, {Title: "newest"},
	}}
	for _, b := range boxes {
		t.Row(b.WorkItem, fmt.Sprint(b.Unread), fmt.Sprint(b.Messages), term.Ago(time.Now(), b.LastAt))
	}
	return t.Write(w.stdout)
}
