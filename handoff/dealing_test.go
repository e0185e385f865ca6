package handoff_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/handoff"
	"github.com/weirstream/weir/record"
)

func TestDealing(t *testing.T) {
	t.Parallel()
	plan := planOf(t, strings.Replace(flowText, "lateness", "select: {field: kind, in: [trade]}\nlateness", 1))
	const parts = 4
	value := func(key, kind string) record.Record {
		return record.Record{Value: fmt.Appendf(nil, `{"kind":%q,"key":%s}`, kind, key)}
	}
	for key, text := range map[string]string{`"abc"`: "abc", "17": "17", "-0": "0"} {
		home := record.PartitionOf([]byte(text), parts)
		d := handoff.NewDealing(plan, "ticks", parts)
		if err := d.Check(&record.Batch{Partition: home, Records: []record.Record{value(key, "trade")}}); err != nil || d.Checked != 1 {
			t.Errorf("key %s at home: %v, %d checked", key, err, d.Checked)
		}
		away := &record.Batch{Partition: (home + 1) % parts, Records: []record.Record{{Value: []byte("{")}, {}, value("null", "trade"), value(key, "quote"), value(key, "trade")}}
		if err := d.Check(away); !codes.Has(err, codes.ConfigInvalid) || !strings.Contains(err.Error(), fmt.Sprintf("partition %d", home)) || d.Checked != 2 {
			t.Errorf("key %s away: %v, %d checked", key, err, d.Checked)
		}
	}
}
