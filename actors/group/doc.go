// Package group spreads a run over several processes: each partition is a run of its own (RunID), with its own lease, journal row, checkpoints
// and engine, in whichever process an Assigner gives it to.
//
//	Assigner ── Assigned, Revoked, Lost ──▶ Member ──▶ actors.Run of RUN/0
//	(a consumer group, leases)                    └──▶ actors.Run of RUN/3 …
//
// # What holds, whatever the assigner says
//
// Who may write the results of a partition is decided by its lease, in the transaction of each write. Two members that both believe that they
// have a partition do work in vain, and publish nothing twice. Where reading goes on is decided by the journal's row of the partition.
//
// # How a partition moves
//
// Revoked: its engine takes nothing more in, processes what it has, commits it and gives the lease back; then Revoked returns, and the assigner
// gives the partition to another member, whose engine finds the lease free, restores the cut and reads on. A partition that does not drain within
// Config.Drain is stopped without a cut; the next owner goes on from the one before. Partitions that do not move are not touched.
//
// Lost: the engine is stopped without a cut, since another member may have the partition already; that one waits for the lease.
//
// Nothing of a partition is read, processed or written by this process once Revoked or Lost has returned.
//
// # When something fails
//
// The engine starts again by itself after most failures. When it gives up, or its lease is lost, the member starts a new one after a pause, for
// as long as the partition is assigned to it. The others are not affected.
//
// # Event time
//
// Each partition has its own watermark, since lateness is a matter of one partition. How far event time is closed over all of them is Merged: the
// minimum over the rows of the journal, whoever works on them.
package group
