// Package worker executes admitted runs: it takes events from the outbox, runs the flow over the snapshot that the request names, and
// publishes the result once.
//
// # The life of a run
//
//	claim            an event of the outbox, with up to Config.Batch others
//	lease            of the run. Held by another worker: that one has it; the event stays where it is
//	start            QUEUED → RUNNING, fenced; QUEUED → CANCELLED if that was asked for before. Never in the middle
//	compute          the flow over the snapshot into an emit document, while the lease is renewed every ttl/3, apart from the work
//	stage            the rows, hidden, where Config.Staging keeps those of results
//	artefact         the document as a blob under its hash, durable before anything refers to it
//	publish          publication, SUCCEEDED and delivery of the event, fenced, in one commit. Or FAILED with the message and delivery
//	show             the rows that were staged. Whoever dies before this leaves it to the next look for orphans, of any worker
//
// A worker that is killed leaves an expired lease; any worker's reconciliation makes the run QUEUED and its event pending again.
// A worker that was stopped for longer than its lease finds its next effect refused. Whatever happens, what the outside sees of a run is
// nothing or one result: a blob that nobody refers to is the only trace of a computation that was done twice, and since the document is
// the same, so is the blob.
//
// # Failure
//
// A run whose computation fails is FAILED with the message, and its event delivered: it is not tried again. What fails around it (the
// store is gone for a while, an answer is lost) is not the run's failure: after an answer that is unknown the worker reads back before it
// tries again. A run that kills its worker each time is FAILED at the term after Config.MaxTerms.
package worker
