// Command receiver is the other end of a webhook for trying things out: it
// listens on the address given, prints the text and the id of every event, and
// answers 204.
package main

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"time"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: receiver HOST:PORT")
		os.Exit(2)
	}
	l, err := net.Listen("tcp", os.Args[1])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println("listening on", l.Addr())
	server := &http.Server{Handler: http.HandlerFunc(receive), ReadHeaderTimeout: 5 * time.Second}
	fmt.Fprintln(os.Stderr, server.Serve(l))
	os.Exit(1)
}

func receive(w http.ResponseWriter, r *http.Request) {
	var event struct {
		Text string `json:"text"`
	}
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 4<<20)).Decode(&event); err != nil {
		http.Error(w, "not an event", http.StatusBadRequest)
		return
	}
	fmt.Printf("received %q, id %s\n", event.Text, r.Header.Get("webhook-id"))
	w.WriteHeader(http.StatusNoContent)
}
