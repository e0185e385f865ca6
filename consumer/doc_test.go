package consumer_test

import (
	"os"
	"strings"
	"testing"
)

// The code of docs/consumers.md is that of the example, which runs.
func TestDocumentedCode(t *testing.T) {
	t.Parallel()
	read := func(path string) string {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	example := read("example_test.go")
	found := 0
	for _, part := range strings.Split(read("../docs/consumers.md"), "```go\n")[1:] {
		code, _, _ := strings.Cut(part, "```")
		code = strings.TrimSuffix("\t"+strings.ReplaceAll(code, "\n", "\n\t"), "\t")
		if !strings.Contains(example, code) {
			t.Errorf("this is not in the example:\n%s", code)
		}
		found++
	}
	if found == 0 {
		t.Error("no code was found; has the form of the document changed?")
	}
}
