package batch_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/weirstream/weir/batch"
	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/flow"
	"github.com/weirstream/weir/partitions"
	"github.com/weirstream/weir/record"
	"github.com/weirstream/weir/sinks/emit"
	"github.com/weirstream/weir/sources"
	"github.com/weirstream/weir/sources/snapshot"
	"github.com/weirstream/weir/sources/sourcetest"
)

const flowText = `
flow: weir/1
name: test
id: id
key: key
time: {field: t, unit: s}
lateness: 3s
operators:
  - {name: mean, type: sma, input: x, period: 2, gap: hold}
outputs: [mean]
limits: {ids: 10000, keys: 100, reorder: 10000, ticks: 1000}
`

func plan(t *testing.T) *flow.Plan {
	t.Helper()
	p, err := flow.Parse("test.yaml", []byte(flowText), nil)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func event(id, key string, at int, x string) record.Record {
	return record.Record{Key: []byte(key), Arrival: record.NoTime, Value: fmt.Appendf(nil, `{"id":%q,"key":%q,"t":%d,"x":%s}`, id, key, at, x)}
}

// random deals events with some disorder to the partitions of a log, each key to one.
func random(rng *rand.Rand, cfg sourcetest.Config, n int) *sourcetest.Log {
	log := sourcetest.New(cfg)
	for i := range n {
		key := fmt.Sprint(rng.IntN(5))
		r := event(fmt.Sprintf("e%03d", i), key, i/3+rng.IntN(3), fmt.Sprint(rng.IntN(100)))
		log.Append(record.PartitionOf([]byte(key), cfg.Partitions), r)
	}
	return log
}

func run(t *testing.T, cfg batch.Config) emit.Doc {
	t.Helper()
	cfg.Plan = plan(t)
	d, err := batch.Run(context.Background(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// TestPartitionsAndCutsDoNotMatter: while disorder stays within the lateness, the rows are the same however the log is dealt and cut.
func TestPartitionsAndCutsDoNotMatter(t *testing.T) {
	t.Parallel()
	for seed := range uint64(20) {
		var want emit.Doc
		for i, partitions := range []int32{1, 2, 3, 7} {
			log := random(rand.New(rand.NewPCG(seed, 0)), sourcetest.Config{Partitions: partitions, Bounded: true, Rand: rand.New(rand.NewPCG(seed, 1))}, 200)
			got := run(t, batch.Config{Source: log, Mode: emit.ModeReplay, Fetch: 1 + i*13})
			if i == 0 {
				want = got
				if want.Rows != 200 || want.Counts.Late != 0 {
					t.Fatalf("seed %d: %d rows, %+v", seed, want.Rows, want.Counts)
				}
				continue
			}
			if got.ValuesHash != want.ValuesHash || !reflect.DeepEqual(got.Events, want.Events) || got.Counts != want.Counts {
				t.Errorf("seed %d, %d partitions: %s %+v, want %s %+v", seed, partitions, got.ValuesHash, got.Counts, want.ValuesHash, want.Counts)
			}
		}
	}
}

// TestEmitFileEqualsTheAnswer: the document on disk is the one returned, with one partition and with several.
func TestEmitFileEqualsTheAnswer(t *testing.T) {
	t.Parallel()
	for _, partitions := range []int32{1, 4} {
		path := filepath.Join(t.TempDir(), "out.json")
		log := random(rand.New(rand.NewPCG(9, 9)), sourcetest.Config{Partitions: partitions, Bounded: true}, 100)
		d := run(t, batch.Config{Source: log, Mode: emit.ModeReplay, Emit: path})
		file, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		want, err := record.AppendJSON(nil, d.Document(true))
		if err != nil || string(file) != string(want)+"\n" {
			t.Errorf("%d partitions: %v\n%s\n%s", partitions, err, file, want)
		}
		if left, _ := os.ReadDir(filepath.Dir(path)); len(left) != 1 {
			t.Errorf("left behind: %v", left)
		}
	}
}

// TestASourceThatFailsForAWhile goes on where it was.
func TestASourceThatFailsForAWhile(t *testing.T) {
	t.Parallel()
	steady := run(t, batch.Config{Source: random(rand.New(rand.NewPCG(3, 3)), sourcetest.Config{Partitions: 2, Bounded: true}, 50), Mode: emit.ModeReplay, Fetch: 4})
	log := random(rand.New(rand.NewPCG(3, 3)), sourcetest.Config{Partitions: 2, Bounded: true}, 50)
	failure := codes.New(codes.SourceFailure, "gone for a while")
	log.FailAt(0, record.Offset(3), failure)
	log.FailAt(1, record.Offset(7), failure)
	got := run(t, batch.Config{Source: log, Mode: emit.ModeReplay, Fetch: 4})
	if got.ValuesHash != steady.ValuesHash || got.Counts != steady.Counts {
		t.Errorf("%+v, want %+v", got.Counts, steady.Counts)
	}
	if log.Opened() < 3 {
		t.Errorf("opened %d times: the failures did not come", log.Opened())
	}
}

func TestFailuresEndTheRun(t *testing.T) {
	t.Parallel()
	fatal := errors.New("broken for good")
	interrupted, cancel := context.WithCancel(context.Background())
	cancel()
	for _, c := range []struct {
		name string
		ctx  context.Context
		log  func() *sourcetest.Log
		want func(error) bool
	}{
		{"an error without a verdict", context.Background(), func() *sourcetest.Log {
			l := sourcetest.New(sourcetest.Config{Bounded: true})
			l.Append(0, event("a", "1", 1, "1"))
			l.FailAt(0, record.Offset(0), fatal)
			return l
		}, func(err error) bool { return errors.Is(err, fatal) }},
		{"a source without an end", context.Background(), func() *sourcetest.Log { return sourcetest.New(sourcetest.Config{}) },
			func(err error) bool { return codes.Has(err, codes.ConfigInvalid) }},
		{"an interruption", interrupted, func() *sourcetest.Log { return sourcetest.New(sourcetest.Config{Bounded: true}) },
			func(err error) bool { return errors.Is(err, context.Canceled) }},
		{"a row that cannot be read", context.Background(), func() *sourcetest.Log {
			l := sourcetest.New(sourcetest.Config{Bounded: true})
			l.Append(0, event("a", "1", 1, "1"), event("b", "1", 2, `"two"`))
			return l
		}, func(err error) bool {
			return codes.Has(err, codes.SnapshotInvalid) && strings.Contains(err.Error(), "record 1 ")
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			_, err := batch.Run(c.ctx, batch.Config{Plan: plan(t), Source: c.log(), Mode: emit.ModeBatch, Emit: filepath.Join(dir, "out.json")})
			if err == nil || !c.want(err) {
				t.Errorf("%v", err)
			}
			if left, _ := os.ReadDir(dir); len(left) != 0 {
				t.Errorf("left behind: %v", left)
			}
		})
	}
}

// TestABatchNamesTheLine of a record that the flow cannot take, wherever event time order put it; without a source that can tell, its
// number.
func TestABatchNamesTheLine(t *testing.T) {
	t.Parallel()
	for name, content := range map[string]string{
		"rows.csv":   "id,key,t,x\na,1,5,1\n\nb,1,3,word\nc,1,4,2\n",
		"rows.jsonl": `{"id":"a","key":"1","t":5,"x":1}` + "\n" + `{"id":"c","key":"1","t":4,"x":2}` + "\n\n" + `{"id":"b","key":"1","t":3,"x":"word"}` + "\n",
	} {
		path := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		p := plan(t)
		_, err := batch.Run(t.Context(), batch.Config{Plan: p, Source: snapshot.New(snapshot.Config{Path: path, Fields: snapshot.FieldsOf(p)}), Mode: emit.ModeBatch})
		if !codes.Has(err, codes.SnapshotInvalid) || !strings.Contains(err.Error(), path+":4: UNREADABLE: ") || strings.Contains(err.Error(), "counted from 0") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestAReplaySetsAside what a batch fails at, and reports it.
func TestAReplaySetsAside(t *testing.T) {
	t.Parallel()
	l := sourcetest.New(sourcetest.Config{Bounded: true})
	l.Append(0, event("a", "1", 1, "1"), record.Record{Key: []byte("1")}, event("b", "1", 20, "2"), event("c", "1", 2, "3"), event("a", "1", 1, "1"))
	var reasons []string
	d := run(t, batch.Config{Source: l, Mode: emit.ModeReplay, Quarantine: func(q partitions.Quarantined) error {
		reasons = append(reasons, q.Reason+"@"+q.Position.String())
		return nil
	}})
	if want := []string{"TOMBSTONE@1", "LATE@3"}; !reflect.DeepEqual(reasons, want) {
		t.Errorf("set aside %v, want %v", reasons, want)
	}
	c := d.Counts
	if c.Consumed != 2 || c.Omitted != 1 || c.Late != 1 || c.Duplicates != 1 {
		t.Errorf("%+v", c)
	}
}

// TestAnIdleWaitEndsWithTheContext: a run does not hang in a source that has nothing and no end yet.
func TestAnIdleWaitEndsWithTheContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
	defer cancel()
	l := sourcetest.New(sourcetest.Config{})
	_, err := batch.Run(ctx, batch.Config{Plan: plan(t), Source: bounded{l}, Mode: emit.ModeReplay})
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v", err)
	}
}

// bounded is a log that says it has an end and does not come to it.
type bounded struct{ *sourcetest.Log }

func (b bounded) Info(ctx context.Context) (sources.Info, error) {
	info, err := b.Log.Info(ctx)
	info.Bounded = true
	return info, err
}
