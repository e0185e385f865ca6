// Package control is the port of the control plane and its rules: the journal (the committed cut that a run resumes from, the only truth about
// progress; a consumer group's offsets are a courtesy written after it), and beside it leases, effects, admission, outbox and reconciler, which
// carry batch runs. ControlStore is all of it. What both stores must decide in the same way (the table of leases, the phases of runs, what
// counts as an orphan) is a function here, so it is written once and tested without a store.
//
// # A batch run
//
//	run, created, err := s.Admit(ctx, request)            // QUEUED, and its event in the outbox
//	events, err := s.Claim(ctx, owner, 0)                 // a worker takes events in order
//	lease, err := s.Acquire(ctx, RunLease(id), owner, ttl) // and the lease of one run after the other, renewed every ttl/3
//	err = s.Fenced(ctx, lease, StartRun{RunID: id})       // RUNNING, or CANCELLED
//	...                                                   // compute; write the artefact
//	err = s.Fenced(ctx, lease, Publish{...}, FinishRun{...}, Deliver{...}) // one commit: published, SUCCEEDED, delivered
//	err = s.Release(ctx, lease)
//
// A worker that dies leaves a RUNNING run without a valid lease and a claimed event; Reconcile makes both available again. One that was
// only slow finds its token stale: Fenced runs nothing. Errors other than a refusal (Refused) leave it unknown whether a write stands: read
// back (LookupRun, ListEvents) or ask again (Acquire, Admit and publications take what is there for an answer).
//
// # The whole loop of a caller of the journal
//
//	state, err := j.OpenRun(ctx, header)         // creates the run, or returns what it committed last
//	for _, p := range state.Header.Partitions {
//	    load := func(yield func(partitions.StateBlob) error) error {
//	        return j.LoadBlobs(ctx, header.RunID, p, yield)
//	    }
//	    m, err := partitions.Restore(plan, p, load)
//	    source.Start(p, state.Cuts[p].Next)      // a partition without a cut starts at the beginning of its log
//	}
//	for epoch := state.Epoch + 1; ; epoch++ {
//	    ...                                      // Step the machines, collect their cuts and effects
//	    if err := j.Commit(ctx, control.Commit{RunID: header.RunID, Epoch: epoch, ...}); err != nil {
//	        if control.Refused(err) {
//	            return err                       // nothing of the epoch stands, and trying again gives the same
//	        }
//	        restart()                            // unknown: from OpenRun, with new machines
//	    }
//	    source.CommitGroup(...)                  // the courtesy, after the truth
//	}
//
// # A run that is owned
//
//	lease, err := s.Acquire(ctx, StreamLease(runID), owner, ttl) // renewed every ttl/3, apart from the loop
//	j := s.Under(lease)                                          // and the loop above on j
//
// OpenRun and Commit then verify the lease in their own transaction, in which nobody takes it over, and the run keeps the highest token that wrote it
// (RunState.Fence). From then on nobody writes it without a lease (StaleFence), and a valid lease with a lower token, which only a store that lost what
// it knew gives out, writes nothing either (FenceRegression). A checkpoint is read by Snapshot, beside the commits, and becomes visible by its pointer,
// which is written last. ForkRun makes a new run of one; a journal itself never goes back.
//
// # Durability
//
// Positions, state, outputs, quarantine and decisions of an epoch are written in one transaction, and Commit returns nil only when
// the store says that they are durable. So there is no order between them to get wrong: after a kill at any moment either the
// whole epoch stands or nothing of it. What comes after a commit (group offsets, an emit document) can be done again from the
// journal.
//
// # Two writers
//
// A run has one writer. Should two processes be given the same run id by mistake, the compare-and-set on the epoch decides: each
// epoch is committed by exactly one of them, and the other is refused with JOURNAL_CONFLICT at its next commit. It never
// interleaves, since the loser's state did not grow out of the winner's epoch.
package control
