package sourcetest

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/weirstream/weir/record"
	"github.com/weirstream/weir/sources"
)

// defects are sources with one fault each, and the tests of the suite that must find it.
var defects = map[string]struct {
	found []string
	spoil func(*broken, []record.Batch) []record.Batch
}{
	"loses a record": {[]string{"order and limits", "pause storm", "held batches stay whole"}, func(_ *broken, bs []record.Batch) []record.Batch {
		for i := range bs {
			if n := len(bs[i].Records); n > 3 {
				bs[i].Records = append(bs[i].Records[:2:2], bs[i].Records[3:]...)
			}
		}
		return bs
	}},
	"swaps two records": {[]string{"order and limits"}, func(_ *broken, bs []record.Batch) []record.Batch {
		for i := range bs {
			if r := bs[i].Records; len(r) > 1 {
				r[0], r[1] = r[1], r[0]
			}
		}
		return bs
	}},
	"turns nil into empty": {[]string{"nil and empty"}, func(_ *broken, bs []record.Batch) []record.Batch {
		for i := range bs {
			for j := range bs[i].Records {
				if bs[i].Records[j].Value == nil {
					bs[i].Records[j].Value = []byte{}
				}
			}
		}
		return bs
	}},
	"drops the headers": {[]string{"headers and arrival"}, func(_ *broken, bs []record.Batch) []record.Batch {
		for i := range bs {
			for j := range bs[i].Records {
				bs[i].Records[j].Headers = nil
			}
		}
		return bs
	}},
	"hides moves without records": {[]string{"holes"}, func(_ *broken, bs []record.Batch) []record.Batch {
		kept := bs[:0]
		for _, b := range bs {
			if len(b.Records) > 0 {
				kept = append(kept, b)
			}
		}
		return kept
	}},
	"reuses the memory of a batch that is out": {[]string{"held batches stay whole", "released memory is not in use"}, func(r *broken, bs []record.Batch) []record.Batch {
		for _, rec := range r.last {
			copy(rec.Value, bytes.Repeat([]byte("!"), len(rec.Value)))
		}
		r.last = nil
		for _, b := range bs {
			r.last = append(r.last, b.Records...)
		}
		return bs
	}},
	"ignores pause":     {[]string{"pause and resume", "pause storm"}, nil},
	"ignores the start": {[]string{"exact start"}, nil},
	"forgets to close":  {[]string{"close"}, nil},
}

// broken is a Log with a defect.
type broken struct {
	sources.Reader
	log    *Log
	defect string
	last   []record.Record
}

type brokenSource struct {
	*Log
	defect string
}

func (s brokenSource) Open(ctx context.Context, from map[int32]record.Position) (sources.Reader, error) {
	if s.defect == "ignores the start" {
		for p := range from {
			from[p] = record.Position{}
		}
	}
	r, err := s.Log.Open(ctx, from)
	if err != nil {
		return nil, err
	}
	return &broken{Reader: r, log: s.Log, defect: s.defect}, nil
}

func (r *broken) Poll(ctx context.Context, limit int) ([]record.Batch, error) {
	bs, err := r.Reader.Poll(ctx, limit)
	if spoil := defects[r.defect].spoil; spoil != nil {
		bs = spoil(r, bs)
	}
	return bs, err
}

func (r *broken) Pause(p ...int32) {
	if r.defect != "ignores pause" {
		r.Reader.Pause(p...)
	}
}

func (r *broken) Close() error {
	if r.defect != "forgets to close" {
		return r.Reader.Close()
	}
	return nil
}

const defectEnv = "WEIR_TEST_SOURCE_DEFECT"

// TestBrokenLog runs the suite on a source with a defect, in the process that TestTheSuiteFindsDefects starts; on its own it runs it on
// the same source without one.
func TestBrokenLog(t *testing.T) {
	defect := os.Getenv(defectEnv)
	h := Harness{
		New: func(_ testing.TB, parts [][]record.Record) Target {
			target := logTarget(Config{MaxWait: time.Millisecond}, parts)
			target.Source = brokenSource{target.Source.(*Log), defect}
			return target
		},
		Tombstones: true,
		Headers:    true,
	}
	if defect != "" {
		h.Patience = time.Second // what is lost does not come
	}
	Run(t, h)
}

// The suite is worth what it finds: each defect must turn every test named for it red.
func TestTheSuiteFindsDefects(t *testing.T) {
	t.Parallel()
	for defect, want := range defects {
		for _, test := range want.found {
			t.Run(defect+"/"+test, func(t *testing.T) {
				t.Parallel()
				name := strings.ReplaceAll(test, " ", "_")
				cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestBrokenLog$/^"+name+"$", "-test.v")
				cmd.Env = append(os.Environ(), defectEnv+"="+defect)
				if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), "--- FAIL: TestBrokenLog/"+name) {
					t.Errorf("the suite does not find it: %v\n%s", err, out)
				}
			})
		}
	}
}
