package checkpoint

import (
	"slices"
	"strings"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/control"
	"github.com/weirstream/weir/flow"
	"github.com/weirstream/weir/partitions"
	"github.com/weirstream/weir/record"
)

// What a manifest says of itself. A reader refuses every other version.
const (
	Format  = "weir/checkpoint"
	Version = 1
	// StateSchema is the version of the layout of state blobs as package partitions writes them. The layouts of operators have versions of
	// their own, which are part of the flow's fingerprint.
	StateSchema = 1
)

// Manifest says what a checkpoint is made of: everything that is needed to tell whether it can be restored, and to restore it. It is written
// once, as canonical JSON (FINAZ_JSON_V1), and names its blobs by their content.
type Manifest struct {
	// StoreID names the store that it was taken from.
	StoreID string
	RunID   string
	Status  control.RunStatus
	Epoch   uint64
	// Fence is the highest token under which the run had been opened or committed.
	Fence control.FenceToken
	// Watermark is the merged one.
	Watermark record.EventTime
	// Source and SourceID are what the run's header says.
	Source, SourceID string
	Flow             FlowInfo
	// StateSchema is that of the state blobs.
	StateSchema int
	// Partitions of the run, in order.
	Partitions []Partition

	hash string
}

// FlowInfo is what a manifest knows of the flow.
type FlowInfo struct {
	Fingerprint string
	// Name is "" and Plan is nil when who made the checkpoint did not know the flow. Plan is the flow in the normal form of its language
	// (flow.Plan.Document), as record.Decode reads it.
	Name string
	Plan map[string]any
	// StateVersions are those of the operator types.
	StateVersions map[string]int64
}

// Partition is one partition of the run.
type Partition struct {
	Partition int32
	// Committed is false for a partition without a cut, which starts at the beginning of its log.
	Committed bool
	// Cut without Put and Delete.
	Cut partitions.Cut
	// State are the blobs, in the order of their names.
	State []StateRef
}

// StateRef is a state blob of a partition and the blob that holds it.
type StateRef struct {
	// Name is the state blob's own, such as "keys/000012"; SHA256 is the name of the blob with its data, 64 hex digits.
	Name, SHA256 string
	Size         int64
}

// Node is what a state blob belongs to: "core" (clock, watermark, position, counts), "dedupe" (event ids), "keys" (operators) or "reorder"
// (records that wait for the watermark).
func (r StateRef) Node() string { return nodeOf(r.Name) }

func nodeOf(name string) string {
	node, _, _ := strings.Cut(name, "/")
	return node
}

// Hash is the manifest_hash, of a manifest that was encoded or read; "" before.
func (m *Manifest) Hash() string { return m.hash }

// Header is the run's.
func (m *Manifest) Header() control.RunHeader {
	h := control.RunHeader{RunID: m.RunID, Fingerprint: m.Flow.Fingerprint, Source: m.Source, SourceID: m.SourceID}
	for _, p := range m.Partitions {
		h.Partitions = append(h.Partitions, p.Partition)
	}
	return h
}

// Cuts are those of the partitions that have one.
func (m *Manifest) Cuts() map[int32]partitions.Cut {
	cuts := map[int32]partitions.Cut{}
	for _, p := range m.Partitions {
		if p.Committed {
			cuts[p.Partition] = p.Cut
		}
	}
	return cuts
}

// Size is the number and size of the state blobs that it refers to.
func (m *Manifest) Size() (blobs, bytes int64) {
	for _, p := range m.Partitions {
		for _, r := range p.State {
			blobs++
			bytes += r.Size
		}
	}
	return blobs, bytes
}

// describe is what a manifest keeps of a plan.
func describe(plan *flow.Plan, fingerprint string) (FlowInfo, error) {
	info := FlowInfo{Fingerprint: fingerprint}
	if plan == nil {
		return info, nil
	}
	if plan.Fingerprint != fingerprint {
		return info, codes.New(codes.RunMismatch, "the run has the flow fingerprint %.80q and the flow %q has %q", fingerprint, plan.Name, plan.Fingerprint)
	}
	shown := plan.Describe(1)
	doc, err := redecode(shown["flow"])
	if err != nil {
		return info, err
	}
	info.Name, info.StateVersions = plan.Name, map[string]int64{}
	info.Plan, _ = doc.(map[string]any)
	nodes, _ := shown["nodes"].([]any)
	for _, n := range nodes {
		node, _ := n.(map[string]any)
		name, _ := node["type"].(string)
		version, _ := node["state_version"].(int)
		info.StateVersions[name] = int64(version)
	}
	return info, nil
}

