package actors

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/weirstream/weir/partitions"
)

// revisedInput is randomInput with a revision of a recent event behind every fourth record: within the lateness, and behind the watermark.
func revisedInput(t *testing.T, seed uint64, parts, n int) input {
	rng := seeded(t, seed)
	in := randomInput(rng, parts, n)
	for p, recs := range in {
		out := in[p][:0:0]
		for i, r := range recs {
			out = append(out, r)
			again := recs[max(0, i-rng.IntN(20))]
			if i%4 > 0 || !bytes.HasSuffix(again.Value, []byte("}")) {
				continue
			}
			head, _, _ := bytes.Cut(again.Value, []byte(`,"close":`))
			_, tail, _ := bytes.Cut(again.Value, []byte(`,"volume":`))
			tail = tail[:bytes.LastIndexByte(tail, ':')]
			again.Value = fmt.Appendf(nil, `%s,"close":%d.5,"volume":%s:%d}`, head, i, tail, 2+i%3)
			out = append(out, again)
		}
		in[p] = out
	}
	return in
}

// TestFailuresAmongRevisions: whatever fails, a run publishes again what an undisturbed one does, and nothing twice.
func TestFailuresAmongRevisions(t *testing.T) {
	t.Parallel()
	for name, src := range map[string]string{
		"event": strings.NewReplacer("lateness: 20s", "lateness: 5s", "sequence: {field: seq, gap_hold: 1m}\n", "").Replace(wideFlow) + "revisions: {horizon: 1m}\n",
		"grid":  strings.NewReplacer("every: 30s", "every: 5s", "lateness: 20s", "lateness: 5s").Replace(gridFlow) + "revision: revision\nrevisions: {horizon: 1m}\n",
	} {
		plan := parse(t, src)
		in := revisedInput(t, 11, 2, 90)
		want := plainLoop(t, plan, in, 7)
		if again := publishedAgain(t, plan.Outputs, want); again < 10 {
			t.Fatalf("%s: %d rows are published again", name, again)
		}
		for _, point := range Failpoints() {
			t.Run(name+"/"+string(point), func(t *testing.T) {
				t.Parallel()
				step, n := 2, 1
				if point == OnMessage {
					step = 23
				}
				for hit := true; hit; n += step {
					synctest.Test(t, func(t *testing.T) {
						r := newRig(t, plan, in, small)
						hooks, seen := every(point, n, func(context.Context) error { return errBoom })
						r.cfg.Hooks = hooks
						r.finish(want)
						hit = *seen >= n
					})
				}
				if n <= 1+step {
					t.Errorf("the failpoint was passed %d times only", n-1)
				}
			})
		}
	}
}

func publishedAgain[T any](t *testing.T, outputs []T, p *published) (n int) {
	t.Helper()
	var row partitions.Row
	for _, data := range p.rows {
		for len(data) > 0 {
			var err error
			if data, err = partitions.DecodeRow(data, len(outputs), &row); err != nil {
				t.Fatal(err)
			}
			if row.Values[len(outputs)-1].F > 0 {
				n++
			}
		}
	}
	return n
}
