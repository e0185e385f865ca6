package sim

import (
	"hash/fnv"
	"math/rand/v2"

	"github.com/weirstream/weir/actors"
	"github.com/weirstream/weir/internal/sim/invariant"
)

// The kinds of fault. Over all seeds of a test each of them has to take place; strikes at failpoints come on top, see Kinds.
const (
	stallShort  = "stall/shorter than the ttl"
	stallLong   = "stall/longer than the ttl"
	stallInside = "stall/inside a transaction"
	killed      = "kill/at any time"
	interrupted = "interrupt"
	intruder    = "intruder"
	outage      = "store/outage"
	slowStore   = "store/slow"
	clockJump   = "clock/the store's jumps"
	clockDrift  = "clock/the store's is fast or slow"
	clockSkew   = "clock/an owner's is off"
	lateArrival = "network/arrives after its sender has gone"
	// failsMeanwhile: a process fails while a commit of it is under way.
	failsMeanwhile = "error/while a commit is under way"
	slowRestore    = "restore/slow blobs"
	slowBlobs      = "blobs/slow"
	failedBlobs    = "blobs/error"
	sourceError    = "source/error"
	groupError     = "group/error"
	twins          = "twins: two processes with one owner id"
)

// lostAnswer and lostRequest are by the operation.
func lostAnswer(op string) string  { return "lost answer/" + op }
func lostRequest(op string) string { return "lost request/" + op }

// The operations of a store as faults know them.
const (
	opOpen    = "open"
	opCommit  = "commit"
	opLoad    = "load"
	opAcquire = "acquire"
	opRenew   = "renew"
	opRelease = "release"
	opPointer = "pointer"
	opRead    = "read"
)

// Strikes at failpoints.
const (
	strikeCrash = "crash"
	strikePanic = "panic"
	strikeError = "error"
	strikeStop  = "stop"
)

// Kinds are all kinds of fault that have to take place.
func Kinds() []string {
	kinds := []string{stallShort, stallLong, stallInside, killed, interrupted, intruder, outage, slowStore, clockJump, clockDrift, clockSkew,
		lateArrival, failsMeanwhile, slowRestore, slowBlobs, failedBlobs, sourceError, groupError, twins}
	for _, op := range []string{opOpen, opCommit, opAcquire, opRenew, opPointer} {
		kinds = append(kinds, lostAnswer(op), lostRequest(op))
	}
	for _, p := range actors.Failpoints() {
		for _, how := range []string{strikeCrash, strikePanic, strikeError, strikeStop} {
			kinds = append(kinds, how+"/"+string(p))
		}
	}
	return kinds
}

// Count adds the faults of a history, by kind.
func Count(entries []invariant.Entry, into map[string]int) {
	for _, e := range entries {
		if f, ok := e.Event.(invariant.Injected); ok {
			into[f.Kind]++
		}
	}
}

// draw makes a source of chance for one thing of one seed, independent of all others and of the order in which they are asked.
func draw(seed uint64, what string, n int) *rand.Rand {
	h := fnv.New64a()
	h.Write([]byte(what))
	return rand.New(rand.NewPCG(seed, h.Sum64()+uint64(n)*0x9e3779b97f4a7c15))
}
