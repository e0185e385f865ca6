// Command cmd writes the generated documents. Run it from the root of the project.
package main

import (
	"fmt"
	"os"

	"github.com/weirstream/weir/internal/gendocs"
)

func main() {
	for path, data := range gendocs.Files() {
		if err := os.WriteFile(path, data, 0o644); err != nil {
			fmt.Fprintln(os.Stderr, "gendocs:", err)
			os.Exit(1)
		}
	}
}
