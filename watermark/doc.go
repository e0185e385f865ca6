// Package watermark says how far event time is closed.
//
// A Partition follows one partition of a log: W = max event time - allowed lateness, monotone, held back by the oldest open gap.
// A Merge takes the minimum over many partitions, leaving out those that are IDLE or FINISHED. Both are pure: they read no
// clock, start nothing and depend only on the calls made so far, so the same log gives the same verdicts at every replay.
//
// One record of a partition, in log order:
//
//	late := p.IsLate(t)          // strictly older than W
//	changes := p.Sequence(key, seq, t) // only where the flow names a sequence field; before Observe, see there
//	moved := p.Observe(t)        // W may have moved: release what is older than p.Watermark()
//	p.Record()                   // an idle input is active again
//
// The watermark is state, not something to recompute: Snapshot and Restore carry it, the input status, the count of empty polls
// and every open gap through a restart, so that an event judged late before a restart is late after it.
package watermark
