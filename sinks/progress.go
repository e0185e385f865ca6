package sinks

import (
	"maps"
	"slices"

	"github.com/weirstream/weir/codes"
)

// Progress is what a Writer keeps of its partitions: it leaves out what stands already and remembers what was added. A sink that cannot read back
// begins with an empty one, and takes the first rows of a partition as they come.
type Progress struct {
	width int
	at    map[int32]int64
	// broken: an error came, after which nobody knows what stands.
	broken bool
}

// NewProgress begins with what stands, which it keeps. width is the number of outputs.
func NewProgress(width int, at map[int32]int64) *Progress {
	if at == nil {
		at = map[int32]int64{}
	}
	return &Progress{width: width, at: at}
}

// Published implements a Writer's method of that name.
func (p *Progress) Published() map[int32]int64 { return maps.Clone(p.at) }

// Rest gives the rows of batches that do not stand yet, by partition and in order; rows of one partition that follow each other stay apart.
// Errors: INTERNAL when rows are damaged or would leave a hole, or after an error that Fail was told.
func (p *Progress) Rest(batches []Rows) ([]Rows, error) {
	if p.broken {
		return nil, codes.New(codes.Internal, "a sink was written to after an error without being opened anew")
	}
	ends := maps.Clone(p.at)
	var out []Rows
	for _, b := range batches {
		if b.Count == 0 {
			continue
		}
		at, known := ends[b.Partition]
		if !known {
			at = b.From
		}
		rest, err := b.After(at, p.width)
		if err != nil {
			return nil, err
		}
		if rest.Count > 0 {
			out = append(out, rest)
			ends[b.Partition] = rest.End()
		}
	}
	slices.SortStableFunc(out, func(a, b Rows) int { return int(a.Partition) - int(b.Partition) })
	return out, nil
}

// Done notes that rows stand.
func (p *Progress) Done(rows []Rows) {
	for _, r := range rows {
		p.at[r.Partition] = max(p.at[r.Partition], r.End())
	}
}

// Fail passes an error on and ends the writer.
func (p *Progress) Fail(err error) error {
	if err != nil {
		p.broken = true
	}
	return err
}
