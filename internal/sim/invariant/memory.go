package invariant

// Limits are the bounds that a run was started with.
type Limits struct {
	// Window is the credit of one partition, in records. What is read and not yet given back is at most twice that for each partition, all
	// partitions together: what is handed out, and what waits aside.
	Window int64
	// Results is what the results of one partition in one epoch may take, in bytes; the last epoch, which releases everything, is not held
	// to it.
	Results int64
}

// MemoryBounded: no more is in the memory of a process than its windows and its epochs allow, and one epoch at a time waits for its answer.
type MemoryBounded struct {
	limits Limits
	// out and partitions are by reader, commits by process.
	out, partitions map[int]int64
	commits         map[string]int
	// MostOut and MostResults are the greatest values seen.
	MostOut, MostResults int64
}

// NewMemoryBounded makes the checker.
func NewMemoryBounded(l Limits) *MemoryBounded {
	return &MemoryBounded{limits: l, out: map[int]int64{}, partitions: map[int]int64{}, commits: map[string]int{}}
}

// Name is memory-bounded.
func (*MemoryBounded) Name() string { return "memory-bounded" }

// See implements Checker.
func (c *MemoryBounded) See(e Entry, r *Report) {
	switch ev := e.Event.(type) {
	case SourceOpened:
		c.partitions[ev.Reader] = int64(len(ev.From))
	case Polled:
		for _, b := range ev.Batches {
			c.out[ev.Reader] += b.Records
		}
		c.MostOut = max(c.MostOut, c.out[ev.Reader])
		if most := 2 * c.limits.Window * c.partitions[ev.Reader]; c.out[ev.Reader] > most {
			r.Add("reader %d has %d records out, at most %d are allowed", ev.Reader, c.out[ev.Reader], most)
		}
	case Given:
		if c.out[ev.Reader] -= ev.Span.Records; c.out[ev.Reader] < 0 {
			r.Add("reader %d got more back than it gave", ev.Reader)
		}
	case Sent:
		if c.commits[e.Process]++; c.commits[e.Process] > 1 {
			r.Add("%s has %d epochs under way", e.Process, c.commits[e.Process])
		}
	case Answered:
		c.commits[e.Process]--
	case Committed:
		for _, p := range ev.Commit.Partitions {
			if p.Cut.Finished {
				continue
			}
			size := weight(p.Rows, p.Quarantine)
			c.MostResults = max(c.MostResults, size)
			if size > c.limits.Results {
				r.Add("epoch %d has %d bytes of results of partition %d, at most %d are allowed", ev.Commit.Epoch, size, p.Cut.Partition, c.limits.Results)
			}
		}
	}
}

// End implements Checker.
func (*MemoryBounded) End(*Report) {}
