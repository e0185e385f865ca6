package kinesis

import (
	"bytes"
	"crypto/md5"
	"encoding/binary"
	"errors"
	"fmt"
	"testing"
)

// pack is the inverse of takeApart, written from the format: keys are kept once each. tablesLast puts the tables behind the records.
func pack(records []subRecord, tablesLast bool) []byte {
	var tables, body []byte
	index := map[string]uint64{}
	for _, r := range records {
		at, known := index[string(r.key)]
		if !known {
			at = uint64(len(index))
			index[string(r.key)] = at
			tables = appendBytes(tables, 1, r.key)
		}
		one := binary.AppendUvarint([]byte{1 << 3}, at)
		one = appendBytes(one, 3, r.data)
		one = appendBytes(one, 4, []byte("\x0a\x01k\x12\x01v")) // a tag
		body = appendBytes(body, 3, one)
	}
	tables = appendBytes(tables, 2, []byte("170141183460469231731687303715884105728"))
	if tablesLast {
		return seal(append(body, tables...))
	}
	return seal(append(tables, body...))
}

func appendBytes(dst []byte, number byte, value []byte) []byte {
	return append(binary.AppendUvarint(append(dst, number<<3|2), uint64(len(value))), value...)
}

func seal(message []byte) []byte {
	sum := md5.Sum(message)
	return append(append(append([]byte(nil), aggregateMagic...), message...), sum[:]...)
}

func some(n int) []subRecord {
	records := make([]subRecord, n)
	for i := range records {
		records[i] = subRecord{key: fmt.Appendf(nil, "key-%d", i%7), data: bytes.Repeat([]byte{byte(i)}, i%50)}
	}
	return records
}

func TestTakenApart(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1, 2, 100} {
		for _, last := range []bool{false, true} {
			want := some(n)
			message, ok := aggregated(pack(want, last))
			if !ok {
				t.Fatal("not taken for an aggregate")
			}
			got, _, err := takeApart(nil, nil, message)
			if err != nil || len(got) != n {
				t.Fatalf("%d records, %v; want %d", len(got), err, n)
			}
			for i := range got {
				if !bytes.Equal(got[i].key, want[i].key) || !bytes.Equal(got[i].data, want[i].data) {
					t.Errorf("record %d of %d: %q %q, want %q %q", i, n, got[i].key, got[i].data, want[i].key, want[i].data)
				}
			}
		}
	}
}

// What only looks like an aggregate is a record as it stands.
func TestNoAggregate(t *testing.T) {
	t.Parallel()
	whole := pack(some(3), false)
	flipped := bytes.Clone(whole)
	flipped[10] ^= 1
	for name, data := range map[string][]byte{
		"nothing": nil, "magic alone": aggregateMagic, "JSON": []byte(`{"a":1}`), "another check sum": flipped, "cut short": whole[:len(whole)-1], "no magic": whole[4:],
	} {
		if _, ok := aggregated(data); ok {
			t.Errorf("%s: taken for an aggregate", name)
		}
	}
}

// A broken aggregate is an error, and gives none of its records away.
func TestBrokenAggregate(t *testing.T) {
	t.Parallel()
	whole, _ := aggregated(pack(some(3), false))
	one := appendBytes([]byte{1 << 3, 0}, 3, []byte("v"))
	for name, test := range map[string]struct {
		message []byte
		want    error
	}{
		"cut short":      {whole[:len(whole)-3], errAggregateShort},
		"no records":     {appendBytes(nil, 1, []byte("k")), errAggregateEmpty},
		"no such key":    {appendBytes(nil, 3, one), errAggregateIndex},
		"no data":        {appendBytes(appendBytes(nil, 1, []byte("k")), 3, []byte{1 << 3, 0}), errAggregateShort},
		"key of bytes":   {appendBytes(appendBytes(nil, 1, []byte("k")), 3, appendBytes(nil, 1, []byte("0"))), errAggregateShort},
		"field zero":     {[]byte{0, 1}, errAggregateShort},
		"unknown wire":   {[]byte{9<<3 | 3}, errAggregateShort},
		"endless number": {bytes.Repeat([]byte{0xff}, 20), errAggregateShort},
		"huge length":    {[]byte{1<<3 | 2, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f}, errAggregateShort},
	} {
		kept := []subRecord{{key: []byte("before")}}
		got, _, err := takeApart(kept, nil, test.message)
		if !errors.Is(err, test.want) || len(got) != 1 {
			t.Errorf("%s: %v with %d records, want %v", name, err, len(got)-1, test.want)
		}
	}
}

func FuzzTakeApart(f *testing.F) {
	for _, n := range []int{1, 5} {
		message, _ := aggregated(pack(some(n), n == 5))
		f.Add(message)
	}
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, message []byte) {
		got, _, err := takeApart(nil, nil, message)
		if err != nil {
			if len(got) != 0 {
				t.Errorf("%d records beside %v", len(got), err)
			}
			return
		}
		// What can be read can be packed and read again.
		again, ok := aggregated(pack(got, false))
		if !ok {
			t.Fatal("packed again, it is no aggregate")
		}
		back, _, err := takeApart(nil, nil, again)
		if err != nil || len(back) != len(got) {
			t.Fatalf("%d records, %v; want %d", len(back), err, len(got))
		}
		for i := range got {
			if !bytes.Equal(back[i].key, got[i].key) || !bytes.Equal(back[i].data, got[i].data) {
				t.Errorf("record %d differs", i)
			}
		}
	})
}

func BenchmarkTakeApart(b *testing.B) {
	data := pack(some(100), false)
	var records []subRecord
	var keys [][]byte
	b.SetBytes(int64(len(data)))
	b.ReportAllocs()
	for b.Loop() {
		message, ok := aggregated(data)
		if !ok {
			b.Fatal("not an aggregate")
		}
		var err error
		if records, keys, err = takeApart(records[:0], keys, message); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.N)*100/b.Elapsed().Seconds(), "records/s")
}
