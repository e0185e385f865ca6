package main

import (
	"strings"
	"testing"
)

// What is handed out and waits for its commit is told by the process: how much, from which record on, and since when. Without a commit the store
// knows nothing of it. A process that does not answer leaves it unknown.
func TestShardsInFlight(t *testing.T) {
	t.Parallel()
	r := newRiver(t, 2)
	r.publish(1)
	l := startListening(t, r.dir, "run", append(r.args("run"), "--epoch", "1h")...)
	l.await(t, "everything is handed out", func() bool {
		var n int64
		for _, s := range l.report(t).Runs {
			for _, p := range s.Partitions {
				n += p.Undone.Records
			}
		}
		return n == fixtureArrivals
	})
	ask := append([]string{"shards", "run", "--store", "sqlite:run.db"}, r.at()...)
	doc := parse(t, must(t, r.dir, append(ask, "--url", l.url, "--json")...))
	records := 0.0
	for _, s := range doc["shards"].([]any) {
		m := s.(map[string]any)
		f, _ := m["in_flight"].(map[string]any)
		if f == nil || m["records"] != 0.0 || (f["records"] != 0.0) != (f["oldest"] != nil) || (f["oldest"] != nil) != (f["since"] != nil) {
			t.Fatalf("%v", m)
		}
		if u, _ := m["oldest_undone"].(map[string]any); f["oldest"] != nil && (u == nil || u["position"] != f["oldest"]) {
			t.Errorf("in flight from %v on, the oldest record that is not done is %v", f["oldest"], u)
		}
		records += f["records"].(float64)
	}
	if records != fixtureArrivals {
		t.Errorf("%v records in flight", records)
	}
	if text := must(t, r.dir, append(ask, "--url", l.url)...); !strings.Contains(text, "in flight") || !strings.Contains(text, " B) from ") {
		t.Errorf("%s", text)
	}
	if status := must(t, r.dir, "status", "--url", l.url); !strings.Contains(status, "UNDONE") || !strings.Contains(status, " since ") {
		t.Errorf("%s", status)
	}
	r.ends(l.process)
	done := weir(t, r.dir, "", append(ask, "--url", l.url, "--json")...)
	if done.code != 0 || !strings.Contains(done.stderr, "was not asked") {
		t.Errorf("exit %d: %s", done.code, done.stderr)
	}
	for _, s := range parse(t, done.stdout)["shards"].([]any) {
		if m := s.(map[string]any); m["in_flight"] != nil || m["oldest_undone"] != nil {
			t.Errorf("after the end: %v", m)
		}
	}
}
