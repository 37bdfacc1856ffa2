// Package docs_test holds the README and docs/ against the code: tables, the
// config, links, commands, and the tour of the README, which it types.
package docs_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"the-loop/channels"
	"the-loop/channels/channelstest"
	"the-loop/channels/slack"
	"the-loop/channels/webhook"
	"the-loop/internal/config"
	"the-loop/outbox"
	"the-loop/state"
	"the-loop/status"
)

func read(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// table gives the cells of the rows of the table whose head begins with the
// given cell, without the head. Code marks are left on.
func table(t *testing.T, file, head string) [][]string {
	t.Helper()
	var rows [][]string
	in := false
	for line := range strings.Lines(read(t, file)) {
		line = strings.TrimSpace(line)
		if !strings.HasPrefix(line, "|") {
			if in {
				break
			}
			continue
		}
		cells := strings.Split(strings.Trim(line, "|"), " | ")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		switch {
		case !in:
			in = cells[0] == head
		case !strings.HasPrefix(line, "|---"):
			rows = append(rows, cells)
		}
	}
	if len(rows) == 0 {
		t.Fatalf("%s has no table with the head %q", file, head)
	}
	return rows
}

var codeMark = regexp.MustCompile("`([^`]+)`")

func code(cell string) []string {
	var out []string
	for _, m := range codeMark.FindAllStringSubmatch(cell, -1) {
		out = append(out, m[1])
	}
	return out
}

func diff(t *testing.T, what string, docs, code any) {
	t.Helper()
	if d := cmp.Diff(code, docs); d != "" {
		t.Errorf("%s: -code +docs\n%s", what, d)
	}
}

func TestStateTableIsWhatIsDeclared(t *testing.T) {
	var docs, want [][]string
	for _, row := range table(t, "docs/state.md", "path") {
		docs = append(docs, []string{code(row[0])[0], row[1], row[2]})
	}
	for _, d := range state.Declared() {
		want = append(want, []string{d.Pattern, string(d.Class), d.Reason})
	}
	diff(t, "docs/state.md", docs, want)
}

func TestFlowDiagramIsTheTransitionTable(t *testing.T) {
	arrow := regexp.MustCompile(`(?m)^\s+(\w+) --> (\w+): (.+)$`)
	var docs, want []string
	for _, m := range arrow.FindAllStringSubmatch(read(t, "docs/flow.md"), -1) {
		docs = append(docs, m[1]+" "+m[2]+" "+m[3])
	}
	for _, m := range outbox.Moves() {
		want = append(want, fmt.Sprintf("%s %s %s", m.From, m.To, m.Why))
	}
	slices.Sort(docs)
	slices.Sort(want)
	diff(t, "docs/flow.md", docs, want)
}

func TestCatalogueIsInChannels(t *testing.T) {
	var docs, want [][]string
	for _, row := range table(t, "docs/channels.md", "event type") {
		docs = append(docs, []string{code(row[0])[0], row[1], row[2]})
	}
	for _, ty := range channels.Types() {
		recorded := map[bool]string{true: "yes", false: "no"}[ty.Recorded]
		want = append(want, []string{ty.Name, recorded, ty.Meaning})
	}
	diff(t, "docs/channels.md", docs, want)
}

func TestReasonsAreInDelivery(t *testing.T) {
	docs, want := map[string][2]string{}, map[string][2]string{}
	for _, row := range table(t, "docs/delivery.md", "reason") {
		docs[code(row[0])[0]] = [2]string{row[1], row[2]}
	}
	for _, r := range channels.Reasons() {
		own := map[bool]string{true: "yes", false: "no"}[r.Standing()]
		want[string(r)] = [2]string{r.Words(), own}
	}
	diff(t, "docs/delivery.md", docs, want)
}

// TestVerdictsAreAsObserved sends what the verdict table names over the wire.
func TestVerdictsAreAsObserved(t *testing.T) {
	server := channelstest.NewServer(nil)
	defer server.Close()
	fake := channelstest.NewSlack(t)
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte(channelstest.SlackToken), 0o600); err != nil {
		t.Fatal(err)
	}
	hook := webhook.New(webhook.Options{Name: "hook", URL: server.URL()})
	room := slack.New(slack.Options{
		Name: "slack", Channel: channelstest.SlackRoom, APIURL: fake.APIURL(), Token: channels.Secret{File: token},
	})
	status, word := regexp.MustCompile(`^[1-5]\d\d$`), regexp.MustCompile(`^[a-z_]+$`)
	tried := 0
	for _, row := range table(t, "docs/delivery.md", "observed") {
		for _, observed := range code(row[0]) {
			var err error
			switch {
			case status.MatchString(observed):
				n, _ := strconv.Atoi(observed)
				server.Always(channelstest.Answer(n, "no"))
				_, err = hook.Post(t.Context(), channelstest.Delivery("text"))
			case word.MatchString(observed):
				fake.Always(channelstest.SlackError(observed))
				_, err = room.Post(t.Context(), channelstest.Delivery("text"))
			default:
				continue
			}
			tried++
			o := channels.OutcomeOf(channels.Receipt{}, err)
			got := fmt.Sprintf("%s `%s`", o.State, o.Reason)
			if want := row[1] + " " + row[2]; got != want {
				t.Errorf("%s is %s, and the table says %s", observed, got, want)
			}
		}
	}
	if tried < 30 {
		t.Errorf("only %d rows were tried", tried)
	}
}

