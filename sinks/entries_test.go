package sinks_test

import (
	"bytes"
	"testing"
	"time"

	"github.com/weirstream/weir/partitions"
	"github.com/weirstream/weir/record"
	"github.com/weirstream/weir/sinks"
)

// The text of an entry is canonical JSON and holds all that is known of a late event.
func TestEntryText(t *testing.T) {
	t.Parallel()
	full := partitions.Quarantined{
		Partition: 2, Position: record.Offset(40), Reason: partitions.ReasonLate, EventID: "e", EventTime: 5 * record.EventTime(time.Second), Arrival: 9 * record.EventTime(time.Second),
		Key: []byte("k"), Value: []byte{0xff}, Headers: []record.Header{{Key: "a", Value: []byte("b")}, {Key: "c"}, {Key: "d", Value: []byte("\x00")}},
		Detail: "event time is 3s older than the watermark 1970-01-01T00:00:08Z, which the record at 17 holds, with the event time 1970-01-01T00:00:09Z",
	}
	bare := partitions.Quarantined{Partition: 2, Position: record.Offset(41), Reason: partitions.ReasonLate, EventTime: 1, Arrival: record.NoTime,
		Detail: "event time is 1s older than the watermark 1970-01-01T00:00:08Z"}
	other := partitions.Quarantined{Partition: 2, Position: record.Offset(42), Reason: partitions.ReasonUnreadable}
	rows := sinks.LateEntries("r", 2, 9, []partitions.Quarantined{full, other, bare})
	want := []string{
		`{"arrival":"1970-01-01T00:00:09Z","entry":7,"event_id":"e","event_time":"1970-01-01T00:00:05Z","headers":[["a","b"],["c",null],["d",{"base64":"AA=="}]],"holder":{"event_time":"1970-01-01T00:00:09Z","position":"17"},` +
			`"key":"k","late_by":"3s","partition":2,"position":"40","reason":"LATE","run":"r","value":{"base64":"/w=="},"watermark":"1970-01-01T00:00:08Z"}`,
		`{"arrival":null,"entry":8,"event_id":"","event_time":"1970-01-01T00:00:00.000000001Z","headers":null,"holder":null,"key":null,"late_by":"1s","partition":2,"position":"41","reason":"LATE",` +
			`"run":"r","value":null,"watermark":"1970-01-01T00:00:08Z"}`,
	}
	json := sinks.NewJSON(sinks.Target{RunID: "r", Entries: true})
	n := 0
	err := rows.Each(0, nil, func(number int64, row *partitions.Row) error {
		text := json.Append(nil, 2, number, row)
		if canonical, err := record.Canonical(text); err != nil || !bytes.Equal(canonical, text) {
			t.Errorf("not canonical: %v: %s", err, text)
		}
		if string(text) != want[n] || number != int64(7+n) {
			t.Errorf("entry %d is\n%s\nwant\n%s", number, text, want[n])
		}
		n++
		return nil
	})
	if err != nil || n != 2 || rows.From != 7 {
		t.Errorf("%d entries from %d, %v", n, rows.From, err)
	}
	if none := sinks.LateEntries("r", 2, 9, []partitions.Quarantined{other}); none.Count != 0 || none.From != 9 {
		t.Errorf("%+v", none)
	}
}
