package state_test

import (
	"bytes"
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"the-loop/state"
)

// kept is like the structs of the outbox: it keeps what it does not know in a
// field that has no name in the file.
type kept struct {
	Name  string          `json:"name"`
	Count int             `json:"count,omitempty"`
	Raw   json.RawMessage `json:"raw,omitempty"`
	Plain string
	Never string `json:"-"`

	extra state.Extra
}

// drawValue draws any JSON value, with the digits of its numbers as they come.
func drawValue(t *rapid.T, depth int) string {
	kinds := []string{"null", "true", `""`, "12345678901234567890.50", "-0", `"<b>&\u2028é"`, "[]", "{}"}
	if depth == 0 {
		return rapid.SampledFrom(kinds).Draw(t, "scalar")
	}
	return rapid.OneOf(
		rapid.SampledFrom(kinds),
		rapid.Custom(func(t *rapid.T) string { return "[" + drawValue(t, depth-1) + ", " + drawValue(t, depth-1) + "]" }),
		rapid.Custom(func(t *rapid.T) string { return `{"k": ` + drawValue(t, depth-1) + "}" }),
	).Draw(t, "value")
}

func TestUnknownMembersAreKept(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		names := rapid.OneOf(
			rapid.SampledFrom([]string{"extra", "Extra", "never", "Never", "-", "", "x-count", "é", `q"\`}),
			rapid.String(),
		)
		known := map[string]bool{"name": true, "count": true, "raw": true, "plain": true}
		members := map[string]json.RawMessage{}
		for name, value := range rapid.MapOf(names, rapid.Custom(func(t *rapid.T) string {
			return drawValue(t, 3)
		})).Draw(t, "members") {
			if !known[strings.ToLower(name)] {
				members[name] = json.RawMessage(value)
			}
		}
		all := map[string]json.RawMessage{}
		for name, value := range members {
			all[name] = value
		}
		all["name"] = json.RawMessage(`"n"`)
		all["Plain"] = json.RawMessage(`"p"`)
		in, err := json.Marshal(all)
		if err != nil {
			t.Fatal(err)
		}
		var v kept
		if v.extra, err = state.UnmarshalKeeping(in, &v); err != nil {
			t.Fatal(err)
		}
		v.Name, v.Count = "changed", 7
		out, err := state.MarshalKeeping(v, v.extra)
		if err != nil {
			t.Fatal(err)
		}
		var again kept
		if again.extra, err = state.UnmarshalKeeping(out, &again); err != nil {
			t.Fatalf("%s: %v", out, err)
		}
		if again.Name != "changed" || again.Count != 7 || again.Plain != "p" {
			t.Fatalf("what is known: %+v", again)
		}
		if len(v.extra) != len(members) {
			t.Fatalf("kept %d of %d: %s", len(v.extra), len(members), in)
		}
		for name, want := range members {
			var a, b bytes.Buffer
			if json.Compact(&a, want) != nil || json.Compact(&b, again.extra[name]) != nil {
				t.Fatalf("%q is no value any more: %s", name, again.extra[name])
			}
			if !sameJSON(a.Bytes(), b.Bytes()) {
				t.Fatalf("%q was %s and is %s", name, want, again.extra[name])
			}
		}
	})
}

func sameJSON(a, b []byte) bool {
	decode := func(b []byte) (v any) {
		dec := json.NewDecoder(bytes.NewReader(b))
		dec.UseNumber()
		_ = dec.Decode(&v)
		return v
	}
	return cmp.Equal(decode(a), decode(b))
}

func TestExtraBytesStayAsTheyAre(t *testing.T) {
	raw := "{ \"a\" : 1.50, \"b\":\n\"<\\u0041>\" }"
	out, err := state.MarshalKeeping(struct{}{}, state.Extra{"z": json.RawMessage(raw), "a": json.RawMessage("1")})
	if want := `{"a":1,"z":` + raw + "}"; err != nil || string(out) != want {
		t.Errorf("%s, %v\nwant %s", out, err, want)
	}
}

func TestWhatMustBeAnObjectIsOne(t *testing.T) {
	for _, in := range []string{"null", " null\n", "[]", `"text"`, "1", "", "{} {}", `{"name":1}`, "\x00"} {
		var v kept
		if _, err := state.UnmarshalKeeping([]byte(in), &v); err == nil {
			t.Errorf("%q was taken", in)
		}
	}
	if _, err := state.MarshalKeeping(kept{Raw: json.RawMessage("{")}, nil); err == nil {
		t.Error("half a value was written")
	}
}

func TestTrimBOM(t *testing.T) {
	for in, want := range map[string]string{
		"\xef\xbb\xbf{}": "{}", "{}": "{}", "": "", "{}\xef\xbb\xbf": "{}\xef\xbb\xbf",
	} {
		if got := string(state.TrimBOM([]byte(in))); got != want {
			t.Errorf("%q: %q", in, got)
		}
	}
}

func TestEveryNameIsDeclared(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "declared.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	ast.Inspect(file, func(node ast.Node) bool {
		spec, ok := node.(*ast.ValueSpec)
		if !ok || spec.Type != nil { // those with a type are classes
			return true
		}
		for i, value := range spec.Values {
			if lit, ok := value.(*ast.BasicLit); ok && lit.Kind == token.STRING {
				n++
				if name, _ := strconv.Unquote(lit.Value); !state.IsDeclared(name) {
					t.Errorf("%s = %q is not declared", spec.Names[i], name)
				}
			}
		}
		return true
	})
	if n < 6 {
		t.Errorf("only %d constants were found", n)
	}
	for _, name := range []string{
		state.Binding("slack"), state.LedgerFile("github-o-r-7-01234567"), state.RunRole("poller"),
		state.Heartbeat("webhook"), state.Outbox + ".lock", state.Health + ".lock", state.EventLog + ".1",
		state.EventLog + ".lock", state.Evicted + ".1", state.Evicted + ".lock", state.Heartbeat("poller") + ".lock",
		state.Outbox + ".corrupt-" + state.NewID(), state.Health + ".corrupt-" + state.NewID(), state.RoomFile + ".lock",
	} {
		if !state.IsDeclared(name) {
			t.Errorf("%s is written and not declared", name)
		}
	}
	for _, name := range []string{"", "x", "channels", "channels/a/b.json", "logs/other.jsonl", "../channels/x.json"} {
		if state.IsDeclared(name) {
			t.Errorf("%q passes for declared", name)
		}
	}
	for _, d := range state.Declared() {
		if d.Reason == "" || d.Class != state.Local && d.Class != state.Portable {
			t.Errorf("%s: %q, %q", d.Pattern, d.Class, d.Reason)
		}
	}
}

func TestIDsOfOneProcessRise(t *testing.T) {
	last := ""
	for range 10000 {
		id := state.NewID()
		if len(id) != 26 || id <= last {
			t.Fatalf("%s after %s", id, last)
		}
		last = id
	}
}
