package sim

import (
	"fmt"
	"math/rand/v2"
	"regexp"
	"strings"

	"github.com/weirstream/weir/record"
)

var (
	closeOf    = regexp.MustCompile(`"close":[^,]*,`)
	revisionOf = regexp.MustCompile(`"revision":([0-9]+)\}`)
	deliveryOf = regexp.MustCompile(`"delivery":"([^"#]*)#[^"]*"`)
)

// revise makes some flows take revisions in behind the watermark, published again or not, and puts into their logs revisions of events that came up to
// a minute before: within the lateness, behind the watermark, and beyond the horizon.
func (s *Scenario) revise(rng *rand.Rand) {
	if strings.Contains(s.Flow, "select:") || rng.IntN(3) > 0 {
		return
	}
	s.Flow = strings.Replace(s.Flow, "dedupe:", fmt.Sprintf("revisions: {horizon: %ds, publish: %v}\ndedupe:", 5+rng.IntN(90), rng.IntN(3) > 0), 1)
	if !strings.Contains(s.Flow, "revision: revision\n") {
		s.Flow = strings.Replace(s.Flow, "dedupe:", "revision: revision\ndedupe:", 1)
	}
	for p := range int32(len(s.Log)) {
		var log []record.Record
		for i, r := range s.Log[p] {
			at, _ := r.Position.Int64()
			r.Position = record.Offset(at + int64(len(log)-i)) // behind those that were put in
			log = append(log, r)
			if rng.IntN(5) > 0 {
				continue
			}
			if again, ok := revisionOfOne(rng, log, i); ok {
				again.Arrival = r.Arrival
				again.Position = r.Position.Next()
				log = append(log, again)
			}
		}
		s.Log[p] = log
	}
}

// revisionOfOne is a higher revision of one of the last events of a log.
func revisionOfOne(rng *rand.Rand, log []record.Record, n int) (record.Record, bool) {
	r := log[max(0, len(log)-1-rng.IntN(60))]
	value := string(r.Value)
	if !revisionOf.MatchString(value) || !closeOf.MatchString(value) || !deliveryOf.MatchString(value) {
		return r, false
	}
	value = closeOf.ReplaceAllString(value, fmt.Sprintf(`"close":%d.5,`, rng.IntN(100)))
	value = deliveryOf.ReplaceAllString(value, fmt.Sprintf(`"delivery":"${1}#r%d"`, n))
	value = revisionOf.ReplaceAllString(value, fmt.Sprintf(`"revision":%d}`, 1+rng.IntN(4)))
	r.Value = []byte(value)
	return r, true
}
