package inbound

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"the-loop/channels"
	"the-loop/internal/eventlog"
	"the-loop/internal/questions"
	"the-loop/state"
)

// What may become of a message that was taken in.
const (
	didAnswer    = "answered"
	didInbox     = "inbox"
	didNoChoice  = "not_a_choice"
	didAlready   = "already_answered"
	didLate      = "too_late"
	didUntagged  = "untagged" // more than one question is open, and it names none
	didEdited    = "edited"
	didForeign   = "not_held_here" // a press for a question of another root
	didElsewhere = "elsewhere"     // another machine's question is meant, or may be
	didMark      = "mark"          // tells how another machine's question stands
)

// recent is how long a closed question is remembered in its conversation: who
// answers it then is told how it ended.
const recent = 7 * 24 * time.Hour

// batch is what one Take does, under the lock.
type batch struct {
	p      *Pipeline
	tx     *state.Tx            // of what is owed
	every  []questions.Question // the index's; nil: not needed yet, or not as it is any more
	unread int                  // questions that cannot be read: any of them may be open anywhere

	items  []string // work items of inbox, in order
	inbox  map[string][]Line
	lines  []seenLine
	owed   []debt
	logs   []func()
	others *elsewhere
}

// take takes one message in. What it changes at once is the question that it
// answers, and that is known by the message's key; all else is committed with
// the others.
func (b *batch) take(ctx context.Context, m channels.Message) error {
	if b.p.seen.has(m.Key) || slices.ContainsFunc(b.lines, func(l seenLine) bool { return l.Key == m.Key }) {
		b.p.counts.drop("repeated")
		return nil
	}
	person, listed, err := b.p.authorize(ctx, m.From, m.Surface)
	if err != nil {
		return err
	}
	if m.Mark != nil && m.Mark.Code != "" && m.Mark.Ours && (m.From.Us || listed) {
		return b.mark(ctx, m)
	}
	switch {
	case !m.From.Person:
		b.p.counts.drop("bot")
		return nil
	case !listed:
		b.p.counts.stranger(m.Surface, m.From)
		b.p.counts.drop("stranger")
		return nil
	case m.Press == nil && questions.IsTalk(m.Text):
		b.p.counts.drop("talk")
		return nil
	}
	if m.Edited && m.Press == nil && b.p.seen.has(unedited(m.Key)) {
		b.p.counts.drop("edit") // of something that was taken in as it stood first
		return nil
	}
	m.Text = stripInbound(m.Text)
	if m.Press != nil {
		return b.press(ctx, m, person)
	}
	return b.reply(ctx, m, person)
}

// unedited is the part of a key that an edit does not change.
func unedited(key string) string {
	if kind, rest, ok := strings.Cut(key, ":"); ok && kind == "github" {
		if parts := strings.SplitN(rest, ":", 4); len(parts) == 4 {
			return "github:" + strings.Join(parts[:3], ":")
		}
	}
	return key
}

// mark takes note of a question's marker: our own questions we know better. An id
// given by hand may be another machine's question too, and its code tells.
func (b *batch) mark(ctx context.Context, m channels.Message) error {
	b.p.counts.drop("own")
	q, err := questions.Get(b.p.o.Root, m.Mark.ID)
	ours := err == nil && q.Code == m.Mark.Code
	if ours && q.State == questions.StateOpen && q.CommentAt.IsZero() && m.Surface == "github" && !m.Edited {
		b.every = nil
		_, err = questions.Update(ctx, b.p.o.Root, q.ID, func(q *questions.Question) { q.CommentAt = m.At.UTC() })
		return err
	}
	if ours || err != nil && !errors.Is(err, questions.ErrNone) || m.WorkItem == "" {
		return nil
	}
	b.others = nil
	return noteElsewhere(ctx, b.p.o.Root, m)
}

// press is a button that a listed person pressed.
func (b *batch) press(ctx context.Context, m channels.Message, person questions.Person) error {
	q, err := questions.Get(b.p.o.Root, m.Press.Question)
	switch {
	case errors.Is(err, questions.ErrNone):
		b.tell(m, "", "this question is not held here: the machine that asked it did not get your press")
		b.done(m, didForeign)
		return nil
	case errors.Is(err, questions.ErrDamaged), errors.Is(err, questions.ErrNewer):
		b.tell(m, "", "your press could not be taken, for the question cannot be read here")
		b.done(m, didForeign)
		return nil
	case err != nil:
		return err
	case m.Press.Choice < 0 || m.Press.Choice >= len(q.Choices):
		b.tell(m, q.ID, "this question has no such choice")
		b.done(m, didNoChoice)
		return nil
	}
	return b.answer(ctx, m, person, q, q.Choices[m.Press.Choice], m.Press.Choice+1)
}

