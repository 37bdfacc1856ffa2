package config

import (
	"errors"
	"os"
	"strings"
	"testing"
	"unicode/utf8"
)

// FuzzLoad appends a section with secrets to whatever file it is given: nothing
// that is said about the file may show them, and Load never panics.
func FuzzLoad(f *testing.F) {
	const secret = "SECRET123"
	f.Add(sample)
	f.Add(string(Template("")))
	for _, name := range []string{"keys", "values", "secrets", "yaml"} {
		b, err := os.ReadFile("testdata/" + name + ".txt")
		if err != nil {
			f.Fatal(err)
		}
		for _, c := range strings.Split(string(b), "--- input\n") {
			text, _, _ := strings.Cut(c, "--- findings\n")
			f.Add(text)
		}
	}
	f.Fuzz(func(t *testing.T, text string) {
		text = strings.ReplaceAll(text, secret, "")
		text += "\nfrob: {botToken: " + secret + ", url: 'https://ops.example/" + secret + "', x: xoxb-" + secret + "}\n"
		path := write(t, t.TempDir()+"/config.yaml", text)
		c, warnings, err := Load(path, env("HOME=/home/octo"))
		var bad *Error
		switch {
		case err == nil && c == nil, err != nil && !errors.As(err, &bad):
			t.Fatal(c, err)
		case err != nil:
			warnings = bad.Findings
			if !anyError(warnings) || err.Error() == "" {
				t.Error("an error without a finding")
			}
		default:
			_ = Check(c, env(), nil)
		}
		said := describe(warnings)
		if err != nil {
			said += err.Error()
		}
		if strings.Contains(said, secret) || !utf8.ValidString(said) {
			t.Errorf("%q: %s", text, said)
		}
	})
}
