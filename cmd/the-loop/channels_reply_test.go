package main

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"the-loop/bus"
	"the-loop/channels"
	"the-loop/channels/channelstest"
	"the-loop/channels/slack"
	"the-loop/internal/config"
)

// A bot that answers everything in the room is no person who could answer us.
func TestOnlyAPersonsReplyProvesTheWayBack(t *testing.T) {
	fake := channelstest.NewSlack(t)
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte(channelstest.SlackToken), 0o600); err != nil {
		t.Fatal(err)
	}
	room := slack.New(slack.Options{
		Name: "slack", Channel: channelstest.SlackRoom, APIURL: fake.APIURL(), Token: channels.Secret{File: token},
	})
	d := &deployment{config: &config.Config{Channels: []config.Channel{{Name: "slack", Room: channelstest.SlackRoom}}}}
	receipt, err := room.Post(t.Context(), channelstest.Delivery("text"))
	if err != nil {
		t.Fatal(err)
	}
	test := func(wait time.Duration) (*replyView, error) {
		return testReply(t.Context(), world{stderr: io.Discard}, d, bus.Route{Channel: room}, receipt.Ref, wait)
	}
	fake.Plant(channelstest.SlackRoom, channelstest.SlackMessage{
		Type: "message", User: "U0ROBOT", BotID: "B0OTHER", Text: "I am on it", ThreadTS: receipt.Ref,
	})
	var nobody *failure
	if v, err := test(200 * time.Millisecond); v != nil || !errors.As(err, &nobody) || nobody.code != exitNobody {
		t.Fatalf("%+v, %v", v, err)
	}
	fake.Reply(channelstest.SlackRoom, receipt.Ref, "U077", "so am I")
	if v, err := test(time.Minute); err != nil || *v != (replyView{ID: "U077"}) {
		t.Errorf("%+v, %v", v, err)
	}
}

// The poller that runs beside has the call budget for itself, nearly.
func TestTheThreadOfATestMessageIsReadEveryThreeSecondsAtMost(t *testing.T) {
	person := channels.Message{From: channels.Author{Person: true, ID: "U077"}}
	down := &channels.Uncertain{Code: "timeout"}
	rate := &channels.Refusal{Reason: channels.ReasonRate, Code: "ratelimited", RetryAfter: 30 * time.Second}
	scope := &channels.Refusal{Reason: channels.ReasonConfig, Code: "missing_scope"}
	for name, tt := range map[string]struct {
		wait  time.Duration
		read  func(n int, after time.Duration) ([]channels.Message, error)
		reads int
		took  time.Duration
		last  error
		err   error
	}{
		"nobody": {
			wait:  time.Minute,
			read:  func(int, time.Duration) ([]channels.Message, error) { return nil, nil },
			reads: 21, took: time.Minute, err: errNobody,
		},
		"a short wait": {
			wait:  time.Second,
			read:  func(int, time.Duration) ([]channels.Message, error) { return nil, nil },
			reads: 2, took: time.Second, err: errNobody,
		},
		"in the last moment": {
			wait: 10 * time.Second,
			read: func(_ int, after time.Duration) ([]channels.Message, error) {
				if after < 9500*time.Millisecond {
					return nil, nil
				}
				return []channels.Message{person}, nil
			},
			reads: 5, took: 10 * time.Second,
		},
		"it cannot be read": {
			wait:  7 * time.Second,
			read:  func(int, time.Duration) ([]channels.Message, error) { return nil, down },
			reads: 4, took: 7 * time.Second, last: down, err: errNobody,
		},
		"it could not be read for a while": {
			wait: time.Minute,
			read: func(n int, _ time.Duration) ([]channels.Message, error) {
				if n < 3 {
					return nil, down
				}
				return []channels.Message{person}, nil
			},
			reads: 3, took: 6 * time.Second,
		},
		"told to wait": {
			wait: time.Minute,
			read: func(n int, _ time.Duration) ([]channels.Message, error) {
				if n == 1 {
					return nil, rate
				}
				return []channels.Message{person}, nil
			},
			reads: 2, took: 30 * time.Second,
		},
		"told to wait for longer than we do": {
			wait:  10 * time.Second,
			read:  func(int, time.Duration) ([]channels.Message, error) { return nil, rate },
			reads: 1, took: 10 * time.Second, last: rate, err: errNobody,
		},
		"not let in": {
			wait:  time.Minute,
			read:  func(int, time.Duration) ([]channels.Message, error) { return nil, scope },
			reads: 1, last: scope, err: scope,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began, reads := time.Now(), 0
				_, last, err := awaitReply(t.Context(), tt.wait, func(context.Context) ([]channels.Message, error) {
					reads++
					return tt.read(reads, time.Since(began))
				})
				if reads != tt.reads || time.Since(began) != tt.took || last != tt.last || err != tt.err {
					t.Errorf("%d reads in %v, %v, %v", reads, time.Since(began), last, err)
				}
			})
		})
	}
}
