package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"the-loop/bus"
	"the-loop/channels"
	"the-loop/internal/config"
	"the-loop/internal/term"
)

func publishCommand(w world) *cli.Command {
	return &cli.Command{
		Name:  "publish",
		Usage: "send one event to every channel that subscribes to it",
		Description: example(
			`the-loop publish --type job.failed --text "no space left on nas"`,
			`make 2>&1 | the-loop publish --type job.failed --text-file -`,
		),
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "type", Usage: "event `TYPE`, such as job.failed (the-loop channels list)"},
			&cli.StringFlag{Name: "work-item", Usage: "about `REF`: github:owner/repo#7 or local:name#1"},
			&cli.StringFlag{Name: "text", Usage: "the message, `TEXT`"},
			&cli.StringFlag{Name: "text-file", Usage: "read the message from `FILE`, - for stdin"},
			&cli.StringFlag{Name: "url", Usage: "`URL` that the message links to"},
			listFlag{&cli.StringSliceFlag{Name: "detail", Usage: "one more `KEY=VALUE`; may be repeated"}},
			&cli.StringFlag{Name: "source", Value: "cli", Usage: "leave out the channel of this `NAME`"},
			&cli.StringFlag{Name: "event-file", Usage: "read the whole event, JSON, from `FILE`, - for stdin"},
			switchFlag("require-delivery", "exit 75 when it was queued and not delivered"),
			formatFlag(),
		},
		Action: func(c *cli.Context) error { return publish(c, w) },
	}
}

func publish(c *cli.Context, w world) error {
	asJSON, err := wantsJSON(c)
	if err != nil {
		return err
	}
	if err := noArguments(c); err != nil {
		return err
	}
	d, err := open(c, w)
	if errors.Is(err, config.ErrNoHome) {
		return giveBack(c, w, err)
	}
	if err != nil {
		return err
	}
	ev, err := eventFromFlags(c, w, d.config.Limits.Text)
	if err != nil {
		return err
	}
	res := d.publish(c.Context, ev)
	if res.Err != nil {
		return &failure{code: exitUsage, err: res.Err}
	}
	printNotes(w, d, res)
	if res.RecordErr != nil {
		printf(w.stderr, "note: it could not be recorded: %s\n", term.Clean(res.RecordErr.Error()))
	}
	switch {
	case asJSON:
		err = printPublishJSON(w, res)
	case res.Lost():
		printPublished(w.stderr, res)
		err = printEvent(w.stdout, res.Event)
	default:
		printPublished(w.stdout, res)
	}
	if res.Lost() {
		if err := rescue(w, res.Event, err); err != nil {
			return failed(err)
		}
	} else {
		besideThePoint(w)
	}
	return published(c, res)
}

// giveBack prints the event of a publish that has no place for its state, so
// that it is not swallowed.
func giveBack(c *cli.Context, w world, homeless error) error {
	ev, err := eventFromFlags(c, w, 1<<20)
	if err != nil {
		return err
	}
	if err := rescue(w, ev, printEvent(w.stdout, ev)); err != nil {
		return failed(err)
	}
	return homeless
}

// printEvent prints an event, and nothing else, so that it can be given back.
func printEvent(w io.Writer, ev channels.Event) error {
	raw, err := ev.Encode()
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(w, "%s\n", raw)
	return err
}

// rescue prints a lost event to stderr when stdout, where it was printed with
// the given error, does not keep it.
func rescue(w world, ev channels.Event, printed error) error {
	why := ""
	switch {
	case printed != nil:
		why = printed.Error()
	case discards(w.stdout):
		why = "it is closed or " + os.DevNull
	default:
		return nil
	}
	printf(w.stderr, "note: stdout does not keep the event (%s), so it follows here\n", why)
	return printEvent(w.stderr, ev)
}

