// Package lazy puts off what most commands never need.
package lazy

import (
	"regexp"
	"sync"
)

// Regexp gives a regular expression that is compiled when it is used first: a
// program that compiles all of its own at its start is slower than many that it
// is called in. Like regexp.MustCompile it panics for one that is malformed, but
// not before it is used.
func Regexp(expr string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(expr) })
}
