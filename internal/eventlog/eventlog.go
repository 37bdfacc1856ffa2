// Package eventlog writes logs/events.jsonl: the facts of delivery, one line
// each, by id. There is one method per event and no way to put a message's
// text, a token or an address into it.
package eventlog

import (
	"context"
	"encoding/json"
	"log/slog"
	"time"

	"the-loop/state"
)

// Limit is the size at which the log is turned over.
const Limit = 10 << 20

// Line is one event as it stands in the file. Unset fields are left out.
type Line struct {
	At    time.Time `json:"at"`
	Event string    `json:"event"`
	Level string    `json:"level"` // debug, info, warning, error

	EntryID   string   `json:"entry_id,omitempty"`
	EventType string   `json:"event_type,omitempty"`
	WorkItem  string   `json:"work_item,omitempty"`
	Channel   string   `json:"channel,omitempty"`
	Channels  []string `json:"channels,omitempty"`
	Reason    string   `json:"reason,omitempty"`
	Code      string   `json:"code,omitempty"`
	Error     string   `json:"error,omitempty"`
	Attempts  int      `json:"attempts,omitempty"`
	// ChannelsPosted is how many channels took the event.
	ChannelsPosted *int   `json:"channels_posted,omitempty"`
	Recorded       string `json:"recorded,omitempty"`
	WaitedSeconds  int64  `json:"waited_seconds,omitempty"`
	ResentAs       string `json:"resent_as,omitempty"`
	Service        string `json:"service,omitempty"`
	File           string `json:"file,omitempty"` // a base name under the root
}

// Log writes lines. The zero Log writes nowhere. It is safe for concurrent use.
type Log struct {
	log    state.Log
	logger *slog.Logger
}

// New gives the event log of a root. Each line is also given to logger, when
// that is not nil, and so is a line that could not be written.
func New(root *state.Root, logger *slog.Logger) *Log {
	l := root.Log(state.EventLog)
	l.Limit = Limit
	return &Log{log: l, logger: logger}
}

// Subject is what most events are about.
type Subject struct{ EntryID, EventType, WorkItem string }

func (s Subject) line(event, level string) Line {
	return Line{Event: event, Level: level, EntryID: s.EntryID, EventType: s.EventType, WorkItem: s.WorkItem}
}

// Published is written for every publish: who took it, and whether it was recorded.
func (l *Log) Published(ctx context.Context, s Subject, posted, owed []string, recorded string) error {
	line, n := s.line("bus.published", "info"), len(posted)
	line.Channels, line.ChannelsPosted, line.Recorded = owed, &n, recorded
	return l.write(ctx, line, false)
}

// Asked is written for every question that was recorded.
func (l *Log) Asked(ctx context.Context, s Subject, posted int) error {
	line := s.line("session.awaiting_input", "info")
	line.ChannelsPosted = &posted
	return l.write(ctx, line, false)
}

// Undelivered is written when no channel took an event and it was kept.
func (l *Log) Undelivered(ctx context.Context, s Subject, channels []string, lastError string) error {
	line := s.line("channel.undelivered", "warning")
	line.Channels, line.Error = channels, lastError
	return l.write(ctx, line, false)
}

// Orphaned is written when an event was taken over from a publish that died.
func (l *Log) Orphaned(ctx context.Context, s Subject, channels []string) error {
	line := s.line("outbox.recovered", "warning")
	line.Channels = channels
	return l.write(ctx, line, false)
}

// PartlyDelivered names the channels that did not take an event another took.
func (l *Log) PartlyDelivered(ctx context.Context, s Subject, missed []string, lastError string) error {
	line := s.line("channel.partly_delivered", "warning")
	line.Channels, line.Error = missed, lastError
	return l.write(ctx, line, false)
}

// DeliveredLate is written when an entry of the outbox was accepted.
func (l *Log) DeliveredLate(ctx context.Context, s Subject, channel string, attempts int, waited time.Duration) error {
	line := s.line("channel.delivered_late", "info")
	line.Channel, line.Attempts, line.WaitedSeconds = channel, attempts, int64(waited.Seconds())
	return l.write(ctx, line, false)
}