// redecode brings a document to the form in which it is read.
func redecode(v any) (any, error) {
	b, err := record.AppendJSON(nil, v)
	if err != nil {
		return nil, codes.New(codes.Internal, "a flow has no canonical form: %w", err)
	}
	return record.Decode(b)
}

// Encode writes the manifest and sets its hash. The bytes depend on nothing but what the manifest says.
func (m *Manifest) Encode() ([]byte, error) {
	doc := m.document()
	body, err := record.AppendJSON(nil, doc)
	if err != nil {
		return nil, codes.New(codes.Internal, "the manifest of run %q at epoch %d: %w", m.RunID, m.Epoch, err)
	}
	m.hash = record.Hash(body)
	doc[hashKey] = m.hash
	return record.AppendJSON(make([]byte, 0, len(body)+100), doc)
}

const hashKey = "manifest_hash"

// Document is the manifest as JSON shows it, with its hash.
func (m *Manifest) Document() map[string]any {
	doc := m.document()
	doc[hashKey] = m.hash
	return doc
}

func (m *Manifest) document() map[string]any {
	parts := make([]any, 0, len(m.Partitions))
	rows := make([]any, 0, len(m.Partitions))
	for _, p := range m.Partitions {
		parts = append(parts, p.document())
		rows = append(rows, map[string]any{"partition": p.Partition, "rows": p.Cut.Counts.Outputs})
	}
	return map[string]any{
		"format": Format, "version": Version,
		"store": m.StoreID, "run": m.RunID, "status": string(m.Status), "epoch": m.Epoch, "fence_token": uint64(m.Fence), "watermark": m.Watermark.String(),
		"source": map[string]any{"name": m.Source, "id": orNull(m.SourceID)}, "flow": m.Flow.document(),
		"state_schema": m.StateSchema, "partitions": parts,
		// The outputs of an epoch and its state are one commit, so the sink is exactly where the state is.
		"sink": map[string]any{"through_epoch": m.Epoch, "rows": rows},
	}
}

func orNull(s string) any {
	if s == "" {
		return nil
	}
	return s
}

func (f FlowInfo) document() map[string]any {
	doc := map[string]any{"fingerprint": f.Fingerprint, "name": orNull(f.Name), "plan": nil, "state_versions": nil}
	if f.Plan != nil {
		doc["plan"], doc["state_versions"] = f.Plan, f.StateVersions
	}
	return doc
}

func (p Partition) document() map[string]any {
	if !p.Committed {
		return map[string]any{"partition": p.Partition, "cut": nil, "state": nil}
	}
	state := map[string]any{}
	for _, r := range p.State {
		list, _ := state[r.Node()].([]any)
		state[r.Node()] = append(list, map[string]any{"name": r.Name, "sha256": r.SHA256, "size": r.Size})
	}
	return map[string]any{"partition": p.Partition, "state": state, "cut": map[string]any{
		"next": p.Cut.Next.String(), "watermark": p.Cut.Watermark.String(), "finished": p.Cut.Finished, "counts": CountsDocument(p.Cut.Counts),
	}}
}

// CountsDocument is how counts are written.
func CountsDocument(c partitions.Counts) map[string]any {
	return map[string]any{"records": c.Records, "consumed": c.Consumed, "filtered": c.Filtered, "omitted": c.Omitted,
		"duplicates": c.Duplicates, "late": c.Late, "future": c.Future, "outputs": c.Outputs}
}

// newManifest is the manifest of a run's state, without its partitions.
func newManifest(storeID string, plan *flow.Plan, s control.RunState) (*Manifest, error) {
	info, err := describe(plan, s.Header.Fingerprint)
	if err != nil {
		return nil, err
	}
	return &Manifest{StoreID: storeID, RunID: s.Header.RunID, Status: s.Status, Epoch: s.Epoch, Fence: s.Fence, Watermark: s.Watermark,
		Source: s.Header.Source, SourceID: s.Header.SourceID, Flow: info, StateSchema: StateSchema}, nil
}

// sortState puts state blobs into the order in which a manifest has them.
func sortState(refs []StateRef) {
	slices.SortFunc(refs, func(a, b StateRef) int { return strings.Compare(a.Name, b.Name) })
}
