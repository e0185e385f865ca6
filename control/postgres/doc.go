// Package postgres keeps the control plane in PostgreSQL 14 or later (it is tested with 15), shared by several machines.
//
// # What is promised, and by what
//
//   - Time is the server's. Leases are compared by clock_timestamp() after their row is locked, so neither a wait, nor a client's clock, nor
//     a session's time zone changes a verdict.
//   - An effect holds FOR KEY SHARE on the lease row. A heartbeat changes no key column and never waits for it; a take-over changes the
//     fence token, which is a key column, and does. Several effects may run under one lease at once.
//   - Fenced is one statement, the change itself for an effect that stands alone, else a function: lock, verify, effects, commit. Everything arrives before anything is locked, so a client that is
//     stopped or cut off while it sends holds up nobody. More than BulkRows publications are copied before the lease is locked, verified
//     and the transaction committed; nothing of them can be seen until then.
//   - A commit under a lease (Under) holds and verifies it in its first round trip, beside the run's row, and writes and commits in its second.
//     The run remembers the highest token: after the leases of the store have gone back nobody writes to it.
//   - Everybody locks the lease's row before any other. Snapshots and pointers wait for no commit, and no commit for them.
//   - Server-side time-outs of at most half a term bound how long a client that stops in the middle of a transaction, or queues for a lock,
//     can be in the way. They are set on every connection, and verified; so is synchronous_commit. What they do not see, a client that stops in
//     the middle of a message, is ended by the next owner.
//   - A write whose answer is lost is unknown, not failed: StoreUnavailable, which is not a refusal. A deadlock or a serialisation failure
//     has certainly left nothing and is tried again, a bounded number of times.
//
// # Roles
//
// The migrations make three roles without a login: weir_owner has the schema, weir_runtime what the code needs, weir_reader the views. Give
// your logins one of the two latter: GRANT weir_runtime TO app. The schema is changed only by Migrate, never by Open.
//
// Connect directly, or through a pooler in session mode: settings and prepared statements belong to the session.
package postgres
