package github_test

import (
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"the-loop/channels"
	"the-loop/channels/channelstest"
	"the-loop/channels/github"
)

// look looks for d, whose send began at d.At.
func (h forge) look(t *testing.T, d channels.Delivery) (channels.Sighting, error) {
	t.Helper()
	var w channels.Witness = h.channel()
	s, err := w.Look(t.Context(), d, d.At)
	channelstest.NoLeak(t, channels.Receipt{Parts: s.Found}, err, channelstest.GitHubToken, d.Event.Text)
	return s, err
}

func (h forge) wantNothing(t *testing.T, d channels.Delivery) {
	t.Helper()
	s, err := h.look(t, d)
	if err != nil || !s.Complete || s.Whole || len(s.Found) > 0 {
		t.Errorf("saw %+v, error %v, want nothing and complete", s, err)
	}
}

func (h forge) wantSeen(t *testing.T, d channels.Delivery, ref string) {
	t.Helper()
	s, err := h.look(t, d)
	if err != nil || !s.Whole || !slices.Equal(s.Found, []string{ref}) {
		t.Errorf("saw %+v, error %v, want %s", s, err, ref)
	}
}

// wantUnjudgeable checks that no look-up will ever tell, and why.
func (h forge) wantUnjudgeable(t *testing.T, d channels.Delivery, reason channels.Reason, detail string) {
	t.Helper()
	s, err := h.look(t, d)
	var r *channels.Refusal
	if !errors.As(err, &r) || r.Reason != reason || !strings.Contains(r.Detail, detail) || s.Complete {
		t.Errorf("saw %+v, error %v, want a refusal of %s that names %q", s, err, reason, detail)
	}
}

// wantNoProof checks that the look-up failed and may tell another time.
func (h forge) wantNoProof(t *testing.T, d channels.Delivery) {
	t.Helper()
	s, err := h.look(t, d)
	var r *channels.Refusal
	standing := errors.As(err, &r) && (r.Reason == channels.ReasonAuth || r.Reason == channels.ReasonConfig)
	if err == nil || standing || len(s.Found) > 0 || s.Complete {
		t.Errorf("saw %+v, error %v, want an error that proves nothing", s, err)
	}
}

func asked(text string) channels.Delivery {
	return channels.Delivery{Event: question(text), At: time.Now()}
}

func TestD01_LookTellsStoredFromLost(t *testing.T) {
	for name, fault := range map[string]channelstest.Fault{
		"500": channelstest.Answer(http.StatusInternalServerError, ""), "hung up": channelstest.DropRead(),
	} {
		t.Run(name, func(t *testing.T) {
			h := newForge(t)
			stored, lost := asked("stored"), asked("lost")
			for d, f := range map[*channels.Delivery]channelstest.Fault{&stored: h.StoreThen(fault), &lost: fault} {
				h.Queue(f)
				var unknown *channels.Uncertain
				if _, err := h.channel().Post(t.Context(), *d); !errors.As(err, &unknown) {
					t.Fatalf("posting: %v", err)
				}
			}
			all := h.Comments("o/r", 7)
			if len(all) != 1 {
				t.Fatalf("%d comments", len(all))
			}
			h.wantSeen(t, stored, github.CommentRef(all[0].ID))
			h.wantNothing(t, lost)
		})
	}
}

// Copies of the marker by others count for nothing, and ours is on the last of
// many pages, whether the links between them arrive or not.
func TestLook_OurOwnAccountOverAllPages(t *testing.T) {
	h := newForge(t)
	d := asked("A or B?")
	copied := "<!-- the-loop id=" + d.Event.ID + " sum=00000000 -->\nA or B?"
	h.Comment("o/r", 7, "octocat", copied)
	h.Comment("o/r", 7, channelstest.GitHubLogin, "> "+copied)
	for range github.PageSize*2 - 2 {
		h.Comment("o/r", 7, "octocat", "talk")
	}
	h.wantNothing(t, d)
	body, r := h.post(t, d.Event)
	if !strings.Contains(body, d.Event.ID) {
		t.Fatal(body)
	}
	h.wantSeen(t, d, r.Ref)
	page := `[` + strings.TrimSuffix(strings.Repeat(`{"id":1},`, github.PageSize), ",") + `]`
	h.Queue(channelstest.Answer(http.StatusOK, page), channelstest.Answer(http.StatusOK, page))
	h.wantSeen(t, d, r.Ref)
}

