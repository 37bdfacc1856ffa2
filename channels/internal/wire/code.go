package wire

import (
	"context"
	"errors"
	"io"
	"net"
	"syscall"
)

// Our own short words for what went wrong.
const (
	codeTimeout     = "timeout"
	codeCanceled    = "canceled"
	codeDNS         = "dns"
	codeRefused     = "refused"
	codeUnreachable = "unreachable"
	codeTLS         = "tls"
	codeReset       = "reset"
	codeEOF         = "eof"
	codeBroken      = "broken" // none of the above, or no HTTP
)

// codeOf names the error of a request under ctx. It is for people; no verdict
// rests on it.
func codeOf(ctx context.Context, err error) string {
	var dns *net.DNSError
	var timeout interface{ Timeout() bool }
	switch {
	case errors.Is(ctx.Err(), context.Canceled):
		return codeCanceled
	case ctx.Err() != nil:
		return codeTimeout
	case errors.As(err, &dns):
		return codeDNS
	case errors.As(err, &timeout) && timeout.Timeout():
		return codeTimeout
	case errors.Is(err, syscall.ECONNREFUSED):
		return codeRefused
	case errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH):
		return codeUnreachable
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return codeReset
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return codeEOF
	}
	return codeBroken
}

// cause answers errors.Is for an error whose text may hold the address or what
// a stranger's server wrote, and shows none of it.
type cause struct{ err error }

func (c cause) Error() string        { return "http request failed" }
func (c cause) Is(target error) bool { return errors.Is(c.err, target) }
