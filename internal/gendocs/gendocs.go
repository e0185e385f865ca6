// Package gendocs writes the documents that are made from the code, so that they cannot drift from it.
package gendocs

import (
	"fmt"
	"strings"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/flow"
	"github.com/weirstream/weir/metrics"
	"github.com/weirstream/weir/server"
)

// Files maps each generated file, by its path below the root of the project, to the bytes it must hold.
func Files() map[string][]byte {
	return map[string][]byte{
		"docs/errors.md":        errorsPage(),
		"docs/flow.schema.json": flow.Schema(nil),
		"docs/metrics.md":       metrics.Page(),
		"docs/openapi.json":     server.OpenAPI(),
		"docs/openapi-run.json": server.OpenAPIDaemon(),
	}
}

func errorsPage() []byte {
	var b strings.Builder
	b.WriteString("# Error codes\n\nGenerated from the package `codes` by `make docs`. A code never changes its name. The exit code is that of the command\nthat meets the error.\n\n")
	b.WriteString("| exit | meaning |\n|---|---|\n| 0 | ok |\n| 1 | runtime error |\n| 2 | usage |\n| 3 | configuration |\n| 4 | difference found |\n| 5 | dependency unreachable |\n| 6 | recovery blocked |\n| 7 | fenced, or lease held |\n| 130 | interrupted |\n\n")
	b.WriteString("| code | exit | again? | meaning | cure |\n|---|---|---|---|---|\n")
	again := map[codes.Verdict]string{codes.Fatal: "no", codes.Retry: "yes", codes.Poison: "record set aside"}
	for _, c := range codes.All() {
		fmt.Fprintf(&b, "| `%s` | %d | %s | %s | %s |\n", c.Name, c.Exit, again[c.Verdict], c.Meaning, c.Cure)
	}
	return []byte(b.String())
}
