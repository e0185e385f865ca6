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
	// BlindRetry: a commit of which nothing is known is sent again as the next epoch, without asking what stands.
	BlindRetry Mutant = "blind retry"
	// SameToken: a take-over leaves the token as it was.
	SameToken Mutant = "same token"
	// Flipped: one bit of what is restored is another than was cut.
	Flipped Mutant = "flipped bit"
	// Deaf: the log does not hear that a partition is paused.
	Deaf Mutant = "deaf log"
	// Leaky: the log leaves a record out now and then, and goes on behind it.
	Leaky Mutant = "leaky log"
	// Wide: a partition has more credit than its bound says.
	Wide Mutant = "wide window"
	// Ahead: the merged watermark is ahead of the slowest partition.
	Ahead Mutant = "watermark ahead"
	// Beyond: the log is opened beyond what the state holds.
	Beyond Mutant = "opened beyond"
	// JournalFirst: the journal advances in one transaction, and the results follow in another.
	JournalFirst Mutant = "journal before output"
)
