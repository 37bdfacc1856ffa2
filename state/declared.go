package state

import "path"

// Class says whether a path may travel to another machine.
type Class string

const (
	// Local is bound to this machine and this account: tokens' verdicts,
	// claims, messages on their way.
	Local Class = "local"
	// Portable is a record that may be copied or tracked.
	Portable Class = "portable"
)

// The names that the packages above use, relative to the root.
const (
	Outbox       = "channels/undelivered.json"
	Settled      = "delivery/settled.jsonl"
	Evicted      = "delivery/evicted.jsonl"
	Health       = "delivery/health.json"
	DrainRole    = "delivery/drain.lock"
	EventLog     = "logs/events.jsonl"
	RootIdentity = "run/root.json"
	RoomFile     = "room.jsonl"
	ReaderRole   = "run/reader.lock"
	SettlerRole  = "run/settler.lock"
	Cursors      = "inbound/cursors.json"
	Seen         = "inbound/seen.jsonl"
	Owed         = "inbound/owed.json"
	Elsewhere    = "inbound/elsewhere.json"
	Pins         = "inbound/pins.json"
)

// Sending is the folder of the publishing processes' journals.
func Sending() string { return "delivery/sending" }

// Pace is the file of a channel's slots.
func Pace(channel string) string { return "delivery/pace/" + channel }

// Binding is the document of a channel's threads.
func Binding(channel string) string { return "channels/" + channel + ".json" }

// Question is the document of one question.
func Question(id string) string { return "questions/" + id + ".json" }

// Inbox is what came in for one work item; InboxRead how far it was read.
func Inbox(slug string) string { return "inbox/" + slug + ".jsonl" }

// InboxRead is the document of how far an inbox was read.
func InboxRead(slug string) string { return "inbox/" + slug + ".json" }

// LedgerFile is the local ledger of one work item.
func LedgerFile(slug string) string { return "ledger/" + slug + ".jsonl" }

// RunRole is held by a daemon while it lives; Heartbeat is what it says.
func RunRole(service string) string { return "run/" + service + ".lock" }

// Heartbeat is the document in which a daemon says how it is.
func Heartbeat(service string) string { return "run/" + service + ".json" }

// Declaration is one path that may be written under the root.
type Declaration struct {
	Pattern string // as for path.Match
	Class   Class
	Reason  string // one line for docs/state.md
}

// Declared lists every path that the-loop writes under a root, and nothing
// else is written. docs/state.md and a test are held against it.
func Declared() []Declaration {
	return []Declaration{
		{Outbox, Local, "the outbox: what no channel has accepted, with its text"},
		{"channels/*.json", Local, "a channel's thread bindings: which thread belongs to which work item"},
		{"channels/*.lock", Local, "the lock beside each of them"},
		{Health, Local, "the standing of channels, per credential"},
		{"delivery/health.json.lock", Local, "its lock"},
		{DrainRole, Local, "held by whoever drains; names it"},
		{"delivery/sending/*.jsonl", Local, "a publishing process's journal: its intents and their outcomes, with text"},
		{"delivery/sending/.*.jsonl", Local, "the same, before it is complete"},
		{"delivery/pace/*", Local, "the pace that the processes of this root keep together, per channel"},
		{Settled, Local, "what became of rows that left, without text (30 days)"},
		{Settled + ".1", Local, "the same, turned over at 10 MiB"},
		{"delivery/settled.jsonl.lock", Local, "held while it is turned over"},
		{Evicted, Local, "what the cap evicted, with its text"},
		{Evicted + ".1", Local, "the same, turned over"},
		{"delivery/evicted.jsonl.lock", Local, "held while it is turned over"},
		{"questions/*.json", Local, "what was asked, and whether anybody still wants to know"},
		{"questions/*.json.lock", Local, "its lock"},
		{"inbox/*.jsonl", Local, "what came in for a work item and answered no question, with its text"},
		{"inbox/*.jsonl.1", Local, "the same, turned over at 10 MiB"},
		{"inbox/*.jsonl.lock", Local, "held while it is turned over"},
		{"inbox/*.json", Local, "how far it was read"},
		{"inbox/*.json.lock", Local, "its lock"},
		{Cursors, Local, "how far each source was read"},
		{"inbound/cursors.json.lock", Local, "its lock"},
		{Seen, Local, "what came in already, by what happened and without text"},
		{Seen + ".1", Local, "the same, turned over at 4 MiB"},
		{"inbound/seen.jsonl.lock", Local, "held while it is turned over"},
		{Owed, Local, "what people have not been shown yet of what became of their replies"},
		{"inbound/owed.json.lock", Local, "its lock, held while something is taken in"},
		{Elsewhere, Local, "the open questions of other machines in our conversations"},
		{"inbound/elsewhere.json.lock", Local, "its lock"},
		{Pins, Local, "the numbers of the GitHub accounts that people has by login"},
		{"inbound/pins.json.lock", Local, "its lock"},
		{"ledger/*.jsonl", Portable, "the local ledger: one file per work item"},
		{EventLog, Local, "the event log: ids, types, counts and codes, no text"},
		{EventLog + ".1", Local, "the same, turned over at 10 MiB"},
		{"logs/events.jsonl.lock", Local, "held while it is turned over"},
		{RootIdentity, Local, "which machine this root belongs to"},
		{"run/*.lock", Local, "held by a daemon while it lives"},
		{"run/*.json", Local, "a daemon's heartbeat"},
		{"run/*.json.lock", Local, "its lock"},
		{RoomFile, Local, "the messages of the `file` channel that there is without a config"},
		{RoomFile + ".lock", Local, "its lock"},
		{"*/*.corrupt-*", Local, "a damaged file, set aside with its bytes kept"},
	}
}

// IsDeclared reports whether a path relative to the root is declared.
func IsDeclared(name string) bool {
	for _, d := range Declared() {
		if ok, err := path.Match(d.Pattern, name); ok && err == nil {
			return true
		}
	}
	return false
}
