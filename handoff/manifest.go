package handoff

import (
	"cmp"
	"slices"
	"strconv"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/control"
	"github.com/weirstream/weir/record"
)

// Format is the version of the manifest.
const Format = "weir-handoff/1"

// Kind says what a manifest hands over.
type Kind string

// The kinds.
const (
	KindOwner Kind = "OWNER"
	KindBatch Kind = "BATCH"
	KindMark  Kind = "MARK"
)

// Manifest says where a run, or a topic, stands. See the package documentation.
type Manifest struct {
	Kind                      Kind
	RunID, Fingerprint, Group string
	// Source and SourceID name the log and this incarnation of it.
	Source, SourceID string
	Epoch            uint64
	Fence            control.FenceToken
	// Watermark is the merged one, or record.NoTime.
	Watermark  record.EventTime
	Partitions []Partition
	Checkpoint *Checkpoint
	History    *History
	// Hash is set by Read; Encode makes its own.
	Hash string
}

// Partition is where one partition stands.
type Partition struct {
	Partition int32
	Next      record.Position
	// HighWater is the end of the log when the manifest was made; nil when it was not asked for.
	HighWater *record.Position
	Watermark record.EventTime
}

// Checkpoint names a retained checkpoint.
type Checkpoint struct {
	RunID        string
	Epoch        uint64
	ManifestHash string
}

// History names the history that a batch has taken in.
type History struct {
	ID      string
	Records int64
}

// Mark makes the manifest of a topic's end.
func Mark(source, sourceID string, ends map[int32]record.Position) Manifest {
	m := Manifest{Kind: KindMark, Source: source, SourceID: sourceID, Watermark: record.NoTime}
	for p, end := range ends {
		m.Partitions = append(m.Partitions, Partition{Partition: p, Next: end, HighWater: &end, Watermark: record.NoTime})
	}
	m.sort()
	return m
}

// Of makes the manifest of a run as it stands in its journal. ends are those of the log, as far as they are known. RunFinished when the run
// has ended: nobody can continue it. HandoverUnfinished when it still takes a history in.
func Of(kind Kind, j Journal, ends map[int32]record.Position) (Manifest, error) {
	s := j.State
	if s.Status == control.RunFinished {
		return Manifest{}, codes.New(codes.RunFinished, "run %q has ended (FINISHED): everything is released and its result stands, so there is nothing to hand over", s.Header.RunID)
	}
	if j.HistoryOpen {
		return Manifest{}, codes.New(codes.HandoverUnfinished, "run %q still takes a history in", s.Header.RunID)
	}
	m := Manifest{
		Kind: kind, RunID: s.Header.RunID, Fingerprint: s.Header.Fingerprint, Group: s.Header.Group, Source: s.Header.Source, SourceID: s.Header.SourceID,
		Epoch: s.Epoch, Fence: s.Fence, Watermark: s.Watermark, Checkpoint: youngest(j.Pointers, s),
	}
	if s.Epoch == 0 {
		m.Watermark = record.NoTime
	}
	for _, p := range s.Header.Partitions {
		part := Partition{Partition: p, Watermark: record.NoTime}
		if cut, ok := s.Cuts[p]; ok {
			part.Next, part.Watermark = cut.Next, cut.Watermark
		}
		if end, known := ends[p]; known {
			part.HighWater = &end
		}
		m.Partitions = append(m.Partitions, part)
	}
	m.sort()
	return m, nil
}

// youngest is the last checkpoint of a run up to where it stands.
func youngest(pointers []control.Pointer, s control.RunState) *Checkpoint {
	var c *Checkpoint
	for _, p := range pointers {
		if p.RunID == s.Header.RunID && p.Epoch <= s.Epoch && (c == nil || p.Epoch > c.Epoch) {
			c = &Checkpoint{RunID: p.RunID, Epoch: p.Epoch, ManifestHash: p.Hash}
		}
	}
	return c
}

func (m *Manifest) sort() {
	slices.SortFunc(m.Partitions, func(a, b Partition) int { return cmp.Compare(a.Partition, b.Partition) })
}

// Next are the positions by partition.
func (m *Manifest) Next() map[int32]record.Position {
	next := make(map[int32]record.Position, len(m.Partitions))
	for _, p := range m.Partitions {
		next[p.Partition] = p.Next
	}
	return next
}

// Numbers are the partitions, ascending.
func (m *Manifest) Numbers() []int32 {
	numbers := make([]int32, len(m.Partitions))
	for i, p := range m.Partitions {
		numbers[i] = p.Partition
	}
	return numbers
}

// Document is the manifest with its hash, for record.AppendJSON.
func (m *Manifest) Document() (map[string]any, error) {
	d := m.body()
	hash, err := hashOf(d)
	d["hash"] = hash
	return d, err
}

// Encode is the manifest as it is written: one line.
func (m *Manifest) Encode() ([]byte, error) {
	d, err := m.Document()
	if err != nil {
		return nil, err
	}
	b, err := record.AppendJSON(nil, d)
	return append(b, '\n'), err
}

func hashOf(body map[string]any) (string, error) {
	b, err := record.AppendJSON(nil, body)
	if err != nil {
		return "", codes.New(codes.Internal, "a manifest cannot be written: %w", err)
	}
	return record.Hash(b), nil
}

// body is everything but the hash.
func (m *Manifest) body() map[string]any {
	partitions := make([]any, len(m.Partitions))
	for i, p := range m.Partitions {
		var end any
		if p.HighWater != nil {
			end = p.HighWater.String()
		}
		partitions[i] = map[string]any{"partition": p.Partition, "next": p.Next.String(), "high_water": end, "watermark": timeText(p.Watermark)}
	}
	d := map[string]any{
		"format": Format, "kind": string(m.Kind), "run_id": text(m.RunID), "fingerprint": text(m.Fingerprint), "group": m.Group,
		"source": map[string]any{"name": m.Source, "id": m.SourceID}, "epoch": m.Epoch, "fence_token": strconv.FormatUint(uint64(m.Fence), 10),
		"watermark": timeText(m.Watermark), "partitions": partitions, "checkpoint": nil, "history": nil,
	}
	if c := m.Checkpoint; c != nil {
		d["checkpoint"] = map[string]any{"run_id": c.RunID, "epoch": c.Epoch, "manifest_hash": c.ManifestHash}
	}
	if h := m.History; h != nil {
		d["history"] = map[string]any{"id": h.ID, "records": h.Records}
	}
	return d
}

// text is null for "".
func text(s string) any {
	if s == "" {
		return nil
	}
	return s
}

func timeText(t record.EventTime) any {
	if t == record.NoTime {
		return nil
	}
	return t.String()
}
