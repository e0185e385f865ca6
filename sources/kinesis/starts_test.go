package kinesis_test

import (
	"crypto/md5"
	"encoding/binary"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/weirstream/weir/record"
	"github.com/weirstream/weir/sources"
	"github.com/weirstream/weir/sources/kinesis"
)

// Where a shard begins that was not read yet: at its oldest record, at a time, at a record; and behind what was read whatever was said about that.
func TestStartPositions(t *testing.T) {
	t.Parallel()
	b := start(t)
	name := b.stream(t, 1)
	all := some(6)
	b.put(t, name, 0, 1, all[:3]...)
	b.Shift(t, time.Hour)
	between, err := newStream(t, b.config(name)).Now(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	between = between.Add(-30 * time.Minute)
	b.put(t, name, 0, 1, all[3:]...)
	var g reading
	read := func(s sources.Source, from map[int32]record.Position, first int) record.Position {
		t.Helper()
		g = reading{}
		if err := g.until(t.Context(), openSource(t, s, from), 1, g.has(6-first)); err != nil {
			t.Fatal(err)
		}
		g.want(t, first, 6)
		return g.next
	}
	at := func(since time.Time) *kinesis.Stream {
		cfg := b.config(name)
		cfg.StartAt = since
		return newStream(t, cfg)
	}
	end := read(at(time.Time{}), startOf(0), 0)
	read(at(between), startOf(0), 3)
	read(at(time.Time{}).Begin(0, between), startOf(0), 3)
	read(at(between).Begin(0, time.Time{}), startOf(0), 0) // a child of what was read: its first record, whatever the run began at
	first := reading{}
	if err := first.until(t.Context(), openSource(t, at(between), startOf(0)), 1, first.has(1)); err != nil {
		t.Fatal(err)
	}
	read(at(time.Time{}).BeginAt(0, first.next.Prev()), startOf(0), 3)
	read(at(time.Time{}), map[int32]record.Position{0: first.next}, 4) // what was read counts
	if end.Cmp(first.next) <= 0 {
		t.Errorf("the end %s is not behind %s", end, first.next)
	}
}

func openSource(t *testing.T, s sources.Source, from map[int32]record.Position) sources.Reader {
	t.Helper()
	r, err := s.Open(t.Context(), from)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Close() })
	return r
}

// packed is an aggregate of the producer library: a table of keys, one explicit hash key, and records that name a key.
func packed(keys, values []string) []byte {
	field := func(dst []byte, number byte, value []byte) []byte {
		return append(binary.AppendUvarint(append(dst, number<<3|2), uint64(len(value))), value...)
	}
	var message []byte
	for _, k := range keys {
		message = field(message, 1, []byte(k))
	}
	message = field(message, 2, []byte("0")) // the hash key of another shard
	for i, v := range values {
		one := append([]byte{1 << 3}, byte(i%len(keys)), 2<<3, 0)
		message = field(message, 3, field(one, 3, []byte(v)))
	}
	sum := md5.Sum(message)
	return append(append([]byte{0xf3, 0x89, 0x9a, 0xc2}, message...), sum[:]...)
}

// Lesson 11: an aggregate is taken apart, all its records share one position, and those whose keys belong to other shards are delivered too; one that is
// broken is handed over as it is, and what follows it is read.
func TestLessonAggregates(t *testing.T) {
	t.Parallel()
	b := start(t)
	name := b.stream(t, 4)
	keys := []string{"a", "b", "c", "d", "e", "f", "g", "h"} // they are dealt to all four shards
	var values []string
	for i := range 16 {
		values = append(values, fmt.Sprint("v", i))
	}
	whole := packed(keys, values)
	broken := packed(keys, values)
	broken = broken[:len(broken)-md5.Size-3]
	sum := md5.Sum(broken[4:])
	broken = append(broken, sum[:]...)
	key := []byte("x")
	b.put(t, name, 2, 4, record.Record{Key: key, Value: []byte("before")}, record.Record{Key: key, Value: whole}, record.Record{Key: key, Value: broken}, record.Record{Key: key, Value: []byte("after")})
	r := openSource(t, newStream(t, b.config(name)), startOf(2))
	var got []record.Record
	for len(got) < 19 {
		batches, err := r.Poll(t.Context(), 0)
		if err != nil {
			t.Fatal(err)
		}
		for i := range batches {
			for _, rec := range batches[i].Records {
				rec.Key, rec.Value = slices.Clone(rec.Key), slices.Clone(rec.Value)
				got = append(got, rec)
			}
			batches[i].Done()
		}
	}
	if len(got) != 19 || string(got[0].Value) != "before" || string(got[18].Value) != "after" || string(got[17].Value) != string(broken) || got[17].Sub != 0 {
		t.Fatalf("%d records, the last two %q and %q", len(got), got[len(got)-2].Value, got[len(got)-1].Value)
	}
	for i, rec := range got[1:17] {
		if string(rec.Value) != values[i] || string(rec.Key) != keys[i%8] || rec.Sub != uint32(i) || rec.Position != got[1].Position {
			t.Errorf("record %d of the aggregate: %q %q, sub %d at %s", i, rec.Key, rec.Value, rec.Sub, rec.Position)
		}
	}
	if got[17].Position.Cmp(got[1].Position) <= 0 || got[1].Position.Cmp(got[0].Position) <= 0 {
		t.Error("the records of the stream do not follow one another")
	}
}
