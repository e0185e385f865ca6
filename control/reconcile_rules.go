package control

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// Kinds of Damage, in the order in which they are reported.
const (
	ClaimedUndelivered = "CLAIMED_UNDELIVERED"
	RunningOrphan      = "RUNNING_ORPHAN"
	QueuedDelivered    = "QUEUED_DELIVERED"
	PublicationDigest  = "PUBLICATION_DIGEST"
	ResultMissing      = "RESULT_MISSING"
)

var damageOrder = []string{ClaimedUndelivered, RunningOrphan, QueuedDelivered, PublicationDigest, ResultMissing}

// Standing is what decides about one run: all of it is read in one transaction.
type Standing struct {
	RunID string
	// Phase is "" when there is an event without a run.
	Phase RunPhase
	// Lease is the run's, Token 0 when there is none; Event is nil when there is none.
	Lease LeaseRow
	Event *OutboxEvent
}

// Diagnose is the rule of orphans and abandoned claims. ok is false when nothing is wrong. A run with a valid lease is never wrong: its
// owner is at work. staleClaims is the age from which a claim without a lease counts as abandoned, since a worker claims several events
// and takes the lease of one after the other.
func (s Standing) Diagnose(now time.Time, staleClaims time.Duration) (d Damage, ok bool) {
	if s.Lease.Valid(now) {
		return d, false
	}
	d = Damage{RunID: s.RunID}
	if s.Event != nil {
		d.EventID = s.Event.ID
	}
	switch e := s.Event; {
	case s.Phase == Running:
		d.Kind, d.Detail = RunningOrphan, "it is RUNNING and nobody holds its lease"
	case s.Phase == Queued && e == nil:
		d.Kind, d.Detail = QueuedDelivered, "it is QUEUED and has no event"
	case s.Phase == Queued && e.Delivered:
		d.Kind, d.Detail = QueuedDelivered, "it is QUEUED and its event is delivered"
	case e != nil && !e.Delivered && e.Claimant != "" && now.Sub(e.ClaimedAt) >= staleClaims:
		d.Kind, d.Detail = ClaimedUndelivered, fmt.Sprintf("its event is claimed by %q since %s and nobody holds its lease", e.Claimant, e.ClaimedAt.UTC().Format(time.RFC3339))
	default:
		return Damage{}, false
	}
	return d, true
}

// DigestDamage reports a publication whose value does not have its digest.
func DigestDamage(runID, key, stored, has string) Damage {
	return Damage{Kind: PublicationDigest, RunID: runID, Key: key, Detail: fmt.Sprintf("its digest is %s and its value has %s", stored, has)}
}

// MissingDamage reports a SUCCEEDED run whose result is not published.
func MissingDamage(runID string) Damage {
	return Damage{Kind: ResultMissing, RunID: runID, Key: ResultKey(runID), Detail: "it SUCCEEDED and its result is not published"}
}

// SortDamages orders damages by kind, run id and key.
func SortDamages(ds []Damage) {
	slices.SortStableFunc(ds, func(a, b Damage) int {
		return cmp.Or(slices.Index(damageOrder, a.Kind)-slices.Index(damageOrder, b.Kind), cmp.Compare(a.RunID, b.RunID), cmp.Compare(a.Key, b.Key))
	})
}
