package control

import (
	"bytes"
	"strconv"
	"strings"
	"time"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/record"
)

// Bounds of requests and listings.
const (
	// MaxRequestName is the longest principal, operation or idempotency key, in bytes; MaxBody the largest body.
	MaxRequestName = 200
	MaxBody        = 1 << 20
	// DefaultPage and MaxPage bound a page of runs and a batch of claims.
	DefaultPage = 50
	MaxPage     = 500
)

// Validate checks a request by itself. It fails with RequestInvalid.
func (r Request) Validate() error {
	for _, p := range [...][2]string{{"principal", r.Principal}, {"operation", r.Operation}, {"idempotency key", r.Key}} {
		if bad := badText(p[1], MaxRequestName); bad != "" {
			return codes.New(codes.RequestInvalid, "the %s %.40q cannot be used: %s", p[0], p[1], bad)
		}
	}
	for _, p := range [...][2]string{{"flow", r.Flow}, {"snapshot", r.Snapshot}} {
		if bad := badText(p[1], MaxRequestName); p[1] != "" && bad != "" {
			return codes.New(codes.RequestInvalid, "the %s %.40q cannot be used: %s", p[0], p[1], bad)
		}
	}
	if len(r.Body) > MaxBody {
		return codes.New(codes.RequestInvalid, "the body has %d bytes, at most %d are possible", len(r.Body), MaxBody)
	}
	canonical, err := record.Canonical(r.Body)
	if err != nil {
		return codes.New(codes.RequestInvalid, "the body is not JSON: %w", err)
	}
	if !bytes.Equal(canonical, r.Body) {
		return codes.New(codes.RequestInvalid, "the body is not canonical JSON")
	}
	return nil
}

// CheckAdmitted is the rule of a scope that was claimed before: IdempotencyConflict when stands, the run id it was claimed for, is not that of
// the request, that is, when the body differs.
func CheckAdmitted(stands string, r Request) error {
	if stands != RunIDOf(r) {
		return codes.New(codes.IdempotencyConflict, "the idempotency key %q of %q was used with another body, for run %s", r.Key, r.Operation, stands)
	}
	return nil
}

// NewRun is the run that a request makes, created at a moment of the store's clock.
func NewRun(r Request, now time.Time) BatchRun {
	return BatchRun{ID: RunIDOf(r), Principal: r.Principal, Operation: r.Operation, Body: bytes.Clone(r.Body), Flow: r.Flow, Snapshot: r.Snapshot,
		Phase: Queued, Created: now, Updated: now}
}

// PageSize is how many runs a page has at most.
func (f RunFilter) PageSize() int { return pageSize(f.Limit) }

// ClaimSize is how many events a claim takes at most, when limit was asked for.
func ClaimSize(limit int) int { return pageSize(limit) }

func pageSize(limit int) int {
	if limit < 1 {
		return DefaultPage
	}
	return min(limit, MaxPage)
}

// ParseCursor reads the cursor of a listing: a number above those of the page's runs, the largest there is for the first page. It fails with
// RequestInvalid.
func ParseCursor(s string) (int64, error) {
	if s == "" {
		return 1<<63 - 1, nil
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n < 1 || strings.HasPrefix(s, "+") {
		return 0, codes.New(codes.RequestInvalid, "the cursor %.40q is not one that a listing gave", s)
	}
	return n, nil
}

// CheckClaimant refuses with Internal a claimant that cannot be used.
func CheckClaimant(claimant string) error { return checkNames("the claimant", claimant) }

// NotClaimed is the refusal EventNotClaimed for events that a claimant ("" is anyone) does not hold.
func NotClaimed(claimant string, ids []int64) error {
	by := "anyone"
	if claimant != "" {
		by = strconv.Quote(claimant)
	}
	if len(ids) == 1 {
		return codes.New(codes.EventNotClaimed, "outbox event %d is not claimed by %s", ids[0], by)
	}
	shown := ids[:min(len(ids), 10)]
	return codes.New(codes.EventNotClaimed, "%d outbox events are not claimed by %s: %v", len(ids), by, shown)
}
