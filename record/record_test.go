package record_test

import (
	"testing"

	"github.com/weirstream/weir/record"
)

func TestGoldenValuesHash(t *testing.T) {
	t.Parallel()
	got, err := record.AppendJSON(nil, []any{nil, nil, 2.0, 3.0, 4.0, 5.0})
	if err != nil {
		t.Fatal(err)
	}
	if want := "[null,null,2.0,3.0,4.0,5.0]"; string(got) != want {
		t.Fatalf("canonical bytes %s, want %s", got, want)
	}
	if got, want := record.Hash(got), "sha256:9e906a09a1c594964c16291a77cb38b0ffb021e69c230d71d1dd77ebbd6a7877"; got != want {
		t.Fatalf("hash %s, want %s", got, want)
	}
}
