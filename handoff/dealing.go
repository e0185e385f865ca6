package handoff

import (
	"slices"
	"strconv"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/flow"
	"github.com/weirstream/weir/record"
)

// Dealing holds records of a topic against the way in which a history is dealt to its partitions. Where a producer deals keys otherwise, the
// state that a history leaves for a key would lie in a partition that the key never comes to, and nothing else would tell.
type Dealing struct {
	// Checked counts the records whose key could be told.
	Checked int64

	plan       *flow.Plan
	topic      string
	partitions int32
	scanner    *record.Scanner
	fields     []record.Field
}

// NewDealing is for a topic of so many partitions.
func NewDealing(plan *flow.Plan, topic string, partitions int32) *Dealing {
	names := []string{plan.KeyField}
	if plan.SelectField != "" && plan.SelectField != plan.KeyField {
		names = append(names, plan.SelectField)
	}
	return &Dealing{plan: plan, topic: topic, partitions: partitions, scanner: record.NewScanner(names), fields: make([]record.Field, len(names))}
}

// Check fails with CONFIG_INVALID at the first selected record whose key, as the flow reads it, belongs to another partition. What cannot be
// read says nothing.
func (d *Dealing) Check(b *record.Batch) error {
	for i := range b.Records {
		r := &b.Records[i]
		if r.Value == nil || d.scanner.Scan(r.Value, d.fields) != nil {
			continue
		}
		key, ok := asText(d.fields[0])
		if !ok || !d.selected() {
			continue
		}
		d.Checked++
		if want := record.PartitionOf(key, d.partitions); want != b.Partition {
			return codes.New(codes.ConfigInvalid, "topic %q, partition %d, position %s: the key %.40s (field %q) stands there, and Kafka's default partitioner deals it to partition %d: "+
				"its producer deals keys otherwise, or by another field, and the history of a key would not meet the key. Publish the history to the topic instead (`weir replay publish`)",
				d.topic, b.Partition, r.Position, strconv.Quote(string(key)), d.plan.KeyField, want)
		}
	}
	return nil
}

func (d *Dealing) selected() bool {
	if d.plan.SelectField == "" {
		return true
	}
	v, ok := asText(d.fields[len(d.fields)-1])
	return ok && slices.Contains(d.plan.SelectValues, string(v))
}

// asText is a key as the flow reads it: a string, or the digits of an integer.
func asText(f record.Field) ([]byte, bool) {
	switch {
	case f.Kind == record.String:
		return f.Raw, true
	case !f.IsInteger():
		return nil, false
	case string(f.Raw) == "-0":
		return []byte("0"), true
	}
	return f.Raw, true
}
