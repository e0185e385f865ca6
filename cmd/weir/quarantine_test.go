package main

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/consumer"
	"github.com/weirstream/weir/control"
	"github.com/weirstream/weir/control/sqlite"
	"github.com/weirstream/weir/internal/devbroker"
	"github.com/weirstream/weir/partitions"
	"github.com/weirstream/weir/record"
	sourcekafka "github.com/weirstream/weir/sources/kafka"
)

// asideStore makes a store whose run r-1 has set five records aside, one of them a dead letter.
func asideStore(t *testing.T, dir string) {
	t.Helper()
	store, err := sqlite.Open(t.Context(), sqlite.Config{Path: filepath.Join(dir, "weir.db")})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	if _, err := store.OpenRun(t.Context(), control.RunHeader{RunID: "r-1", Fingerprint: "f", Source: "in", Partitions: []int32{0, 1}}); err != nil {
		t.Fatal(err)
	}
	letter, err := consumer.Envelope(consumer.DeadLetter(record.Record{Position: record.Offset(7), Key: []byte("k7"), Value: []byte("seven"),
		Headers: []record.Header{{Key: "tenant", Value: []byte("a")}, {Key: partitions.HeaderRetryCount, Value: []byte("2")}}}, consumer.Origin{Source: "in", RunID: "r-1", Partition: 1, Attempts: 3, Reason: "no such account"}))
	if err != nil {
		t.Fatal(err)
	}
	at := func(p int32, n int64, reason, detail, id, key string, value []byte) partitions.Quarantined {
		return partitions.Quarantined{Partition: p, Position: record.Offset(n), Reason: reason, Detail: detail, EventID: id, EventTime: record.NoTime, Arrival: record.NoTime, Key: []byte(key), Value: value}
	}
	err = store.Commit(t.Context(), control.Commit{RunID: "r-1", Epoch: 1, Status: control.RunOpen, Watermark: record.NoTime, Partitions: []control.PartitionCommit{
		{Cut: partitions.Cut{Partition: 0, Next: record.Offset(10), Watermark: record.NoTime}, Quarantine: []partitions.Quarantined{
			at(0, 3, "LATE", "older than its watermark", "e3", "k3", []byte(`{"a":1}`)), at(0, 4, "UNREADABLE", "not JSON\x1b[31m", "", "k4", []byte{0xff, 0x00}), at(0, 5, "TOMBSTONE", "no value", "e5", "k5", nil)}},
		{Cut: partitions.Cut{Partition: 1, Next: record.Offset(10), Watermark: record.NoTime}, Quarantine: []partitions.Quarantined{
			at(1, 3, "LATE", "older than its watermark", "e6", "k6", []byte(`{"a":2}`)), at(1, 7, consumer.ReasonDeadLetter, "no such account", "", "k7", letter)}},
	}})
	if err != nil {
		t.Fatal(err)
	}
}

