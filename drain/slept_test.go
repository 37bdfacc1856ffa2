package drain

import (
	"testing"
	"time"
)

func TestSleptIsAWaitThatTookAMinuteTooLong(t *testing.T) {
	for waited, want := range map[time.Duration]bool{
		0: false, time.Minute: false, 2 * time.Minute: false, 2*time.Minute + 1: true, 8 * time.Hour: true,
		-time.Hour: false, // the clock was set back
	} {
		if got := slept(waited, time.Minute); got != want {
			t.Errorf("a minute that took %s: %v", waited, got)
		}
	}
}
