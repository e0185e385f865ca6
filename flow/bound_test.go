package flow_test

import (
	"math"
	"strings"
	"testing"

	"github.com/weirstream/weir/flow"
	"github.com/weirstream/weir/record"
)

func TestMemoryBound(t *testing.T) {
	t.Parallel()
	p := parse(t, head+"limits: {ids: 1000, keys: 10, reorder: 100}\n")
	b := p.MemoryBound(3)
	want := map[string]int64{
		"event ids":         1000 * flow.BytesPerID,
		"waiting records":   100 * (flow.BytesPerReorder + 3*flow.AssumedIDBytes + flow.BytesPerInput),
		"keys":              10 * (flow.BytesPerKey + 2*flow.AssumedKeyBytes + 2*int64(p.Nodes[0].StateBytes) + flow.BytesPerNode),
		"rows of results":   (100 + flow.CreditRecords) * (flow.BytesPerRow + flow.AssumedIDBytes + flow.AssumedKeyBytes + flow.BytesPerValue),
		"records in flight": flow.CreditRecords * flow.BytesPerRecord,
		"bytes in flight":   flow.CreditBytes,
		"results waiting":   2 * flow.EpochBytes,
	}
	var sum int64
	for _, item := range b.Items {
		if item.Bytes != want[item.Name] || item.Bytes != item.Count*item.Each || item.Assumes == "" {
			t.Errorf("%+v, want %d bytes", item, want[item.Name])
		}
		delete(want, item.Name)
		sum += item.Bytes
	}
	if len(want) > 0 {
		t.Errorf("items are missing: %v", want)
	}
	if b.PerPartition != sum || b.Collector != 3*sum || b.Total != 6*sum+flow.ProcessBytes {
		t.Errorf("bound %+v, items sum to %d", b, sum)
	}
}

// Every part of a flow that costs memory raises the bound, and so does every partition.
func TestMemoryBoundGrows(t *testing.T) {
	t.Parallel()
	total := func(src string, partitions int) int64 { return parse(t, src).MemoryBound(partitions).Total }
	least := total(head+"limits: {ids: 1, keys: 1, reorder: 1, ticks: 1}\n", 1)
	for name, more := range map[string]int64{
		"ids":     total(head+"limits: {ids: 2, keys: 1, reorder: 1, ticks: 1}\n", 1),
		"keys":    total(head+"limits: {ids: 1, keys: 2, reorder: 1, ticks: 1}\n", 1),
		"reorder": total(head+"limits: {ids: 1, keys: 1, reorder: 2, ticks: 1}\n", 1),
		"grid":    total(head+"limits: {ids: 1, keys: 1, reorder: 1, ticks: 1}\nclock: {every: 1s}\n", 1),
		"ticks":   total(head+"limits: {ids: 1, keys: 1, reorder: 1, ticks: 2}\nclock: {every: 1s}\n", 1),
		"node":    total(strings.Replace(head, "last", "sma, period: 50", 1)+"limits: {ids: 1, keys: 1, reorder: 1, ticks: 1}\n", 1),
		"gaps":    total(head+"limits: {ids: 1, keys: 1, reorder: 1, ticks: 1}\nsequence: {field: s, gap_hold: 1s}\n", 1),
		"two":     total(head+"limits: {ids: 1, keys: 1, reorder: 1, ticks: 1}\n", 2),
	} {
		if more <= least {
			t.Errorf("%s: %d, not more than %d", name, more, least)
		}
	}
	if none, one := total(head, 0), total(head, 1); none != one {
		t.Errorf("no partition: %d, one: %d", none, one)
	}
	huge := parse(t, head+"limits: {ids: 2147483647, keys: 2147483647, reorder: 2147483647}\n").MemoryBound(math.MaxInt)
	if huge.Total != math.MaxInt64 {
		t.Errorf("the bound went round: %d", huge.Total)
	}
}

// What `weir plan` shows is made of the same figures in both forms.
func TestDescribe(t *testing.T) {
	t.Parallel()
	p := parse(t, golden(t))
	b, err := record.AppendJSON(nil, p.Describe(4))
	if err != nil {
		t.Fatal(err)
	}
	v, err := record.Decode(b)
	if err != nil {
		t.Fatal(err)
	}
	d := v.(map[string]any)
	if d["fingerprint"] != p.Fingerprint || len(d["nodes"].([]any)) != 1 {
		t.Errorf("description %s", b)
	}
	memory := d["memory"].(map[string]any)
	if memory["partitions"] != record.Integer("4") || len(memory["items"].([]any)) != len(p.MemoryBound(4).Items) {
		t.Errorf("memory %v", memory)
	}
	if !strings.Contains(p.Text(4), p.MemoryBound(4).String()) {
		t.Error("the text has another bound")
	}
}
