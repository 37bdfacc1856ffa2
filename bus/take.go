package bus

import (
	"fmt"

	"the-loop/channels"
	"the-loop/internal/lazy"
	"the-loop/state"
)

// idPattern is what an event's id may be: a ULID, or an id given by hand. It
// becomes a key of the outbox and the value of a header.
var idPattern = lazy.Regexp(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)

// take makes the event what will be delivered: it gives it an id, mends its
// texts, and turns Detail into what a reader of its JSON would see.
func (b *Bus) take(ev channels.Event) (channels.Event, []string, error) {
	if ev.ID == "" {
		ev.ID = state.NewID()
	}
	if !idPattern().MatchString(ev.ID) {
		return ev, nil, fmt.Errorf("event id %q: want up to 64 letters, digits, dots, dashes and underlines", ev.ID)
	}
	if err := ev.Validate(); err != nil {
		return ev, nil, err
	}
	limit := b.MaxText
	if limit <= 0 {
		limit = MaxText
	}
	if len(ev.Text) > limit {
		return ev, nil, fmt.Errorf("the text is %d bytes long; at most %d are carried", len(ev.Text), limit)
	}
	var c cleaner
	c.strings(&ev.Text, &ev.Summary, &ev.URL, &ev.Source)
	raw, err := encode(ev)
	if err != nil {
		return ev, nil, err
	}
	c.look(ev.Detail) // encoding it has mended it, and did not tell
	if ev.Actor != nil {
		name := ev.Actor.Name
		c.strings(&name)
		c.look(ev.Actor.IDs)
	}
	if ev, err = channels.DecodeEvent(raw); err != nil {
		return ev, nil, err
	}
	ev.Detail = c.object(ev.Detail)
	if ev.Actor != nil {
		c.strings(&ev.Actor.Name)
		for surface, id := range ev.Actor.IDs {
			c.strings(&id)
			ev.Actor.IDs[surface] = id
		}
	}
	var notes []string
	if c.changed {
		notes = append(notes, "what was not valid UTF-8 text, or NUL, was replaced by \uFFFD")
	}
	if _, known := channels.LookupType(ev.Type); !known {
		notes = append(notes, fmt.Sprintf("event type %s is not in the catalogue (the-loop channels list)", ev.Type))
	}
	return ev, notes, nil
}

// encode is Encode for an event whose Detail holds values of anybody's making.
func encode(ev channels.Event) (raw []byte, err error) {
	err = guard("encoding the detail", func() (err error) {
		raw, err = ev.Encode()
		return err
	})
	return raw, err
}

// cleaner replaces what no channel could carry, and remembers that it did.
type cleaner struct{ changed bool }

func (c *cleaner) strings(all ...*string) {
	for _, s := range all {
		clean, changed := channels.CleanText(*s)
		*s, c.changed = clean, c.changed || changed
	}
}

// look notices what would be replaced, in the kinds of values that a detail is
// mostly made of.
func (c *cleaner) look(v any) {
	switch v := v.(type) {
	case string:
		c.strings(&v)
	case []string:
		for _, s := range v {
			c.strings(&s)
		}
	case map[string]string:
		for key, s := range v {
			c.strings(&key, &s)
		}
	case []any:
		for _, element := range v {
			c.look(element)
		}
	case map[string]any:
		for key, value := range v {
			c.strings(&key)
			c.look(value)
		}
	}
}

// value cleans a decoded JSON value.
func (c *cleaner) value(v any) any {
	switch v := v.(type) {
	case string:
		c.strings(&v)
		return v
	case []any:
		for i, element := range v {
			v[i] = c.value(element)
		}
		return v
	case map[string]any:
		return c.object(v)
	}
	return v
}

func (c *cleaner) object(m map[string]any) map[string]any {
	clean := make(map[string]any, len(m))
	for key, value := range m {
		c.strings(&key)
		clean[key] = c.value(value)
	}
	return clean
}
