package sources

import "context"

// Assigner decides which partitions of a log this process works on, together with other processes: a consumer group, or a fair share of
// leases. It says who should read a partition. Who may write its results is decided by the lease of that partition, whatever an Assigner
// says, so that two members which both believe that they have one do no harm.
type Assigner interface {
	// Run joins, tells h what this member gets and loses until ctx ends, and leaves. Before it returns, for whatever reason, it has called
	// Revoked or Lost for everything that was Assigned; at the end of ctx that is Revoked, and others get the partitions only after it. It
	// returns nil when ctx has ended and it has left. Errors: what keeps this process from ever being a member (access denied, a log that
	// is missing at the start). A coordinator that does not answer for a while is no error: it is waited for.
	Run(ctx context.Context, h Handler) error
}

// Handler is told by an Assigner. Calls for different partitions may overlap; those for one partition come one after the other. A call of
// Assigned for what is assigned already, and of Revoked or Lost for what is not, changes nothing.
type Handler interface {
	// Assigned begins to work on partitions. It returns at once.
	Assigned(partitions []int32)
	// Revoked drains partitions, commits what was processed and gives their leases back, all side by side. It returns when nothing of
	// them is read, processed or written any more. When ctx ends, what has not drained is stopped without a commit.
	Revoked(ctx context.Context, partitions []int32)
	// Lost stops partitions at once, without a commit: others may have them already. It returns when they have stopped.
	Lost(partitions []int32)
}
