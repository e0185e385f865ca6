package main

import (
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// version is set by the linker for a release: -ldflags "-X main.version=v1.2.3".
var version = ""

func (a *app) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "version",
		Short:   "Print the version of weir",
		Example: "  weir version\n  weir version --json",
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			v, revision := versionOf()
			if a.json {
				return a.document(map[string]any{"version": v, "revision": revision, "go": runtime.Version(), "platform": runtime.GOOS + "/" + runtime.GOARCH})
			}
			a.printf("weir %s (%s, %s/%s)\n", v, runtime.Version(), runtime.GOOS, runtime.GOARCH)
			return nil
		},
	}
}

func versionOf() (v, revision string) {
	v = "devel"
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return v, ""
	}
	if info.Main.Version != "" && info.Main.Version != "(devel)" {
		v = info.Main.Version
	}
	if version != "" {
		v = version
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			revision = s.Value
		}
	}
	return v, revision
}
