package wire_test

import (
	"net/http"
	"testing"
	"time"

	"the-loop/channels/internal/wire"
)

func TestQ04_RetryAfterInAllItsForms(t *testing.T) {
	now := time.Date(2026, 8, 13, 15, 36, 13, 0, time.UTC)
	tests := []struct {
		name, value string
		want        time.Duration
		ok          bool
	}{
		{"Q-01 seconds", "1", time.Second, true},
		{"Q-02 seconds", "30", 30 * time.Second, true},
		{"blanks", " 30 ", 30 * time.Second, true},
		{"fraction", "1.5", 1500 * time.Millisecond, true},
		{"zero", "0", 0, true},
		{"negative", "-5", 0, true},
		{"absurd", "86400", time.Hour, true},
		{"overflowing", "99999999999999999999", time.Hour, true},
		{"Q-04 IMF-fixdate", "Thu, 13 Aug 2026 15:37:13 GMT", time.Minute, true},
		{"Q-04 RFC 850", "Thursday, 13-Aug-26 15:37:13 GMT", time.Minute, true},
		{"Q-04 asctime", "Thu Aug 13 15:37:13 2026", time.Minute, true},
		{"Q-04 past", "Thu, 13 Aug 2026 15:36:12 GMT", 0, true},
		{"absurd date", "Thu, 13 Aug 2126 15:37:13 GMT", time.Hour, true},
		{"none", "", 0, false},
		{"rubbish", "soon", 0, false},
		{"not a number", "nan", 0, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, ok := wire.RetryAfter(http.Header{"Retry-After": {tt.value}}, now)
			if got != tt.want || ok != tt.ok {
				t.Errorf("RetryAfter(%q) = %v, %v; want %v, %v", tt.value, got, ok, tt.want, tt.ok)
			}
		})
	}
}
