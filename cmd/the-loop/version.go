package main

import (
	"runtime"
	"runtime/debug"

	"github.com/urfave/cli/v2"
)

func versionCommand(w world) *cli.Command {
	return &cli.Command{
		Name:        "version",
		Usage:       "print the version",
		Description: example("the-loop version --format json"),
		Flags:       []cli.Flag{formatFlag()},
		Action: func(c *cli.Context) error {
			asJSON, err := wantsJSON(c)
			if err != nil {
				return err
			}
			if err := noArguments(c); err != nil {
				return err
			}
			if asJSON {
				return printJSON(w.stdout, map[string]string{
					"version": version(), "go": runtime.Version(), "os": runtime.GOOS, "arch": runtime.GOARCH,
				})
			}
			printf(w.stdout, "the-loop %s (%s, %s/%s)\n", version(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
			return nil
		},
	}
}

// version is what the build recorded: a tag, or the commit.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	if v := info.Main.Version; v != "" && v != "(devel)" {
		return v
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" && len(s.Value) >= 12 {
			return "devel+" + s.Value[:12]
		}
	}
	return "devel"
}