// reply is what a listed person wrote in one of our conversations.
func (b *batch) reply(ctx context.Context, m channels.Message, person questions.Person) error {
	all, err := b.all()
	if err != nil {
		return err
	}
	for _, q := range all {
		if q.Answer != nil && q.Answer.Key == m.Key { // we died, or failed, right after that
			b.answered(m, q)
			return nil
		}
	}
	here := b.openHere(m)
	for _, q := range here {
		if rest, coded := q.TakeCode(m.Text); coded {
			return b.judge(ctx, m, person, q, rest)
		}
	}
	others, err := b.elsewhere()
	if err != nil {
		return err
	}
	foreign := others.open(m.WorkItem, time.Now())
	slices.Sort(foreign)
	for _, code := range foreign {
		if _, coded := (questions.Question{Code: code}).TakeCode(m.Text); coded {
			b.done(m, didElsewhere)
			return nil
		}
	}
	if shown := b.p.o.Shown; shown != nil {
		here = slices.DeleteFunc(here, func(q questions.Question) bool { return !shown(q, m) })
	}
	here, past := inTime(here, m)
	switch {
	case len(here) == 1 && len(foreign) == 0 && b.unread == 0:
		return b.judge(ctx, m, person, here[0], m.Text)
	case len(here) > 0:
		var codes []string
		for _, q := range here {
			codes = append(codes, q.Code)
		}
		codes = append(codes, foreign...)
		b.tellOnce(m, person, "untagged:"+strings.Join(codes, ","),
			fmt.Sprintf("%s open here: begin your reply with the code of the one you answer (%s)",
				howMany(len(codes)+b.unread), strings.Join(codes, ", ")))
		b.keep(m, person, didUntagged)
		return nil
	}
	if n := len(past); n > 0 && len(foreign) == 0 {
		past[n-1].State = questions.Expired // as it will be when all is read
		b.closed(m, person, past[n-1])
		return nil
	}
	return b.afterwards(m, person, len(foreign) > 0)
}

// inTime sets those apart whose time was over when the message was written, and
// that are open only because not all was read yet.
func inTime(all []questions.Question, m channels.Message) (here, past []questions.Question) {
	for _, q := range all {
		if q.PastAt(m.At) {
			past = append(past, q)
		} else {
			here = append(here, q)
		}
	}
	return here, past
}

func howMany(n int) string {
	if n == 1 {
		return "one question is"
	}
	return fmt.Sprintf("%d questions may be", n)
}

// openHere gives the open questions of the message's conversation that it may
// be an answer to: a comment older than the question is none.
func (b *batch) openHere(m channels.Message) (here []questions.Question) {
	for _, q := range b.every {
		if q.State == questions.StateOpen && strings.EqualFold(q.WorkItem, m.WorkItem) && !precedes(m, q) {
			here = append(here, q)
		}
	}
	return here
}

// precedes reports whether the message was written before the question was
// asked: by the provider's own order or clock where the question's message is
// known there, else by both clocks.
func precedes(m channels.Message, q questions.Question) bool {
	names := []string{m.Channel}
	if m.Surface == "github" {
		names = append(slices.Collect(maps.Keys(q.Refs)), Ledger)
	}
	for _, name := range names {
		refs := refsOf(q, name)
		if len(refs) == 0 || m.Surface == "github" && !strings.HasPrefix(refs[0], "comment:") {
			continue
		}
		asked, okAsked := order(refs[0])
		at, ok := order(m.Place.ID)
		if ok && okAsked {
			return at < asked
		}
	}
	if m.Surface == "github" && !q.CommentAt.IsZero() {
		return m.At.Before(q.CommentAt)
	}
	return m.At.Before(q.AskedAt.Add(-clockSlack))
}

// clockSlack is how far the provider's clock may be behind ours, seconds that
// are cut off included.
const clockSlack = 2 * time.Second

// order gives an id as a number by which one surface orders its messages: a ts
// of Slack, or a comment's number.
func order(ref string) (float64, bool) {
	ref = strings.TrimPrefix(ref, "comment:")
	n, err := strconv.ParseFloat(ref, 64)
	return n, err == nil
}

// judge asks whether a text is an answer to the question.
func (b *batch) judge(ctx context.Context, m channels.Message, person questions.Person, q questions.Question,
	text string,
) error {
	if m.Edited {
		b.tell(m, q.ID, "an edited message is not taken as an answer: please send a new one")
		b.keep(m, person, didEdited)
		return nil
	}
	answer, choice, ok := q.Match(text)
	if !ok {
		b.tell(m, q.ID, b.noChoice(m, q))
		b.keep(m, person, didNoChoice)
		return nil
	}
	if choice == 0 && m.Where != "" { // what it is about belongs to it
		answer = m.Where + ": " + answer
	}
	return b.answer(ctx, m, person, q, answer, choice)
}

