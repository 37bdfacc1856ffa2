package bus_test

import (
	"slices"
	"testing"
	"time"

	"the-loop/bus"
	"the-loop/channels"
	"the-loop/outbox"
)

// One acceptance, and beside it a channel that did not take the event: what is
// not required is settled and named; what is required is owed its own.
func TestOneAcceptanceBeside(t *testing.T) {
	for name, other := range map[string]func(s *site) *fake{
		"a refused channel":    func(*site) *fake { return refusing("other", channels.ReasonOther, "odd") },
		"an uncertain channel": func(*site) *fake { return silentNow("other") },
		"a held channel": func(s *site) *fake {
			// It began to fail a moment ago.
			o := channels.OutcomeOf(channels.Receipt{}, &channels.Refusal{Reason: channels.ReasonAuth, Code: "invalid_auth"})
			if err := s.store.Observe(t.Context(), outbox.Asker{Channel: "other"}, "e", o); err != nil {
				t.Fatal(err)
			}
			return &fake{name: "other"}
		},
	} {
		for _, isRequired := range []bool{false, true} {
			s := newSite(t)
			c := other(s)
			s.bus.Routes = []bus.Route{all(&fake{name: "good"}), all(c)}
			s.bus.Routes[1].Required = isRequired
			res := s.bus.Publish(t.Context(), question("A or B?"))
			if res.Accepted() != 1 || res.Posts[1].State == channels.StateAccepted || res.Posts[1].Code == "" {
				t.Errorf("%s: %+v", name, res.Posts)
			}
			if res.Queued != isRequired || len(s.entries(t)) != map[bool]int{true: 1, false: 0}[isRequired] {
				t.Errorf("%s, required %v: queued %v, %d entries", name, isRequired, res.Queued, len(s.entries(t)))
			}
			if isRequired && !slices.Equal(s.entry(t).Owed(), []string{"other"}) {
				t.Errorf("%s: owed %v", name, s.entry(t).Owed())
			}
			lines := s.lines(t, "channel.partly_delivered")
			if len(lines) != 1 || !slices.Equal(lines[0].Channels, []string{"other"}) || lines[0].Error == "" {
				t.Errorf("%s, required %v: the event log says %+v", name, isRequired, lines)
			}
		}
	}
}

// The same in the outbox, with a channel that the config no longer has.
func TestOneAcceptanceBesideAVanishedChannel(t *testing.T) {
	for _, isRequired := range []bool{false, true} {
		vanished := bus.Route{Channel: refusing("other", channels.ReasonDown, "refused"), Subscribe: []channels.Pattern{"*"}}
		vanished.Required = isRequired
		s := newSite(t, all(refusing("good", channels.ReasonDown, "refused")), vanished)
		s.bus.Publish(t.Context(), question("A or B?"))
		good := s.bus.Routes[0].Lane()
		if err := s.store.Sweep(t.Context(), []outbox.Lane{good}); err != nil {
			t.Fatal(err)
		}
		claims, err := s.store.Claim(t.Context(), "good", 1, "")
		if err != nil || len(claims) != 1 {
			t.Fatal(claims, err)
		}
		if _, ok, err := s.store.Start(t.Context(), claims[0]); !ok || err != nil {
			t.Fatal(ok, err)
		}
		settled, err := s.store.Settle(t.Context(), claims[0], channels.OutcomeOf(channels.Receipt{Ref: "1"}, nil))
		if err != nil || settled.Gone == isRequired {
			t.Errorf("required %v: %+v, %v", isRequired, settled, err)
		}
		if !isRequired {
			continue
		}
		e := s.entry(t)
		if d := e.Deliveries["other"]; d.State != channels.StateDead || d.Reason != channels.ReasonGone ||
			!e.NeedsPerson(time.Now(), func(string) outbox.Lane { return outbox.Lane{} }) {
			t.Errorf("the required channel's delivery: %+v", d)
		}
	}
}
