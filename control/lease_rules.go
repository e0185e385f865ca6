package control

import (
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/weirstream/weir/codes"
)

// Bounds of leases.
const (
	// MaxName is the longest name of a lease, owner, claimant or publication key, in bytes.
	MaxName = 400
	// MinTTL and MaxTTL bound a term. PostgreSQL keeps microseconds, and nobody should wait a day for a dead owner.
	MinTTL = time.Millisecond
	MaxTTL = 24 * time.Hour
)

// badText says what is wrong with a name, or "".
func badText(s string, most int) string {
	switch {
	case s == "":
		return "it is empty"
	case len(s) > most:
		return fmt.Sprintf("it has %d bytes, at most %d are possible", len(s), most)
	case !utf8.ValidString(s):
		return "it is not UTF-8"
	case strings.ContainsFunc(s, unicode.IsControl):
		return "it has a control character"
	}
	return ""
}

// checkNames refuses with Internal what no caller may ask: pairs of what a name is for and the name.
func checkNames(pairs ...string) error {
	for i := 0; i < len(pairs); i += 2 {
		if bad := badText(pairs[i+1], MaxName); bad != "" {
			return codes.New(codes.Internal, "%s %.40q cannot be used: %s", pairs[i], pairs[i+1], bad)
		}
	}
	return nil
}

// CheckAcquire checks what Acquire is asked for by itself: Internal for a name that cannot be used, ConfigInvalid for a ttl out of range.
func CheckAcquire(name, owner string, ttl time.Duration) error {
	if err := checkNames("the lease name", name, "the owner", owner); err != nil {
		return err
	}
	return checkTTL(name, ttl)
}

// CheckRenew checks what Renew is asked for by itself, as CheckAcquire does.
func CheckRenew(l Lease) error { return checkTTL(l.Name, l.TTL) }

func checkTTL(name string, ttl time.Duration) error {
	if ttl < MinTTL || ttl > MaxTTL {
		return codes.New(codes.ConfigInvalid, "lease %q: a time to live of %s is not between %s and %s", name, ttl, MinTTL, MaxTTL)
	}
	return nil
}

// LeaseRow is a lease as a store keeps it. Token 0 is no row.
type LeaseRow struct {
	Name, Owner string
	Token       FenceToken
	Until       time.Time
}

// Valid says whether the term lasts at a moment of the store's clock: strictly before its end.
func (r LeaseRow) Valid(now time.Time) bool { return r.Token > 0 && now.Before(r.Until) }

// Info is the row in a listing.
func (r LeaseRow) Info(now time.Time) LeaseInfo {
	return LeaseInfo{Name: r.Name, Owner: r.Owner, Token: r.Token, Until: r.Until, Valid: r.Valid(now)}
}

// Acquired is the table of Leases: the row after an acquisition, or LeaseHeld. now is read from the store's clock while the row is locked.
func (r LeaseRow) Acquired(name, owner string, now time.Time, ttl time.Duration) (LeaseRow, error) {
	next := LeaseRow{Name: name, Owner: owner, Token: r.Token, Until: now.Add(ttl)}
	switch valid := r.Valid(now); {
	case !valid:
		next.Token++
	case r.Owner != owner:
		return r, Held(r)
	}
	return next, nil
}

// Held is the refusal LeaseHeld, which names the holder and the expiry.
func Held(r LeaseRow) error {
	return codes.New(codes.LeaseHeld, "lease %q is held by %q until %s under token %d", r.Name, r.Owner, r.Until.UTC().Format(time.RFC3339Nano), r.Token)
}

// CheckHolder is the fence: nil while a lease is held as its holder believes, else StaleFence, which says why. now is read from the
// store's clock while the row is locked.
func (r LeaseRow) CheckHolder(l Lease, now time.Time) error {
	stale := func(format string, args ...any) error {
		return codes.New(codes.StaleFence, "lease %q of %q under token %d: %s", l.Name, l.Owner, l.Token, fmt.Sprintf(format, args...))
	}
	switch {
	case r.Token == 0:
		return stale("there is no such lease")
	case r.Token != l.Token || r.Owner != l.Owner:
		return stale("%q has it under token %d", r.Owner, r.Token)
	case !r.Valid(now):
		return stale("it expired or was released")
	}
	return nil
}

// Granted is what the holder of a row knows. sent is when the call was sent, on the holder's clock with its monotonic reading.
func (r LeaseRow) Granted(sent time.Time, ttl time.Duration) Lease {
	return Lease{Name: r.Name, Owner: r.Owner, Token: r.Token, Until: r.Until, Deadline: sent.Add(ttl), TTL: ttl}
}
