package main

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/rogpeppe/go-internal/testscript"

	"the-loop/state"
)

// lookUp finds a value in a file of JSON (or "stdout"). The path's parts stand
// between slashes, an array's index is a number, "len" its length, "*" the only
// value of an object; "." is the whole.
func lookUp(ts *testscript.TestScript, file, path string) any {
	var v any
	if err := json.Unmarshal([]byte(ts.ReadFile(file)), &v); err != nil {
		ts.Fatalf("%s is not JSON: %v\n%s", file, err, ts.ReadFile(file))
	}
	if path == "." {
		return v
	}
	for _, part := range strings.Split(path, "/") {
		switch in := v.(type) {
		case map[string]any:
			next, ok := in[part]
			if !ok && part == "len" {
				next, ok = float64(len(in)), true
			}
			if !ok && part == "*" && len(in) == 1 { // the only one
				for _, next = range in {
					ok = true
				}
			}
			if !ok {
				ts.Fatalf("%s: no %s in %s", file, path, ts.ReadFile(file))
			}
			v = next
		case []any:
			i, err := strconv.Atoi(part)
			switch {
			case part == "len":
				v = float64(len(in))
			case err != nil || i >= len(in):
				ts.Fatalf("%s: no %s in %s", file, path, ts.ReadFile(file))
			default:
				v = in[i]
			}
		default:
			ts.Fatalf("%s: no %s in %s", file, path, ts.ReadFile(file))
		}
	}
	return v
}

func shown(ts *testscript.TestScript, v any) string {
	if s, ok := v.(string); ok {
		return s
	}
	b, err := json.Marshal(v)
	ts.Check(err)
	return string(b)
}

// json FILE PATH REGEXP: the value there, a text or else its JSON, matches as a whole.
func jsonCommand(ts *testscript.TestScript, neg bool, args []string) {
	want(ts, len(args) == 3, "json FILE PATH REGEXP")
	got := shown(ts, lookUp(ts, args[0], args[1]))
	if regexp.MustCompile("(?s)^(?:"+args[2]+")$").MatchString(got) == neg {
		ts.Fatalf("%s of %s is %s", args[1], args[0], got)
	}
}

// keys FILE PATH KEY…: the object there has exactly these keys.
func keysCommand(ts *testscript.TestScript, neg bool, args []string) {
	want(ts, !neg && len(args) >= 3, "keys FILE PATH KEY…")
	object, ok := lookUp(ts, args[0], args[1]).(map[string]any)
	want(ts, ok, "keys wants an object")
	var got []string
	for key := range object {
		got = append(got, key)
	}
	wanted := slices.Clone(args[2:])
	slices.Sort(got)
	slices.Sort(wanted)
	if !slices.Equal(got, wanted) {
		ts.Fatalf("keys of %s: %v\nwant %v", args[1], got, wanted)
	}
}

// setenv NAME FILE PATH: sets the variable to a value out of JSON.
func setenv(ts *testscript.TestScript, _ bool, args []string) {
	want(ts, len(args) == 3, "setenv NAME FILE PATH")
	ts.Setenv(args[0], shown(ts, lookUp(ts, args[1], args[2])))
}

// lacks TEXT PATH…: no file there or below holds the text, nor does a name.
func lacks(ts *testscript.TestScript, _ bool, args []string) {
	want(ts, len(args) >= 2, "lacks TEXT PATH…")
	files := 0
	for _, top := range args[1:] {
		ts.Check(filepath.WalkDir(ts.MkAbs(top), func(path string, d fs.DirEntry, err error) error {
			if err != nil || !d.Type().IsRegular() {
				return err
			}
			files++
			b, err := os.ReadFile(path)
			if strings.Contains(string(b)+path, args[0]) {
				return fmt.Errorf("%s holds %s:\n%s", path, args[0], b)
			}
			return err
		}))
	}
	if files == 0 {
		ts.Fatalf("no file was looked into")
	}
}

// untouched DIR…: there is no such folder, or no file in it.
func untouched(ts *testscript.TestScript, _ bool, args []string) {
	want(ts, len(args) > 0, "untouched DIR…")
	for _, dir := range args {
		_ = filepath.WalkDir(ts.MkAbs(dir), func(path string, d fs.DirEntry, err error) error {
			if err == nil && !d.IsDir() {
				ts.Fatalf("something was written: %s", path)
			}
			return nil
		})
	}
}

// declared ROOT N [NAME…]: at least N files stand below the root, all of them
// are declared by state or named here, and all of them, and their folders, are
// for us alone.
func declared(ts *testscript.TestScript, _ bool, args []string) {
	want(ts, len(args) >= 2, "declared ROOT N [NAME…]")
	root := ts.MkAbs(args[0])
	least, err := strconv.Atoi(args[1])
	ts.Check(err)
	files := 0
	ts.Check(filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(root, path)
		fi, err := d.Info()
		if err != nil {
			return err
		}
		if slices.Contains(args[2:], filepath.ToSlash(rel)) {
			return nil
		}
		if fi.Mode().Perm()&0o077 != 0 {
			return fmt.Errorf("%s has the mode %v", rel, fi.Mode())
		}
		if d.IsDir() {
			return nil
		}
		files++
		if !state.IsDeclared(filepath.ToSlash(rel)) {
			return fmt.Errorf("%s is not declared", rel)
		}
		return nil
	}))
	if files < least {
		ts.Fatalf("only %d files below %s: the scenario did not happen", files, args[0])
	}
}

// aside ROOT FILE: one of the outboxes that were set aside holds the file's bytes.
func aside(ts *testscript.TestScript, _ bool, args []string) {
	want(ts, len(args) == 2, "aside ROOT FILE")
	names, err := filepath.Glob(ts.MkAbs(args[0]) + "/channels/undelivered.json.corrupt-*")
	ts.Check(err)
	for _, name := range names {
		if ts.ReadFile(name) == ts.ReadFile(args[1]) {
			return
		}
	}
	ts.Fatalf("none of %d files that were set aside holds the bytes of %s", len(names), args[1])
}

// repeat FILE N TEXT: writes the text N times into the file. Escapes are Go's.
func repeat(ts *testscript.TestScript, _ bool, args []string) {
	want(ts, len(args) == 3, "repeat FILE N TEXT")
	n, err := strconv.Atoi(args[1])
	ts.Check(err)
	text, err := strconv.Unquote(`"` + args[2] + `"`)
	ts.Check(err)
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), []byte(strings.Repeat(text, n)), 0o600))
}
