// Package sqlite keeps the control plane in one SQLite file: the embedded default, for one machine. It needs nothing installed and no cgo.
//
// # What is promised, and by what
//
//   - A commit that was acknowledged survives a kill and a power cut. Journal mode is WAL with synchronous=FULL: the transaction's pages
//     are appended to the file PATH-wal and synced before Commit returns. (NORMAL would be several times faster for tiny commits, and a
//     power cut could then take back epochs that were acknowledged. A commit is one second's work by default, so its price is small.)
//     The disk must honour a sync; network file systems are not supported, since WAL needs shared memory.
//   - A commit is all or nothing: one transaction, BEGIN IMMEDIATE to COMMIT, that starts with a compare-and-set on the run's epoch.
//   - A damaged file is noticed. Every row carries a CRC-32C of its contents, checked whenever it is read, and the rows that belong to a
//     partition are counted; so whatever a broken disk changes, what is read is what was written or JOURNAL_CORRUPT.
//   - An error of Commit other than a refusal is "unknown". It may be certain that nothing stands (the disk was full, the context was
//     cancelled before COMMIT) but it need not be: when the sync of a COMMIT fails, the pages are in the file and may be found there
//     after a restart. OpenRun tells.
//
// # Connections
//
// One connection writes, so that commits of one process never wait for each other in SQLite's lock. Any number read, each from a
// snapshot of its own; in WAL mode readers and the writer do not wait for each other. Another process's writer is waited for, for
// BusyTimeout; SQLite has no queue for its lock, so beside writers that never pause that may take seconds on a loaded machine, and whoever keeps a
// lease should be prepared to try a heartbeat again. Two processes on one run are told apart by the compare-and-set.
//
// # Leases and effects
//
// The lock of the file is the lock of every lease: a write transaction takes it before it reads a lease, and until its COMMIT nobody else takes
// over, renews or publishes. The clock is that of the machine, which every process that can open the file shares; it is read after the lock is
// held, so an effect that waited until its term had ended does not run. Times are integers. Two things differ from a database server. A
// heartbeat waits for the transaction that another one is committing, effects of the same lease too; with transactions of milliseconds and a
// ttl of seconds it does not matter. And nobody ends the transaction of a process that is stopped in its middle: others wait for BusyTimeout, are
// told STORE_UNAVAILABLE, and go on when it was continued or killed; nothing is taken over meanwhile, so what it commits late is still under
// its own valid fence. A holder whose heartbeat was told so tries it again until its own deadline: BusyTimeout should be at most a third of the ttl.
// The file can be opened and read meanwhile.
//
// # Owned runs, checkpoints, forks
//
// Under a lease, OpenRun and Commit read the lease in their own transaction: one look-up more than without. A snapshot is a read transaction, beside
// which commits go on; PATH-wal cannot be moved into the file before it ends, so it grows by what is committed meanwhile. Digests of state blobs are
// kept when they are committed and stand before the data in their rows, so a snapshot lists them without reading any state. A fork copies results
// row by row, each with a sum of its own, in one transaction: about 100 MB a second, for which every other writer of the file waits. Fork a large run
// while no other run of the same file has a short lease.
//
// # The file
//
// It is created with mode 0600, in a folder that must exist: a folder that is missing is rather a misspelt path than a wish. Beside it
// SQLite keeps PATH-wal and PATH-shm while it is open, with the same mode. Copy the three together, or use SQLite's own backup.
// The file must not be opened by other code of the same process: closing it there would drop SQLite's locks.
//
// The table schema_version says which migrations were applied. They only go forward, each in one transaction; a file of a newer version
// is refused, untouched. So is a SQLite file of another program.
package sqlite
