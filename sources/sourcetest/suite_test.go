package sourcetest

import (
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/weirstream/weir/record"
)

// logTarget puts a Log under the suite.
func logTarget(cfg Config, parts [][]record.Record) Target {
	cfg.Partitions = int32(len(parts))
	l := New(cfg)
	for p, recs := range parts {
		l.Append(int32(p), recs...)
	}
	t := Target{
		Source:   l,
		Skip:     func(_ testing.TB, p int32) { l.Skip(p, 3) },
		End:      func(_ testing.TB, p int32) record.Position { return l.End(p) },
		Truncate: func(_ testing.TB, p int32, before record.Position) { l.Truncate(p, before) },
		Recreate: func(testing.TB) { l.Recreate("another") },
		Fail:     func(testing.TB) { l.FailAt(1, record.Offset(50), errors.New("failed on purpose")) },
	}
	if !cfg.Bounded {
		t.Append = func(_ testing.TB, p int32, recs ...record.Record) { l.Append(p, recs...) }
	}
	return t
}

func TestLog(t *testing.T) {
	t.Parallel()
	for name, make := range map[string]func() Config{
		"endless": func() Config { return Config{MaxWait: time.Millisecond} },
		"bounded": func() Config { return Config{Bounded: true} },
		"cut":     func() Config { return Config{MaxWait: time.Millisecond, Fetch: 5} },
		"random":  func() Config { return Config{Bounded: true, Rand: rand.New(rand.NewPCG(7, 7))} },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			Run(t, Harness{
				New:          func(_ testing.TB, parts [][]record.Record) Target { return logTarget(make(), parts) },
				Tombstones:   true,
				EmptyValues:  true,
				NilKeys:      true,
				Headers:      true,
				ArrivalUnit:  1,
				EmptyAnswers: !make().Bounded,
			})
		})
	}
}
