package channelstest

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"
)

// Fault is something that a Server does instead of answering as it should. The
// connection is closed afterwards.
type Fault struct {
	unread bool   // act before the request is read
	to     string // what the path of the request must end in; "" for any
	act    func(c net.Conn, r Request)
}

// To is the fault for the next request to a path that ends so, such as
// "/chat.postMessage", whatever else is asked for before that. It is for Queue,
// and not for a fault that does not read the request.
func (f Fault) To(path string) Fault {
	f.to = path
	return f
}

// Answer sends that status, each of the headers ("Retry-After: 30"), and the
// body.
func Answer(status int, body string, headers ...string) Fault {
	headers = append(headers, fmt.Sprintf("Content-Length: %d", len(body)))
	return Raw(head(status, headers...) + body)
}

// Raw sends these bytes after it has read the request.
func Raw(answer string) Fault {
	return Fault{act: func(c net.Conn, _ Request) { _, _ = io.WriteString(c, answer) }}
}

// DropUnread cuts the connection with a reset without reading the request.
func DropUnread() Fault { return Fault{unread: true, act: func(c net.Conn, _ Request) { reset(c) }} }

// DropRead reads the request and cuts the connection without a word.
func DropRead() Fault { return Fault{act: func(net.Conn, Request) {}} }

// Hang reads the request and never answers, until the client gives up.
func Hang() Fault { return HangAfter(func() {}) }

// HangAfter reads the request, calls then, and never answers.
func HangAfter(then func()) Fault {
	return Fault{act: func(c net.Conn, _ Request) {
		then()
		_, _ = io.Copy(io.Discard, c)
	}}
}

// HangInBody answers with that status and never sends the body it announced.
func HangInBody(status int) Fault {
	return Fault{act: func(c net.Conn, _ Request) {
		_, _ = io.WriteString(c, head(status, "Content-Length: 100")+"{")
		_, _ = io.Copy(io.Discard, c)
	}}
}

// Drip answers with that status, one byte of an endless body each time every
// has passed, until the client gives up.
func Drip(status int, every time.Duration) Fault {
	return Fault{act: func(c net.Conn, _ Request) {
		_, err := io.WriteString(c, head(status))
		tick := time.NewTicker(every)
		defer tick.Stop()
		for err == nil {
			<-tick.C
			_, err = io.WriteString(c, " ")
		}
	}}
}

// ResetInBody answers with that status and resets the connection in the body.
func ResetInBody(status int) Fault {
	return Fault{act: func(c net.Conn, _ Request) {
		_, _ = io.WriteString(c, head(status, "Content-Length: 100")+"{")
		reset(c)
	}}
}

// ShortBody answers with that status and fewer bytes than it announced.
func ShortBody(status int) Fault { return Raw(head(status, "Content-Length: 100") + "{") }

// Redirect sends that status with a Location.
func Redirect(status int, to string) Fault { return Answer(status, "", "Location: "+to) }

func head(status int, headers ...string) string {
	first := fmt.Sprintf("HTTP/1.1 %d %s", status, http.StatusText(status))
	return strings.Join(append([]string{first, "Connection: close"}, headers...), "\r\n") + "\r\n\r\n"
}

// reset closes the connection so that the peer is sent a reset.
func reset(c net.Conn) {
	if tcp, ok := c.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = c.Close()
}
