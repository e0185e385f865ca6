package controltest

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
	"math/rand/v2"
	"strings"

	"github.com/weirstream/weir/control"
	"github.com/weirstream/weir/partitions"
	"github.com/weirstream/weir/record"
)

func header(partitions int32) control.RunHeader {
	return Workload{RunID: "run", Partitions: partitions}.Header()
}

// commit is an epoch of run "run".
func commit(epoch uint64, ps ...control.PartitionCommit) control.Commit {
	return control.Commit{RunID: "run", Epoch: epoch, Status: control.RunOpen, Watermark: record.NoTime, Partitions: ps}
}

func cut(p int32, next int64) partitions.Cut {
	return partitions.Cut{Partition: p, Next: record.Offset(next), Watermark: record.NoTime}
}

func checkNewRun(s *session) error {
	h := header(3)
	h.Partitions = []int32{2, 0, 1}
	j, m, err := s.start(h)
	if err != nil {
		return err
	}
	if err := s.same(j, m, h); err != nil {
		return err
	}
	state, err := j.OpenRun(s.ctx, h)
	if err != nil {
		return err
	}
	if state.Epoch != 0 || state.Status != control.RunOpen || state.Watermark != record.NoTime || len(state.Cuts) != 0 {
		return fmt.Errorf("a new run has the state %+v", state)
	}
	if err := j.Close(); err != nil {
		return err
	}
	return s.same(s.open(), m, h)
}

func checkRoundTrip(s *session) error {
	h := header(4)
	h.RunID, h.Source, h.SourceID, h.Group, h.Fingerprint = "läuft '; --", "quote\"d", "\x00\xff", "", "f\x00"
	j, m, err := s.start(h)
	if err != nil {
		return err
	}
	highest, err := record.ParsePosition("6277101735386680763835789423207666416102355444464034512895")
	if err != nil {
		return err
	}
	big := partitions.Counts{Records: math.MaxInt64, Consumed: 1, Filtered: 2, Omitted: 3, Duplicates: 4, Late: 5, Future: 6, Outputs: math.MaxInt64}
	c := control.Commit{RunID: h.RunID, Epoch: 1, Status: control.RunOpen, Watermark: math.MaxInt64, Partitions: []control.PartitionCommit{
		{
			Cut: partitions.Cut{Partition: 3, Next: highest, Watermark: record.MaxTime, Finished: true, Counts: big, Put: []partitions.StateBlob{
				{Name: "", Data: nil}, {Name: "\x00", Data: []byte{}}, {Name: "\xff", Data: []byte{0}}, {Name: strings.Repeat("n", 1000), Data: bytes.Repeat([]byte{0, 255}, 5000)}}},
			Rows: partitions.Rows{Data: []byte{0, 1, 0xff}, Count: 1, First: math.MinInt64, Last: math.MaxInt64},
			Quarantine: []partitions.Quarantined{
				{Partition: 3, Position: highest, Reason: "R", Detail: "d\x00\xfe", EventID: "e\x00", EventTime: record.NoTime, Key: nil, Value: nil},
				{Partition: 3, Position: record.Position{}, Reason: "R", EventTime: record.MaxTime, Key: []byte{}, Value: []byte{}, Arrival: record.MaxTime, Headers: []record.Header{}},
				{Partition: 3, Position: record.Offset(math.MaxInt64), Reason: "", EventTime: -1, Key: []byte{0}, Value: []byte("\x00null"), Sub: math.MaxUint32, Arrival: record.NoTime,
					Headers: []record.Header{{Key: "b", Value: []byte("\x00\xff")}, {Key: "", Value: []byte{}}, {Key: "b"}, {Key: "\xfe\x00", Value: bytes.Repeat([]byte{7}, 300)}}},
				{Partition: 3, Position: record.Offset(math.MaxInt64), Reason: "the same position again", Key: nil, Value: []byte{}},
				{Partition: 3, Position: record.Offset(math.MaxInt64).Next(), Reason: "one past int64", Key: []byte{}, Value: nil},
			},
			Decisions: []partitions.Decision{{Partition: 3, Position: highest, Kind: "K", Detail: "\x00"}, {Partition: 3, Position: record.Offset(9), Kind: "", Detail: ""}},
		},
		{Cut: partitions.Cut{Partition: 0, Next: position(0, 1, 0), Watermark: record.NoTime}},
		{Cut: partitions.Cut{Partition: 2, Watermark: -1, Counts: partitions.Counts{Outputs: -1}}},
	}}
	if err := s.both(j, m, c); err != nil {
		return err
	}
	if err := s.same(j, m, h); err != nil {
		return err
	}
	if err := j.Close(); err != nil {
		return err
	}
	return s.same(s.open(), m, h)
}

