package status

import (
	"fmt"
	"strings"
	"time"

	"the-loop/internal/term"
)

// Line is the one line that says what is behind, "" when nothing is.
func (d Delivery) Line(now time.Time) string {
	if d.Pending == 0 {
		return ""
	}
	events := "events"
	if d.Pending == 1 {
		events = "event"
	}
	why := ""
	if d.LastError != "" {
		why = fmt.Sprintf(" (%s)", shorten(d.LastError))
	}
	return fmt.Sprintf("%d %s undelivered, oldest %s%s — %s",
		d.Pending, events, term.Ago(now, *d.Oldest), why, d.ending(now))
}

// ending says what will become of the backlog. The seed's own ending stands
// while it is true.
func (d Delivery) ending(now time.Time) string {
	switch {
	case d.unknown && !d.Draining && d.trouble == "":
		return "nothing is draining them: mend the config first, the-loop check"
	case d.unknown && d.Draining:
		return "retried as the config was when the daemon read it"
	case d.NextTryAt == nil && !d.unknown: // a daemon would not move it either
		return "waiting for a person: the-loop outbox list"
	case !d.Draining && d.trouble != "":
		return d.trouble
	case !d.Draining:
		return "nothing is draining them: start the poller or the webhook receiver"
	case d.PausedUntil != nil:
		return "paused" + untilText(now, *d.PausedUntil)
	case d.LookedUp:
		return "looked up every " + term.Span(d.interval)
	case !d.NextTryAt.After(now.Add(d.interval)):
		return "retried every " + term.Span(d.interval)
	case len(d.Waiting) > 0:
		return "waiting for " + strings.Join(d.Waiting, ", ")
	default:
		return "next try in " + term.Span(d.NextTryAt.Sub(now))
	}
}

// cyclesFail and notAnswering say why a service that runs does not drain.
func cyclesFail(service string) string {
	return fmt.Sprintf("the %s's cycles fail: see above", service)
}

func notAnswering(service string, quiet time.Duration) string {
	return fmt.Sprintf("the %s has not answered for ", service) + term.Span(quiet)
}

// untilText is the local time of day, and the day where it is not today.
func untilText(now, t time.Time) string {
	t, now = t.Local(), now.Local()
	switch {
	case t.Year() == 9999:
		return ""
	case t.YearDay() == now.YearDay() && t.Year() == now.Year():
		return " until " + t.Format("15:04")
	}
	return " until " + t.Format("2006-01-02 15:04")
}

// shorten leaves out what the line has no room for: "post failed", and the
// detail behind the code, which `outbox list` shows.
func shorten(lastError string) string {
	for _, words := range []string{": post failed: ", ": not asked: "} {
		lastError = strings.Replace(lastError, words, ": ", 1)
	}
	if before, _, ok := strings.Cut(lastError, " ("); ok && strings.HasSuffix(lastError, ")") {
		lastError = before
	}
	return term.Clean(lastError)
}
