package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/weirstream/weir/control"
	"github.com/weirstream/weir/control/sqlite"
	"github.com/weirstream/weir/internal/devbroker"
	"github.com/weirstream/weir/partitions"
	"github.com/weirstream/weir/record"
	sinkkafka "github.com/weirstream/weir/sinks/kafka"
)

// poisonDrill is a topic of good events with poison among them.
type poisonDrill struct {
	t          *testing.T
	dir, addr  string
	good       int
	all        []poison
	start      time.Time
	lateBefore int // events before this one are late at the end
}

func newPoisonDrill(t *testing.T, good, bad int) *poisonDrill {
	d := &poisonDrill{t: t, dir: t.TempDir(), good: good, start: time.Now(), lateBefore: good - good/5}
	b, err := devbroker.Start(devbroker.Config{Partitions: 4, Topics: []string{"in"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	d.addr = b.Addr()
	flow := strings.Replace(poisonFlow, "LATENESS", fmt.Sprintf("%dms", good-d.lateBefore), 1)
	write(t, d.dir, "flow.yaml", flow)
	write(t, d.dir, "mended.yaml", strings.Replace(flow, poisonCures, "", 1))
	d.publish(bad)
	return d
}

func (d *poisonDrill) total() int { return d.good + len(d.all) }

// publish writes the topic, and the good events to a snapshot. Poison stands behind every good event of a stride, from the 200th on.
func (d *poisonDrill) publish(bad int) {
	t := d.t
	p, err := sinkkafka.New(sinkkafka.Config{Brokers: []string{d.addr}, Topic: "in"})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	f, err := os.Create(filepath.Join(d.dir, "good.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	snapshot := bufio.NewWriter(f)
	stride := (d.good - 200) / bad
	for n := range d.good {
		value := goodEvent(n, "g", tradeKind)
		fmt.Fprintln(snapshot, value)
		r := record.Record{Key: []byte(fmt.Sprintf("k%02d", n%50)), Value: []byte(value), Arrival: record.EventTime(poisonTime(n).UnixNano())}
		if err := p.Produce(t.Context(), r); err != nil {
			t.Fatal(err)
		}
		if n >= 200 && (n-200)%stride == 0 && len(d.all) < bad {
			x := poisonAt(n, len(d.all))
			d.all = append(d.all, x)
			if err := p.Produce(t.Context(), x.Record); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := p.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := snapshot.Flush(); err != nil {
		t.Fatal(err)
	}
	d.log("published")
}

// log says how long it took, when asked for it.
func (d *poisonDrill) log(what string) { d.t.Logf("%6.1f s: %s", time.Since(d.start).Seconds(), what) }

func (d *poisonDrill) args(flow, id string, more ...string) []string {
	return append([]string{"run", flow, "--brokers", d.addr, "--topic", "in", "--group", id, "--run-id", id, "--store", "sqlite:weir.db", "--artifacts", "artifacts", "--epoch", "200ms", "--standby", "--json"}, more...)
}

// killed runs to a quarter of the log after the other, and is killed at its first commit on the way to three of them.
func (d *poisonDrill) killed(id string) {
	line := &succession{dir: d.dir}
	for quarter, point := range []string{"before_commit", "store:commit", "after_commit", ""} {
		args := d.args("flow.yaml", id, "--until-n", strconv.Itoa(d.total()*(quarter+1)/4))
		if point != "" {
			line.kill(d.t, point, args...)
		}
		line.next(d.t, "", args...)
	}
	d.log("killed three times, and read to the end")
}

// aside holds what a run has set aside against what was made bad: each once, whole, with its reason. It returns the numbers of the entries by poison.
func (d *poisonDrill) aside(store *sqlite.Store, run string) map[int]partitions.Quarantined {
	t := d.t
	seen := map[int]partitions.Quarantined{}
	err := store.Quarantine(t.Context(), run, func(q partitions.Quarantined) error {
		if len(q.Headers) == 0 {
			t.Fatalf("set aside without headers: %+v", q)
		}
		n, err := strconv.Atoi(string(q.Headers[0].Value))
		if err != nil {
			return err
		}
		if _, twice := seen[n]; twice {
			t.Errorf("poison %d was set aside twice", n)
		}
		seen[n] = q
		want := d.all[n]
		if q.Reason != want.kind.reason || !bytes.Equal(q.Value, want.Value) || (q.Value == nil) != (want.Value == nil) || !bytes.Equal(q.Key, want.Key) ||
			fmt.Sprintf("%#v", q.Headers) != fmt.Sprintf("%#v", want.Headers) || q.Arrival.String() != poisonTime(want.n).Format(time.RFC3339Nano) || q.Detail == "" && q.Reason != partitions.ReasonTombstone {
			t.Errorf("poison %d, %s: set aside as %s (%s), want %s\n%#v\n%#v", n, want.kind.name, q.Reason, q.Detail, want.kind.reason, q, want.Record)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(seen) != len(d.all) {
		t.Errorf("%d of %d were set aside", len(seen), len(d.all))
	}
	return seen
}

// counts holds the counts of a run against what is in the topic.
func (d *poisonDrill) counts(store *sqlite.Store, run string) {
	want := map[string]int64{}
	for _, p := range d.all {
		want[p.kind.reason]++
	}
	var got partitions.Counts
	err := store.Snapshot(d.t.Context(), run, func(v control.JournalView) error {
		for _, cut := range v.State().Cuts {
			got.Records += cut.Counts.Records
			got.Consumed += cut.Counts.Consumed
			got.Omitted += cut.Counts.Omitted
			got.Late += cut.Counts.Late
			got.Future += cut.Counts.Future
			got.Filtered += cut.Counts.Filtered + cut.Counts.Duplicates
		}
		return nil
	})
	if err != nil {
		d.t.Fatal(err)
	}
	if w := (partitions.Counts{Records: int64(d.total()), Consumed: int64(d.good), Omitted: want[partitions.ReasonUnreadable] + want[partitions.ReasonTombstone],
		Late: want[partitions.ReasonLate], Future: want[partitions.ReasonFuture]}); got != w {
		d.t.Errorf("%s: counts %+v, want %+v", run, got, w)
	}
}

// batch is the hash of a flow over the good events, and more.
func (d *poisonDrill) batch(flow string, more []string) string {
	if len(more) > 0 {
		f, err := os.OpenFile(filepath.Join(d.dir, "good.jsonl"), os.O_APPEND|os.O_WRONLY, 0)
		if err != nil {
			d.t.Fatal(err)
		}
		defer f.Close()
		if _, err := f.WriteString(strings.Join(more, "\n") + "\n"); err != nil {
			d.t.Fatal(err)
		}
	}
	doc := parse(d.t, must(d.t, d.dir, "batch", "run", "--flow", flow, "--snapshot", "good.jsonl", "--json"))
	return doc["values_hash"].(string)
}

// mend makes a run under the mended flow out of the last checkpoint, and replays all that is set aside in it.
func (d *poisonDrill) mend(store *sqlite.Store) partitions.Asides {
	t := d.t
	points, err := store.ListPointers(t.Context(), "old")
	if err != nil || len(points) == 0 {
		t.Fatalf("%d checkpoints, %v", len(points), err)
	}
	must(t, d.dir, args(fmt.Sprintf("checkpoint restore old %d --as new --flow mended.yaml --mended --artifacts artifacts", points[len(points)-1].Epoch), onStore)...)
	run := startLogged(t, d.dir, "new", nil, d.args("mended.yaml", "new")...)
	must(t, d.dir, args("quarantine replay new --apply --reason mended", onStore)...)
	run.await(t, "the replay", func() bool {
		left, err := store.ListInterventions(context.Background(), "new", true)
		return err == nil && len(left) == 0
	})
	if err := run.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := <-run.done; err != nil {
		t.Errorf("stopped with %v:\n%s", err, run.said(t))
	}
	var stands partitions.Asides
	if err := store.Decisions(t.Context(), "new", func(x partitions.Decision) error { stands.Add(x); return nil }); err != nil {
		t.Fatal(err)
	}
	d.log("replayed under the mended flow")
	return stands
}

// Poison of 40 kinds among good events: each is set aside once with its reason, over three kills; the results are those of the good events alone. What a
// mended flow can read comes in by a replay, as far as it is not late by then, and the results are those of a batch that has it too.
func (d *poisonDrill) run() {
	t := d.t
	d.killed("old")
	store, err := sqlite.Open(t.Context(), sqlite.Config{Path: filepath.Join(d.dir, "weir.db")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	d.aside(store, "old")
	d.counts(store, "old")
	stands := d.mend(store)
	entries := d.aside(store, "new") // the quarantine itself stays as it was
	var came []string
	late := 0
	for n, p := range d.all {
		q := entries[n]
		st := stands.Of(q.Partition, q.Number)
		want := p.kind.reason
		switch {
		case p.kind.mended && st.Last.Outcome == partitions.OutcomeConsumed:
			want = partitions.OutcomeConsumed
			came = append(came, string(p.Value))
		case p.kind.mended && p.n < d.lateBefore-100:
			want = partitions.ReasonLate
			late++
		case p.kind.mended: // at the edge either may be: it hangs on what the partition has read
			want = st.Last.Outcome
		}
		if st.Last.Outcome != want || st.Attempts != 2 || (st.State == partitions.AsideReplayed) != (want == partitions.OutcomeConsumed) {
			t.Errorf("poison %d, %s: %+v, want %s", n, p.kind.name, st, want)
		}
	}
	if len(came) == 0 || late == 0 {
		t.Errorf("%d came in, %d were late", len(came), late)
	}
	d.counts(store, "new")
	finish := func(flow, id string) string {
		doc := parse(t, must(t, d.dir, d.args(flow, id, "--once-n", strconv.Itoa(d.total()))...))
		return doc["values_hash"].(string)
	}
	if got, want := finish("flow.yaml", "old"), d.batch("flow.yaml", nil); got != want {
		t.Errorf("with poison %s, without %s", got, want)
	}
	if got, want := finish("mended.yaml", "new"), d.batch("mended.yaml", came); got != want {
		t.Errorf("after the replay of %d records %s, a batch with them %s", len(came), got, want)
	}
	d.counts(store, "new")
	d.log(fmt.Sprintf("%d good events and %d bad ones; %d came in by the replay, %d were late by then", d.good, len(d.all), len(came), late))
}

func TestPoison(t *testing.T) {
	t.Parallel()
	newPoisonDrill(t, 10_000, 400).run()
}

// The size that is promised: 10,000 among a million.
func TestPoisonAmongAMillion(t *testing.T) {
	if testing.Short() {
		t.Skip("a million records, about a minute")
	}
	newPoisonDrill(t, 1_000_000/slowdown, 10_000/slowdown).run()
}
