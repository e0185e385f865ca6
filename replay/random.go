package replay

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"math"
	"math/bits"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/record"
	"github.com/weirstream/weir/sources/logfile"
	"github.com/weirstream/weir/sources/snapshot"
)

// Rates are the shares of events that have a fault of each kind, from 0 to 1. The kinds are drawn one by one, so that an event may
// have several.
type Rates struct {
	Duplicate, Delay, Gap, Revision, Pause, Burst, SourceFailure float64
	// MinDelay and MaxDelay bound the delay of DELAY and REVISION, in event time; 0 means 100 ms and 2 minutes. A delay is a whole
	// number of milliseconds and at least one. Each doubling from the one to the other is as likely as the next, so that some of the
	// disorder stays within a flow's lateness and some does not.
	MinDelay, MaxDelay time.Duration
}

// What a random schedule draws besides: the wall time of a PAUSE and of a SOURCE_FAILURE, the count of a BURST, and how many steps of
// 0.25 (floats) or 1 (integers) a revised value lies beside the event's own.
const (
	leastDelay = 100 * time.Millisecond
	mostDelay  = 2 * time.Minute
	mostWait   = 300 * time.Millisecond
	mostBurst  = 5
	mostSteps  = 8
)

// streams of the generator, so that what one draws does not change what another does.
const (
	faultStream uint64 = iota + 1
	priceStream
)

// RandomSchedule draws a schedule for a snapshot. The same snapshot, seed and rates give the same schedule. A revision changes one
// number of its event. Errors carry codes.ConfigInvalid (each rate that is out of range), codes.FileMissing or codes.SnapshotInvalid.
func RandomSchedule(ctx context.Context, snapshotPath string, fields snapshot.Fields, seed uint64, rates Rates) (*Schedule, error) {
	draw, err := newFaultDraw(seed, rates)
	if err != nil {
		return nil, err
	}
	source := openSnapshot(snapshotPath, fields)
	fields = source.Fields()
	rows, err := source.Rows(ctx)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	s := &Schedule{Seed: seed}
	faulty := map[string]struct{}{}
	var row snapshot.Row
	for {
		if err := rows.Next(&row); err == io.EOF {
			return s, nil
		} else if err != nil {
			return nil, err
		}
		first := len(s.Faults)
		s.Faults = draw.faults(s.Faults)
		if len(s.Faults) == first {
			continue
		}
		id := string(row.ID)
		if _, twice := faulty[id]; twice { // an event may have only one fault of a kind
			s.Faults = s.Faults[:first]
			continue
		}
		faulty[id] = struct{}{}
		for i := first; i < len(s.Faults); i++ {
			f := &s.Faults[i]
			if f.EventID = id; f.Kind == logfile.Revision {
				f.Values = draw.values(row.Value, fields)
			}
		}
	}
}

// faultDraw draws the faults of one event after the other.
type faultDraw struct {
	rng    *rand.Rand
	shares [8]float64 // by kind
	// least and most bound the delays, in milliseconds, and doublings counts the steps from the one to the other.
	least, most int64
	doublings   int
}

func newFaultDraw(seed uint64, r Rates) (*faultDraw, error) {
	var problems []string
	d := &faultDraw{rng: rand.New(rand.NewPCG(seed, faultStream))}
	for _, one := range []struct {
		name  string
		kind  logfile.Kind
		share float64
	}{
		{"duplicate", logfile.Duplicate, r.Duplicate}, {"delay", logfile.Delay, r.Delay}, {"gap", logfile.Gap, r.Gap},
		{"revision", logfile.Revision, r.Revision}, {"pause", logfile.Pause, r.Pause}, {"burst", logfile.Burst, r.Burst},
		{"source failure", logfile.SourceFailure, r.SourceFailure},
	} {
		d.shares[one.kind] = one.share
		problems = checkShare(problems, "the rate of "+one.name, one.share)
	}
	longest := cmp.Or(r.MaxDelay, mostDelay)
	shortest := cmp.Or(r.MinDelay, min(leastDelay, longest))
	if longest < 0 {
		problems = append(problems, fmt.Sprintf("the longest delay must not be negative: %v", longest))
	} else if shortest < 0 || shortest > longest {
		problems = append(problems, fmt.Sprintf("the shortest delay must be between 0 and the longest, %v: %v", longest, shortest))
	}
	if problems != nil {
		return nil, codes.New(codes.ConfigInvalid, "%s", strings.Join(problems, "; "))
	}
	d.least = max(1, shortest.Milliseconds())
	d.most = max(d.least, longest.Milliseconds())
	d.doublings = bits.Len64(uint64(d.most / d.least))
	return d, nil
}

func checkShare(problems []string, name string, share float64) []string {
	if share >= 0 && share <= 1 {
		return problems
	}
	return append(problems, fmt.Sprintf("%s must be between 0 and 1, not %v", name, share))
}

// faults appends the faults of the next event, without its id and values.
func (d *faultDraw) faults(dst []Fault) []Fault {
	for kind, share := range d.shares {
		if share == 0 || d.rng.Float64() >= share {
			continue
		}
		f := Fault{Kind: logfile.Kind(kind)}
		switch f.Kind {
		case logfile.Delay, logfile.Revision:
			f.Delay = d.delay()
		case logfile.Pause, logfile.SourceFailure:
			f.Wait = time.Duration(1+d.rng.Int64N(mostWait.Milliseconds())) * time.Millisecond
		case logfile.Burst:
			f.Count = 1 + d.rng.Int64N(mostBurst)
		}
		dst = append(dst, f)
	}
	return dst
}

// delay draws a delay. It takes no logarithm, which platforms round differently.
func (d *faultDraw) delay() time.Duration {
	from := d.least << d.rng.IntN(d.doublings)
	to := min(d.most, 2*from-1)
	return time.Duration(from+d.rng.Int64N(to-from+1)) * time.Millisecond
}

// values draws what a revision changes: one of the event's numbers, beside id, key, time and revision number.
func (d *faultDraw) values(value []byte, fields snapshot.Fields) map[string]any {
	canonical, err := appendValue(nil, value)
	if err != nil {
		return nil // Build says what is wrong with it
	}
	decoded, _ := record.Decode(canonical)
	doc, _ := decoded.(map[string]any)
	var names []string
	for name, v := range doc {
		if isMember(name) || name == fields.ID || name == fields.Key || name == fields.Time || name == revisionField(fields) {
			continue
		}
		if checkValue(name, v) == "" {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return nil
	}
	slices.Sort(names)
	name := names[d.rng.IntN(len(names))]
	steps := int64(1 + d.rng.IntN(mostSteps))
	if d.rng.IntN(2) == 0 {
		steps = -steps
	}
	switch v := doc[name].(type) {
	case float64:
		if changed := v + float64(steps)/4; changed-changed == 0 {
			return map[string]any{name: changed}
		}
	case record.Integer:
		if n, err := strconv.ParseInt(string(v), 10, 64); err == nil && n < math.MaxInt64-mostSteps && n > math.MinInt64+mostSteps {
			return map[string]any{name: record.Integer(strconv.FormatInt(n+steps, 10))}
		}
	}
	return nil
}
