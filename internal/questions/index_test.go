package questions_test

import (
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"the-loop/internal/questions"
	"the-loop/state"
)

// settle makes the folder and its files as old as they are after a while.
func settle(t *testing.T, root *state.Root, ago time.Duration) {
	t.Helper()
	dir := root.Path("questions")
	files, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	old := time.Now().Add(-ago)
	for _, f := range files {
		if err := os.Chtimes(dir+"/"+f.Name(), old, old); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chtimes(dir, old, old); err != nil {
		t.Fatal(err)
	}
}

// The index gives whatever reading all files would, after each change.
func TestAnIndexGivesWhatTheFilesSay(t *testing.T) {
	root, q := ask(t, questions.Question{Choices: []string{"yes", "no"}})
	x := questions.NewIndex(root)
	step := 0
	check := func(what string) {
		t.Helper()
		step++
		want, unusable, errWant := questions.All(root)
		for range 2 {
			got, bad, err := x.All()
			diff := cmp.Diff(want, got, cmpopts.EquateEmpty(), cmpopts.IgnoreUnexported(questions.Question{},
				questions.Answer{}, questions.Person{}))
			if diff != "" || bad != unusable || (err != nil) != (errWant != nil) {
				t.Fatalf("%s: %d unusable, %v, want %d, %v\n%s", what, bad, err, unusable, errWant, diff)
			}
		}
		if _, err := os.Stat(root.Path("questions")); err == nil && step%2 == 0 {
			settle(t, root, time.Duration(10+step)*time.Second)
		}
	}
	check("one")
	check("the same")
	askIn(t, root, questions.Question{ID: "another", Text: "another"})
	check("one more")
	if _, err := questions.Reply(t.Context(), root, q.ID, questions.Answer{Choice: 1}); err != nil {
		t.Fatal(err)
	}
	check("answered")
	if _, err := questions.Close(t.Context(), root, "another", questions.Withdrawn); err != nil {
		t.Fatal(err)
	}
	check("withdrawn")
	write := func(id, text string) {
		t.Helper()
		tmp := root.Path("questions/.tmp")
		if err := os.WriteFile(tmp, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(tmp, root.Path(state.Question(id))); err != nil {
			t.Fatal(err)
		}
	}
	write("another", "{")
	check("damaged")
	check("damaged still")
	write("another", `{"version":2}`)
	check("newer")
	if err := os.Remove(root.Path(state.Question("another"))); err != nil {
		t.Fatal(err)
	}
	check("gone")
	if err := os.RemoveAll(root.Path("questions")); err != nil {
		t.Fatal(err)
	}
	check("all gone")
	if err := os.Mkdir(root.Path("questions"), 0o700); err != nil {
		t.Fatal(err)
	}
	askIn(t, root, questions.Question{ID: "new"})
	check("anew")
}

// Two changes within one tick of the file system's clock look the same.
func TestAnIndexDoesNotTrustAYoungTime(t *testing.T) {
	root, q := ask(t, questions.Question{Text: "a"})
	x := questions.NewIndex(root)
	at := time.Now()
	for n := range 9 {
		text := fmt.Sprintf(`{"version":1,"state":"open","workItem":"local:x#1","text":"%d"}`, n)
		path := root.Path(state.Question(q.ID))
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		for _, p := range []string{path, root.Path("questions")} {
			if err := os.Chtimes(p, at, at); err != nil {
				t.Fatal(err)
			}
		}
		all, _, err := x.All()
		if err != nil || len(all) != 1 || all[0].Text != fmt.Sprint(n) {
			t.Fatalf("%d: %+v, %v", n, all, err)
		}
	}
}

// While nothing changes nothing is read, however many there are.
func TestAnIndexReadsOnlyWhatHasChanged(t *testing.T) {
	root, _ := ask(t, questions.Question{})
	for n := range 20 {
		askIn(t, root, questions.Question{ID: fmt.Sprintf("q%d", n), Text: fmt.Sprint(n)})
	}
	reads := 0
	x := questions.NewIndex(root.WithSteps(func(op state.Op, _ string) error {
		if op == state.OpRead {
			reads++
		}
		return nil
	}))
	settle(t, root, time.Minute)
	for want := 21; want <= 22; want++ {
		for range 10 {
			if all, _, err := x.All(); err != nil || len(all) != 21 {
				t.Fatal(len(all), err)
			}
		}
		if reads != want {
			t.Errorf("%d reads, want %d", reads, want)
		}
		if _, err := questions.Close(t.Context(), root, "q3", questions.Withdrawn); want == 21 && err != nil {
			t.Fatal(err)
		}
		settleFile(t, root, "q3", 30*time.Second)
	}
}

func settleFile(t *testing.T, root *state.Root, id string, ago time.Duration) {
	t.Helper()
	old := time.Now().Add(-ago)
	for _, p := range []string{root.Path(state.Question(id)), root.Path("questions")} {
		if err := os.Chtimes(p, old, old); err != nil {
			t.Fatal(err)
		}
	}
}

// What could not be read is looked at again although the folder has not changed:
// it may be mended in its place.
func TestAnIndexForgetsAReadErrorThatIsOver(t *testing.T) {
	root, q := ask(t, questions.Question{})
	file, target := root.Path(state.Question(q.ID)), t.TempDir()+"/target"
	good, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.Mkdir(target, 0o700), os.Remove(file), os.Symlink(target, file)); err != nil {
		t.Fatal(err)
	}
	old := time.Now().Add(-time.Minute)
	if err := os.Chtimes(root.Path("questions"), old, old); err != nil {
		t.Fatal(err)
	}
	x := questions.NewIndex(root)
	for range 2 {
		if _, bad, err := x.All(); err == nil || bad != 1 {
			t.Fatalf("%d bad, %v", bad, err)
		}
	}
	if err := errors.Join(os.Remove(target), os.WriteFile(target, good, 0o600)); err != nil {
		t.Fatal(err)
	}
	if all, bad, err := x.All(); err != nil || bad != 0 || len(all) != 1 {
		t.Errorf("%d, %d bad, %v", len(all), bad, err)
	}
}
