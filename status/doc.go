// Package status says what a run is doing: a Snapshot is everything known about it at one moment, and Why puts in words what holds it, since when,
// and what would release it.
//
// Both are values and pure functions of values: the process that runs feeds a board (status/board), a command without a process reads the
// store, and `weir status`, `weir why`, /readyz and /metrics all tell the same Snapshot.
//
// # Where the time of a partition goes
//
// A partition is in exactly one State at any moment, so that the seconds in all states add up to the time it has been watched. The first that
// holds, from above:
//
//	STOPPED, FINISHED   the run, or the partition's input, has ended
//	STANDBY             another owner holds the lease
//	BLOCKED             recovery is blocked, or this partition is
//	BACKOFF             the run waits after a failure
//	STARTING            the last cut is restored, or an incarnation ends
//	WAITS_FOR_COMMIT    results wait for the journal, and nothing more is handed out until they are there
//	PAUSED              we do not read the source: pressure, or a bound on event time
//	WAITS_FOR_CREDIT    records were read and wait until others are processed
//	PROCESSING          records are being processed
//	IDLE                the input is confirmed idle; it is asked for records all the same
//	READING             the source is asked, and has not answered
package status
