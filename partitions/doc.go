// Package partitions is the pure machine of one partition: decode, select, dedupe, order by event time, operators, outputs.
//
// A [Machine] takes events and answers with effects. It starts nothing, reads no clock and does no input or output: time arrives as
// an event, and the same events give the same rows, verdicts, counts and state, however the log is cut into batches and however
// often the machine was cut down and restored. The caller's whole loop:
//
//	m := partitions.New(plan, p)                    // or Restore, with the blobs that stand
//	for each event {
//		err := m.Step(event, &effects)              // an error is fatal: give m up, restore the last cut
//	}
//	commit(m.Cut(), effects); effects.Reset()       // in one transaction: state, position, rows, what was set aside
//
// # The life of a record
//
//	     batch
//	       │ position                                          ┌──────────────┐
//	┌──────▼──────┐  no value, or not to be read               │   set aside  │
//	│   extract   ├───────────────────────────────────────────▶│ with bytes   │
//	└──────┬──────┘                                            │ and reason   │
//	┌──────▼──────┐  not selected                              └─▲──▲──▲──▲───┘
//	│   select    ├──────────▶ counted                           │  │  │  │
//	└──────┬──────┘                                              │  │  │  │
//	┌──────▼──────┐  id lives in the set; too late a revision    │  │  │  │
//	│   dedupe    ├──────────────────────────────────────────────┘  │  │  │
//	└──────┬──────┘                                                 │  │  │
//	┌──────▼──────┐  ahead of the log's timestamp                   │  │  │
//	│    skew     ├─────────────────────────────────────────────────┘  │  │
//	└──────┬──────┘                                                    │  │
//	┌──────▼──────┐  older than the watermark W                        │  │
//	│  watermark  ├────────────────────────────────────────────────────┘  │
//	└──────┬──────┘                                                       │
//	┌──────▼──────┐  a first delivery that is a revision (a note)         │
//	│   accept    ├───────────────────────────────────────────────────────┘
//	└──────┬──────┘
//	┌──────▼──────┐
//	│   reorder   │  waits until W > event time; a revision takes its place
//	└──────┬──────┘
//	┌──────▼──────┐
//	│ clock, keys │  (event time, id) order; the operators of its key
//	└──────┬──────┘
//	       ▼ row
//
// The first verdict that holds is the record's, and it is counted there alone:
//
//	verdict     condition                                        counted    set aside as             id kept  moves W  input active
//	tombstone   no value                                         Omitted    TOMBSTONE                no       no       no
//	unreadable  not strict JSON, or a field is not what it must  Omitted    UNREADABLE               no       no       no
//	filtered    readable, not selected by the flow               Filtered   -                        no       no       no
//	overflow    its key is held, and no more may wait            Omitted    HELD_OVERFLOW            no       no       no
//	duplicate   its id lives in the set                          Duplicates see Machine.revise if    as is    no       yes
//	                                                                        its revision is > 0
//	future      event time > log's timestamp + max skew          Future     FUTURE                   no       no       no
//	late        event time < W                                   Late       LATE                     yes      no       yes
//	accepted    otherwise                                        Consumed   REVISED (a note) if its  yes      yes      yes
//	                                                                        revision is > 0
//
// A late record's id is kept only if it lies within the dedupe horizon, and its sequence number fills a gap, which may move W. An id
// that the horizon has passed is unknown: the record is late then, each time it comes. A record that takes no part does not wake an
// idle input, but the polls are not "answered empty" while records come.
//
// In a flow with hold_key an accepted record whose key is held waits for the record that holds it, see hold.go, and only then for the watermark.
//
// The key is the text of the flow's key field. Where the log's own key differs from it, the field wins: the log's key only chose the
// partition. A producer that lets the two disagree spreads a key over partitions, and each then has a state of its own.
//
// # The states of a machine
//
//	                     ┌──────────── Deliver, EmptyPoll, IdleConfirmed, CloseGap
//	                     ▼          │
//	  New ─────────▶ ┌────────┐ ────┘   EndOfSource   ┌──────────┐
//	  Restore ─────▶ │  OPEN  │ ────────────────────▶ │ FINISHED │ ◀─┐ EndOfSource (nothing more)
//	                 └────────┘                       └──────────┘ ──┘
//	                     │ limit reached, or the            │ any other event
//	                     │ caller broke the protocol        │
//	                     ▼                                  ▼
//	                 ┌──────────────────────────────────────────┐
//	                 │ FAILED: Step gives the same error again, │
//	                 │ there is no cut; restore the last one    │
//	                 └──────────────────────────────────────────┘
//
//	event                               OPEN                                  FINISHED  FAILED
//	Deliver                             rows, verdicts, position              INTERNAL  the error
//	EndOfSource                         everything is released; FINISHED      -         the error
//	IdleConfirmed, EmptyPoll, CloseGap  a decision, where it changes a thing  INTERNAL  the error
//	Reinstate, Discard                  a decision, and what follows from it  INTERNAL  the error
//	Seam                                a decision, the position              INTERNAL  the error
//	BeginHistory                        HISTORY, when nothing came before     INTERNAL  the error
//	Cut                                 a delta                               a delta   panic
//
// While OPEN the input has a status of its own, see package watermark.
//
// HISTORY is an OPEN that takes nothing but Backfill, which gives rows and verdicts and leaves the position alone, and Seam, which ends it.
// RestoreHistory brings it back, Restore refuses it: what a batch took in by half is never continued by the log.
//
// # The parts
//
//	extract.go         value → id, key, event time, selection, revision, sequence, inputs
//	dedupe*.go         the set of event ids, bounded by event time
//	reorder*.go        what waits for the watermark; arena.go its ids
//	keys.go, grid.go   the operators of each key; the regular clock
//	revise.go          what becomes of a revision; recompute.go how results are made again; past.go what is kept behind W for it, revisions.go what the reorder buffer knows of it
//	step_*.go          events → verdicts; release.go rows
//	quarantine*.go     what was set aside, and its replay; hold.go keys that wait for it
//	seam.go            a history, and the seam to the log that continues it
//	cut.go, restore.go state → deltas → state; ledger.go the account of the blobs
package partitions