// AcceptedOutOfClaim is written when an acceptance arrived for an entry that
// was no longer ours to settle: it counts, and it is worth a look.
func (l *Log) AcceptedOutOfClaim(ctx context.Context, s Subject, channel string) error {
	line := s.line("channel.accepted_out_of_claim", "warning")
	line.Channel = channel
	return l.write(ctx, line, false)
}

// Uncertain is written when an attempt ended without an answer, or died.
func (l *Log) Uncertain(ctx context.Context, s Subject, channel, code string) error {
	line := s.line("channel.uncertain", "warning")
	line.Channel, line.Code = channel, code
	return l.write(ctx, line, false)
}

// Found is written when a look-up found an uncertain delivery: it had arrived.
func (l *Log) Found(ctx context.Context, s Subject, channel string, waited time.Duration) error {
	line := s.line("channel.found", "info")
	line.Channel, line.WaitedSeconds = channel, int64(waited.Seconds())
	return l.write(ctx, line, false)
}

// Lost is written when two complete look-ups did not find an uncertain
// delivery. resentAs is the id under which it is sent again, if it is.
func (l *Log) Lost(ctx context.Context, s Subject, channel, resentAs string) error {
	line := s.line("channel.lost", "warning")
	line.Channel, line.ResentAs = channel, resentAs
	return l.write(ctx, line, false)
}

// SentAgain is written when a person had an entry sent once more.
func (l *Log) SentAgain(ctx context.Context, s Subject, resentAs string) error {
	line := s.line("outbox.sent_again", "warning")
	line.ResentAs = resentAs
	return l.write(ctx, line, false)
}

// Paused is written when a person pauses a channel, Resumed when the pause is
// ended before its time.
func (l *Log) Paused(ctx context.Context, channel string) error {
	return l.write(ctx, Line{Event: "channel.paused", Level: "info", Channel: channel}, false)
}

// Resumed see Paused.
func (l *Log) Resumed(ctx context.Context, channel string) error {
	return l.write(ctx, Line{Event: "channel.resumed", Level: "info", Channel: channel}, false)
}

// Dead is written when a delivery will not be tried again by itself.
func (l *Log) Dead(ctx context.Context, s Subject, channel, reason, code string, attempts int) error {
	line := s.line("channel.dead", "warning")
	line.Channel, line.Reason, line.Code, line.Attempts = channel, reason, code, attempts
	return l.write(ctx, line, false)
}

// Answered is written when a question was answered; via says by which way.
func (l *Log) Answered(ctx context.Context, s Subject, via string) error {
	line := s.line("question.answered", "info")
	line.Channel = via
	return l.write(ctx, line, false)
}

// Expired is written when a question's time was over without an answer.
func (l *Log) Expired(ctx context.Context, s Subject) error {
	return l.write(ctx, s.line("question.expired", "warning"), false)
}

// Withdrawn is written when a person withdrew a question.
func (l *Log) Withdrawn(ctx context.Context, s Subject) error {
	return l.write(ctx, s.line("question.withdrawn", "info"), false)
}

// CameIn is written when a listed person's message was taken in that answered no
// question; how says what became of it.
func (l *Log) CameIn(ctx context.Context, workItem, surface, how string) error {
	return l.write(ctx, Line{
		Event: "inbound.taken", Level: "info", WorkItem: workItem, Channel: surface, Reason: how,
	}, false)
}

// ReplyUncertain is written when nobody knows whether a person has been told
// what became of their reply; it is not repeated.
func (l *Log) ReplyUncertain(ctx context.Context, question, channel, code string) error {
	return l.write(ctx, Line{
		Event: "inbound.note_uncertain", Level: "warning", EntryID: question, Channel: channel, Code: code,
	}, false)
}

// ReplyGivenUp is written when a person could not be shown what became of their
// reply.
func (l *Log) ReplyGivenUp(ctx context.Context, question, channel, code string) error {
	return l.write(ctx, Line{
		Event: "inbound.note_given_up", Level: "warning", EntryID: question, Channel: channel, Code: code,
	}, false)
}

// Dropped is written when a person dropped an entry.
func (l *Log) Dropped(ctx context.Context, s Subject) error {
	return l.write(ctx, s.line("outbox.dropped", "warning"), false)
}

// Evicted is written, durably, before the cap evicts an entry.
func (l *Log) Evicted(ctx context.Context, s Subject) error {
	return l.write(ctx, s.line("channel.undelivered_dropped", "warning"), true)
}

