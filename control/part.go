package control

import (
	"strconv"
	"strings"

	"github.com/weirstream/weir/codes"
)

// PartID is the id of the run of one partition of a run that is shared out: RUN/N.
func PartID(run string, partition int32) string { return run + "/" + strconv.Itoa(int(partition)) }

// PartOf is the run of which an id names a partition, as PartID does, and the partition; false when it names none.
func PartOf(id string) (run string, partition int32, ok bool) {
	at := strings.LastIndexByte(id, '/')
	if at < 0 {
		return "", 0, false
	}
	text := id[at+1:]
	n, err := strconv.ParseInt(text, 10, 32)
	if err != nil || n < 0 || strconv.FormatInt(n, 10) != text {
		return "", 0, false
	}
	return id[:at], int32(n), true
}

// CheckScope is the rule for a run that is made, beside those there are, in the transaction that makes it: a run is one over all partitions or has
// one for each, never both, since what is committed of one would be computed and published once more. So of two processes that start a new run in different
// scopes, the second one is refused: RunMismatch.
func CheckScope(id string, there []string) error {
	whole, _, part := PartOf(id)
	for _, other := range there {
		switch of, _, is := PartOf(other); {
		case part && other == whole:
			return codes.New(codes.RunMismatch, "run %q is one run over all partitions, and cannot be shared out as %q: run it as it began, or use a new --run-id", other, id)
		case is && of == id:
			return codes.New(codes.RunMismatch, "run %q is shared out by partitions, %q is one of them, and cannot be one run: run it as it began (--scope partition), or use a new --run-id", id, other)
		}
	}
	return nil
}
