package channels

import (
	"fmt"
	"time"

	"the-loop/internal/lazy"
)

// Reason says why a delivery stands where it stands. The list is closed, and
// every reason has plain words for people.
type Reason string

// Reasons for a refusal, from the verdict table in docs/delivery.md.
const (
	ReasonDown         Reason = "down"         // nothing was written: no name, no connection, no TLS
	ReasonRate         Reason = "rate"         // told to wait
	ReasonAuth         Reason = "auth"         // token missing, wrong, revoked, without the scope
	ReasonConfig       Reason = "config"       // the room or address is not there for us
	ReasonUnacceptable Reason = "unacceptable" // this message will never be taken as it is
	ReasonRedirect     Reason = "redirect"     // the address answers with another one
	ReasonOther        Reason = "other"        // the provider gave a code we do not know
)

// Reasons for other states.
const (
	ReasonUnknown Reason = "unknown" // sent, and no answer says what became of it
	ReasonHeld    Reason = "held"    // not asked: the channel is failing, cooling or paused
	ReasonGone    Reason = "gone"    // no such channel any more
	ReasonCrashed Reason = "crashed" // found orphaned twice
	ReasonExpired Reason = "expired" // past its time to live
	ReasonFound   Reason = "found"   // was uncertain, and a look-up found it: delivered
	ReasonLost    Reason = "lost"    // was uncertain, and two complete look-ups did not find it
	ReasonMoved   Reason = "moved"   // the root was copied: another machine may have sent it
)

var reasonWords = map[Reason]string{
	ReasonDown:         "it could not be reached; nothing was sent",
	ReasonRate:         "it told us to wait",
	ReasonAuth:         "it does not let us in: the token is missing, wrong or lacks a scope",
	ReasonConfig:       "the room or address is not there for us",
	ReasonUnacceptable: "it will not take this message as it is",
	ReasonRedirect:     "the address answers with another one",
	ReasonOther:        "it refused with a code we do not know",
	ReasonUnknown:      "it may have arrived: no answer says what became of it",
	ReasonHeld:         "not asked yet: the channel is failing, cooling or paused, or its turn comes later",
	ReasonGone:         "there is no such channel any more",
	ReasonCrashed:      "the program died twice while sending it",
	ReasonExpired:      "its time to live has passed",
	ReasonFound:        "no answer came, and a look-up found it there: it was delivered",
	ReasonLost:         "it never arrived: two complete look-ups did not find it",
	ReasonMoved:        "it may have been sent by the machine that this root was copied from",
}

// Words says the reason in plain words, for people.
func (r Reason) Words() string {
	if w, ok := reasonWords[r]; ok {
		return w
	}
	return "for a reason this version does not know (" + string(r) + ")"
}

// Reasons lists all of them, in no order.
func Reasons() []Reason {
	out := make([]Reason, 0, len(reasonWords))
	for r := range reasonWords {
		out = append(out, r)
	}
	return out
}

// Standing reports whether the reason is the channel's own and not the
// message's: whoever is asked next would be told the same.
func (r Reason) Standing() bool {
	switch r {
	case ReasonDown, ReasonAuth, ReasonConfig, ReasonUnknown:
		return true
	}
	return false
}

// Refusal is a channel's proof that it does not have the message.
type Refusal struct {
	Reason Reason
	// Code is the provider's code or our own short word, cleaned by SafeCode.
	Code string
	// Detail is more for people: a host, the scope that is needed, the name of
	// the variable that is not set. Never a secret, an address or the text.
	Detail string
	// RetryAfter is how long to wait, with ReasonRate; 0 is no wait at all. A
	// kind whose provider says to wait and not how long puts its own value.
	RetryAfter time.Duration
	// Guessed: the provider did not say how long, and RetryAfter is the kind's
	// own value. It rises while the provider goes on saying so.
	Guessed bool
	// Err is the cause, for errors.Is. Its text is never shown: net/http puts
	// whole addresses into it.
	Err error
}

// Error says it in words that fit whatever was asked for: a message, or to read.
func (r *Refusal) Error() string { return verdictText("", r.Code, r.Detail) }

// Unwrap gives the cause.
func (r *Refusal) Unwrap() error { return r.Err }

// Uncertain says that the message may have arrived: bytes left, or may have,
// and no answer says what became of them.
type Uncertain struct {
	Code   string // cleaned by SafeCode: "timeout", "http_500", "internal_error"
	Detail string // as in Refusal
	Err    error  // as in Refusal
}

// Error is as Refusal's.
func (u *Uncertain) Error() string { return verdictText("no answer: ", u.Code, u.Detail) }

// Unwrap gives the cause.
func (u *Uncertain) Unwrap() error { return u.Err }

func verdictText(prefix, code, detail string) string {
	if detail == "" {
		return prefix + code
	}
	return fmt.Sprintf("%s%s (%s)", prefix, code, detail)
}

var codePattern = lazy.Regexp(`^[a-z0-9_.-]{1,64}$`)

// SafeCode returns code when it has the form of a provider's code, and "other"
// when it does not: what a stranger's server says is not written into logs.
func SafeCode(code string) string {
	if codePattern().MatchString(code) {
		return code
	}
	return "other"
}
