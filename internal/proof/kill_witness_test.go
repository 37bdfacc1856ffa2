package proof

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"the-loop/bus"
	"the-loop/channels"
	"the-loop/channels/channelstest"
	"the-loop/channels/slack"
	"the-loop/drain"
	"the-loop/internal/eventlog"
	"the-loop/outbox"
	"the-loop/state"
)

// The kill sweeps of a channel that can look up what became of a send: Slack,
// by a fake that is the parent's. Whatever died, the next drainer finds out, and
// each event is one message in the room. Nobody is asked, but where the second
// attempt at an event dies before its first byte: that it is lost is proven, and
// a third attempt is a person's.

const (
	// lookEvery is the pace of a drainer here, and how old a doubt must be.
	lookEvery = 10 * time.Millisecond
	// patience is how long a drainer may take until nothing is left. Somebody
	// who died while it opened a thread is waited for, five seconds long.
	patience = 30 * time.Second
	// atATime is how many points are looked at side by side, for a drainer waits
	// more than it works; waitingLong is the same for points that wait for seconds.
	atATime     = 8
	waitingLong = 64
)

func witnessedRoutes(root *state.Root, url string) []bus.Route {
	return []bus.Route{{
		Channel: slack.New(slack.Options{
			Name: "a", Channel: channelstest.SlackRoom, Token: channels.Secret{Env: tokenEnv}, APIURL: url, Root: root,
		}),
		Subscribe: []channels.Pattern{"*"}, Timeout: 10 * time.Second, SendAgain: true,
	}}
}

// drainUntilQuiet runs cycles of one drainer until nothing is left, or nothing
// but second attempts that are proven lost: rest are their ids.
func drainUntilQuiet(
	ctx context.Context, root *state.Root, store *outbox.Store, routes []bus.Route,
) (rest []string, err error) {
	d := drain.New(drain.Options{
		Store: store, Role: root.Role(state.DrainRole), Who: "a test", Log: eventlog.New(root, nil),
		Routes: func() []bus.Route { return routes }, Interval: lookEvery, EvidenceAfter: lookEvery,
	})
	for end := time.Now().Add(patience); ; pause(ctx, lookEvery) {
		if err := store.Release(ctx); err != nil {
			return nil, err
		}
		if _, err := d.Cycle(ctx); err != nil {
			return nil, err
		}
		left, bad, damaged, err := store.Entries()
		if err != nil || bad > 0 || damaged {
			return nil, fmt.Errorf("bad %d, damaged %v: %w", bad, damaged, err)
		}
		rest = rest[:0]
		for _, e := range left {
			if e.SentAgainFrom != "" && e.State() == channels.StateLost {
				rest = append(rest, e.ID)
			}
		}
		if len(left) == len(rest) {
			return rest, nil
		}
		if time.Now().After(end) {
			return rest, fmt.Errorf("not quiet: %s is left: %s, %+v", left[0].ID, left[0].State(), left[0].Deliveries["a"])
		}
	}
}

// giveUp ends a child that could not do what it should.
func giveUp(err error) {
	if err != nil {
		fmt.Println("error", err)
		os.Exit(4)
	}
}

// sweepKills looks at every point of a scenario, several at a time: one run that
// nobody kills, which tells how many there are, and then one that dies before
// each of its operations. When none of these gets through it goes on until one
// does: a run that meets a busy machine makes more operations than another.
func sweepKills(t *testing.T, atATime int, point func(n int) (made int, through bool)) (points int) {
	t.Helper()
	made, through := point(1 << 20)
	if !through || made == 0 {
		t.Fatalf("a run that nobody kills: through %v after %d operations", through, made)
	}
	var killed, passed atomic.Int64
	var all sync.WaitGroup
	free := make(chan struct{}, atATime)
	look := func(n int) {
		if _, through := point(n); through {
			passed.Add(1)
		} else {
			killed.Add(1)
		}
	}
	for n := 1; n <= made+stride; n += stride {
		free <- struct{}{}
		all.Go(func() {
			defer func() { <-free }()
			look(n)
		})
	}
	all.Wait()
	for n := made + stride + 1; passed.Load() == 0 && !t.Failed(); n += stride {
		look(n)
	}
	return int(killed.Load())
}

// slackSite is a root and the Slack that it posts to.
type slackSite struct {
	t    *testing.T
	root *state.Root
	fake *channelstest.Slack
}

