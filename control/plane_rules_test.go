package control_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/control"
)

// wantRunID was made by another program.
const wantRunID = "run_8cec5f47d20b8f7be61cc4e2ab377b2a41011780ff65001761625ad65b80260e"

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// The table of leases, each row at its edges.
func TestAcquired(t *testing.T) {
	t.Parallel()
	mine := control.LeaseRow{Name: "job", Owner: "me", Token: 7, Until: noon.Add(time.Second)}
	theirs := mine
	theirs.Owner = "you"
	for _, c := range []struct {
		what  string
		row   control.LeaseRow
		now   time.Time
		token control.FenceToken
		code  *codes.Code
	}{
		{"none", control.LeaseRow{}, noon, 1, nil},
		{"valid, another owner", theirs, noon, 7, codes.LeaseHeld},
		{"valid to the last nanosecond", theirs, noon.Add(time.Second - 1), 7, codes.LeaseHeld},
		{"valid, mine", mine, noon, 7, nil},
		{"expired, another's", theirs, noon.Add(time.Second), 8, nil},
		{"expired, mine", mine, noon.Add(time.Second), 8, nil},
		{"released", control.LeaseRow{Name: "job", Owner: "you", Token: 7}, noon, 8, nil},
	} {
		next, err := c.row.Acquired("job", "me", c.now, time.Minute)
		if codes.Of(err) != c.code || next.Token != c.token {
			t.Errorf("%s: %+v, %v", c.what, next, err)
		}
		if err != nil {
			if next != c.row || !control.Refused(err) || !strings.Contains(err.Error(), `"you"`) {
				t.Errorf("%s: %+v, %v", c.what, next, err)
			}
			continue
		}
		want := control.LeaseRow{Name: "job", Owner: "me", Token: c.token, Until: c.now.Add(time.Minute)}
		if next != want {
			t.Errorf("%s: %+v, want %+v", c.what, next, want)
		}
		if err := next.CheckHolder(next.Granted(noon, time.Minute), c.now); err != nil {
			t.Errorf("%s: the holder is not the holder: %v", c.what, err)
		}
	}
}