// Random histories, with the store closed and opened in between: after every epoch the journal holds what the model holds.
func checkHistory(s *session) error {
	for seed := range uint64(4) {
		w := Workload{Seed: seed, RunID: fmt.Sprintf("run %d", seed), Partitions: int32(1 + seed), Rows: 30, Blob: 5000}
		j, m, err := s.start(w.Header())
		if err != nil {
			return err
		}
		for epoch := uint64(1); epoch <= 12; epoch++ {
			if err := s.both(j, m, w.Commit(epoch)); err != nil {
				return fmt.Errorf("seed %d: %w", seed, err)
			}
			if epoch%5 == 0 {
				if err := j.Close(); err != nil {
					return err
				}
				j = s.open()
			}
			if err := s.same(j, m, w.Header()); err != nil {
				return fmt.Errorf("seed %d, epoch %d: %w", seed, epoch, err)
			}
		}
	}
	return nil
}

func checkBlobs(s *session) error {
	j, m, err := s.start(header(1))
	if err != nil {
		return err
	}
	put := func(pairs ...string) (out []partitions.StateBlob) {
		for i := 0; i < len(pairs); i += 2 {
			out = append(out, partitions.StateBlob{Name: pairs[i], Data: []byte(pairs[i+1])})
		}
		return out
	}
	for i, step := range []struct {
		put []partitions.StateBlob
		del []string
	}{
		{put("b", "1", "a", "2", "c", "3"), nil},
		{put("a", "longer than before"), nil},
		{put("a", ""), []string{"b"}},
		{nil, []string{"never there", "b"}},
		{put("a", "deleted first, then put"), []string{"a", "a"}},
		{put("d", "first", "d", "last one counts"), nil},
		{nil, []string{"a", "c", "d"}},
		{put("b", "again"), nil},
	} {
		cut := cut(0, int64(i))
		cut.Put, cut.Delete = step.put, step.del
		if err := s.both(j, m, commit(uint64(i+1), control.PartitionCommit{Cut: cut})); err != nil {
			return err
		}
		if err := s.same(j, m, header(1)); err != nil {
			return fmt.Errorf("after step %d: %w", i+1, err)
		}
	}
	return nil
}

func checkOutputs(s *session) error {
	j, m, err := s.start(header(3))
	if err != nil {
		return err
	}
	// Enough epochs that an order by text (1, 10, 11, 2) would show.
	for e := uint64(1); e <= 24; e++ {
		var ps []control.PartitionCommit
		for p := range int32(3) {
			pc := control.PartitionCommit{Cut: cut(p, int64(e))}
			if (e+uint64(p))%3 != 0 { // some have no rows
				pc.Rows = partitions.Rows{Data: fmt.Appendf(nil, "epoch %d of %d", e, p), Count: int(e), First: record.EventTime(e), Last: record.EventTime(e + 1)}
			}
			ps = append([]control.PartitionCommit{pc}, ps...)
		}
		if err := s.both(j, m, commit(e, ps...)); err != nil {
			return err
		}
	}
	return s.same(j, m, header(3))
}

func checkLarge(s *session) error {
	const size = 21<<20 + 17
	j, m, err := s.start(header(2))
	if err != nil {
		return err
	}
	// A pattern without a period near any page or chunk size, so that a piece that is lost or repeated shows.
	data := make([]byte, 0, size+8)
	rng := rand.New(rand.NewPCG(1, 1))
	for len(data) < size {
		data = binary.LittleEndian.AppendUint64(data, rng.Uint64())
	}
	data = data[:size]
	big := cut(0, 1)
	big.Put = []partitions.StateBlob{{Name: "big", Data: data[:9<<20]}}
	c := commit(1,
		control.PartitionCommit{Cut: big, Rows: partitions.Rows{Data: data, Count: 7, First: 1, Last: 2},
			Quarantine: []partitions.Quarantined{{Value: data[:10<<20], Reason: partitions.ReasonUnreadable}, {Value: []byte("small"), Position: record.Offset(1)}}},
		control.PartitionCommit{Cut: cut(1, 1), Rows: partitions.Rows{Data: data[:4<<20], Count: 5, First: 1, Last: 2}})
	if err := s.both(j, m, c); err != nil {
		return err
	}
	c = commit(2, control.PartitionCommit{Cut: cut(0, 2), Rows: partitions.Rows{Data: data[:1], Count: 1}}, control.PartitionCommit{Cut: cut(1, 1), Rows: partitions.Rows{Data: data[:4<<20+1], Count: 5}})
	if err := s.both(j, m, c); err != nil {
		return err
	}
	if err := s.same(j, m, header(2)); err != nil {
		return err
	}
	var sums []uint32
	err = j.Outputs(s.ctx, "run", 0, func(r partitions.Rows) error {
		sums = append(sums, crc32.ChecksumIEEE(r.Data))
		return nil
	})
	if err != nil || len(sums) != 2 || sums[0] != crc32.ChecksumIEEE(data) {
		return fmt.Errorf("rows of %d bytes come back as %x (%v)", size, sums, err)
	}
	return nil
}

