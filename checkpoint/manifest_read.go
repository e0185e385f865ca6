package checkpoint

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/control"
	"github.com/weirstream/weir/partitions"
	"github.com/weirstream/weir/record"
)

// mostWrong bounds how many mistakes of a manifest are named.
const mostWrong = 20

// ParseManifest reads a manifest strictly: exactly the bytes that Encode writes, with every field and no other, a hash that is that of its
// body, and numbers that agree with each other. The error carries StoreNewer for a version that this weir does not know and CheckpointCorrupt for
// everything else, and names all that is wrong.
func ParseManifest(src []byte) (*Manifest, error) {
	v, err := record.Decode(src)
	if err != nil {
		return nil, codes.New(codes.CheckpointCorrupt, "the manifest cannot be read: %w", err)
	}
	r := &reader{}
	m := r.manifest(v)
	if r.newer != nil {
		return nil, r.newer
	}
	if len(r.wrong) > 0 {
		more := ""
		if n := len(r.wrong) - mostWrong; n > 0 {
			more = fmt.Sprintf("; and %d more", n)
		}
		return nil, codes.New(codes.CheckpointCorrupt, "the manifest is not one that weir writes: %s%s", strings.Join(r.wrong[:min(len(r.wrong), mostWrong)], "; "), more)
	}
	said := m.hash
	again, err := m.Encode()
	if err != nil {
		return nil, err
	}
	if m.hash != said {
		return nil, codes.New(codes.CheckpointCorrupt, "the manifest says that its hash is %s, and it is %s", said, m.hash)
	}
	if string(again) != string(src) {
		return nil, codes.New(codes.CheckpointCorrupt, "the manifest is not written in canonical form")
	}
	return m, nil
}

// reader reads a document and notes everything that is wrong with it. What is wrong reads as zero.
type reader struct {
	wrong []string
	newer error
}

func (r *reader) bad(path, format string, args ...any) {
	r.wrong = append(r.wrong, path+": "+fmt.Sprintf(format, args...))
}

// object wants an object with exactly these members.
func (r *reader) object(path string, v any, keys ...string) map[string]any {
	m, ok := v.(map[string]any)
	if !ok {
		r.bad(path, "must be an object")
		return map[string]any{}
	}
	for _, key := range keys {
		if _, ok := m[key]; !ok {
			r.bad(path+"."+key, "is missing")
		}
	}
	for _, key := range slices.Sorted(maps.Keys(m)) {
		if !slices.Contains(keys, key) {
			r.bad(path, "has the unknown member %.60q", key)
		}
	}
	return m
}

func (r *reader) list(path string, v any) []any {
	list, ok := v.([]any)
	if !ok {
		r.bad(path, "must be a list")
	}
	return list
}

// text wants a text, which may be null only if it is optional.
func (r *reader) text(path string, v any, optional bool) string {
	s, ok := v.(string)
	if v == nil && optional {
		return ""
	}
	if !ok || s == "" {
		r.bad(path, "must be a text that is not empty")
	}
	return s
}

// number wants an integer between bounds.
func (r *reader) number(path string, v any, least, most int64) int64 {
	digits, ok := v.(record.Integer)
	n, err := strconv.ParseInt(string(digits), 10, 64)
	if !ok || err != nil || n < least || n > most {
		r.bad(path, "must be an integer from %d to %d", least, most)
		return least
	}
	return n
}

func (r *reader) boolean(path string, v any) bool {
	b, ok := v.(bool)
	if !ok {
		r.bad(path, "must be true or false")
	}
	return b
}

// time reads what record.EventTime.String writes.
func (r *reader) time(path string, v any) record.EventTime {
	s, _ := v.(string)
	switch s {
	case record.NoTime.String():
		return record.NoTime
	case record.MaxTime.String():
		return record.MaxTime
	}
	t, err := record.ParseTime([]byte(s))
	if err != nil || t.String() != s {
		r.bad(path, "must be a time in UTC, %q or %q", record.NoTime, record.MaxTime)
	}
	return t
}

func (r *reader) digest(path string, v any, prefix string) string {
	s, _ := v.(string)
	hex, ok := strings.CutPrefix(s, prefix)
	if !ok || CheckName(hex) != nil {
		r.bad(path, "must be %q and 64 lower-case hex digits", prefix)
	}
	return s
}

func (r *reader) manifest(v any) *Manifest {
	top, _ := v.(map[string]any)
	if format, _ := top["format"].(string); format != Format {
		r.bad(".format", "must be %q", Format)
		return &Manifest{}
	}
	if version := r.number(".version", top["version"], 1, math.MaxInt64); version > Version {
		r.newer = codes.New(codes.StoreNewer, "the manifest has version %d, and this weir reads version %d", version, Version)
		return &Manifest{}
	}
	r.object("", v, "format", "version", hashKey, "store", "run", "status", "epoch", "fence_token", "watermark", "source", "flow", "state_schema", "partitions", "sink")
	m := &Manifest{
		hash: r.digest("."+hashKey, top[hashKey], record.HashPrefix), StoreID: r.text(".store", top["store"], false), RunID: r.text(".run", top["run"], false),
		Status: control.RunStatus(r.text(".status", top["status"], false)), Epoch: uint64(r.number(".epoch", top["epoch"], 1, math.MaxInt64)),
		Fence: control.FenceToken(r.number(".fence_token", top["fence_token"], 0, math.MaxInt64)), Watermark: r.time(".watermark", top["watermark"]),
		StateSchema: int(r.number(".state_schema", top["state_schema"], 1, math.MaxInt32)),
	}
	if m.Status != control.RunOpen && m.Status != control.RunFinished {
		r.bad(".status", "must be %s or %s", control.RunOpen, control.RunFinished)
	}
	source := r.object(".source", top["source"], "name", "id")
	m.Source, m.SourceID = r.text(".source.name", source["name"], false), r.text(".source.id", source["id"], true)
	m.Flow = r.flow(top["flow"])
	for i, p := range r.list(".partitions", top["partitions"]) {
		m.Partitions = append(m.Partitions, r.partition(fmt.Sprintf(".partitions[%d]", i), p))
		if i > 0 && m.Partitions[i].Partition <= m.Partitions[i-1].Partition {
			r.bad(fmt.Sprintf(".partitions[%d]", i), "partitions must come in order, each once")
		}
	}
	if len(m.Partitions) == 0 {
		r.bad(".partitions", "must not be empty")
	}
	r.sink(top["sink"], m)
	return m
}

