// Package actors drives a flow over a source that does not end by itself, with actors: the stream mode. It knows ports only (a source,
// a journal); what it computes is decided by the pure machines of package partitions, so that it gives the same bits as package
// batch, whatever the sizes of fetches, the order in which partitions are read, and however often it is stopped, killed or restarted.
//
// # The whole loop
//
//	result, err := actors.Run(ctx, actors.Config{
//		Plan: plan, Source: source, Journal: journal, RunID: "prices", MaxRecords: 299,
//	})
//
// With Config.Fencing, Run takes the lease of the run before anything else, and keeps it to its end. It opens the run in the journal, restores every partition from its last cut, opens the source exactly at the positions of that cut,
// and then, until the end:
//
//	poll      a goroutine asks the source for records and sends the answer to the reader
//	deliver   the reader splits it into parts of at most FetchSize records, each of one partition and one message, and hands each
//	          out for credit; what has none waits aside, and its partition is held at the source until half its window is free
//	step      the partition steps its machine, keeps the effects, and gives the credit back
//	barrier   once a second, or after so many records, the reader puts a barrier behind what it has handed out, to every partition
//	cut       each partition answers the barrier with its cut (position, state that changed, counts) and the effects since the last
//	align     the fan-in waits for the answers of all partitions and merges their watermarks
//	commit    a goroutine publishes the rows to the sinks, if there are any, and writes all of it in one transaction; data flows on meanwhile, and
//	          the next barrier waits for the answer
//
// # The tree
//
//	                                     run                     opens, ends and reopens incarnations
//	     ┌──────────────┬──────────────┬──┴───────────┬───────────────┐
//	   lease         reader       coordinator      fan-in     partition/0 … partition/n
//	     │              │              │              │               │
//	takes, renews,  polls, hands   asks for cuts,  aligns cuts,   one partitions.Machine
//	gives back      out for credit commits, ends   merges time
//
// The lease, and the checkpoints that the run actor has made now and then (Config.Checkpointer), belong to the run; the others to one
// incarnation of it.
//
//	source ─polled─▶ reader ─deliver, barrier─▶ partition ─cut─▶ fan-in ─aligned─▶ coordinator ─Commit─▶ journal
//	       ◀──ask───   │ ▲ ◀─────credit──────────                                    │   ▲
//	                   │ └───────────────────── asks for a barrier ──────────────────┘   └── the journal's answer
//	                   └─ Pause, Resume ─▶ source
//
// Everything moves in batches; there is no message for one record. Nothing blocks in an actor: Poll and Commit run in goroutines whose
// results come back as messages.
//
// # The order of durability
//
//  1. The rows, to every sink (Config.Publisher). They are numbered, and the same whenever they are computed again, so that what a kill leaves
//     published and uncommitted is left out by the sink when it comes again. In an epoch that holds an operator's choice this comes after 2.
//  2. The cut and the effects of all partitions up to one barrier, with the merged watermark: one transaction of the journal. Before it,
//     nothing of an epoch stands; after it, all of it.
//  3. The positions of the consumer group (Config.CommitOffsets): a courtesy, never ahead of the journal.
//  4. Config.OnProgress, and with the last epoch the Result.
//
// Only a commit moves the position of a run, and it moves with what was computed up to there: accepted records that no watermark has
// released yet are part of the cut, so a resume position never stands beyond what the saved state holds.
//
// # The lease
//
// The lease is renewed every third of its ttl by goroutines of its own, so that no step or commit, however long, keeps it waiting. The
// holder's own clock ends a term: ttl after the call was sent that gave it. Until then a renewal that fails is tried again; one that the
// store refuses ends the run at once. Every write goes through the fence (control.Fencer), which has the last word: what a process
// computed that was stopped for longer than its lease lasts is refused there, whatever it believes. A run whose lease is lost commits
// nothing more, tells nothing more, gives nothing back, and ends with STREAM_FENCE_OBSOLETO.
//
// After the last effect of an end in order, or of a run that gives up, the lease is given back, so that a stand-by (Fencing.Standby) goes on
// within StandEvery. After a Kill it runs out by itself.
//
// # When something fails
//
// A panic or an error in any actor or goroutine, an error of the source or of the journal ends the incarnation: no message is skipped,
// the open epoch is abandoned, every actor is stopped, and after a back-off the next incarnation goes on from what the journal says.
// A commit whose answer was lost is unknown, neither made nor failed; reading the journal back decides. Every message carries its
// incarnation, and a receiver drops what is not of its own.
//
// The run actor itself is started again by Run, with what it knows of causes and commits.
//
// A partition that fails again and again without getting any further is blocked: the next incarnations leave it out, its cut stays, and
// it holds the merged watermark, while the others go on. The run ends with its cause. In a run with a limit of records (MaxRecords,
// UntilRecords), which cannot reach it without that partition, the cause is the end at once.
//
// What no restart mends (records that the log has lost, a batch that cannot be read, damaged state, a recreated log, leases that have gone
// back) does not end a run with Config.StayBlocked: see recovery.go for what is blocked, and what releases it.
//
// An error whose code is not to be retried ends the run at once, and so does a cause that has come Config.MaxFailures times without a
// commit in between; a source that fails after more was read than ever before counts anew. What the journal holds is then a consistent
// prefix, from which the run can go on another time.
//
// # What operators choose
//
// Config.Interventions brings an operator's choice to the run: a gap that is accepted, an idle partition, a missing number that will not come, entries of
// the quarantine that are replayed or dropped (asides.go), what is blocked read again. It takes effect between two incarnations: the first ends in order, the next steps it into the restored machine before anything is
// read, and commits the decision with its first cut (orders.go).
//
// # What holds a partition
//
// Beside its window: event time that is more than MaxSkew ahead of the slowest partition that has something to read, and a disk that is nearly full
// (pressure.go). OnBackpressure tells each with its value, its threshold and what releases it.
//
// # A log that changes
//
// A log without an end is looked at every ObserveEvery. Partitions that it got begin with the next incarnation, each at the beginning of its log,
// and hold the merged watermark from then on. What it is about to remove although the run needs it is told (OnRetention).
//
// # Ends
//
//   - MaxRecords, or the end of a bounded source: the intake ends; when all is processed, the maximum event time over all partitions is
//     sent to each as the end of its source, everything held is released, and the last commit makes the run FINISHED.
//   - UntilRecords: the intake ends and an open cut is committed. Nothing is flushed; the run goes on another time.
//   - The context of Run is cancelled: as UntilRecords, at once. If a failure stands then, after which nothing has been committed, that
//     failure is the end of the run, since what was processed before it is in no journal.
//   - Config.Kill is cancelled: nothing is committed any more, and Run returns at once.
//   - The lease is lost: as Kill, with a moment for what is under way to end.
//
// An end in order makes a last checkpoint and gives the lease back.
//
// # Memory
//
// Per partition: a window of records and bytes under way (CreditRecords, CreditBytes), with what waits aside never more than all windows
// together, and results that wait for the journal (EpochBytes, about twice), beside the state of the machine, which the limits of the
// flow bound. A journal that is slow holds the source, not the heap.
package actors
