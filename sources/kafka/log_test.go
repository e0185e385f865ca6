package kafka_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// topicLog is what a topic holds, read past the product: it tells a record that stands twice in the log from one that was delivered twice.
type topicLog struct {
	ends map[int32]int64
	// records of each partition in the order of the log.
	records map[int32][]*kgo.Record
}

// readLog reads a topic up to its present ends.
func readLog(ctx context.Context, addr, topic string) (*topicLog, error) {
	cl, err := kgo.NewClient(kgo.SeedBrokers(addr), kgo.DisableClientMetrics(), kgo.ConsumeTopics(topic), kgo.KeepControlRecords(),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		return nil, err
	}
	defer cl.Close()
	ends, err := kadm.NewClient(cl).ListEndOffsets(ctx, topic)
	if err == nil {
		err = ends.Error()
	}
	if err != nil {
		return nil, err
	}
	l := &topicLog{ends: map[int32]int64{}, records: map[int32][]*kgo.Record{}}
	behind := map[int32]bool{}
	ends.Each(func(o kadm.ListedOffset) { l.ends[o.Partition], behind[o.Partition] = o.Offset, o.Offset > 0 })
	for slices.Contains(slices.Collect(maps.Values(behind)), true) {
		fetches := cl.PollFetches(ctx)
		if err := fetches.Err0(); err != nil {
			return nil, err
		}
		fetches.EachRecord(func(r *kgo.Record) {
			if !r.Attrs.IsControl() && r.Offset < l.ends[r.Partition] {
				l.records[r.Partition] = append(l.records[r.Partition], r)
			}
			if r.Offset+1 >= l.ends[r.Partition] {
				behind[r.Partition] = false
			}
		})
	}
	return l, nil
}

// eventID is the id of an event that ticks made, or the record's place if it has none.
func eventID(r *kgo.Record) string {
	var event struct {
		ID string `json:"event_id"`
	}
	if err := json.Unmarshal(r.Value, &event); err != nil || event.ID == "" {
		return fmt.Sprintf("offset %d", r.Offset)
	}
	return event.ID
}

// String says where the partitions end, and what stands twice or out of its order in them.
func (l *topicLog) String() string {
	var parts []string
	for p := range int32(len(l.ends)) {
		first, again, odd := map[string]int64{}, []string{}, ""
		for i, r := range l.records[p] {
			id := eventID(r)
			if before, seen := first[id]; seen {
				again = append(again, fmt.Sprintf("%s at %d and %d", id, before, r.Offset))
				continue
			}
			first[id] = r.Offset
			if want := fmt.Sprintf("%d-%d", p, i-len(again)); odd == "" && id != want {
				odd = fmt.Sprintf(", %s stands at offset %d, where %s is expected", id, r.Offset, want)
			}
		}
		text := fmt.Sprintf("partition %d of the log ends at %d and holds %d records%s", p, l.ends[p], len(l.records[p]), odd)
		if n := len(again); n > 0 {
			text += fmt.Sprintf(", %d of them a second time: %s … %s", n, again[0], again[n-1])
		}
		parts = append(parts, text)
	}
	return strings.Join(parts, "; ")
}

// logText is what a topic holds, for the message of a failed test.
func logText(addr, topic string) string {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	l, err := readLog(ctx, addr, topic)
	if err != nil {
		return fmt.Sprintf("the log cannot be read: %v", err)
	}
	return l.String()
}

// wantLog holds the log itself against what a test has written: events 0 to n-1 of each partition, once, in order. When it fails, the producer has
// done something else than the test meant, and nothing of the reader is shown.
func wantLog(t testing.TB, addr, topic string, perPartition ...int) {
	t.Helper()
	l, err := readLog(t.Context(), addr, topic)
	if err != nil {
		t.Fatalf("the log cannot be read: %v", err)
	}
	for p, n := range perPartition {
		recs := l.records[int32(p)]
		ok := len(recs) == n
		for i := 0; ok && i < n; i++ {
			ok = eventID(recs[i]) == fmt.Sprintf("%d-%d", p, i)
		}
		if !ok {
			t.Fatalf("the test's own producer did not write what it was given, %d events to partition %d: %v", n, p, l)
		}
	}
}
