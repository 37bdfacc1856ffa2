package github_test

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"the-loop/channels"
	"the-loop/channels/github"
	"the-loop/state"
)

const zw = "\u200b"

func TestTextThatWeDidNotWriteDoesNothing(t *testing.T) {
	h := newForge(t)
	mentions := "@" + zw + "octocat @" + zw + "@" + zw + "o/team mail@" + zw + "example.invalid"
	spelled := `\@` + zw + `octocat &` + zw + `#64;octocat &` + zw + `commat;octocat`
	address := "[x](https://a.invalid/%40types/n) https://u@" + zw + "a.invalid/"
	for text, want := range map[string]string{
		"@octocat @@o/team mail@example.invalid":               mentions,
		`\@octocat &#64;octocat &commat;octocat`:               spelled,
		"@&#111;ctocat":                                        "@" + zw + "&" + zw + "#111;ctocat",
		"Closes: #12, fixes o/r#3":                             "Closes: #" + zw + "12, fixes o/r#" + zw + "3",
		"resolved GH-4":                                        "resolved GH-" + zw + "4",
		"fixes https://github.com/o/r/issues/1":                "fixes " + zw + "https://github.com/o/r/issues/1",
		"see #12":                                              "see #12", // refers, and does nothing
		"a <!-- b -->":                                         "a <" + zw + "!-- b -->",
		"x\n  <?php\n<!DOCTYPE html>":                          "x\n  <" + zw + "?php\n<" + zw + "!DOCTYPE html>",
		"[x](https://a.invalid/@types/n) https://u@a.invalid/": address,
		"**bold**\n\n```go\nx := \"@a\"\n```\n- item":          "**bold**\n\n```go\nx := \"@" + zw + "a\"\n```\n- item",
		"```\nnever ended":                                     "```\nnever ended\n```",
		"~~~~\n```\nnever ended":                               "~~~~\n```\nnever ended\n~~~~",
		"not UTF-8: \xff\xfe\x00":                              "not UTF-8: \uFFFD\uFFFD",
	} {
		e := question(text)
		body, _ := h.post(t, e)
		if !strings.Contains(body, "**Question**\n\n"+want+"\n\n1. yes\n") {
			t.Errorf("%q became\n%s", text, body)
		}
		if m := github.ParseMark(body); m == nil || !m.Ours || m.ID != e.ID {
			t.Errorf("%q: mark %+v", text, m)
		}
	}
}

func TestVerbosityLateNoteActorAndLink(t *testing.T) {
	h := newForge(t)
	e := question("Ship it?")
	e.Actor, e.URL = &channels.Actor{Name: "Octo @cat"}, "https://ci.invalid/@o/1"
	e.Detail["job"] = "nightly"
	for v, want := range map[channels.Verbosity]string{
		channels.Quiet: "**Question** · asked 7h ago\n\nhttps://ci.invalid/%40o/1\n\n1. yes",
		channels.Normal: "**Question** · Octo @" + zw + "cat · asked 7h ago\n\nShip it?\n\n" +
			"https://ci.invalid/%40o/1\n\n1. yes",
		channels.Verbose: "Ship it?\njob: nightly\n\nhttps",
	} {
		c := github.NewChannel(github.ChannelOptions{Name: "tickets", Client: h.client, Verbosity: v})
		d := channels.Delivery{Event: e, At: time.Now().Add(-7*time.Hour - time.Minute)}
		if _, err := c.Post(t.Context(), d); err != nil {
			t.Fatal(err)
		}
		all := h.Comments("o/r", 7)
		if body := all[len(all)-1].Body; !strings.Contains(body, want) {
			t.Errorf("%s: no %q in\n%s", v, want, body)
		}
	}
	for url, shown := range map[string]bool{
		"https://github.com/O/R/issues/7#issuecomment-1": false, "https://github.com/o/r/pull/7": false,
		"https://github.com/o/r/issues/70": true, "https://github.com/o/q/issues/7": true,
	} {
		e := question("Ship it?")
		e.URL = url
		if body, _ := h.post(t, e); strings.Contains(body, url) != shown {
			t.Errorf("%s is shown: %v", url, !shown)
		}
	}
}

// Whatever is long, the comment is taken, and marker, notice and code are there.
func TestZ01_WhatIsNotTheTextMayBeLongToo(t *testing.T) {
	long := strings.Repeat("@Ж", 70_000)
	for name, change := range map[string]func(e *channels.Event){
		"actor":   func(e *channels.Event) { e.Actor = &channels.Actor{Name: long} },
		"address": func(e *channels.Event) { e.URL = "https://ci.invalid/" + strings.Repeat("x", 70_000) },
		"choices": func(e *channels.Event) {
			e.Detail = channels.Asked{Code: "7K2", Choices: []string{long, "no"}}.Detail()
		},
		"fence": func(e *channels.Event) { e.Text = "````\n" + strings.Repeat("x\n", 70_000) },
	} {
		t.Run(name, func(t *testing.T) {
			h := newForge(t)
			e := question(strings.Repeat("y", 70_000))
			change(&e)
			body, _ := h.post(t, e) // 422 for one character more
			m := github.ParseMark(body)
			if m == nil || !m.Ours || m.Code != "7K2" || !strings.Contains(body, "\n\n_… cut here: ") ||
				!strings.HasSuffix(body, "; begin with 7K2 if more than one question is open here.") {
				t.Errorf("mark %+v, end %q", m, body[len(body)-300:])
			}
			if name == "fence" && !strings.Contains(body, "\n````\n\n_… cut") {
				t.Errorf("the code block goes on: %q", body[len(body)-300:])
			}
			if n := utf8.RuneCountInString(body); n < 55_000 {
				t.Errorf("%d characters", n)
			}
		})
	}
}

