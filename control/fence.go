package control

import "github.com/weirstream/weir/codes"

// StreamLease is the name of the lease of a stream run.
func StreamLease(runID string) string { return "stream/" + runID }

// Fencer is what a journal offers to an owner of runs.
type Fencer interface {
	// Under returns the journal as the holder of a lease sees it: OpenRun and Commit run while the lease row is locked against take-over
	// and after owner, token and expiry were verified by the store's clock, in the same transaction; a stale owner gets StaleFence and
	// nothing runs. CheckFence then has the last word. Reading is as on the journal itself. Closing the view does nothing. A run is written
	// under its own lease only (CheckUnder), since tokens of different leases cannot be compared.
	Under(l Lease) Journal
}

// CheckUnder refuses with Internal a run that would be written under another lease than its own (StreamLease).
func CheckUnder(runID string, l Lease) error {
	if err := checkRunID(runID); err != nil {
		return err
	}
	if l.Name != StreamLease(runID) {
		return codes.New(codes.Internal, "run %q would be written under the lease %q instead of its own", runID, l.Name)
	}
	return nil
}

// CheckFence compares the token under which a run was written last with the one of who writes now; 0 is none. It comes after the lease was
// verified.
//
//   - A run that was ever written under a lease is never written without one again: StaleFence.
//   - A valid lease with a lower token than the run has seen means that the leases of the store have gone back, by a fail-over or a restored
//     backup: FenceRegression. Nothing may be written until a person has looked.
func CheckFence(runID string, stored, token FenceToken) error {
	switch {
	case token >= stored:
		return nil
	case token == 0:
		return codes.New(codes.StaleFence, "run %q is written under a lease (token %d so far); whoever writes to it has to hold it", runID, stored)
	}
	return codes.New(codes.FenceRegression, "run %q was written under token %d, and the store has given out token %d after it: the store's leases have gone back", runID, stored, token)
}
