// Package inbound is the one pipeline for whatever comes in: it drops what we
// wrote ourselves, asks who may answer, tells an answer from other talk,
// records it, and hands it to the question or the inbox. What people must be
// shown of that is owed to them, and settled over the network afterwards.
//
// What comes in is data. Nothing in it is run, followed or believed, and who is
// not listed changes nothing but a counter.
package inbound

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"sync"

	"the-loop/channels"
	"the-loop/internal/eventlog"
	"the-loop/internal/questions"
	"the-loop/state"
)

// Options say what a pipeline works on. The zero People denies everyone.
type Options struct {
	Root   *state.Root
	People []Person
	Log    *eventlog.Log
	Logger *slog.Logger // nil discards
	// Mirrors: accepted answers are copied to the ledger, see Settler.
	Mirrors bool
	// Shown reports whether the question stands where the message was written:
	// what was written where nobody was asked is no answer, unless it bears the
	// question's code. nil: every question stands everywhere. It uses no network.
	Shown func(q questions.Question, m channels.Message) bool
	// Surfaces are the names under which a question's own message is rewritten
	// when it is closed: of channels, and Ledger.
	Surfaces []string
}

// Pipeline takes in messages. Several of them may work on one root at the same
// time, in one process or in many.
type Pipeline struct {
	o    Options
	owes chan struct{}

	mu     sync.Mutex // held while messages are taken in
	seen   seen
	index  *questions.Index
	counts counter
}

// New gives a pipeline. It touches nothing.
func New(o Options) *Pipeline {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return &Pipeline{
		o: o, owes: make(chan struct{}, 1), seen: newSeen(o.Root), index: questions.NewIndex(o.Root),
	}
}

// Close lets go of the files that are held open.
func (p *Pipeline) Close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.seen.close()
}

// Questions gives all questions of the root, the oldest first, at little cost
// while none changes. They are not the caller's to change. Those that cannot be
// read are left out.
func (p *Pipeline) Questions() ([]questions.Question, error) {
	all, _, err := p.index.All()
	return all, err
}

// Owes is sent to when there is something to settle.
func (p *Pipeline) Owes() <-chan struct{} { return p.owes }

func (p *Pipeline) owe() {
	select {
	case p.owes <- struct{}{}:
	default:
	}
}

// Take takes messages in, in the order of their time. On return without an
// error all that they change is durable, and taking any of them again changes
// nothing: it is known by its Key. What a rule drops is counted, and nothing is
// written for it.
//
// With an error some may have been taken, and the caller gives all of them
// again. It uses no network.
func (p *Pipeline) Take(ctx context.Context, messages ...channels.Message) error {
	var kept []channels.Message
	for _, m := range messages {
		if word := p.drops(m); word != "" {
			p.counts.drop(word)
			continue
		}
		kept = append(kept, m)
	}
	if len(kept) == 0 {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, err := readElsewhere(p.o.Root); err != nil {
		if err := mendElsewhere(ctx, p.o.Root); err != nil {
			return err
		}
	}
	b := batch{p: p, inbox: map[string][]Line{}}
	err := p.o.Root.Document(state.Owed).Update(ctx, func(tx *state.Tx) error {
		b.tx = tx
		if err := p.seen.refresh(); err != nil {
			return err
		}
		for _, m := range kept {
			if err := b.take(ctx, m); err != nil {
				return errors.Join(err, b.commit(ctx, tx))
			}
		}
		return b.commit(ctx, tx)
	})
	if len(b.owed) > 0 {
		p.owe()
	}
	for _, log := range b.logs {
		log()
	}
	return err
}

// drops says by which rule a message is of no concern to us, as one word, ""
// when it is. These rules need neither a lock nor a file.
func (p *Pipeline) drops(m channels.Message) string {
	switch {
	case m.Mark != nil && m.Mark.Code != "" && m.Mark.Ours:
		return "" // tells of a question, maybe another machine's
	case isOurs(m) && (m.From.Us || !m.From.Person || p.mayBeListed(m.From, m.Surface)):
		return "own"
	case !m.From.Person:
		return "bot"
	case m.WorkItem == "" && m.Press == nil:
		return "unknown_thread"
	case !p.mayBeListed(m.From, m.Surface):
		p.counts.stranger(m.Surface, m.From)
		return "stranger"
	case m.Press == nil && questions.IsTalk(m.Text):
		return "talk"
	}
	return ""
}

// isOurs reports whether the-loop wrote the message: it stands as we write one,
// whatever account it was posted by, for another machine's may be a listed
// person's. A person may use our account; what they add to a copy of ours is
// theirs. One of ours that somebody edited is still no reply.
func isOurs(m channels.Message) bool {
	return m.Mark != nil && (m.Mark.Ours || m.From.Us && m.Edited)
}

// Counts is what became of messages since the start, by one word each.
type Counts struct {
	Taken   map[string]int `json:"taken,omitempty"`   // answered, inbox, not_a_choice, …
	Dropped map[string]int `json:"dropped,omitempty"` // own, bot, stranger, talk, …
	// Strangers are those who wrote or pressed and are not in people, with how
	// often: "slack:U0999", "github:octocat (583231)".
	Strangers map[string]int `json:"strangers,omitempty"`
}

// counter counts. Its zero value is ready.
type counter struct {
	mu sync.Mutex
	Counts
}

// maxStrangers bounds whom we remember: an outsider decides how many there are.
const maxStrangers = 20

func (c *counter) take(word string) { c.count(&c.Taken, word) }
func (c *counter) drop(word string) { c.count(&c.Dropped, word) }

func (c *counter) stranger(surface string, a channels.Author) {
	name := surface + ":" + safeID(a.ID)
	if a.Login != "" {
		name = surface + ":" + safeID(a.Login) + " (" + safeID(a.ID) + ")"
	}
	c.mu.Lock()
	full := len(c.Strangers) >= maxStrangers && c.Strangers[name] == 0
	c.mu.Unlock()
	if full {
		name = "others"
	}
	c.count(&c.Strangers, name)
}

func (c *counter) count(in *map[string]int, word string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if *in == nil {
		*in = map[string]int{}
	}
	(*in)[word]++
}

// Counts gives what was counted so far.
func (p *Pipeline) Counts() Counts {
	p.counts.mu.Lock()
	defer p.counts.mu.Unlock()
	return Counts{maps.Clone(p.counts.Taken), maps.Clone(p.counts.Dropped), maps.Clone(p.counts.Strangers)}
}

// safeID is an id as it may be shown: a provider's have no other characters.
func safeID(id string) string {
	for _, r := range id {
		if !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' || r == '_') {
			return "malformed"
		}
	}
	return id[:min(len(id), 64)]
}