func TestCheckHolder(t *testing.T) {
	t.Parallel()
	row := control.LeaseRow{Name: "job", Owner: "me", Token: 7, Until: noon.Add(time.Second)}
	holder := row.Granted(noon, time.Second)
	if holder.Deadline != noon.Add(time.Second) || holder.Until != row.Until || holder.TTL != time.Second {
		t.Errorf("granted: %+v", holder)
	}
	if err := row.CheckHolder(holder, noon.Add(time.Second-1)); err != nil {
		t.Error(err)
	}
	older, other := holder, holder
	older.Token--
	other.Owner = "you"
	for what, err := range map[string]error{
		"expired":  row.CheckHolder(holder, noon.Add(time.Second)),
		"older":    row.CheckHolder(older, noon),
		"other":    row.CheckHolder(other, noon),
		"none":     control.LeaseRow{}.CheckHolder(holder, noon),
		"token 0":  control.LeaseRow{}.CheckHolder(control.Lease{}, noon),
		"released": control.LeaseRow{Name: "job", Owner: "me", Token: 7}.CheckHolder(holder, noon),
	} {
		if !codes.Has(err, codes.StaleFence) || !control.Refused(err) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// Whatever happens to a lease, its token never goes down, and it grows exactly at the take-overs.
func TestTokenOnlyGrows(t *testing.T) {
	t.Parallel()
	const seed = 3
	rng := rand.New(rand.NewPCG(seed, 0))
	row, now := control.LeaseRow{}, noon
	for i := range 2000 {
		now = now.Add(time.Duration(rng.Int64N(int64(time.Second))) - 100*time.Millisecond) // clocks go back
		before := row
		next, err := row.Acquired("job", fmt.Sprint(rng.IntN(3)), now, time.Duration(1+rng.Int64N(int64(time.Second))))
		if taken := err == nil && next.Token == before.Token+1; next.Token < before.Token || next.Token > before.Token+1 || taken == before.Valid(now) && err == nil {
			t.Fatalf("seed %d, step %d: %+v after %+v (%v)", seed, i, next, before, err)
		}
		if row = next; rng.IntN(5) == 0 {
			row.Until = time.Time{}
		}
	}
}

func TestCheckAcquire(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, owner string
		ttl         time.Duration
		code        *codes.Code
	}{
		{"job", "me", time.Second, nil},
		{strings.Repeat("n", control.MaxName), "me", control.MinTTL, nil},
		{"job", "me", control.MaxTTL, nil},
		{"", "me", time.Second, codes.Internal},
		{"job", "", time.Second, codes.Internal},
		{"job\x7f", "me", time.Second, codes.Internal},
		{"job", "\xc3", time.Second, codes.Internal},
		{strings.Repeat("n", control.MaxName+1), "me", time.Second, codes.Internal},
		{"job", "me", 0, codes.ConfigInvalid},
		{"job", "me", math.MaxInt64, codes.ConfigInvalid},
		{"job", "me", math.MinInt64, codes.ConfigInvalid},
	} {
		if err := control.CheckAcquire(c.name, c.owner, c.ttl); codes.Of(err) != c.code {
			t.Errorf("%+v: %v", c, err)
		}
	}
	if err := control.CheckRenew(control.Lease{Name: "job"}); !codes.Has(err, codes.ConfigInvalid) {
		t.Errorf("a renewal without a ttl: %v", err)
	}
}

func TestStartedAndFinish(t *testing.T) {
	t.Parallel()
	for _, phase := range []control.RunPhase{control.Queued, control.Running, control.Succeeded, control.Failed, control.Cancelled} {
		for _, cancel := range []bool{false, true} {
			next, err := control.Started("run_1", phase, cancel)
			want := map[bool]control.RunPhase{false: control.Running, true: control.Cancelled}[cancel]
			if phase == control.Queued && (err != nil || next != want) || phase != control.Queued && (!codes.Has(err, codes.RunNotQueued) || !control.Refused(err)) {
				t.Errorf("start of %s, cancelled %t: %s, %v", phase, cancel, next, err)
			}
		}
		if err := control.CheckFinish("run_1", phase); (err == nil) != (phase == control.Running) || err != nil && (!codes.Has(err, codes.RunNotRunning) || !control.Refused(err)) {
			t.Errorf("finish of %s: %v", phase, err)
		}
	}
}

func TestRunError(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{"": "", "plain\n": "plain\n", "a\x00b": "a\ufffdb", "a\xffb": "a\ufffdb", strings.Repeat("x", control.MaxRunError): strings.Repeat("x", control.MaxRunError)} {
		if got := control.RunError(in); got != want {
			t.Errorf("%.20q became %.20q", in, got)
		}
	}
	for pad := range 4 {
		got := control.RunError(strings.Repeat("x", pad) + strings.Repeat("🔑", control.MaxRunError))
		if !utf8.ValidString(got) || len(got) > control.MaxRunError || len(got) < control.MaxRunError-6 || !strings.HasSuffix(got, "…") || strings.ContainsRune(got, utf8.RuneError) {
			t.Errorf("cut to %d bytes, ending in %q", len(got), got[len(got)-8:])
		}
	}
}

func TestRunIDOf(t *testing.T) {
	t.Parallel()
	r := control.Request{Principal: "a", Operation: "b", Key: "c", Body: []byte(`{}`)}
	if got := control.RunIDOf(r); got != wantRunID {
		t.Errorf("got %s", got)
	}
	for _, other := range []control.Request{{Principal: "b", Operation: "b", Key: "c", Body: r.Body}, {Principal: "a", Operation: "b", Key: "c", Body: []byte(`{"a":1}`)}, {Principal: "ab", Operation: "", Key: "c", Body: r.Body}} {
		if control.RunIDOf(other) == wantRunID {
			t.Errorf("%+v has the same id", other)
		}
	}
	same := r
	same.Flow, same.Snapshot = "x", "y" // repeated from the body for listings
	if control.RunIDOf(same) != wantRunID {
		t.Error("the flow is part of the id")
	}
	if err := control.CheckAdmitted(wantRunID, r); err != nil {
		t.Error(err)
	}
	if err := control.CheckAdmitted("run_0", r); !codes.Has(err, codes.IdempotencyConflict) || !control.Refused(err) {
		t.Errorf("another run: %v", err)
	}
}

func TestParseCursorAndPages(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]int64{"": math.MaxInt64, "1": 1, "9223372036854775807": math.MaxInt64} {
		if got, err := control.ParseCursor(in); err != nil || got != want {
			t.Errorf("%q: %d, %v", in, got, err)
		}
	}
	for _, in := range []string{"0", "-1", "+1", " 1", "1 ", "x", "0x1", "1e3", "9223372036854775808"} {
		if got, err := control.ParseCursor(in); !codes.Has(err, codes.RequestInvalid) {
			t.Errorf("%q: %d, %v", in, got, err)
		}
	}
	for limit, want := range map[int]int{math.MinInt: 50, 0: 50, 1: 1, 500: 500, 501: 500, math.MaxInt: 500} {
		if got := (control.RunFilter{Limit: limit}).PageSize(); got != want || control.ClaimSize(limit) != want {
			t.Errorf("limit %d: %d", limit, got)
		}
	}
}