// published turns a result into the command's end.
func published(c *cli.Context, res bus.Result) error {
	switch {
	case res.Lost():
		return failed(errors.New("the event was neither delivered nor stored; it is printed as JSON")).
			withHint("keep it in a file; the-loop publish --event-file FILE takes it back")
	case res.Recorded == bus.RecordedNo && res.Accepted() == 0 && !res.Queued:
		return failed(res.RecordErr)
	case c.Bool("require-delivery") && len(res.Posts) == 0:
		return failed(errors.New("nobody was sent it, and --require-delivery was given"))
	case c.Bool("require-delivery") && res.Accepted() == 0:
		return &failure{code: exitQueued}
	}
	return nil
}

func printPublishJSON(w world, res bus.Result) error {
	out := struct {
		bus.Result
		Event *json.RawMessage `json:"event,omitempty"`
	}{Result: res}
	if res.Lost() {
		raw, err := res.Event.Encode()
		if err != nil {
			return err
		}
		out.Event = (*json.RawMessage)(&raw)
	}
	return printJSON(w.stdout, out)
}

func printPublished(w io.Writer, res bus.Result) {
	switch {
	case len(res.Posts) == 0 && onTicket(res):
		printf(w, "%s  recorded %s\n", res.ID, term.Clean(res.Record))
		return
	case len(res.Posts) == 0:
		printf(w, "%s  no channel subscribes to it\n", res.ID)
		return
	}
	printf(w, "%s  %s\n", res.ID, outcomeWord(res))
	for _, p := range res.Posts {
		printPost(w, "  ", p)
	}
}

// onTicket reports whether people can see the record itself.
func onTicket(res bus.Result) bool {
	return strings.HasPrefix(res.Record, "https://") || strings.HasPrefix(res.Record, "http://")
}

// printPost says what one channel said, and in plain words what that means.
func printPost(w io.Writer, margin string, p bus.Post) {
	line := p.Channel + ": " + string(p.State)
	switch {
	case p.State == channels.StateAccepted && p.Error != "":
		line += ", and the rest is queued " + p.Error
	case p.State == channels.StateAccepted && p.Link != "":
		line += " " + p.Link
	case p.Error != "":
		line += ", " + whyOf(p.Error)
	}
	printf(w, "%s%s\n", margin, term.Clean(line))
	if p.State != channels.StateAccepted {
		printf(w, "%s  %s\n", margin, p.Reason.Words())
	}
}

// whyOf leaves out of an outcome's text what its state says already.
func whyOf(text string) string {
	for _, words := range []string{"post failed: ", "outcome unknown: ", "not asked: "} {
		text = strings.TrimPrefix(text, words)
	}
	return text
}

// outcomeWord sums a result up.
func outcomeWord(res bus.Result) string {
	switch accepted := res.Accepted(); {
	case res.Lost():
		return "neither delivered nor stored"
	case accepted == len(res.Posts) && !res.Queued:
		return "delivered"
	case accepted > 0 && res.Queued:
		return "partly delivered; the rest is queued"
	case accepted > 0:
		return "partly delivered"
	}
	return "queued; `the-loop status` counts it until it lands"
}

// printNotes says on stderr what the person should know and the result does
// not show.
func printNotes(w world, d *deployment, res bus.Result) {
	for _, n := range res.Notes {
		printf(w.stderr, "note: %s\n", term.Clean(n))
	}
	if len(res.Posts) == 0 && !onTicket(res) {
		printf(w.stderr, "note: no channel subscribes to %s, so it was sent to nobody\n", res.Event.Type)
	}
	if d.config.Path == "" && res.Accepted() > 0 {
		printf(w.stderr, "note: there is no config, so the event went to %s only; `the-loop init` writes one\n",
			term.Clean(d.config.Channels[0].Path))
	}
}

