//go:build race

package proof

// stride: with the race detector, which slows them down and finds nothing more
// the second time, the sweeps look at every fifth point. `make crash` goes
// without it and looks at all of them.
const stride = 5