func TestDiagnose(t *testing.T) {
	t.Parallel()
	valid := control.LeaseRow{Token: 1, Until: noon.Add(1)}
	event := func(claimant string, age time.Duration, delivered bool) *control.OutboxEvent {
		return &control.OutboxEvent{ID: 9, Claimant: claimant, ClaimedAt: noon.Add(-age), Delivered: delivered}
	}
	for _, c := range []struct {
		what string
		st   control.Standing
		kind string
	}{
		{"running, held", control.Standing{Phase: control.Running, Lease: valid}, ""},
		{"queued and delivered, held", control.Standing{Phase: control.Queued, Lease: valid, Event: event("a", 0, true)}, ""},
		{"claimed long ago, held", control.Standing{Phase: control.Queued, Lease: valid, Event: event("a", time.Hour, false)}, ""},
		{"running, none", control.Standing{Phase: control.Running, Event: event("a", 0, false)}, control.RunningOrphan},
		{"running, expired", control.Standing{Phase: control.Running, Lease: control.LeaseRow{Token: 1, Until: noon}}, control.RunningOrphan},
		{"queued", control.Standing{Phase: control.Queued, Event: event("", 0, false)}, ""},
		{"queued and delivered", control.Standing{Phase: control.Queued, Event: event("a", 0, true)}, control.QueuedDelivered},
		{"queued without an event", control.Standing{Phase: control.Queued}, control.QueuedDelivered},
		{"claimed just before the age", control.Standing{Phase: control.Queued, Event: event("a", time.Minute-1, false)}, ""},
		{"claimed at the age", control.Standing{Phase: control.Queued, Event: event("a", time.Minute, false)}, control.ClaimedUndelivered},
		{"ended and claimed", control.Standing{Phase: control.Succeeded, Event: event("a", time.Hour, false)}, control.ClaimedUndelivered},
		{"ended and delivered", control.Standing{Phase: control.Succeeded, Event: event("a", time.Hour, true)}, ""},
		{"ended without an event", control.Standing{Phase: control.Failed}, ""},
		{"an event without a run", control.Standing{Event: event("a", time.Hour, false)}, control.ClaimedUndelivered},
	} {
		c.st.RunID = "run_1"
		d, ok := c.st.Diagnose(noon, time.Minute)
		if ok != (c.kind != "") || d.Kind != c.kind || ok && (d.RunID != "run_1" || d.Detail == "" || d.Repaired) {
			t.Errorf("%s: %+v, %t", c.what, d, ok)
		}
		if ok && c.st.Event != nil && d.EventID != 9 {
			t.Errorf("%s: event %d", c.what, d.EventID)
		}
	}
}

func TestSortDamages(t *testing.T) {
	t.Parallel()
	want := []control.Damage{{Kind: control.ClaimedUndelivered, RunID: "b"}, {Kind: control.RunningOrphan, RunID: "a"}, {Kind: control.RunningOrphan, RunID: "b"}, {Kind: control.QueuedDelivered, RunID: "a"},
		control.DigestDamage("a", "k1", "x", "y"), control.DigestDamage("a", "k2", "x", "y"), control.MissingDamage("a")}
	got := []control.Damage{want[6], want[5], want[2], want[4], want[0], want[3], want[1]}
	if control.SortDamages(got); !reflect.DeepEqual(got, want) {
		t.Errorf("%+v", got)
	}
}

func TestCheckEffectsConflict(t *testing.T) {
	t.Parallel()
	l := control.Lease{Name: control.RunLease("run_1")}
	pub := func(key, value string) control.Publish {
		return control.Publish{Publications: []control.Publication{{Key: key, Value: []byte(value)}}}
	}
	// Also over several effects of a call.
	if err := control.CheckEffects(l, []control.Effect{pub("a", "1"), pub("b", "2"), pub("a", "1")}); err != nil {
		t.Error(err)
	}
	if err := control.CheckEffects(l, []control.Effect{pub("a", "1"), control.Deliver{}, pub("a", "2")}); !codes.Has(err, codes.PublicationConflict) || !control.Refused(err) {
		t.Errorf("got %v", err)
	}
	if err := control.CheckEffects(l, []control.Effect{control.StartRun{RunID: "run_1"}, control.FinishRun{RunID: "run_1", Phase: control.Failed}}); err != nil {
		t.Error(err)
	}
}

func TestNewOwnerIsNew(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for range 100 {
		owner := control.NewOwner()
		if seen[owner] || control.CheckAcquire("job", owner, time.Second) != nil {
			t.Fatalf("owner %q", owner)
		}
		seen[owner] = true
	}
}
