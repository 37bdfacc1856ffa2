// Package channelstest holds what every channel kind has to pass, and a server
// on the loopback that misbehaves on demand.
package channelstest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"the-loop/channels"
	"the-loop/state"
)

// Kind is a channel and the surface that it posts to, made for one test. What
// has to be closed is closed with t.Cleanup, idle connections included.
type Kind struct {
	Channel channels.Channel
	// Received gives the events that the surface has taken, in the order of
	// arrival, repeats included.
	Received func() []Received
	// Refuse makes the surface refuse, provably, from now on. Not needed with a
	// Server.
	Refuse func()
	// Server is what a kind that speaks HTTP posts to; nil for others.
	Server *Server
	// ReadsBody says that a 2xx counts only with the provider's own body.
	ReadsBody bool
	// Secrets must be in no error and no receipt: tokens, the path of a URL
	// that is a secret, keys. The suite adds the message's text.
	Secrets []string
}

// Received is an event as it arrived.
type Received struct {
	ID   string
	Text string // empty when the surface changes or splits texts
}

// Run runs the suite. newKind is called once for each of its tests.
func Run(t *testing.T, newKind func(t *testing.T) Kind) {
	tests := []struct {
		name string
		run  func(t *testing.T, k Kind)
	}{
		{"Accept", accept},
		{"SameIDOnEveryAttempt", sameID},
		{"LongText", longText},
		{"MultiByteText", multiByteText},
		{"ManyGoroutines", manyGoroutines},
		{"CancelledBefore", cancelledBefore},
		{"Refusal", refusal},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			checkLeaks(t)
			tt.run(t, newKind(t))
		})
	}
	if _, ok := newKind(t).Channel.(channels.Witness); ok {
		runWitness(t, newKind)
	}
	if newKind(t).Server == nil {
		return
	}
	t.Run("CancelledDuring", func(t *testing.T) {
		checkLeaks(t)
		cancelledDuring(t, newKind(t))
	})
	for _, v := range verdicts() {
		t.Run("Verdict/"+v.name, func(t *testing.T) {
			checkLeaks(t)
			v.check(t, newKind(t))
		})
	}
}

// checkLeaks fails the test when goroutines that it started are left after its
// cleanups. It is called before anything registers one.
func checkLeaks(t *testing.T) {
	before := goleak.IgnoreCurrent()
	t.Cleanup(func() { goleak.VerifyNone(t, before) })
}

// Delivery gives a first attempt at an event with that text and a fresh id.
func Delivery(text string) channels.Delivery {
	return channels.Delivery{
		Event: channels.Event{
			ID:       state.NewID(),
			Type:     "session.awaiting_input",
			WorkItem: "local:suite#1",
			Text:     text,
			URL:      "https://example.invalid/record/1",
			Detail:   map[string]any{"n": 1},
			Source:   "channelstest",
		},
		At:      time.Now(),
		Attempt: 1,
	}
}

const marker = "PRIVATE-TEXT-OF-THE-MESSAGE"

// post posts under a deadline that no healthy surface needs, and checks that
// nothing leaks.
func (k Kind) post(t *testing.T, ctx context.Context, d channels.Delivery) (channels.Receipt, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	receipt, err := k.Channel.Post(ctx, d)
	NoLeak(t, receipt, err, append(k.Secrets, marker)...)
	return receipt, err
}

// NoLeak fails the test when a secret can be read from the receipt or from err
// in any of the ways in which errors get printed.
func NoLeak(t testing.TB, receipt channels.Receipt, err error, secrets ...string) {
	t.Helper()
	texts := []string{fmt.Sprintf("%+v", receipt)}
	for _, e := range chain(err) {
		texts = append(texts, e.Error(), fmt.Sprintf("%v", e), fmt.Sprintf("%+v", e), fmt.Sprintf("%#v", e))
	}
	for _, text := range texts {
		for _, secret := range secrets {
			if secret != "" && strings.Contains(text, secret) {
				t.Errorf("secret %q leaks in %q", secret, text)
			}
		}
	}
}

// chain gives err and all that it wraps.
func chain(err error) []error {
	if err == nil {
		return nil
	}
	all := []error{err}
	switch u := err.(type) {
	case interface{ Unwrap() error }:
		all = append(all, chain(u.Unwrap())...)
	case interface{ Unwrap() []error }:
		for _, e := range u.Unwrap() {
			all = append(all, chain(e)...)
		}
	}
	return all
}

