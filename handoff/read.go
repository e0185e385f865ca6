package handoff

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/control"
	"github.com/weirstream/weir/record"
)

// MaxSize is the most that a manifest may have, in bytes: far more than 100,000 partitions take.
const MaxSize = 32 << 20

// Read reads a manifest strictly: every member is there, of its type and in its range, no other is, and the hash is that of the body. The
// error is DOCUMENT_INVALID and names everything that is wrong. name stands for the file in it.
func Read(name string, src []byte) (Manifest, error) {
	v, err := record.Decode(src)
	if err != nil {
		return Manifest{}, codes.New(codes.DocumentInvalid, "%s: %w", name, err)
	}
	r := reader{}
	m := r.manifest(v)
	if len(r.wrong) == 0 {
		body := m.body()
		if want, err := hashOf(body); err != nil || want != m.Hash {
			r.refuse("hash", "is %q and that of the content %q: the manifest was changed after it was written", m.Hash, want)
		}
	}
	if len(r.wrong) > 0 {
		return Manifest{}, codes.New(codes.DocumentInvalid, "%s is no manifest of a hand-over: %s", name, strings.Join(r.wrong, "; "))
	}
	return m, nil
}

// reader takes members and notes what is wrong with them.
type reader struct{ wrong []string }

// mostWrong bounds the message; a file that is wrong throughout is another kind of file.
const mostWrong = 50

func (r *reader) refuse(path, format string, args ...any) {
	switch {
	case len(r.wrong) < mostWrong:
		r.wrong = append(r.wrong, path+" "+fmt.Sprintf(format, args...))
	case len(r.wrong) == mostWrong:
		r.wrong = append(r.wrong, "and more")
	}
}

func (r *reader) manifest(v any) (m Manifest) {
	o := r.object("the document", v, "format", "kind", "run_id", "fingerprint", "group", "source", "epoch", "fence_token", "watermark", "partitions", "checkpoint", "history", "hash")
	if o == nil {
		return m
	}
	if f := r.text("format", o["format"]); f != Format {
		r.refuse("format", "is %.40q; this weir reads %q", f, Format)
	}
	m.Kind = Kind(r.text("kind", o["kind"]))
	m.RunID, m.Fingerprint = r.optional("run_id", o["run_id"]), r.optional("fingerprint", o["fingerprint"])
	m.Group = r.text("group", o["group"])
	if s := r.object("source", o["source"], "name", "id"); s != nil {
		m.Source, m.SourceID = r.text("source.name", s["name"]), r.text("source.id", s["id"])
	}
	m.Epoch = r.number("epoch", o["epoch"])
	m.Fence = r.token("fence_token", o["fence_token"])
	m.Watermark = r.time("watermark", o["watermark"])
	m.Partitions = r.partitions(o["partitions"])
	if v := o["checkpoint"]; v != nil {
		if c := r.object("checkpoint", v, "run_id", "epoch", "manifest_hash"); c != nil {
			m.Checkpoint = &Checkpoint{RunID: r.text("checkpoint.run_id", c["run_id"]), Epoch: r.number("checkpoint.epoch", c["epoch"]), ManifestHash: r.hash("checkpoint.manifest_hash", c["manifest_hash"])}
		}
	}
	if v := o["history"]; v != nil {
		if h := r.object("history", v, "id", "records"); h != nil {
			m.History = &History{ID: r.text("history.id", h["id"]), Records: int64(r.number("history.records", h["records"]))}
		}
	}
	m.Hash = r.hash("hash", o["hash"])
	r.sense(&m)
	return m
}

// sense checks the members against each other.
func (r *reader) sense(m *Manifest) {
	if m.Source == "" {
		r.refuse("source.name", "is empty")
	}
	switch m.Kind {
	case KindOwner, KindBatch:
		if m.RunID == "" || m.Fingerprint == "" {
			r.refuse("run_id, fingerprint", "are null, and a manifest of the kind %s is that of a run", m.Kind)
		}
		if (m.History != nil) != (m.Kind == KindBatch) {
			r.refuse("history", "belongs to the kind BATCH, and only there; the kind is %s", m.Kind)
		}
		if c := m.Checkpoint; c != nil && (c.Epoch > m.Epoch || c.RunID != m.RunID) {
			r.refuse("checkpoint", "is of run %.80q, epoch %d, and the run %.80q stands at epoch %d", c.RunID, c.Epoch, m.RunID, m.Epoch)
		}
	case KindMark:
		if m.RunID != "" || m.Fingerprint != "" || m.Group != "" || m.Epoch != 0 || m.Fence != 0 || m.Watermark != record.NoTime || m.Checkpoint != nil || m.History != nil {
			r.refuse("kind", "is MARK, which belongs to a topic, and the manifest names a run")
		}
	default:
		r.refuse("kind", "is %.40q; the kinds are OWNER, BATCH and MARK", m.Kind)
	}
}

