//go:build !race

package proof

const stride = 1