func accept(t *testing.T, k Kind) {
	d := Delivery(marker)
	receipt, err := k.post(t, t.Context(), d)
	if err != nil {
		t.Fatal(err)
	}
	k.wantReceived(t, d)
	if r, ok := k.Channel.(channels.Reader); ok {
		if err := r.ReadBack(t.Context(), receipt); err != nil {
			t.Errorf("read back: %v", err)
		}
		if err := r.ReadBack(t.Context(), channels.Receipt{Ref: state.NewID()}); err == nil {
			t.Error("read back: found what was never sent")
		}
	}
}

func sameID(t *testing.T, k Kind) {
	d := Delivery(marker)
	for d.Attempt = 1; d.Attempt <= 3; d.Attempt++ {
		if _, err := k.post(t, t.Context(), d); err != nil {
			t.Fatal(err)
		}
	}
	k.wantReceived(t, d, d, d)
}

func longText(t *testing.T, k Kind) {
	d := Delivery(strings.Repeat(marker+"\n", 1<<20/(len(marker)+1)))
	if _, err := k.post(t, t.Context(), d); err != nil {
		t.Fatal(err)
	}
	k.wantReceived(t, d)
}

func multiByteText(t *testing.T, k Kind) {
	d := Delivery(strings.Repeat("Ж漢👩‍👩‍👧‍👦e\u0301\u2028\r\n\t\x7f\"\\ <b>&amp; ", 2000))
	if _, err := k.post(t, t.Context(), d); err != nil {
		t.Fatal(err)
	}
	k.wantReceived(t, d)
}

func manyGoroutines(t *testing.T, k Kind) {
	const n = 8
	errs := make([]error, n)
	var want []string
	var wg sync.WaitGroup
	for i := range n {
		d := Delivery(fmt.Sprintf("message %d", i))
		want = append(want, d.Event.ID)
		wg.Go(func() { _, errs[i] = k.Channel.Post(t.Context(), d) })
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, r := range k.Received() {
		got = append(got, r.ID)
	}
	slices.Sort(want)
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("surface has %v, want %v", got, want)
	}
}

func cancelledBefore(t *testing.T, k Kind) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := k.post(t, ctx, Delivery(marker))
	wantRefusal(t, err, "")
	if !errors.Is(err, context.Canceled) {
		t.Errorf("error %v is not context.Canceled", err)
	}
	k.wantReceived(t)
	if k.Server != nil && len(k.Server.Requests()) > 0 {
		t.Error("a request was sent")
	}
}

func refusal(t *testing.T, k Kind) {
	if k.Server != nil {
		k.Server.Down()
	} else {
		k.Refuse()
	}
	_, err := k.post(t, t.Context(), Delivery(marker))
	wantRefusal(t, err, "")
	k.wantReceived(t)
}

// cancelledDuring: what was under way when it was called off may have arrived.
func cancelledDuring(t *testing.T, k Kind) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	k.Server.Always(HangAfter(cancel))
	_, err := k.post(t, ctx, Delivery(marker))
	wantUncertain(t, err)
	if !errors.Is(err, context.Canceled) {
		t.Errorf("error %v is not context.Canceled", err)
	}
}

// wantReceived checks that the surface has exactly these, in this order.
func (k Kind) wantReceived(t *testing.T, want ...channels.Delivery) {
	t.Helper()
	got := k.Received()
	if len(got) != len(want) {
		t.Fatalf("surface has %d events, want %d", len(got), len(want))
	}
	for i, d := range want {
		if got[i].ID != d.Event.ID {
			t.Errorf("event %d has id %q, want %q", i, got[i].ID, d.Event.ID)
		}
		if got[i].Text != "" && got[i].Text != d.Event.Text {
			t.Errorf("event %d arrived with another text", i)
		}
	}
}

func wantRefusal(t *testing.T, err error, reason channels.Reason) *channels.Refusal {
	t.Helper()
	var r *channels.Refusal
	if !errors.As(err, &r) {
		t.Fatalf("got %T (%v), want a *Refusal", err, err)
	}
	if reason != "" && r.Reason != reason {
		t.Errorf("reason %q (%v), want %q", r.Reason, err, reason)
	}
	if r.Code != channels.SafeCode(r.Code) {
		t.Errorf("code %q has not the form of one", r.Code)
	}
	return r
}

func wantUncertain(t *testing.T, err error) *channels.Uncertain {
	t.Helper()
	var u *channels.Uncertain
	if !errors.As(err, &u) {
		t.Fatalf("got %T (%v), want an *Uncertain", err, err)
	}
	if u.Code != channels.SafeCode(u.Code) {
		t.Errorf("code %q has not the form of one", u.Code)
	}
	return u
}