func eventFromFlags(c *cli.Context, w world, limit int) (channels.Event, error) {
	if c.IsSet("event-file") {
		for _, name := range []string{"type", "work-item", "text", "text-file", "url", "detail"} {
			if c.IsSet(name) {
				return channels.Event{}, usage("--event-file holds the whole event: leave --%s out", name)
			}
		}
		// The message is a part of the event: twice its limit and the rest.
		b, err := readInput(w, "--event-file", c.String("event-file"), 2*limit+64<<10)
		if err != nil {
			return channels.Event{}, err
		}
		ev, err := channels.DecodeEvent(eventIn(b))
		if err != nil {
			return ev, usage("--event-file: it does not hold one event as JSON: %s", eventTrouble(err))
		}
		if names := unknownKeys(eventIn(b)); len(names) > 0 {
			printf(w.stderr, "note: --event-file: unknown keys are left out: %s\n",
				term.Clean(strings.Join(names, ", ")))
		}
		return ev, nil
	}
	ev := channels.Event{
		Type: c.String("type"), WorkItem: c.String("work-item"), URL: c.String("url"), Source: c.String("source"),
		Detail: map[string]any{},
	}
	if ev.Type == "" {
		return ev, usage("--type is needed").withHint("the-loop channels list shows the types there are")
	}
	for _, kv := range c.StringSlice("detail") {
		key, value, ok := strings.Cut(kv, "=")
		if !ok || key == "" {
			return ev, usage("--detail %q: want KEY=VALUE", kv)
		}
		ev.Detail[key] = value
	}
	var err error
	ev.Text, err = textFromFlags(c, w, "text", "text-file", limit)
	return ev, err
}

// eventTrouble says what is wrong with JSON, an event's mostly, without Go's words.
func eventTrouble(err error) string {
	var kind *json.UnmarshalTypeError
	if errors.As(err, &kind) {
		return fmt.Sprintf("%s is of the wrong type (%s)", firstOf(kind.Field, "the whole"), kind.Value)
	}
	return strings.TrimPrefix(err.Error(), "decode event: ")
}

// eventIn gives the event out of what --format json has printed around it, and
// everything else as it is.
func eventIn(b []byte) []byte {
	var around struct {
		Event json.RawMessage `json:"event"`
	}
	if json.Unmarshal(b, &around) == nil && len(around.Event) > 0 && around.Event[0] == '{' {
		return around.Event
	}
	return b
}

// unknownKeys names the keys that no event has. As anywhere in Go's JSON a key
// is known in other letters too.
func unknownKeys(event []byte) []string {
	given := map[string]json.RawMessage{}
	_ = json.Unmarshal(event, &given) // it was decoded once already
	known := reflect.TypeFor[channels.Event]()
	for i := range known.NumField() {
		name, _, _ := strings.Cut(known.Field(i).Tag.Get("json"), ",")
		maps.DeleteFunc(given, func(key string, _ json.RawMessage) bool { return strings.EqualFold(key, name) })
	}
	return slices.Sorted(maps.Keys(given))
}

// textFromFlags reads the text that must be given in one of two ways.
func textFromFlags(c *cli.Context, w world, inline, fromFile string, limit int) (string, error) {
	switch {
	case c.IsSet(inline) && c.IsSet(fromFile):
		return "", usage("give --%s or --%s, not both", inline, fromFile)
	case c.IsSet(inline):
		return c.String(inline), nil
	case c.IsSet(fromFile):
		b, err := readInput(w, "--"+fromFile, c.String(fromFile), limit)
		return strings.TrimRight(string(b), "\n"), err
	}
	return "", usage("--%s or --%s is needed", inline, fromFile)
}

// readInput reads a file, or standard input for "-", and no more than limit.
func readInput(w world, flag, name string, limit int) ([]byte, error) {
	in := w.stdin
	if name != "-" {
		f, err := os.Open(name)
		if err != nil {
			return nil, usage("%s: %w", flag, err)
		}
		defer f.Close()
		in = f
	}
	b, err := io.ReadAll(io.LimitReader(in, int64(limit)+1))
	if err != nil {
		return nil, usage("%s: %w", flag, err)
	}
	if len(b) > limit {
		return nil, usage("%s: longer than %d bytes", flag, limit)
	}
	return b, nil
}

func noArguments(c *cli.Context) error {
	if c.Args().Present() {
		return usage("%s takes no arguments, and got %q", c.Command.Name, c.Args().First()).
			withHint("%s --help", c.Command.HelpName)
	}
	return nil
}
