// Command linked is the least program that holds what the-loop's every command
// is linked with, and prints a line.
package main

import (
	"fmt"
	"os"

	"github.com/goccy/go-yaml"
	"github.com/slack-go/slack"
	"github.com/urfave/cli/v2"
)

func main() {
	app := &cli.App{Name: "linked", Action: func(*cli.Context) error {
		fmt.Println("ok")
		return nil
	}}
	if len(os.Args) > 1 { // never here: it is to be linked, not run
		fmt.Println(slack.New(os.Args[1]), yaml.Unmarshal([]byte(os.Args[1]), &app))
	}
	if err := app.Run(os.Args[:1]); err != nil {
		os.Exit(1)
	}
}