// More rows than any batch of a multi-row insert, of sizes on both sides of its limits.
func checkManyQuarantined(s *session) error {
	j, m, err := s.start(header(1))
	if err != nil {
		return err
	}
	for e, n := range []int{1, 7, 8, 9, 63, 64, 65, 300} {
		pc := control.PartitionCommit{Cut: cut(0, int64(e))}
		for i := range n {
			pos := record.Offset(int64(1000*e + (i*37)%1000))
			pc.Quarantine = append(pc.Quarantine, partitions.Quarantined{Position: pos, Reason: partitions.ReasonLate, EventID: fmt.Sprint(e, i), Value: bytes.Repeat([]byte{byte(i)}, i%50*400)})
			pc.Decisions = append(pc.Decisions, partitions.Decision{Position: pos, Kind: "K", Detail: fmt.Sprint(e, i)})
		}
		if err := s.both(j, m, commit(uint64(e+1), pc)); err != nil {
			return err
		}
	}
	return s.same(j, m, header(1))
}

// A caller uses its buffers again as soon as Commit has returned.
func checkKeepsNothing(s *session) error {
	j, m, err := s.start(header(1))
	if err != nil {
		return err
	}
	c := commit(1, control.PartitionCommit{Cut: cut(0, 1), Rows: partitions.Rows{Data: []byte("rows"), Count: 1},
		Quarantine: []partitions.Quarantined{{Key: []byte("key"), Value: []byte("value"), Headers: []record.Header{{Key: "h", Value: []byte("header")}}}}, Decisions: []partitions.Decision{{Kind: "K"}}})
	c.Partitions[0].Cut.Put = []partitions.StateBlob{{Name: "a", Data: []byte("blob")}}
	if err := s.both(j, m, c); err != nil {
		return err
	}
	p := &c.Partitions[0]
	spoil(p.Rows.Data)
	spoil(p.Cut.Put[0].Data)
	spoil(p.Quarantine[0].Key)
	spoil(p.Quarantine[0].Value)
	spoil(p.Quarantine[0].Headers[0].Value)
	p.Cut.Put[0].Name, p.Decisions[0].Kind, p.Quarantine[0].Reason, p.Rows.Count = "b", "L", "S", 9
	got, err := Read(s.ctx, j, header(1))
	if err != nil {
		return err
	}
	q := got.Quarantine[0]
	if b := got.Blobs[0][0]; b.Name != "a" || string(b.Data) != "blob" || string(got.Outputs[0][0].Data) != "rows" || string(q.Key) != "key" || string(q.Value) != "value" || string(q.Headers[0].Value) != "header" || got.Decisions[0].Kind != "K" {
		return fmt.Errorf("the journal holds what the caller wrote into its buffers after the commit: blob %s, rows %s", brief(got.Blobs[0][0]), brief(got.Outputs[0][0]))
	}
	return s.same(j, m, header(1))
}

func checkReaderErrors(s *session) error {
	j, _, err := s.start(header(1))
	if err != nil {
		return err
	}
	w := Workload{Seed: 3, RunID: "run", Partitions: 1, Rows: 5, Blob: 10}
	for e := uint64(1); e <= 10; e++ {
		if err := j.Commit(s.ctx, w.Commit(e)); err != nil {
			return err
		}
	}
	stop := errors.New("stop")
	for what, read := range map[string]func(calls *int) error{
		"LoadBlobs": func(n *int) error {
			return j.LoadBlobs(s.ctx, "run", 0, func(partitions.StateBlob) error { *n++; return stop })
		},
		"Outputs": func(n *int) error {
			return j.Outputs(s.ctx, "run", 0, func(partitions.Rows) error { *n++; return stop })
		},
		"Quarantine": func(n *int) error {
			return j.Quarantine(s.ctx, "run", func(partitions.Quarantined) error { *n++; return stop })
		},
		"Decisions": func(n *int) error {
			return j.Decisions(s.ctx, "run", func(partitions.Decision) error { *n++; return stop })
		},
	} {
		calls := 0
		if err := read(&calls); err != stop || calls != 1 {
			return fmt.Errorf("%s: %d calls and the error %v, want 1 and the reader's own", what, calls, err)
		}
	}
	_, err = w.Check(s.ctx, j)
	return err
}

// What a reader does with the journal while it reads neither blocks nor changes what it is given.
func checkNestedReaders(s *session) error {
	j, m, err := s.start(header(2))
	if err != nil {
		return err
	}
	w := Workload{Seed: 5, RunID: "run", Partitions: 2, Rows: 5, Blob: 10}
	for e := uint64(1); e <= 8; e++ {
		if err := s.both(j, m, w.Commit(e)); err != nil {
			return err
		}
	}
	before, err := ReadOutputs(s.ctx, j, "run", 0)
	if err != nil {
		return err
	}
	epoch, seen := uint64(8), 0
	err = j.Outputs(s.ctx, "run", 0, func(r partitions.Rows) error {
		if !bytes.Equal(r.Data, before[seen].Data) {
			return fmt.Errorf("rows %d changed while a reader committed", seen)
		}
		seen++
		epoch++
		if err := s.both(j, m, w.Commit(epoch)); err != nil {
			return err
		}
		return j.Outputs(s.ctx, "run", 1, func(partitions.Rows) error {
			_, err := ReadBlobs(s.ctx, j, "run", 0)
			return err
		})
	})
	if err != nil {
		return err
	}
	if seen != len(before) || seen < 3 {
		return fmt.Errorf("%d row runs were read, %d stood when the reading began", seen, len(before))
	}
	return s.same(j, m, header(2))
}
