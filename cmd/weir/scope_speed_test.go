//go:build unix

package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/weirstream/weir/actors/group"
	"github.com/weirstream/weir/control"
)

// speedFlow computes over every record.
const speedFlow = `flow: weir/1
name: speed
id: event_id
key: instrument
time: {field: event_time, unit: rfc3339}
lateness: 5s
dedupe: {horizon: 1m}
operators:
  - {name: ema3, type: ema, input: close, period: 3}
outputs: [ema3]
limits: {ids: 400000, keys: 1000, reorder: 400000, ticks: 400000}
`

// TestTwoDaemonsAgainstOne measures two daemons with two partitions each against one with all four, in turns, on the same machine, broker and
// store. Daemons that have their partitions are stopped while a topic is written, and woken together. What is asserted is that all is done; the
// ratio is for the reader.
func TestTwoDaemonsAgainstOne(t *testing.T) {
	if testing.Short() {
		t.Skip("a measurement, which takes a minute")
	}
	const records, pairs = 300_000, 5
	dir, addr, store := t.TempDir(), broker(t), chaosStores["postgres"](t)
	write(t, dir, "flow.yaml", speedFlow)
	must(t, dir, "replay", "generate", "--events", fmt.Sprint(records), "--instruments", "64", "--seed", "3", "--snapshot", "all.jsonl")
	must(t, dir, "replay", "build", "--snapshot", "all.jsonl", "--flow", "flow.yaml", "--out", "all.log")
	took := map[int][]time.Duration{}
	for pair := range pairs {
		for _, daemons := range []int{1, 2} {
			took[daemons] = append(took[daemons], race(t, dir, addr, store, fmt.Sprintf("speed-%d-%d", pair, daemons), daemons, records))
		}
	}
	var ratios []float64
	for i := range pairs {
		ratios = append(ratios, took[1][i].Seconds()/took[2][i].Seconds())
	}
	slices.Sort(ratios)
	t.Logf("%d records: one daemon %v, two daemons %v; two do %.2f times what one does (median of %d)", records, took[1], took[2], ratios[pairs/2], pairs)
}

// race is how long so many daemons need for a topic.
func race(t *testing.T, dir, addr, store, name string, daemons int, records int64) time.Duration {
	t.Helper()
	s, err := openStore(t.Context(), store)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	client, err := kgo.NewClient(kgo.SeedBrokers(addr), kgo.DisableClientMetrics())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	made, err := kadm.NewClient(client).CreateTopic(t.Context(), 4, 1, nil, name)
	if err = errors.Join(err, made.Err); err != nil {
		t.Fatal(err)
	}
	var all []*process
	for range daemons {
		all = append(all, start(t, dir, "run", "flow.yaml", "--brokers", addr, "--topic", name, "--group", name, "--run-id", name, "--store", store,
			"--scope", "partition", "--session", "60s", "--ttl", "60s", "--epoch", "100ms"))
	}
	share := 4 / daemons
	until(t, "the daemons have their partitions", all, func() bool {
		leases, err := s.ListLeases(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range all {
			n := 0
			for _, l := range leases {
				_, ours := group.PartitionOf(control.StreamLease(name), l.Name)
				if ours && l.Valid && strings.Contains(l.Owner, fmt.Sprintf("-%d-", p.Process.Pid)) {
					n++
				}
			}
			if n != share {
				return false
			}
		}
		return true
	})
	tellAll(t, all, syscall.SIGSTOP)
	must(t, dir, "replay", "publish", "--log", "all.log", "--brokers", addr, "--topic", name)
	began := time.Now()
	tellAll(t, all, syscall.SIGCONT)
	until(t, "everything is committed", all, func() bool {
		runs, err := s.Runs(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		n := int64(0)
		for _, r := range runs {
			if _, ours := group.PartitionOf(name, r.Header.RunID); ours {
				n += r.Counts.Records
			}
		}
		return n == records
	})
	took := time.Since(began)
	tellAll(t, all, syscall.SIGTERM)
	for _, p := range all {
		if code := p.end(t); code != 0 {
			t.Errorf("exit %d\n%s", code, p.out.String())
		}
	}
	return took
}

func tellAll(t *testing.T, all []*process, s syscall.Signal) {
	t.Helper()
	for _, p := range all {
		if err := p.Process.Signal(s); err != nil {
			t.Fatal(err)
		}
	}
}
