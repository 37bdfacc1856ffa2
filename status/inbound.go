package status

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"the-loop/internal/term"
)

// Inbound is what a daemon says of what comes in to it.
type Inbound struct {
	Sources []SourceState `json:"sources,omitempty"`
	Sockets []SocketState `json:"sockets,omitempty"`
	// Taken and Dropped count what became of messages since the daemon started,
	// by one word each.
	Taken   map[string]int `json:"taken,omitempty"`
	Dropped map[string]int `json:"dropped,omitempty"`
	// Strangers are those who wrote or pressed and are not in people, with how
	// often: "slack:U0999", "github:octokitten (583232)".
	Strangers map[string]int `json:"strangers,omitempty"`
	// Forged counts the requests that were not signed by one of our secrets.
	Forged int64 `json:"forged,omitempty"`
	// Unheard counts signed requests that were nothing for us, by the rule.
	Unheard map[string]int64 `json:"unheard,omitempty"`
	// Owed counts what people have not been shown yet of their replies.
	Owed int `json:"owed,omitempty"`
}

// SourceState is how a surface is that is read by asking.
type SourceState struct {
	Name         string    `json:"name"`
	LastReadAt   time.Time `json:"lastReadAt,omitzero"`
	LastError    string    `json:"lastError,omitempty"`
	Places       int       `json:"places"`
	WaitingUntil time.Time `json:"waitingUntil,omitzero"`
}

// SocketState is how a live connection is.
type SocketState struct {
	Channel   string    `json:"channel"`
	Connected bool      `json:"connected"`
	Since     time.Time `json:"since,omitzero"`
	// Listeners is how many connections the provider shares the app's payloads
	// among, ours included.
	Listeners int    `json:"listeners"`
	LastError string `json:"lastError,omitempty"`
}

// News is i without what changes when nothing happens, or when outsiders knock.
func (i Inbound) News() Inbound {
	i.Sources, i.Sockets = slices.Clone(i.Sources), slices.Clone(i.Sockets)
	for n := range i.Sources {
		i.Sources[n].LastReadAt, i.Sources[n].WaitingUntil = time.Time{}, time.Time{}
	}
	for n := range i.Sockets {
		i.Sockets[n].Since = time.Time{}
	}
	i.Forged, i.Unheard = 0, nil
	return i
}

// Troubles are what of it a person should know, one line each.
func (i *Inbound) Troubles(now time.Time) (lines []string) {
	if i == nil {
		return nil
	}
	for _, s := range i.Sources {
		switch {
		case s.WaitingUntil.After(now):
			lines = append(lines, fmt.Sprintf("%s told us to wait: read again in %s", s.Name,
				term.Span(s.WaitingUntil.Sub(now))))
		case s.LastError != "":
			lines = append(lines, fmt.Sprintf("%s cannot be read: %s", s.Name, s.LastError))
		}
	}
	for _, s := range i.Sockets {
		switch {
		case !s.Connected && s.LastError != "":
			lines = append(lines, fmt.Sprintf("%s is not connected: %s", s.Channel, s.LastError))
		case s.Listeners > 1:
			lines = append(lines, fmt.Sprintf("%s: %d listeners share this app, and each gets only a part of what comes in",
				s.Channel, s.Listeners))
		}
	}
	for _, who := range slices.Sorted(maps.Keys(i.Strangers)) {
		lines = append(lines, fmt.Sprintf("not in people, and ignored: %s (%s)", who, times(i.Strangers[who])))
	}
	if i.Owed > 0 {
		lines = append(lines, fmt.Sprintf("%d replies wait to be acknowledged where they were written", i.Owed))
	}
	return lines
}

func times(n int) string {
	if n == 1 {
		return "once"
	}
	return fmt.Sprintf("%d times", n)
}