func newSlackSite(t *testing.T) (s *slackSite, end func()) {
	t.Helper()
	root, remove := scratch(t)
	s = &slackSite{t, root, channelstest.NewSlackServer()}
	s.fake.SetPace(0)
	return s, func() {
		s.fake.Close()
		remove()
	}
}

func (s *slackSite) messages() []channelstest.SlackMessage {
	return s.fake.Messages(channelstest.SlackRoom)
}

// settle lets a healthy drainer finish, and checks that the events, and nothing
// else, are in the room, each of them once and in so many messages. At most so
// many of them may be left to a person, who sends them again: none of those has
// been in the room.
func (s *slackSite) settle(at string, parts, persons int, ids ...string) {
	s.t.Helper()
	store, routes := outbox.Open(s.root, atOnce(s.root)), witnessedRoutes(s.root, s.fake.APIURL())
	rest, err := drainUntilQuiet(s.t.Context(), s.root, store, routes)
	if err != nil || len(rest) > persons {
		s.t.Errorf("%s: %d rows need a person, at most %d, %v", at, len(rest), persons, err)
		return
	}
	for _, id := range rest {
		if n := len(s.messages()); n != (len(ids)-len(rest))*parts {
			s.t.Errorf("%s: %s is lost, and there are %d messages", at, id, n)
		}
		if _, err := store.SendAgain(s.t.Context(), id, false, func(string) bool { return true }); err != nil {
			s.t.Errorf("%s: send %s again: %v", at, id, err)
		}
		if _, err := drainUntilQuiet(s.t.Context(), s.root, store, routes); err != nil {
			s.t.Errorf("%s: after %s was sent again: %v", at, id, err)
		}
	}
	all := s.messages()
	if len(all) != len(ids)*parts {
		s.t.Errorf("%s: %d messages for %d events of %d parts", at, len(all), len(ids), parts)
	}
	for _, id := range ids {
		chain, err := chainOf(store, id)
		if err != nil {
			s.t.Errorf("%s: %v", at, err)
		}
		got := slices.DeleteFunc(slices.Clone(all), func(m channelstest.SlackMessage) bool {
			return m.Metadata == nil || !slices.Contains(chain, fmt.Sprint(m.Metadata.Payload["id"]))
		})
		if len(got) != parts {
			s.t.Errorf("%s: %s, sent as %v, is %d messages in the room", at, id, chain, len(got))
		}
		for i, m := range got {
			if n := m.Metadata.Payload["part"]; n != float64(i+1) {
				s.t.Errorf("%s: %s: message %d is part %v", at, id, i+1, n)
			}
			if i > 0 && m.ThreadTS != got[0].TS {
				s.t.Errorf("%s: %s: part %d is not in the thread of the first", at, id, i+1)
			}
		}
	}
}

// chainOf gives the ids that an event was sent under: its own, and those of what
// was sent again.
func chainOf(store *outbox.Store, id string) (ids []string, err error) {
	for id != "" && !slices.Contains(ids, id) {
		ids = append(ids, id)
		left, _, err := store.Left(id)
		if err != nil {
			return ids, err
		}
		id = left.ResentAs
	}
	return ids, nil
}

// wait puts n pending entries into the outbox.
func (s *slackSite) wait(n int) (ids []string) {
	s.t.Helper()
	for i := range n {
		ids = append(ids, fmt.Sprintf("01KB3Z000000000000000000%02d", i))
		waiting(s.t, s.root, ids[i], "a")
	}
	return ids
}

// dies runs a child that dies before its n-th operation.
func (s *slackSite) dies(scenario string, n int) (ops []string, through bool, at string) {
	s.t.Helper()
	ops, through, err := tryChild(scenario+"/witnessed", n, s.root.Dir(), s.fake.APIURL(), "-")
	at = fmt.Sprintf("%s, killed before operation %d (after %s)", scenario, n, lastOf(ops))
	if err != nil {
		s.t.Errorf("%s: %v", at, err)
	}
	return ops, through, at
}

// enough fails a sweep that reached too few points.
func enough(t *testing.T, what string, points, least int) {
	t.Helper()
	t.Logf("witnessed, %s: %d points", what, points)
	if points < least/stride {
		t.Errorf("only %d points: the sweep does not reach what it should", points)
	}
}

