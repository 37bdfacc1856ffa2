package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

// TestMain makes this binary the-loop itself where a script runs that: scripts
// run real processes, with real signals, and with the race detector in them.
func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"the-loop": main})
}

// TestScripts runs testdata/script. What the scripts may use beyond testscript's
// own commands stands in script_*_test.go.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 filepath.Join("testdata", "script"),
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(e *testscript.Env) error {
			// A home of its own, and nothing of who runs the tests.
			e.Setenv("HOME", filepath.Join(e.WorkDir, "home"))
			e.Setenv("XDG_CONFIG_HOME", "")
			e.Setenv("XDG_STATE_HOME", "")
			e.Setenv("GORACE", "atexit_sleep_ms=0 halt_on_error=1") // else each process ends a second late
			w := newStage()
			e.Values[stageKey{}] = w
			e.Defer(w.close)
			return os.Mkdir(filepath.Join(e.WorkDir, "home"), 0o700)
		},
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			"webhookd":     webhookd,
			"slackd":       slackd,
			"githubd":      githubd,
			"comment":      comment,
			"comments":     comments,
			"hook":         hook,
			"reply":        replyCommand,
			"event":        eventCommand,
			"press":        pressCommand,
			"room":         inRoom,
			"listeners":    listeners,
			"fault":        fault,
			"received":     received,
			"requests":     requests,
			"texts":        texts,
			"expand":       expand,
			"exits":        exits,
			"daemon":       daemonCommand,
			"signal":       signalDaemon,
			"ended":        ended,
			"concurrently": concurrently,
			"over":         over,
			"waitfor":      waitfor,
			"json":         jsonCommand,
			"keys":         keysCommand,
			"setenv":       setenv,
			"lacks":        lacks,
			"untouched":    untouched,
			"declared":     declared,
			"repeat":       repeat,
			"within":       within,
			"healthz":      healthz,
			"distinct":     distinct,
			"stopsoon":     stopsoon,
			"alike":        alike,
			"aside":        aside,
		},
	})
}
