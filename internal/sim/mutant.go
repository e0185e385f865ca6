package sim

// Mutant is a defect that is put into the world on purpose: a negative control, which shows that its checker sees what it is there for.
type Mutant string

// The mutants.
const (
	// Sound is none.
	Sound Mutant = ""
	// FenceOff: the store writes whatever it is asked, under any lease.
	FenceOff Mutant = "fence off"
	// FrozenClock: a lease is judged by the time at which the call began, not by that after the wait for its turn.
	FrozenClock Mutant = "frozen clock"
	// DedupeOff: the identity of an event is that of its delivery.
	DedupeOff Mutant = "dedupe off"
	// PointerFirst: a checkpoint becomes visible before its blobs are written.
	PointerFirst Mutant = "pointer before blob"
	// JournalFirst: the journal advances in one transaction, and the results follow in another.
	JournalFirst Mutant = "journal before output"
)