func (r *reader) partitions(v any) []Partition {
	list, ok := v.([]any)
	if !ok || len(list) == 0 {
		r.refuse("partitions", "is no list, or an empty one")
		return nil
	}
	var all []Partition
	for i, v := range list {
		path := fmt.Sprintf("partitions[%d]", i)
		o := r.object(path, v, "partition", "next", "high_water", "watermark")
		if o == nil {
			continue
		}
		n := r.number(path+".partition", o["partition"])
		if n > math.MaxInt32 {
			r.refuse(path+".partition", "is %d, which no partition has", n)
			continue
		}
		p := Partition{Partition: int32(n), Next: r.position(path+".next", o["next"]), Watermark: r.time(path+".watermark", o["watermark"])}
		if end := o["high_water"]; end != nil {
			at := r.position(path+".high_water", end)
			p.HighWater = &at
			if p.Next.Cmp(at) > 0 {
				r.refuse(path+".next", "is %s, behind the end of the log, %s", p.Next, at)
			}
		}
		if k := len(all); k > 0 && all[k-1].Partition >= p.Partition {
			r.refuse(path+".partition", "is %d, and does not follow %d", p.Partition, all[k-1].Partition)
		}
		all = append(all, p)
	}
	return all
}

// object checks that exactly these members are there.
func (r *reader) object(path string, v any, members ...string) map[string]any {
	o, ok := v.(map[string]any)
	if !ok {
		r.refuse(path, "is no object")
		return nil
	}
	for _, name := range members {
		if _, there := o[name]; !there {
			r.refuse(path, "lacks %q", name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(o)) {
		if !slices.Contains(members, name) {
			r.refuse(path, "has %.40q, which is not known", name)
		}
	}
	return o
}

func (r *reader) text(path string, v any) string {
	s, ok := v.(string)
	if !ok {
		r.refuse(path, "is no text")
	}
	return s
}

// optional is "" for null; the text "" is refused, since it would be written as null.
func (r *reader) optional(path string, v any) string {
	if v == nil {
		return ""
	}
	s := r.text(path, v)
	if s == "" {
		r.refuse(path, "is empty")
	}
	return s
}

func (r *reader) number(path string, v any) uint64 {
	n, ok := v.(record.Integer)
	u, err := strconv.ParseInt(string(n), 10, 64)
	if !ok || err != nil || u < 0 {
		r.refuse(path, "is no integer from 0 to 2^63 - 1")
		return 0
	}
	return uint64(u)
}

func (r *reader) token(path string, v any) control.FenceToken {
	s, _ := v.(string)
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil || strconv.FormatUint(n, 10) != s {
		r.refuse(path, "is no decimal of 64 bits in quotes")
	}
	return control.FenceToken(n)
}

func (r *reader) position(path string, v any) record.Position {
	s, _ := v.(string)
	p, err := record.ParsePosition(s)
	if err != nil {
		r.refuse(path, "is no position (a decimal in quotes): %v", err)
	}
	return p
}

func (r *reader) time(path string, v any) record.EventTime {
	if v == nil {
		return record.NoTime
	}
	s, _ := v.(string)
	t, err := record.ParseTime([]byte(s))
	if err != nil || t.String() != s {
		r.refuse(path, "is no time as weir writes it, such as 2026-01-05T15:00:00Z")
		return record.NoTime
	}
	return t
}

func (r *reader) hash(path string, v any) string {
	s, _ := v.(string)
	hex, ok := strings.CutPrefix(s, record.HashPrefix)
	if !ok || len(hex) != 64 || strings.Trim(hex, "0123456789abcdef") != "" {
		r.refuse(path, "is no hash: sha256: and 64 hex digits")
	}
	return s
}
