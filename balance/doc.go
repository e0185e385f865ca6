// Package balance deals the partitions of a log to the processes that work on it, by leases in the store: a fair share each, without a
// coordinator. It is an Assigner for logs whose service has no groups, such as Kinesis.
//
//	b, err := balance.New(balance.Config{Run: "ticks", Leases: store, Units: lineage.Units})
//	member, err := group.New(group.Config{Run: "ticks", Assigner: b, Engine: engine})
//	err = member.Run(ctx)
//
// # Leases
//
//	members/RUN/MEMBER   held by each member while it lives: how many there are
//	claims/RUN/N         held by the member that should work on partition N
//	wishes/RUN/N         held by the member that asks its holder to hand partition N over
//
// All of them only say who should work. Who may write the results of a partition is decided by the lease of its own run, which its engine
// takes. So a claim that is wrong for a moment costs work and nothing else.
//
// # A look, every third of the ttl
//
// A member renews what it has, in a goroutine that does nothing else, so that a handler that burns every core does not cost a claim; what cannot be renewed before
// its deadline is lost, and its engine stopped. Then it looks at all leases, and does what decide says:
//
//   - the fair share is the number of partitions over the number of members, rounded up;
//   - below its share it claims what nobody holds (never held, given back, or expired), lowest number first;
//   - when there is nothing free and another member has at least two more than it, it wishes for one of that member's, one at a time, and only
//     after it has been short for two looks in a row;
//   - a member that sees a wish for what it holds, and has more than its share would leave it short of, drains that one partition and
//     gives the claim back; it serves one wish at a time.
//
// With those rules shares differ by at most one, and nothing that is dealt so moves again: whoever is one short never has a partner with two more.
//
// Partitions come and go (shards are split and merged): Units says which there are to work on now, and what is no longer among them is let go.
package balance