// Failing is written when a channel begins to fail, or fails in another way.
func (l *Log) Failing(ctx context.Context, channel, reason, code string) error {
	return l.write(ctx, Line{
		Event: "channel.failing", Level: "warning", Channel: channel, Reason: reason, Code: code,
	}, false)
}

// Recovered is written once when a failing channel works again.
func (l *Log) Recovered(ctx context.Context, channel string, attempts int, after time.Duration) error {
	return l.write(ctx, Line{
		Event: "channel.recovered", Level: "info", Channel: channel, Attempts: attempts,
		WaitedSeconds: int64(after.Seconds()),
	}, false)
}

// SetAside is written when a damaged file, or a bad entry, was set aside.
func (l *Log) SetAside(ctx context.Context, file string) error {
	return l.write(ctx, Line{Event: "state.set_aside", Level: "warning", File: file}, false)
}

// ClockMoved is written when stored times lay in the future and were corrected.
func (l *Log) ClockMoved(ctx context.Context, s Subject) error {
	return l.write(ctx, s.line("outbox.time_corrected", "warning"), false)
}

// Service is written when a daemon starts, stops or takes up a new config.
func (l *Log) Service(ctx context.Context, service, what string) error {
	return l.write(ctx, Line{Event: "service." + what, Level: "info", Service: service}, false)
}

// ConfigRefused is written when a daemon keeps its old config.
func (l *Log) ConfigRefused(ctx context.Context, service string) error {
	return l.write(ctx, Line{Event: "service.config_refused", Level: "error", Service: service}, false)
}

func (l *Log) write(ctx context.Context, line Line, durable bool) error {
	if l == nil {
		return nil
	}
	line.At = time.Now().UTC()
	l.tell(ctx, line)
	if l.log.Path() == "" {
		return nil
	}
	b, err := json.Marshal(line)
	if err != nil {
		return err
	}
	if durable {
		err = l.log.AppendDurably(ctx, b)
	} else {
		err = l.log.Append(ctx, b)
	}
	if err != nil && l.logger != nil {
		l.logger.WarnContext(ctx, "event log cannot be written", "event", line.Event, "error", err)
	}
	return err
}

func (l *Log) tell(ctx context.Context, line Line) {
	if l.logger == nil {
		return
	}
	level := slog.LevelInfo
	switch line.Level {
	case "debug":
		level = slog.LevelDebug
	case "warning":
		level = slog.LevelWarn
	case "error":
		level = slog.LevelError
	}
	if !l.logger.Enabled(ctx, level) {
		return
	}
	var attrs []slog.Attr
	str := func(key, value string) {
		if value != "" {
			attrs = append(attrs, slog.String(key, value))
		}
	}
	str("entry_id", line.EntryID)
	str("event_type", line.EventType)
	str("work_item", line.WorkItem)
	str("channel", line.Channel)
	if len(line.Channels) > 0 {
		attrs = append(attrs, slog.Any("channels", line.Channels))
	}
	str("reason", line.Reason)
	str("code", line.Code)
	str("error", line.Error)
	str("resent_as", line.ResentAs)
	str("service", line.Service)
	str("file", line.File)
	if line.Attempts > 0 {
		attrs = append(attrs, slog.Int("attempts", line.Attempts))
	}
	if line.WaitedSeconds > 0 {
		attrs = append(attrs, slog.Int64("waited_seconds", line.WaitedSeconds))
	}
	l.logger.LogAttrs(ctx, level, line.Event, attrs...)
}

// Read gives the lines of a root's event log, oldest first, until yield
// returns false. A line that cannot be read is passed over.
func Read(root *state.Root, yield func(Line) bool) error {
	return root.Log(state.EventLog).Lines(decoding(yield))
}

// Follow is Read, and then gives what is added, until ctx ends.
func Follow(ctx context.Context, root *state.Root, yield func(Line) bool) error {
	return root.Log(state.EventLog).Follow(ctx, 250*time.Millisecond, decoding(yield))
}

func decoding(yield func(Line) bool) func([]byte) bool {
	return func(b []byte) bool {
		var line Line
		if json.Unmarshal(b, &line) != nil || line.Event == "" {
			return true
		}
		return yield(line)
	}
}