// landed are the records of a topic as key=value|headers, in the order of the partition that they are in.
func landed(t *testing.T, addr, topic string) (out []string) {
	t.Helper()
	s, err := sourcekafka.New(sourcekafka.Config{Brokers: []string{addr}, Topic: topic})
	if err != nil {
		t.Fatal(err)
	}
	_, bounds, err := s.Bounds(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if bounds[0].End == bounds[0].Start {
		return nil
	}
	r, err := s.Open(t.Context(), map[int32]record.Position{0: bounds[0].Start})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	for next := bounds[0].Start; next.Cmp(bounds[0].End) < 0; {
		batches, err := r.Poll(t.Context(), 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, b := range batches {
			for _, rec := range b.Records {
				line := fmt.Sprintf("%s=%q|", rec.Key, rec.Value)
				for _, h := range rec.Headers {
					line += fmt.Sprintf("%s:%s ", strings.TrimPrefix(h.Key, "weir-redriven-"), h.Value)
				}
				out = append(out, strings.TrimSpace(line))
			}
			next = b.Next
			b.Done()
		}
	}
	return out
}

func TestQuarantineOnTheCommandLine(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	asideStore(t, dir)
	list := must(t, dir, args("quarantine list r-1", onStore)...)
	for _, part := range []string{"LATE", "UNREADABLE", "TOMBSTONE", "DEAD_LETTER", "no such account", `not JSON\u001b[31m`, "e3", "k7"} {
		if !strings.Contains(list, part) {
			t.Errorf("%q is not in\n%s", part, list)
		}
	}
	if some := parse(t, must(t, dir, args("quarantine list r-1 --partition 1 --kinds LATE,DEAD_LETTER --limit 1 --json", onStore)...)); some["total"] != 2.0 || len(some["records"].([]any)) != 1 {
		t.Errorf("%v", some)
	}
	show := must(t, dir, args("quarantine show r-1 1 7", onStore)...)
	for _, part := range []string{"value        seven", "tenant: a", "weir-dead-attempts: 3", "weir-dead-source: in", "DEAD_LETTER: no such account"} {
		if !strings.Contains(show, part) {
			t.Errorf("%q is not in\n%s", part, show)
		}
	}
	one := parse(t, must(t, dir, args("quarantine show r-1 0 4 --json", onStore)...))["records"].([]any)[0].(map[string]any)
	if one["value_base64"] != "/wA=" || one["key"] != "k4" || one["headers"] != nil {
		t.Errorf("%v", one)
	}
	if text := must(t, dir, args("quarantine show r-1 0 5", onStore)...); !strings.Contains(text, "value        (none)") {
		t.Errorf("%s", text)
	}
	refused(t, dir, 3, []string{"REQUEST_INVALID", "position 9"}, args("quarantine show r-1 0 9", onStore)...)
	refused(t, dir, 2, []string{"not a position"}, args("quarantine show r-1 0 x", onStore)...)
	refused(t, dir, 2, []string{"not the number of a partition"}, args("quarantine show r-1 x 1", onStore)...)
	refused(t, dir, 3, []string{"RUN_UNKNOWN"}, args("quarantine list other", onStore)...)
}

func TestRedrive(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	asideStore(t, dir)
	b, err := devbroker.Start(devbroker.Config{Partitions: 1, Topics: []string{"again", "other"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	to := func(topic string) []string { return []string{"--brokers", b.Addr(), "--topic", topic} }

	// By default nothing is published.
	if out := must(t, dir, args("quarantine redrive r-1", onStore, to("again"))...); !strings.Contains(out, "nothing was published; --apply publishes these 5") {
		t.Errorf("%s", out)
	}
	if got := landed(t, b.Addr(), "again"); got != nil {
		t.Errorf("%q", got)
	}
	why := []string{"--apply", "--reason", "the decoder is mended", "--who", "ana"}
	done := parse(t, must(t, dir, args("quarantine redrive r-1 --json --kinds LATE,DEAD_LETTER", onStore, to("again"), why)...))
	if done["applied"] != true || len(done["records"].([]any)) != 3 {
		t.Errorf("%v", done)
	}
	want := []string{
		`k3="{\"a\":1}"|event_id:e3 run:r-1 partition:0 position:3 reason:LATE`,
		`k6="{\"a\":2}"|event_id:e6 run:r-1 partition:1 position:3 reason:LATE`,
		`k7="seven"|tenant:a run:r-1 partition:1 position:7 reason:DEAD_LETTER`,
	}
	if got := landed(t, b.Addr(), "again"); strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("landed:\n%s", strings.Join(got, "\n"))
	}
	if list := must(t, dir, args("quarantine list r-1 --kinds LATE", onStore)...); strings.Count(list, "again") != 2 {
		t.Errorf("%s", list)
	}
	// What was published is left out, unless it is asked for again; another topic has not had it.
	out := must(t, dir, args("quarantine redrive r-1", onStore, to("again"), why)...)
	if !strings.Contains(out, "3 were published to again before") || !strings.Contains(out, "2 published to again and recorded") {
		t.Errorf("%s", out)
	}
	got := landed(t, b.Addr(), "again")
	if len(got) != 5 || got[3] != `k4="\xff\x00"|run:r-1 partition:0 position:4 reason:UNREADABLE` || got[4] != `k5=""|event_id:e5 run:r-1 partition:0 position:5 reason:TOMBSTONE` {
		t.Errorf("landed:\n%s", strings.Join(got, "\n"))
	}
	must(t, dir, args("quarantine redrive r-1 --again --partition 1 --position 7", onStore, to("again"), why)...)
	must(t, dir, args("quarantine redrive r-1 --partition 1 --position 7", onStore, to("other"), why)...)
	if n, m := len(landed(t, b.Addr(), "again")), len(landed(t, b.Addr(), "other")); n != 6 || m != 1 {
		t.Errorf("%d and %d landed", n, m)
	}
	notes(t, dir, 6)
}

// notes counts the records of re-drives in the store.
func notes(t *testing.T, dir string, want int) {
	t.Helper()
	store, err := sqlite.Open(t.Context(), sqlite.Config{Path: filepath.Join(dir, "weir.db"), MustExist: true})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	n := 0
	if err := store.Publications(context.Background(), redrivenRun("r-1"), func(p control.Publication, _ string) error {
		n++
		if !strings.Contains(string(p.Value), `"who":"ana"`) || !strings.Contains(string(p.Value), `"why":"the decoder is mended"`) {
			t.Errorf("%s", p.Value)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if n != want {
		t.Errorf("%d re-drives are recorded, want %d", n, want)
	}
}

func TestRedriveRefusals(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	asideStore(t, dir)
	b, err := devbroker.Start(devbroker.Config{Partitions: 1, Topics: []string{"again"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	why := []string{"--apply", "--reason", "mended", "--who", "ana"}
	missing := refused(t, dir, codes.TopicMissing.Exit, []string{"TOPIC_MISSING", "nowhere"}, args("quarantine redrive r-1", onStore, []string{"--brokers", b.Addr(), "--topic", "nowhere"}, why)...)
	if !strings.Contains(missing.stderr, "0 of 5 records were published") {
		t.Errorf("%s", missing.stderr)
	}
	notes(t, dir, 0)
	refused(t, dir, 2, []string{"--brokers and --topic"}, args("quarantine redrive r-1", onStore)...)
	refused(t, dir, 2, []string{"--reason is missing"}, args("quarantine redrive r-1 --apply", onStore, []string{"--brokers", b.Addr(), "--topic", "again"})...)
	refused(t, dir, 2, []string{"--position"}, args("quarantine redrive r-1 --position -1", onStore, []string{"--brokers", b.Addr(), "--topic", "again"})...)
	refused(t, dir, 3, []string{"RUN_UNKNOWN"}, args("quarantine redrive other", onStore, []string{"--brokers", b.Addr(), "--topic", "again"})...)
	if out := must(t, dir, args("quarantine redrive r-1 --kinds FUTURE", onStore, []string{"--brokers", b.Addr(), "--topic", "again"}, why)...); !strings.Contains(out, "none") {
		t.Errorf("%s", out)
	}
}
