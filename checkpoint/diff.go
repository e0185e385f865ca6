package checkpoint

import (
	"fmt"
	"maps"
	"slices"

	"github.com/weirstream/weir/partitions"
)

// Differences are what Diff found between two checkpoints.
type Differences struct {
	// Fields of the manifests that differ: run, epoch, watermark, flow and the like.
	Fields []Change
	// Partitions in which anything differs, in order.
	Partitions []PartitionDiff
	// Shared are blobs that both refer to, OnlyA and OnlyB those of one alone; each content counts once.
	Shared, OnlyA, OnlyB Volume
}

// Volume is a number of blobs and their size.
type Volume struct{ Blobs, Bytes int64 }

func (v *Volume) add(bytes int64) { v.Blobs++; v.Bytes += bytes }

// PartitionDiff is what differs in one partition.
type PartitionDiff struct {
	Partition int32
	// Fields: whether it has a cut, position, watermark, finished.
	Fields []Change
	// Counts is B − A.
	Counts partitions.Counts
	// Nodes in which blobs differ, by name.
	Nodes []NodeDiff
}

// NodeDiff is what differs in the state of one node of a partition. A state blob under the same name with other content is changed.
type NodeDiff struct {
	Node                          string
	Same, Changed, Added, Removed Volume
}

// None says that the two checkpoints hold the same.
func (d *Differences) None() bool { return len(d.Fields) == 0 && len(d.Partitions) == 0 }

// Diff compares two checkpoints by their manifests.
func Diff(a, b *Manifest) *Differences {
	d := &Differences{}
	field := func(what, was, is string) {
		if was != is {
			d.Fields = append(d.Fields, Change{what, was, is})
		}
	}
	field("store", a.StoreID, b.StoreID)
	field("run", a.RunID, b.RunID)
	field("status", string(a.Status), string(b.Status))
	field("epoch", fmt.Sprint(a.Epoch), fmt.Sprint(b.Epoch))
	field("fence token", fmt.Sprint(a.Fence), fmt.Sprint(b.Fence))
	field("watermark", a.Watermark.String(), b.Watermark.String())
	field("source", a.Source, b.Source)
	field("source id", a.SourceID, b.SourceID)
	field("flow", a.Flow.Fingerprint, b.Flow.Fingerprint)
	field("flow name", a.Flow.Name, b.Flow.Name)
	field("state schema", fmt.Sprint(a.StateSchema), fmt.Sprint(b.StateSchema))
	inA, inB := byNumber(a), byNumber(b)
	all := maps.Clone(inA)
	maps.Copy(all, inB)
	for _, n := range slices.Sorted(maps.Keys(all)) {
		pa, okA := inA[n]
		pb, okB := inB[n]
		if diff := diffPartition(n, pa, pb, okA, okB); diff != nil {
			d.Partitions = append(d.Partitions, *diff)
		}
	}
	d.volumes(a, b)
	return d
}

func byNumber(m *Manifest) map[int32]Partition {
	out := map[int32]Partition{}
	for _, p := range m.Partitions {
		out[p.Partition] = p
	}
	return out
}

// volumes counts what the checkpoints share.
func (d *Differences) volumes(a, b *Manifest) {
	sizes := func(m *Manifest) map[string]int64 {
		out := map[string]int64{}
		for _, p := range m.Partitions {
			for _, r := range p.State {
				out[r.SHA256] = r.Size
			}
		}
		return out
	}
	inA, inB := sizes(a), sizes(b)
	for name, size := range inA {
		if _, both := inB[name]; both {
			d.Shared.add(size)
		} else {
			d.OnlyA.add(size)
		}
	}
	for name, size := range inB {
		if _, both := inA[name]; !both {
			d.OnlyB.add(size)
		}
	}
}

func standing(p Partition, ok bool) string {
	switch {
	case !ok:
		return "not there"
	case !p.Committed:
		return "without a cut"
	}
	return "with a cut"
}

func diffPartition(n int32, a, b Partition, okA, okB bool) *PartitionDiff {
	d := &PartitionDiff{Partition: n}
	field := func(what, was, is string) {
		if was != is {
			d.Fields = append(d.Fields, Change{what, was, is})
		}
	}
	field("partition", standing(a, okA), standing(b, okB))
	if a.Committed && b.Committed {
		field("next position", a.Cut.Next.String(), b.Cut.Next.String())
		field("watermark", a.Cut.Watermark.String(), b.Cut.Watermark.String())
		field("finished", fmt.Sprint(a.Cut.Finished), fmt.Sprint(b.Cut.Finished))
	}
	d.Counts = minus(b.Cut.Counts, a.Cut.Counts)
	d.Nodes = diffNodes(a.State, b.State)
	if len(d.Fields) == 0 && d.Counts == (partitions.Counts{}) && len(d.Nodes) == 0 {
		return nil
	}
	return d
}

func minus(a, b partitions.Counts) partitions.Counts {
	return partitions.Counts{Records: a.Records - b.Records, Consumed: a.Consumed - b.Consumed, Filtered: a.Filtered - b.Filtered, Omitted: a.Omitted - b.Omitted,
		Duplicates: a.Duplicates - b.Duplicates, Late: a.Late - b.Late, Future: a.Future - b.Future, Outputs: a.Outputs - b.Outputs}
}

// diffNodes has the nodes in which anything differs.
func diffNodes(a, b []StateRef) []NodeDiff {
	before := map[string]StateRef{}
	nodes := map[string]*NodeDiff{}
	node := func(r StateRef) *NodeDiff {
		if nodes[r.Node()] == nil {
			nodes[r.Node()] = &NodeDiff{Node: r.Node()}
		}
		return nodes[r.Node()]
	}
	for _, r := range a {
		before[r.Name] = r
	}
	for _, r := range b {
		old, ok := before[r.Name]
		delete(before, r.Name)
		switch {
		case !ok:
			node(r).Added.add(r.Size)
		case old.SHA256 == r.SHA256:
			node(r).Same.add(r.Size)
		default:
			node(r).Changed.add(r.Size)
		}
	}
	for _, r := range before {
		node(r).Removed.add(r.Size)
	}
	var out []NodeDiff
	for _, name := range slices.Sorted(maps.Keys(nodes)) {
		if n := nodes[name]; n.Changed.Blobs+n.Added.Blobs+n.Removed.Blobs > 0 {
			out = append(out, *n)
		}
	}
	return out
}