func yamlBlock(t *testing.T, file string) string {
	t.Helper()
	_, rest, ok := strings.Cut(read(t, file), "```yaml\n")
	text, _, closed := strings.Cut(rest, "```")
	if !ok || !closed {
		t.Fatalf("%s has no YAML block", file)
	}
	return text
}

func load(t *testing.T, text string) (*config.Config, []config.Finding) {
	t.Helper()
	dir := t.TempDir()
	path := filepath.Join(dir, "config.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	c, found, err := config.Load(path, func(string) string { return "" })
	var bad *config.Error
	if errors.As(err, &bad) {
		return nil, bad.Findings
	} else if err != nil {
		t.Fatal(err)
	}
	c.Path, c.Dir = "", ""
	if c.Root, err = filepath.Rel(dir, c.Root); err != nil {
		t.Fatal(err)
	}
	for i := range c.Channels {
		c.Channels[i].Path = strings.TrimPrefix(c.Channels[i].Path, dir)
	}
	return c, found
}

func TestConfigOfTheReadmeIsAccepted(t *testing.T) {
	if c, found := load(t, yamlBlock(t, "README.md")); c == nil || len(found) > 0 {
		t.Errorf("%v", found)
	}
}

func TestConfigSampleHoldsTheDefaults(t *testing.T) {
	sample, found := load(t, yamlBlock(t, "docs/config.md"))
	if sample == nil || len(found) > 0 {
		t.Fatalf("%v", found)
	}
	bare, found := load(t, `
people: [{name: Octo, github: octocat, slack: U012ABCDEF}]
channels:
  room: {type: file, path: room.jsonl}
  ops: {type: webhook, url: "https://ops.example/hook"}
  team: {type: slack, channel: C0123456}
`)
	if bare == nil {
		t.Fatalf("%v", found)
	}
	diff(t, "docs/config.md", sample, bare)
}

// TestEveryConfigKeyIsDocumented takes the keys that there are from what the
// config says about an unknown one.
func TestEveryConfigKeyIsDocumented(t *testing.T) {
	sections := map[string]string{
		"":                            "zzz: 1",
		"state.":                      "state: {zzz: 1}",
		"people[].":                   "people: [{zzz: 1}]",
		"outbox.":                     "outbox: {zzz: 1}",
		"drain.":                      "drain: {zzz: 1}",
		"github.":                     "github: {zzz: 1}",
		"polling.":                    "polling: {zzz: 1}",
		"webhook.":                    "webhook: {zzz: 1}",
		"webhook.github.":             "webhook: {github: {zzz: 1}}",
		"webhook.slack.":              "webhook: {slack: {zzz: 1}}",
		"metrics.":                    "metrics: {zzz: 1}",
		"log.":                        "log: {zzz: 1}",
		"limits.":                     "limits: {zzz: 1}",
		"channels.NAME.":              "channels: {file: {zzz: 1}}",
		"channels.NAME. of a webhook": "channels: {webhook: {zzz: 1}}",
		"channels.NAME. of a slack":   "channels: {slack: {zzz: 1}}",
		"channels.NAME. of a github":  "channels: {github: {zzz: 1}}",
		"channels.NAME.read.":         "channels: {slack: {read: {zzz: 1}}}",
	}
	var known []string
	for prefix, text := range sections {
		prefix, _, _ = strings.Cut(prefix, " of")
		_, found := load(t, text)
		i := slices.IndexFunc(found, func(f config.Finding) bool { return strings.HasSuffix(f.Field, "zzz") })
		if i < 0 {
			t.Fatalf("%s: the key zzz is accepted", text)
		}
		for _, key := range found[i].Allowed {
			if _, isSection := sections[prefix+key+"."]; !isSection {
				known = append(known, prefix+key)
			}
		}
	}
	var docs []string
	for _, row := range table(t, "docs/config.md", "key") {
		docs = append(docs, code(row[0])...)
	}
	inChannels := false
	for line := range strings.Lines(read(t, "docs/channels.md")) {
		switch cell, _, _ := strings.Cut(strings.TrimPrefix(line, "| "), " |"); {
		case strings.HasPrefix(line, "| key |"):
			inChannels = true
		case !strings.HasPrefix(line, "|"):
			inChannels = false
		case inChannels:
			for _, key := range code(cell) {
				docs = append(docs, "channels.NAME."+key)
			}
		}
	}
	docs = slices.DeleteFunc(docs, func(key string) bool { return key == "channels" || key == "people" })
	known = slices.DeleteFunc(known, func(key string) bool { return key == "channels" || key == "people" })
	slices.Sort(docs)
	slices.Sort(known)
	diff(t, "keys", slices.Compact(docs), slices.Compact(known))
}

func TestStatusFieldsAreDocumented(t *testing.T) {
	var want []string
	var fields func(prefix string, ty reflect.Type)
	fields = func(prefix string, ty reflect.Type) {
		for f := range ty.Fields() {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			if !f.IsExported() || name == "-" {
				continue
			}
			ft := f.Type
			for ft.Kind() == reflect.Pointer {
				ft = ft.Elem()
			}
			switch {
			case ft.Kind() == reflect.Struct && ft.PkgPath() != "time":
				if f.Type.Kind() == reflect.Pointer {
					want = append(want, prefix+name)
				}
				fields(prefix+name+".", ft)
			case ft.Kind() == reflect.Slice && ft.Elem().Kind() == reflect.Struct:
				fields(prefix+name+"[].", ft.Elem())
			default:
				want = append(want, prefix+name)
			}
		}
	}
	fields("", reflect.TypeFor[status.Report]())
	var docs []string
	for _, row := range table(t, "docs/status.md", "field") {
		docs = append(docs, code(row[0])...)
	}
	slices.Sort(docs)
	slices.Sort(want)
	diff(t, "docs/status.md", docs, want)
}

// literals gives the string literals of a Go source file that match.
func literals(t *testing.T, file string, want *regexp.Regexp) []string {
	t.Helper()
	var out []string
	for _, m := range regexp.MustCompile(`"((?:[^"\\\n]|\\.)*)"`).FindAllStringSubmatch(read(t, file), -1) {
		if want.MatchString(m[1]) {
			out = append(out, m[1])
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func TestStatusEndingsAreDocumented(t *testing.T) {
	docs := read(t, "docs/status.md")
	ending := regexp.MustCompile(`^(nothing is|waiting for|retried|looked up|next try|paused|the %s)`)
	endings := literals(t, "status/line.go", ending)
	if len(endings) < 9 {
		t.Errorf("only %d endings in the code: %q", len(endings), endings)
	}
	for _, ending := range endings {
		if !strings.Contains(docs, "`— "+strings.ReplaceAll(ending, "%s", "poller")) {
			t.Errorf("docs/status.md does not have the ending %q", ending)
		}
	}
	if n := len(table(t, "docs/status.md", "ending")); n != len(endings) {
		t.Errorf("docs/status.md has %d endings, and the code %d", n, len(endings))
	}
}

func TestEventLogIsDocumented(t *testing.T) {
	name := regexp.MustCompile(`^(bus|channel|inbound|outbox|question|session|state|service)\.[a-z_]+$`)
	want := literals(t, "internal/eventlog/eventlog.go", name)
	var docs []string
	for _, row := range table(t, "docs/status.md", "event") {
		docs = append(docs, code(row[0])...)
	}
	docs = slices.DeleteFunc(docs, func(s string) bool { // built of "service." and a word
		return s == "service.started" || s == "service.stopped" || s == "service.reloaded"
	})
	slices.Sort(docs)
	diff(t, "docs/status.md", docs, want)
}

func TestDependenciesAreDocumented(t *testing.T) {
	direct := regexp.MustCompile(`(?m)^\s+(?:require )?(\S+\.\S+/\S+|\S+\.\S+) v\S+$`)
	var want, docs []string
	for _, m := range direct.FindAllStringSubmatch(read(t, "go.mod"), -1) {
		want = append(want, m[1])
	}
	for _, row := range table(t, "docs/dependencies.md", "module") {
		docs = append(docs, code(row[0])[0])
	}
	slices.Sort(docs)
	slices.Sort(want)
	diff(t, "docs/dependencies.md", docs, want)
	var tools []string
	for _, row := range table(t, "docs/dependencies.md", "tool") {
		tools = append(tools, code(row[0])[0])
	}
	_, list, _ := strings.Cut(read(t, "tools/go.mod"), "tool (")
	list, _, _ = strings.Cut(list, ")")
	diff(t, "docs/dependencies.md", tools, strings.Fields(list))
}