func (r *reader) flow(v any) FlowInfo {
	o := r.object(".flow", v, "fingerprint", "name", "plan", "state_versions")
	f := FlowInfo{Fingerprint: r.text(".flow.fingerprint", o["fingerprint"], false), Name: r.text(".flow.name", o["name"], true)}
	if o["plan"] == nil && o["state_versions"] == nil && f.Name == "" {
		return f
	}
	var ok bool
	if f.Plan, ok = o["plan"].(map[string]any); !ok || f.Name == "" {
		r.bad(".flow", "a name comes with a plan and its state versions")
	}
	versions, ok := o["state_versions"].(map[string]any)
	if !ok {
		r.bad(".flow.state_versions", "must be an object")
	}
	f.StateVersions = map[string]int64{}
	for _, name := range slices.Sorted(maps.Keys(versions)) {
		f.StateVersions[name] = r.number(fmt.Sprintf(".flow.state_versions.%.60s", name), versions[name], 0, math.MaxInt32)
	}
	return f
}

func (r *reader) partition(path string, v any) Partition {
	o := r.object(path, v, "partition", "cut", "state")
	p := Partition{Partition: int32(r.number(path+".partition", o["partition"], 0, math.MaxInt32))}
	if o["cut"] == nil && o["state"] == nil {
		return p
	}
	p.Committed = true
	cut := r.object(path+".cut", o["cut"], "next", "watermark", "finished", "counts")
	next, err := record.ParsePosition(r.text(path+".cut.next", cut["next"], false))
	if err != nil {
		r.bad(path+".cut.next", "must be a position: %v", err)
	}
	p.Cut = partitions.Cut{Partition: p.Partition, Next: next, Watermark: r.time(path+".cut.watermark", cut["watermark"]),
		Finished: r.boolean(path+".cut.finished", cut["finished"]), Counts: r.counts(path+".cut.counts", cut["counts"])}
	p.State = r.state(path+".state", o["state"])
	return p
}

func (r *reader) counts(path string, v any) (c partitions.Counts) {
	fields := map[string]*int64{"records": &c.Records, "consumed": &c.Consumed, "filtered": &c.Filtered, "omitted": &c.Omitted,
		"duplicates": &c.Duplicates, "late": &c.Late, "future": &c.Future, "outputs": &c.Outputs}
	names := slices.Sorted(maps.Keys(fields))
	o := r.object(path, v, names...)
	for _, name := range names {
		*fields[name] = r.number(path+"."+name, o[name], 0, math.MaxInt64)
	}
	return c
}

func (r *reader) state(path string, v any) (refs []StateRef) {
	nodes, ok := v.(map[string]any)
	if !ok {
		r.bad(path, "must be an object")
	}
	for _, node := range slices.Sorted(maps.Keys(nodes)) {
		for i, b := range r.list(path+"."+node, nodes[node]) {
			at := fmt.Sprintf("%s.%.60s[%d]", path, node, i)
			o := r.object(at, b, "name", "sha256", "size")
			ref := StateRef{Name: r.text(at+".name", o["name"], false), SHA256: r.digest(at+".sha256", o["sha256"], ""), Size: r.number(at+".size", o["size"], 0, math.MaxInt64)}
			if ref.Node() != node {
				r.bad(at+".name", "does not belong to %q", node)
			}
			refs = append(refs, ref)
		}
	}
	if !slices.IsSortedFunc(refs, func(a, b StateRef) int { return strings.Compare(a.Name, b.Name) }) {
		// Nodes and the blobs of each come in order, so all do, unless one has a place that is not its own.
		r.bad(path, "blobs must come in the order of their names")
	}
	for i := 1; i < len(refs); i++ {
		if refs[i].Name == refs[i-1].Name {
			r.bad(path, "names %.80q twice", refs[i].Name)
		}
	}
	return refs
}

func (r *reader) sink(v any, m *Manifest) {
	o := r.object(".sink", v, "through_epoch", "rows")
	if n := r.number(".sink.through_epoch", o["through_epoch"], 1, math.MaxInt64); uint64(n) != m.Epoch {
		r.bad(".sink.through_epoch", "must be the epoch")
	}
	rows := r.list(".sink.rows", o["rows"])
	if len(rows) != len(m.Partitions) {
		r.bad(".sink.rows", "must have one entry for each partition")
		return
	}
	for i, v := range rows {
		at := fmt.Sprintf(".sink.rows[%d]", i)
		o := r.object(at, v, "partition", "rows")
		n := r.number(at+".partition", o["partition"], 0, math.MaxInt32)
		if outputs := r.number(at+".rows", o["rows"], 0, math.MaxInt64); int32(n) != m.Partitions[i].Partition || outputs != m.Partitions[i].Cut.Counts.Outputs {
			r.bad(at, "must agree with the partition's outputs")
		}
	}
}
