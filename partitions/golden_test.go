package partitions

import (
	"bufio"
	"cmp"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/weirstream/weir/record"
)

const goldenFlow = `
flow: weir/1
name: golden
select: {field: instrument, equals: "1"}
id: event_id
key: instrument
time: {field: event_time, unit: rfc3339}
revision: revision
operators: [{name: ema3, type: ema, input: close, period: 3}]
outputs: [ema3]
`

const (
	goldenHash    = "sha256:9e906a09a1c594964c16291a77cb38b0ffb021e69c230d71d1dd77ebbd6a7877"
	thirdPassHash = "sha256:fe5812e2c0e34f0146edf1e13d6efbc0a6e4574173b998b70019920fcfae6515"
)

// goldenArrivals are the 23 arrivals of the published fault schedule over the snapshot: a duplicate, a delay of 2 s, a tombstone
// in place of an event, a revision two minutes later, a burst of three more deliveries. (Pause and source failure move no record.)
func goldenArrivals(t testing.TB) []record.Record {
	t.Helper()
	f, err := os.Open("testdata/snapshot.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	type arrival struct {
		id, value string
		after     record.EventTime
	}
	var arrivals []arrival
	scanner := record.NewScanner([]string{"event_id", "event_time"})
	fields := make([]record.Field, 2)
	for lines := bufio.NewScanner(f); lines.Scan(); {
		value := lines.Text()
		if err := scanner.Scan([]byte(value), fields); err != nil {
			t.Fatal(err)
		}
		at, err := record.ParseTime(fields[1].Raw)
		if err != nil {
			t.Fatal(err)
		}
		arrivals = append(arrivals, arrival{id: string(fields[0].Raw), value: value, after: at})
	}
	var late []arrival
	var log []arrival
	flush := func(now record.EventTime) {
		slices.SortStableFunc(late, func(a, b arrival) int { return cmp.Compare(a.after, b.after) })
		for len(late) > 0 && late[0].after < now {
			log, late = append(log, late[0]), late[1:]
		}
	}
	const second = record.EventTime(1_000_000_000)
	for _, a := range arrivals {
		flush(a.after)
		switch strings.TrimPrefix(a.id, "fixture.event.") {
		case "0.2":
			log = append(log, a, a)
		case "0.3":
			a.after += 2 * second
			late = append(late, a)
		case "1.1":
			a.value = ""
			log = append(log, a)
		case "2.2":
			log = append(log, a)
			a.value = strings.Replace(a.value, `"close":99.75`, `"close":100.25,"revision":1`, 1)
			a.after += 120 * second
			late = append(late, a)
		case "2.4":
			log = append(log, a, a, a, a)
		default:
			log = append(log, a)
		}
	}
	flush(record.MaxTime)
	records := make([]record.Record, len(log))
	for i, a := range log {
		instrument := string('1' + a.id[len("fixture.event.")] - '0')
		records[i] = record.Record{
			Position: record.Offset(int64(i)), Arrival: a.after, Key: []byte(instrument), Value: []byte(a.value),
			Headers: []record.Header{{Key: record.HeaderEventID, Value: []byte(a.id)}},
		}
		if a.value == "" {
			records[i].Value = nil
		}
	}
	return records
}

func TestGoldenValues(t *testing.T) {
	t.Parallel()
	log := goldenArrivals(t)
	if len(log) != 23 {
		t.Fatalf("%d arrivals, want 23", len(log))
	}
	h := newHarness(parsePlan(t, goldenFlow), 0)
	h.deliver(t, log)
	h.finish(t, record.NoTime)
	if got := string(values(h.rows)); got != "[null,null,2.0,3.0,4.0,5.0]" {
		t.Errorf("values %s", got)
	}
	if got := record.Hash(values(h.rows)); got != goldenHash {
		t.Errorf("hash %s", got)
	}
	if want := (Counts{Records: 23, Consumed: 6, Filtered: 15, Omitted: 1, Duplicates: 1, Outputs: 6}); h.m.Counts() != want {
		t.Errorf("counts %+v, want %+v", h.m.Counts(), want)
	}
	same(t, "set aside", h.quarantine, []string{
		`4 TOMBSTONE id="fixture.event.1.1" at=none key="2" value="": the record has a key and no value`,
	})
}

// Once a run published the third pass over the same six events on one EMA state, because the position that it resumed from stood
// behind accepted records that were not part of the saved state, and neither were the event ids. The log is published three times and
// the worker is killed at every boundary of a record, before and after the cut there: the six values must come out once.
func TestThirdPassDefect(t *testing.T) {
	t.Parallel()
	plan := parsePlan(t, goldenFlow)
	once := goldenArrivals(t)
	var log []record.Record
	for range 3 {
		for _, r := range once {
			r.Position = record.Offset(int64(len(log)))
			log = append(log, r)
		}
	}
	h := newHarness(plan, 0)
	h.cut(t)
	kept := len(h.rows)
	for i := range log {
		// Killed before the commit: what was done since the last cut is lost, with its rows.
		h.deliver(t, log[i:min(i+2, len(log))])
		h.crash(t)
		h.rows = h.rows[:kept]
		if h.m.Next() != log[i].Position {
			t.Fatalf("resumes at %s, the last cut is at %s", h.m.Next(), log[i].Position)
		}
		h.deliver(t, log[i:i+1])
		h.cutAndCrash(t)
		kept = len(h.rows)
	}
	h.finish(t, record.NoTime)
	h.cutAndCrash(t)
	got := record.Hash(values(h.rows))
	if got == thirdPassHash {
		t.Fatal("the third pass is back")
	}
	if got != goldenHash || len(h.rows) != 6 {
		t.Errorf("%d values %s", len(h.rows), values(h.rows))
	}
	if want := (Counts{Records: 69, Consumed: 6, Filtered: 45, Omitted: 3, Duplicates: 15, Outputs: 6}); h.m.Counts() != want {
		t.Errorf("counts %+v, want %+v", h.m.Counts(), want)
	}
}