func TestP1P2_KillSweepOfTheWitnessed(t *testing.T) {
	t.Setenv(tokenEnv, channelstest.SlackToken)
	var all sync.WaitGroup // they wait more than they work: -parallel is no measure for them
	defer all.Wait()
	all.Go(func() { t.Run("publish", witnessedPublishes) })
	t.Run("drain of five", witnessedDrain)
	t.Run("recovery", witnessedRecoveries)
}

func witnessedPublishes(t *testing.T) {
	var all sync.WaitGroup
	defer all.Wait()
	for _, c := range []struct {
		what, scenario string
		parts, least   int
		fault          func(*channelstest.Slack) channelstest.Fault
	}{
		{"in three parts", "split", 3, 44, nil},
		{"accepted", "publish", 1, 18, nil},
		{"kept without an answer", "publish", 1, 34, func(s *channelstest.Slack) channelstest.Fault {
			return s.StoreThen(channelstest.DropRead())
		}},
		{"dropped", "publish", 1, 34, func(*channelstest.Slack) channelstest.Fault { return channelstest.DropRead() }},
		{"recorded", "ask", 1, 40, nil},
	} {
		all.Go(func() {
			t.Run(c.what, func(t *testing.T) {
				enough(t, "publish "+c.what, sweepKills(t, waitingLong, func(n int) (int, bool) {
					s, end := newSlackSite(t)
					defer end()
					if c.fault != nil {
						s.fake.Queue(c.fault(s.fake))
					}
					ops, through, at := s.dies(c.scenario, n)
					at = c.what + ": " + at
					_, visible := taken(ops)
					if !visible {
						if n := len(s.messages()); n > 0 {
							t.Errorf("%s: not taken, and %d messages", at, n)
						}
						s.settle(at, c.parts, 0)
						return len(ops), through
					}
					s.settle(at, c.parts, 0, crashID)
					if c.parts > 1 {
						s.checkText(at)
					}
					return len(ops), through
				}), c.least)
			})
		})
	}
}

// longText is a text of three messages, of words that are all different.
func longText() string {
	var b strings.Builder
	for i := range 1000 {
		fmt.Fprintf(&b, "word%03d ", i)
	}
	return b.String()
}

var longWord = regexp.MustCompile(`word\d{3}`)

func (s *slackSite) checkText(at string) {
	s.t.Helper()
	var got []string
	for _, m := range s.messages() {
		got = append(got, longWord.FindAllString(m.Text, -1)...)
	}
	if want := strings.Fields(longText()); !slices.Equal(got, want) {
		s.t.Errorf("%s: %d words of %d, or not in their order", at, len(got), len(want))
	}
}

// The first of five is kept and its answer lost, the second is lost: so the
// drain sends, looks up, proves both and sends the second again.
func witnessedDrain(t *testing.T) {
	enough(t, "drain of five", sweepKills(t, atATime, func(n int) (int, bool) {
		s, end := newSlackSite(t)
		defer end()
		ids := s.wait(5)
		s.fake.Queue(s.fake.StoreThen(channelstest.DropRead()), channelstest.DropRead())
		ops, through, at := s.dies("quiet", n)
		s.settle(at, 1, 1, ids...)
		return len(ops), through
	}), 200)
}

// The publisher dies first, as in the sweep of recovery, and then the drain that
// finds what it left.
func witnessedRecoveries(t *testing.T) {
	for _, death := range firstDeaths() {
		t.Run(death.name, func(t *testing.T) {
			publish := func(n int) (s *slackSite, end func(), ops []string, through bool) {
				s, end = newSlackSite(t)
				if death.refuses {
					s.fake.Queue(channelstest.SlackError("not_today"))
				}
				ops, through, _ = s.dies("publish", n)
				return s, end, ops, through
			}
			_, end, ops, through := publish(1 << 20)
			end()
			if !through || len(appends(ops)) < 2 {
				t.Fatalf("a publish that nobody kills: through %v, %q", through, ops)
			}
			kill := death.before(ops) + 1
			enough(t, "recovery, "+death.name, sweepKills(t, atATime, func(n int) (int, bool) {
				s, end, ops, through := publish(kill)
				defer end()
				if through || len(ops) != kill-1 {
					t.Errorf("the first did not die where it should: through %v after %d operations", through, len(ops))
				}
				ids := append(s.wait(1), crashID)
				ops, through, at := s.dies("quiet", n)
				s.settle(death.name+": "+at, 1, 1, ids...)
				return len(ops), through
			}), 50)
		})
	}
}
