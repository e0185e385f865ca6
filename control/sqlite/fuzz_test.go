package sqlite

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/weirstream/weir/control"
	"github.com/weirstream/weir/control/controltest"
	"github.com/weirstream/weir/partitions"
	"github.com/weirstream/weir/record"
)

// FuzzBytes commits whatever bytes there are in every place that takes bytes, and compares what comes back with the journal in memory.
func FuzzBytes(f *testing.F) {
	f.Add("", []byte(nil), "", []byte(nil), []byte(nil), int64(0), uint8(0))
	f.Add("a\x00b", []byte{0, 1, 255}, "\xff\xfe", []byte{}, []byte("null"), int64(-1), uint8(3))
	f.Add("'; DROP TABLE runs; --", []byte("🜁"), "detail\n", []byte("k"), []byte{0}, int64(1)<<62, uint8(255))
	pair := &fuzzPair{dir: f.TempDir()}
	f.Cleanup(func() {
		if pair.s != nil {
			_ = pair.s.Close()
		}
	})
	f.Fuzz(func(t *testing.T, name string, data []byte, text string, key, value []byte, n int64, parts uint8) {
		epoch := pair.next(t)
		s, m, h := pair.s, pair.m, small.Header()
		c := control.Commit{RunID: h.RunID, Epoch: epoch, Status: control.RunOpen, Watermark: record.NoTime, Partitions: []control.PartitionCommit{{
			Cut:        partitions.Cut{Partition: 1, Watermark: record.NoTime, Finished: n%2 == 0, Counts: partitions.Counts{Records: n}, Put: []partitions.StateBlob{{Name: name, Data: data}, {Name: text, Data: value}}},
			Quarantine: []partitions.Quarantined{{Partition: 1, Reason: name, Detail: text, EventID: name + text, EventTime: record.EventTime(n), Key: key, Value: value}},
			Decisions:  []partitions.Decision{{Partition: 1, Kind: text, Detail: name}},
		}}}
		if n >= 0 {
			c.Partitions[0].Quarantine[0].Position = record.Offset(n)
		}
		if parts%3 == 0 {
			c.Partitions[0].Cut.Delete = []string{text, "never there"}
		}
		if len(data) > 0 {
			c.Partitions[0].Rows = partitions.Rows{Data: data, Count: int(parts) + 1, First: record.EventTime(n), Last: record.EventTime(-n)}
		}
		for _, j := range []control.Journal{m, s} {
			if err := j.Commit(t.Context(), c); err != nil {
				t.Fatalf("%T: %v", j, err)
			}
		}
		want, err := controltest.Read(t.Context(), m, h)
		if err != nil {
			t.Fatal(err)
		}
		got, err := controltest.Read(t.Context(), s, h)
		if err != nil {
			t.Fatal(err)
		}
		if d := controltest.Diff(want, got); d != "" {
			t.Error(d)
		}
	})
}

// fuzzPair is a store and the model beside it. They are made anew after some epochs, so that reading everything back stays quick.
type fuzzPair struct {
	dir   string
	files int
	s     *Store
	m     *controltest.Memory
	epoch uint64
}

func (p *fuzzPair) next(t *testing.T) uint64 {
	if p.epoch%20 == 0 {
		if p.s != nil {
			_ = p.s.Close()
		}
		p.files++
		s, err := Open(t.Context(), Config{Path: filepath.Join(p.dir, fmt.Sprintf("weir-%d.db", p.files))})
		if err != nil {
			t.Fatal(err)
		}
		p.s, p.m, p.epoch = s, controltest.NewMemory(), 0
		for _, j := range []control.Journal{p.s, p.m} {
			if _, err := j.OpenRun(t.Context(), small.Header()); err != nil {
				t.Fatal(err)
			}
		}
	}
	p.epoch++
	return p.epoch
}
