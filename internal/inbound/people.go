package inbound

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"the-loop/channels"
	"the-loop/internal/questions"
	"the-loop/state"
)

// Person may answer: as the config's people lists them.
type Person struct {
	Name   string
	GitHub string // login
	Slack  string // user id
}

// pins are inbound/pins.json: which number the account had that a login of the
// config's people belonged to when it was first seen. A login that is given up
// and registered by somebody else has another number, and is a stranger; an
// account that was renamed keeps its number, and is not.
type pins struct {
	Version int               `json:"version"`
	Logins  map[string]string `json:"logins"` // in lower case

	extra state.Extra
}

func decodePins(b []byte) (f pins, err error) {
	f.Version = 1
	if len(b) > 0 {
		if f.extra, err = state.UnmarshalKeeping(state.TrimBOM(b), &f); err != nil {
			return f, fmt.Errorf("%s is damaged; nobody is let in from GitHub until it is mended: %w", state.Pins, err)
		}
	}
	if f.Version > 1 {
		return f, fmt.Errorf("%s was written by a newer version: upgrade the-loop", state.Pins)
	}
	if f.Logins == nil {
		f.Logins = map[string]string{}
	}
	return f, nil
}

// mayBeListed reports whether somebody of the config's people could be meant:
// it is what can be told without a file.
func (p *Pipeline) mayBeListed(a channels.Author, surface string) bool {
	for _, person := range p.o.People {
		switch surface {
		case "slack":
			if person.Slack != "" && person.Slack == a.ID {
				return true
			}
		case "github":
			if person.GitHub != "" { // it may have been renamed: the number tells
				return true
			}
		}
	}
	return false
}

// authorize finds who wrote a message among the config's people. Damage to the
// pins denies everybody on GitHub rather than let a new owner of a login in.
func (p *Pipeline) authorize(ctx context.Context, a channels.Author, surface string) (questions.Person, bool, error) {
	if surface != "github" {
		for _, person := range p.o.People {
			if surface == "slack" && person.Slack != "" && person.Slack == a.ID {
				return questions.Person{Name: person.Name, ID: a.ID}, true, nil
			}
		}
		return questions.Person{}, false, nil
	}
	doc := p.o.Root.Document(state.Pins)
	b, err := doc.Read()
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return questions.Person{}, false, err
	}
	known, err := decodePins(b)
	if err != nil {
		return questions.Person{}, false, err
	}
	for _, person := range p.o.People {
		login := strings.ToLower(person.GitHub)
		pin, pinned := known.Logins[login]
		switch {
		case login == "" || a.ID == "":
		case pinned && pin == a.ID:
			return questions.Person{Name: person.Name, ID: a.ID, Login: a.Login}, true, nil
		case !pinned && strings.EqualFold(login, a.Login):
			return questions.Person{Name: person.Name, ID: a.ID, Login: a.Login}, true, pin1(ctx, doc, login, a.ID)
		}
	}
	return questions.Person{}, false, nil
}

// pin1 notes the number of one account, durably.
func pin1(ctx context.Context, doc state.Document, login, id string) error {
	return doc.Update(ctx, func(tx *state.Tx) error {
		b, err := tx.Read()
		if err != nil {
			return err
		}
		f, err := decodePins(b)
		if err != nil {
			return err
		}
		f.Logins[login] = id
		if b, err = state.MarshalKeeping(f, f.extra); err != nil {
			return err
		}
		return tx.Write(append(b, '\n'))
	})
}

// Pinned gives the numbers of accounts by login, as far as they are known.
func Pinned(root *state.Root) (map[string]string, error) {
	b, err := root.Document(state.Pins).Read()
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	f, err := decodePins(b)
	return f.Logins, err
}
