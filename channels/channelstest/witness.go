package channelstest

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"the-loop/channels"
)

// runWitness runs what a kind has to pass that can look a send up.
func runWitness(t *testing.T, newKind func(t *testing.T) Kind) {
	tests := []struct {
		name string
		run  func(t *testing.T, k Kind)
	}{
		{"FindsWhatWasPosted", witnessFinds},
		{"FindsAllParts", witnessFindsParts},
		{"SeesNothingBeforeAnyPost", witnessBefore},
		{"CancelledIsAnError", witnessCancelled},
		{"ManyGoroutines", witnessGoroutines},
	}
	for _, tt := range tests {
		t.Run("Witness/"+tt.name, func(t *testing.T) {
			checkLeaks(t)
			tt.run(t, newKind(t))
		})
	}
}

// look looks for d as somebody who saw its send begin just now.
func (k Kind) look(t *testing.T, ctx context.Context, d channels.Delivery) (channels.Sighting, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	s, err := k.Channel.(channels.Witness).Look(ctx, d, d.At)
	NoLeak(t, channels.Receipt{Parts: s.Found}, err, append(k.Secrets, marker)...)
	return s, err
}

func witnessFinds(t *testing.T, k Kind) {
	all := []channels.Delivery{Delivery(marker), Delivery(marker), Delivery(marker)}
	var refs []string
	for _, d := range all[:2] {
		receipt, err := k.post(t, t.Context(), d)
		if err != nil {
			t.Fatal(err)
		}
		refs = append(refs, receipt.Ref)
	}
	for i, ref := range refs {
		s, err := k.look(t, t.Context(), all[i])
		if err != nil || !s.Whole || !slices.Equal(s.Found, []string{ref}) {
			t.Errorf("saw %+v, error %v, want %s alone and whole", s, err, ref)
		}
	}
	k.wantNothingSeen(t, all[2])
	k.wantReceived(t, all[:2]...) // looking changes nothing
}

func witnessFindsParts(t *testing.T, k Kind) {
	d := Delivery(strings.Repeat(marker+"\n", 500))
	receipt, err := k.post(t, t.Context(), d)
	if err != nil {
		t.Fatal(err)
	}
	want := receipt.Parts
	if len(want) == 0 {
		want = []string{receipt.Ref}
	}
	s, err := k.look(t, t.Context(), d)
	if err != nil || !s.Whole || !slices.Equal(s.Found, want) {
		t.Errorf("saw %+v, error %v, want %v and whole", s, err, want)
	}
}

func witnessBefore(t *testing.T, k Kind) {
	k.wantNothingSeen(t, Delivery(marker))
	k.wantReceived(t)
}

// wantNothingSeen checks that d is provably not there.
func (k Kind) wantNothingSeen(t *testing.T, d channels.Delivery) {
	t.Helper()
	s, err := k.look(t, t.Context(), d)
	if err != nil || !s.Complete || s.Whole || len(s.Found) > 0 {
		t.Errorf("saw %+v, error %v, want nothing and complete", s, err)
	}
}

func witnessCancelled(t *testing.T, k Kind) {
	d := Delivery(marker)
	if _, err := k.post(t, t.Context(), d); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	s, err := k.look(t, ctx, d)
	if !errors.Is(err, context.Canceled) || len(s.Found) > 0 || s.Complete {
		t.Errorf("saw %+v, error %v, want nothing and context.Canceled", s, err)
	}
	var r *channels.Refusal
	if errors.As(err, &r) && (r.Reason == channels.ReasonAuth || r.Reason == channels.ReasonConfig) {
		t.Errorf("%v counts as unjudgeable", err)
	}
}

func witnessGoroutines(t *testing.T, k Kind) {
	d := Delivery(marker)
	if _, err := k.post(t, t.Context(), d); err != nil {
		t.Fatal(err)
	}
	errs := make(chan error)
	for range 4 {
		go func() {
			s, err := k.Channel.(channels.Witness).Look(t.Context(), d, d.At)
			if err == nil && !s.Whole {
				err = errors.New("not seen")
			}
			errs <- err
		}()
	}
	for range 4 {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
}