func TestLook_WhatStandsInTheWayIsNamed(t *testing.T) {
	for name, tt := range map[string]struct {
		fault  channelstest.Fault
		reason channels.Reason
		detail string
	}{
		"not there": {channelstest.GitHubError(404, "Not Found"), channels.ReasonConfig, "issues=read"},
		"deleted":   {channelstest.GitHubError(410, "This issue was deleted"), channels.ReasonConfig, ""},
		"token":     {channelstest.GitHubError(401, "Bad credentials"), channels.ReasonAuth, ""},
		"scope": {
			channelstest.GitHubError(403, "Resource not accessible by personal access token",
				"X-Accepted-GitHub-Permissions: issues=read"), channels.ReasonAuth, "needs issues=read",
		},
		"forbidden": {channelstest.GitHubError(403, "No."), channels.ReasonAuth, "issues=read"},
	} {
		t.Run(name, func(t *testing.T) {
			h := newForge(t)
			h.wantNothing(t, asked("who are we"))
			h.Queue(tt.fault)
			h.wantUnjudgeable(t, asked("A or B?"), tt.reason, tt.detail)
		})
	}
	h := newForge(t)
	h.Queue(channelstest.GitHubError(403, "Resource not accessible by integration"))
	h.wantUnjudgeable(t, asked("A or B?"), channels.ReasonAuth, "")
	t.Setenv("GITHUB_TEST_TOKEN", "")
	h.wantUnjudgeable(t, asked("A or B?"), channels.ReasonAuth, "GITHUB_TEST_TOKEN")
}

func TestLook_WhatGitHubDoesNotSayProvesNothing(t *testing.T) {
	old := "Date: " + time.Now().Add(-10*time.Minute).UTC().Format(http.TimeFormat)
	for name, fault := range map[string]channelstest.Fault{
		"html":             channelstest.Answer(200, "<html>sign in to the hotel wifi</html>"),
		"html with 404":    channelstest.Answer(404, "<html>not found</html>"),
		"html with 403":    channelstest.Answer(403, "<html>blocked by your company</html>"),
		"html with 401":    channelstest.Answer(401, "<html>proxy login</html>"),
		"redirect":         channelstest.Redirect(302, "http://portal.invalid/"),
		"500":              channelstest.Answer(500, ""),
		"a limit":          channelstest.GitHubSecondaryLimit(time.Minute),
		"null":             channelstest.Answer(200, "null"),
		"an object":        channelstest.Answer(200, "{}"),
		"strange comments": channelstest.Answer(200, "[null]"),
		"cut off":          channelstest.Answer(200, "["),
		"empty":            channelstest.Answer(200, ""),
		"reset":            channelstest.ResetInBody(200),
		"another time":     channelstest.Answer(200, "[]", old),
	} {
		t.Run(name, func(t *testing.T) {
			h := newForge(t)
			h.wantNothing(t, asked("who are we"))
			h.Queue(fault)
			h.wantNoProof(t, asked("A or B?"))
		})
	}
	for name, fault := range map[string]channelstest.Fault{
		"nobody": channelstest.Answer(200, `{}`), "a portal": channelstest.Answer(401, "<html>proxy login</html>"),
	} {
		t.Run("who we are: "+name, func(t *testing.T) {
			h := newForge(t)
			h.Queue(fault)
			h.wantNoProof(t, asked("A or B?"))
		})
	}
}

// A ticket with more than one look-up reads is not called read.
func TestLook_TooManyPagesAreNotComplete(t *testing.T) {
	h := newForge(t)
	h.wantNothing(t, asked("who are we"))
	h.Always(channelstest.Answer(200, `[{"id":1}]`, `Link: <`+h.URL()+`?page=9000>; rel="next"`))
	if s, err := h.look(t, asked("A or B?")); err == nil && s.Complete {
		t.Errorf("saw %+v", s)
	}
}
