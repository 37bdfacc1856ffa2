package inbound_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"the-loop/channels"
	"the-loop/internal/inbound"
	"the-loop/internal/questions"
	"the-loop/state"
)

const item = "github:o/r#7"

// people are Octo, on both surfaces, and Hub, on Slack alone.
func people() []inbound.Person {
	return []inbound.Person{{Name: "Octo", GitHub: "octocat", Slack: "U1OCTO"}, {Name: "Hub", Slack: "U2HUB"}}
}

// site is a root with a pipeline, and what its settler shows people.
type site struct {
	t    testing.TB
	root *state.Root
	*inbound.Pipeline
	settler *inbound.Settler
	shown   *shown
	n       int
}

func newSite(t *testing.T) *site {
	t.Helper()
	root, err := state.Open(filepath.Join(t.TempDir(), "root"))
	if err != nil {
		t.Fatal(err)
	}
	return siteOn(t, root)
}

func siteOn(t testing.TB, root *state.Root) *site {
	s := &site{t: t, root: root, shown: &shown{}}
	s.Pipeline = inbound.New(inbound.Options{
		Root: root, People: people(), Mirrors: true, Surfaces: []string{"slack"},
	})
	t.Cleanup(s.Close)
	s.settler = &inbound.Settler{
		Pipeline:  s.Pipeline,
		Responder: func(string) inbound.Responder { return s.shown },
		Mirror: func(_ context.Context, q questions.Question) (string, bool, error) {
			return s.shown.mirror(inbound.AnswerEvent(q))
		},
	}
	return s
}

// ask asks a question, some time ago so that what is written now is younger.
func (s *site) ask(text string, choices ...string) questions.Question {
	s.t.Helper()
	return s.askUntil(text, time.Time{}, choices...)
}

// askUntil asks one that expires; zero: never.
func (s *site) askUntil(text string, expires time.Time, choices ...string) questions.Question {
	s.t.Helper()
	q, err := questions.Ask(s.t.Context(), s.root, questions.Question{
		ID: state.NewID(), WorkItem: item, Text: text, Choices: choices, AskedAt: time.Now().UTC().Add(-time.Minute),
		ExpiresAt: expires,
	})
	if err != nil {
		s.t.Fatal(err)
	}
	return q
}

// reply is what Octo writes in Slack.
func (s *site) reply(text string) channels.Message {
	s.n++
	ts := fmt.Sprintf("1900000000.%06d", s.n)
	return channels.Message{
		Key: "slack:C1:" + ts, Surface: "slack", Channel: "slack", WorkItem: item,
		Place: channels.Place{Conversation: "C1", Thread: "1.1", ID: ts},
		From:  channels.Author{ID: "U1OCTO", Person: true}, At: time.Now(), Text: text,
	}
}

// comment is what Octo writes on GitHub.
func (s *site) comment(text string) channels.Message {
	m := s.reply(text)
	m.Key = fmt.Sprintf("github:o/r:comment:%d:2026-09-22T10:00:00Z", s.n)
	m.Surface, m.Channel, m.Place = "github", "", channels.Place{Conversation: "o/r#7", ID: fmt.Sprintf("comment:%d", s.n)}
	m.From = channels.Author{ID: "583231", Login: "octocat", Person: true}
	return m
}

func (s *site) press(q questions.Question, choice int) channels.Message {
	m := s.reply("")
	m.Press = &channels.Press{Question: q.ID, Choice: choice}
	m.Key = fmt.Sprintf("slack:press:%s:%s:%d", q.ID, m.From.ID, s.n)
	return m
}

func (s *site) take(ms ...channels.Message) {
	s.t.Helper()
	if err := s.Take(s.t.Context(), ms...); err != nil {
		s.t.Fatal(err)
	}
}

func (s *site) settle() {
	s.t.Helper()
	if held, err := s.settler.Settle(s.t.Context()); err != nil || !held {
		s.t.Fatal(held, err)
	}
}

// answer is the question's answer, "" while it is open.
func (s *site) answer(q questions.Question) string {
	s.t.Helper()
	q, err := questions.Get(s.root, q.ID)
	if err != nil {
		s.t.Fatal(err)
	}
	if q.Answer == nil {
		return ""
	}
	return q.Answer.Text
}

func (s *site) inbox() (texts []string) {
	s.t.Helper()
	lines, err := inbound.Unread(s.root, item)
	if err != nil {
		s.t.Fatal(err)
	}
	for _, l := range lines {
		texts = append(texts, l.From.Name+": "+l.Text)
	}
	return texts
}

// files are all files under the root, with their sizes.
func (s *site) files() (names []string) {
	_ = filepath.Walk(s.root.Dir(), func(path string, fi os.FileInfo, err error) error {
		if err == nil && fi.Mode().IsRegular() {
			names = append(names, fmt.Sprintf("%s %d %s", path, fi.Size(), fi.ModTime()))
		}
		return nil
	})
	return names
}

// shown records what people see.
type shown struct {
	mu    sync.Mutex
	lines []string
	fail  func(what string) error
}

func (s *shown) add(what, text string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fail != nil {
		if err := s.fail(what); err != nil {
			return err
		}
	}
	s.lines = append(s.lines, strings.TrimSpace(what+" "+text))
	return nil
}

func (s *shown) Taken(_ context.Context, at channels.Place) error { return s.add("taken", at.ID) }

func (s *shown) Settle(_ context.Context, d channels.Delivery, _ []string, how string) error {
	return s.add("settle", d.Event.Text+" | "+how)
}

func (s *shown) Tell(_ context.Context, _ channels.Place, _, user, text string, private bool) error {
	if private {
		user += " alone"
	}
	return s.add("tell", user+": "+text)
}

func (s *shown) mirror(e channels.Event) (string, bool, error) {
	return "", false, s.add("mirror", e.ID+" "+e.Text)
}

func (s *shown) all(what string) (found []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range s.lines {
		if strings.HasPrefix(l, what) {
			found = append(found, l)
		}
	}
	return found
}