// noChoice says which choices there are, where the question stands: elsewhere
// others may read it who were not asked.
func (b *batch) noChoice(m channels.Message, q questions.Question) string {
	if shown := b.p.o.Shown; shown != nil && !shown(q, m) {
		return "that is not one of the choices of the question"
	}
	return "that is not one of the choices: " + choicesText(q)
}

func choicesText(q questions.Question) string {
	if len(q.Choices) == 0 {
		return "any text is an answer"
	}
	var out []string
	for i, c := range q.Choices {
		out = append(out, fmt.Sprintf("%d. %s", i+1, channels.OneLine(c)))
	}
	return strings.Join(out, ", ")
}

// answer answers the question. Whoever was first is right; the others are told
// how it ended.
func (b *batch) answer(ctx context.Context, m channels.Message, person questions.Person, q questions.Question,
	text string, choice int,
) error {
	a := questions.Answer{
		Text: text, Choice: choice, By: person, Via: m.Surface, At: m.At, Key: m.Key, Link: m.Link,
		Mirror: questions.MirrorOff,
	}
	if b.p.o.Mirrors {
		a.Mirror = questions.MirrorPending
	}
	if q.State == questions.StateOpen {
		would := q
		would.Answer = &a
		if err := addDebts(b.tx, b.debtsOf(m, would)); err != nil { // before it is closed, see closing
			return err
		}
	}
	q, err := questions.Reply(ctx, b.p.o.Root, q.ID, a)
	var closed *questions.ClosedError
	switch {
	case errors.As(err, &closed):
		b.closed(m, person, closed.Question)
		return nil
	case errors.Is(err, questions.ErrNoAnswer):
		b.tell(m, q.ID, b.noChoice(m, q))
		b.keep(m, person, didNoChoice)
		return nil
	case err != nil:
		return err
	}
	b.answered(m, q)
	return nil
}

// answered is what follows from an answer that was taken.
func (b *batch) answered(m channels.Message, q questions.Question) {
	b.every = nil // it is closed now
	b.owed = append(b.owed, b.debtsOf(m, q)...)
	b.logs = append(b.logs, func() { _ = b.p.o.Log.Answered(context.Background(), subject(q), m.Surface) })
	b.done(m, didAnswer)
}

// debtsOf is what is owed when the message answers the question.
func (b *batch) debtsOf(m channels.Message, q questions.Question) []debt {
	owed := b.p.debtsOf(q)
	if m.Press == nil { // a press shows in the message that the button was in
		owed = append(owed, debt{
			Kind: debtTaken, Question: q.ID, Surface: m.Surface, Channel: m.Channel, Place: m.Place, Answer: m.Key,
		})
	}
	return owed
}

// all gives the questions of the root, closed ones too.
func (b *batch) all() ([]questions.Question, error) {
	if b.every == nil {
		all, unusable, err := b.p.index.All()
		if err != nil {
			return nil, err
		}
		b.every, b.unread = all, unusable
	}
	return b.every, nil
}

// closed tells who answers a closed question how it ended, and keeps what they
// wrote for the session.
func (b *batch) closed(m channels.Message, person questions.Person, q questions.Question) {
	did := didLate
	if q.State == questions.Answered {
		did = didAlready
	}
	how := Ending(q)
	if m.Surface == "github" && q.Answer != nil && q.Answer.Via != questions.ViaGitHub {
		how = "the question is answered" // others may read there than where it was answered
	}
	if m.Press == nil {
		how += "; what you write here is in the session's inbox"
	}
	b.tellOnce(m, person, "closed:"+q.ID, "too late: "+how)
	b.keep(m, person, did)
}

// afterwards is for a conversation without an open question of ours. Who writes
// there is told how the one ended that was closed last; not where another
// machine's is open, for then they may have answered that.
func (b *batch) afterwards(m channels.Message, person questions.Person, foreign bool) error {
	all, err := b.all()
	if err != nil {
		return err
	}
	var ended []questions.Question
	for _, q := range all {
		if !strings.EqualFold(q.WorkItem, m.WorkItem) || q.State == questions.StateOpen ||
			time.Since(q.ClosedAt) > recent || precedes(m, q) {
			continue
		}
		if _, coded := q.TakeCode(m.Text); coded {
			b.closed(m, person, q)
			return nil
		}
		ended = append(ended, q)
	}
	if foreign {
		b.keep(m, person, didElsewhere)
		return nil
	}
	slices.SortFunc(ended, func(x, y questions.Question) int { return y.ClosedAt.Compare(x.ClosedAt) })
	i := slices.IndexFunc(ended, func(q questions.Question) bool { // who writes where nobody was asked is told nothing
		return b.p.o.Shown == nil || b.p.o.Shown(q, m)
	})
	if i >= 0 {
		b.closed(m, person, ended[i])
	} else {
		b.keep(m, person, didInbox)
	}
	return nil
}

