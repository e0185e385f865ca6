package record_test

import (
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/weirstream/weir/record"
)

// TestPartitionVectors compares with partitions that a Kafka client chose, frozen in testdata/partitions.txt.
func TestPartitionVectors(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("testdata/partitions.txt")
	if err != nil {
		t.Fatal(err)
	}
	if got, want := record.Hash(text), "sha256:7c44c7a4d60b5317a69dcc0a8ecedec237855bb298ce12227cfe27e37e2cb8bb"; got != want {
		t.Fatalf("the vectors have the digest %s, not the frozen %s", got, want)
	}
	var counts []string
	checked := 0
	for line := range strings.Lines(string(text)) {
		switch line[0] {
		case '#':
			continue
		case 'n':
			counts = strings.Fields(line)[1:]
			continue
		}
		key, rest := unquote(t, line)
		for i, want := range strings.Fields(rest) {
			n, err := strconv.ParseInt(counts[i], 10, 32)
			if err != nil {
				t.Fatal(err)
			}
			if got := record.PartitionOf([]byte(key), int32(n)); strconv.Itoa(int(got)) != want {
				t.Errorf("PartitionOf(%+q, %d) = %d, want %s", key, n, got, want)
			}
			checked++
		}
	}
	if checked != 66*9 {
		t.Errorf("%d vectors checked, want %d", checked, 66*9)
	}
}

// TestPartitionOfTheDrill: the arrival log of the fixture, published 13 times to 4 partitions, stands as 78 records on partition 0
// and 221 on partition 3.
func TestPartitionOfTheDrill(t *testing.T) {
	t.Parallel()
	var high [4]int
	for key, perPass := range map[string]int{"1": 6 + 1, "2": 5 + 1, "3": 6 + 1 + 3} {
		high[record.PartitionOf([]byte(key), 4)] += 13 * perPass
	}
	if want := [4]int{78, 0, 0, 221}; high != want {
		t.Errorf("high-waters %v, want %v", high, want)
	}
}

func TestPartitionOfNoKey(t *testing.T) {
	t.Parallel()
	if got := record.PartitionOf(nil, 8); got != 0 {
		t.Errorf("a record without key goes to partition %d, want 0", got)
	}
	if got := record.PartitionOf([]byte{}, 8); got != 1 {
		t.Errorf("an empty key goes to partition %d, want 1, where its hash sends it", got)
	}
}
