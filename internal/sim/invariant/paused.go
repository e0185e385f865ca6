package invariant

// PausedSilent: a question to the log that began while a partition was paused, or while the process held it, brings nothing of it, and no question
// is asked while all are.
type PausedSilent struct {
	readers map[int]*pausing
	// reading is the reader of a process.
	reading map[string]int
}

type pausing struct {
	partitions int
	paused     map[int]bool
	// silent are those paused from before the question in hand until now.
	silent map[int]bool
}

// NewPausedSilent makes the checker.
func NewPausedSilent() *PausedSilent {
	return &PausedSilent{readers: map[int]*pausing{}, reading: map[string]int{}}
}

// Name is paused-silent.
func (*PausedSilent) Name() string { return "paused-silent" }

// See implements Checker.
func (c *PausedSilent) See(e Entry, r *Report) {
	switch ev := e.Event.(type) {
	case SourceOpened:
		c.readers[ev.Reader] = &pausing{partitions: len(ev.From), paused: map[int]bool{}}
		c.reading[e.Process] = ev.Reader
	case Backpressure:
		p := c.readers[c.reading[e.Process]]
		switch {
		case p == nil:
		case ev.Reads:
			delete(p.paused, ev.Partition)
			delete(p.silent, ev.Partition)
		default:
			p.paused[ev.Partition] = true
		}
	case Paused:
		c.readers[ev.Reader].paused[ev.Partition] = true
	case Resumed:
		p := c.readers[ev.Reader]
		delete(p.paused, ev.Partition)
		delete(p.silent, ev.Partition)
	case PollBegan:
		p := c.readers[ev.Reader]
		p.silent = map[int]bool{}
		for n := range p.paused {
			p.silent[n] = true
		}
		if len(p.paused) == p.partitions && p.partitions > 0 {
			r.Add("reader %d was asked while all of its %d partitions were paused", ev.Reader, p.partitions)
		}
	case Polled:
		p := c.readers[ev.Reader]
		for _, b := range ev.Batches {
			if p.silent[int(b.Partition)] {
				r.Add("reader %d gave %s, which was paused", ev.Reader, b)
			}
		}
	}
}

// End implements Checker.
func (*PausedSilent) End(*Report) {}