// Ending says how a question ended, in one line: "Octo answered: yes".
func Ending(q questions.Question) string {
	switch {
	case q.State == questions.Answered && q.Answer != nil && q.Answer.Via == questions.ViaTimeout:
		return "nobody answered in time, and the default was taken: " + short(q.Answer.Text)
	case q.State == questions.Answered && q.Answer != nil:
		who := cmp.Or(q.Answer.By.Name, q.Answer.By.Login, q.Answer.By.ID, "somebody")
		where := ""
		if q.Answer.Via == questions.ViaTerminal {
			where = " at the terminal"
		}
		return fmt.Sprintf("%s answered%s: %s", channels.OneLine(who), where, short(q.Answer.Text))
	case q.State == questions.Withdrawn:
		return "the question was withdrawn"
	case q.State == questions.Expired:
		return "the question expired without an answer"
	}
	return "the question is open"
}

// short is a text on one line, as long as a line may be.
func short(text string) string {
	text = channels.OneLine(text)
	if r := []rune(text); len(r) > 200 {
		return string(r[:200]) + "…"
	}
	return text
}

// keep puts the message into its work item's inbox.
func (b *batch) keep(m channels.Message, person questions.Person, did string) {
	if m.Press != nil || m.WorkItem == "" {
		b.done(m, did)
		return
	}
	text, cut := CleanInbound(strings.TrimPrefix(m.Where+": "+m.Text, ": "))
	if b.inbox[m.WorkItem] == nil {
		b.items = append(b.items, m.WorkItem)
	}
	b.inbox[m.WorkItem] = append(b.inbox[m.WorkItem], Line{
		Key: m.Key, At: m.At, ReceivedAt: time.Now(), WorkItem: m.WorkItem,
		From: Sender{Name: person.Name, Surface: m.Surface, ID: person.ID}, Text: text, Cut: cut, Link: m.Link,
	})
	b.done(m, did)
}

func (b *batch) done(m channels.Message, did string) {
	now := time.Now().UTC()
	b.lines = append(b.lines, seenLine{m.Key, now, did})
	if base := unedited(m.Key); base != m.Key {
		b.lines = append(b.lines, seenLine{base, now, did})
	}
	b.p.counts.take(did)
	if did == didAnswer {
		return
	}
	b.logs = append(b.logs, func() {
		_ = b.p.o.Log.CameIn(context.Background(), m.WorkItem, m.Surface, did)
	})
}

// tell owes the writer a note.
func (b *batch) tell(m channels.Message, question, text string) {
	b.owed = append(b.owed, debt{
		Kind: debtTell, Question: question, Surface: m.Surface, Channel: m.Channel, Place: m.Place,
		User: m.From.ID, Text: text, Private: m.Press != nil,
	})
}

// tellOnce is tell, once for each person and about.
func (b *batch) tellOnce(m channels.Message, person questions.Person, about, text string) {
	key := "told:" + m.Surface + ":" + person.ID + ":" + m.WorkItem + ":" + about
	if b.p.seen.has(key) || slices.ContainsFunc(b.lines, func(l seenLine) bool { return l.Key == key }) {
		return
	}
	b.lines = append(b.lines, seenLine{key, time.Now().UTC(), "told"})
	b.tell(m, "", text)
}

func (b *batch) elsewhere() (elsewhere, error) {
	if b.others != nil {
		return *b.others, nil
	}
	f, err := readElsewhere(b.p.o.Root)
	if err == nil {
		b.others = &f
	}
	return f, err
}

// commit makes durable what take has gathered: what is owed and the inbox first,
// for what is down as seen is not looked at again.
func (b *batch) commit(ctx context.Context, tx *state.Tx) error {
	if err := addDebts(tx, b.owed); err != nil {
		return err
	}
	for _, item := range b.items {
		if err := AppendInbox(ctx, b.p.o.Root, item, b.inbox[item]...); err != nil {
			return err
		}
	}
	return b.p.seen.add(ctx, b.lines)
}

func subject(q questions.Question) eventlog.Subject {
	return eventlog.Subject{EntryID: q.ID, EventType: "session.awaiting_input", WorkItem: q.WorkItem}
}