func TestAnAnswerLosesItsTokens(t *testing.T) {
	h := newForge(t)
	for text, want := range map[string]string{
		"x xoxb-1111-2222-abcdef y":                      "x [removed] y",
		"xapp-1-A0-123-abcdef":                           "[removed]",
		"ghs_0123456789abcdefghij":                       "[removed]",
		"github_pat_0123456789abcdef_0123":               "[removed]",
		"sk-ant-api03-abcdefghijklmnop":                  "[removed]",
		"AKIA0123456789ABCDEF":                           "[removed]",
		"AIza0123456789012345678901234567890123":         "[removed]",
		"eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.sig_-": "[removed]",
		"a -----BEGIN PGP PRIVATE KEY BLOCK-----\nabc\n-----END PGP PRIVATE KEY BLOCK----- b": "a [removed] b",
		"-----BEGIN OPENSSH PRIVATE KEY-----\nnever ended":                                    "[removed]",
		"password=pw":                                "password=[removed]",
		"DB_PASSWORD=hunter2 x":                      "DB_PASSWORD=[removed] x",
		`"password": "two words", "a": 1`:            `"password": [removed], "a": 1`,
		"token: abcdef123":                           "token: [removed]",
		"AWS_SECRET_ACCESS_KEY = abc/def+123":        "AWS_SECRET_ACCESS_KEY = [removed]",
		"Authorization: Bearer abcdefghijklmnopqrst": "Authorization: Bearer [removed]",
		"token: yes, the secret\nis out":             "token: yes, the secret\n> is out",
		"a risk-averse task-force, basic idea":       "a risk-averse task-force, basic idea",
		"one\rtwo\r\rthree\r\nfour":                  "one\n> two\n> \n> three\n> four",
		"o/r#12 #3 GH-4 &#35;5": "o/r#" + zw + "12 #" + zw + "3 GH-" + zw + "4 &" + zw + "#" + zw +
			"35;5",
	} {
		e := answer(question("x"), text)
		e.ID = state.NewID()
		if _, err := github.NewLedger(h.client).Record(t.Context(), e); err != nil {
			t.Fatal(err)
		}
		all := h.Comments("o/r", 7)
		body := all[len(all)-1].Body
		const head = "**Octo answered:** · 7K2 · via slack\n\n"
		if got, _ := strings.CutPrefix(body[strings.Index(body, "\n")+1:], head); got != "> "+want {
			t.Errorf("%q became\n%s", text, got)
		}
	}
}

// What stands around an answer is not ours either.
func TestAnAnswersHeadDoesNothing(t *testing.T) {
	h := newForge(t)
	e := answer(question("x"), "yes")
	e.Actor.Name = "@octocat\n<!-- ghp_0123456789abcdefghij"
	e.Detail = map[string]any{"code": "@a", "via": "closes #3\n<!--"}
	if _, err := github.NewLedger(h.client).Record(t.Context(), e); err != nil {
		t.Fatal(err)
	}
	want := "**@" + zw + "octocat <" + zw + "!-- [removed] answered:** · @" + zw + "a · via closes #" + zw + "3 <" + zw +
		"!--\n\n> yes"
	if body := h.Comments("o/r", 7)[0].Body; !strings.HasSuffix(body, "\n"+want) {
		t.Errorf("the body is\n%s", body)
	}
}

func TestP12_WhatLooksLikeASecretIsStruckOut(t *testing.T) {
	for _, text := range []string{
		"https://hooks.slack.com/services/" + "T0AAAAAAA/B0AAAAAAA/abcdefABCDEF012345678901",
		"sk_live_" + "51HabcdefGHIJKLmnopQRST", "npm_" + strings.Repeat("a1", 18), "pypi-" + strings.Repeat("Ag", 20),
		"postgres://admin:hunter2secret@db/x", "the password is: hunter2secret", "hf_" + strings.Repeat("ab", 17),
		"dop_v1_" + strings.Repeat("0f", 32), "SG." + strings.Repeat("ab", 11) + "." + strings.Repeat("cd", 20),
	} {
		h := newForge(t)
		e := question("x")
		e.Type, e.Text = "session.reply", text
		body, _ := h.post(t, e)
		if !strings.Contains(body, "[removed]") || strings.Contains(body, "hunter2secret") {
			t.Errorf("%s", body)
		}
	}
	for _, text := range []string{
		"http://staging:8080/health", "postgres://db:5432/app", "https://[::1]:8080/x", "The password is wrong, reset it",
		"npm_config_registry_mirror", "pypi-server-with-a-long-name",
	} {
		h := newForge(t)
		e := question("x")
		e.Type, e.Text = "session.reply", text
		if body, _ := h.post(t, e); !strings.Contains(body, text) {
			t.Errorf("%s is no secret: %s", text, body)
		}
	}
}
