package clickhouse

import (
	"regexp"
	"strings"
	"testing"

	"github.com/weirstream/weir/flow/operators"
	"github.com/weirstream/weir/partitions"
	"github.com/weirstream/weir/sinks"
)

// TestStatements: what a server that knows tokens and asynchronous inserts is told. The engine of the tests knows neither.
func TestStatements(t *testing.T) {
	t.Parallel()
	s, err := New(Config{URL: "clickhouse://h/d", Table: "t"})
	if err != nil {
		t.Fatal(err)
	}
	statement := func(tokens bool, owner uint64, from, to int64) string {
		target := sinks.Target{RunID: "r", Outputs: []string{"x"}, Token: owner}
		w := &writer{s: s, to: target, encode: newEncoder(target), tokens: tokens, settings: []string{"async_insert = 0"}}
		for n := from; n < to; n++ {
			if err := w.encode.add(0, n, &partitions.Row{Values: []operators.Value{operators.Gap}}); err != nil {
				t.Fatal(err)
			}
		}
		return w.insert(s.rows(), w.encode.columns, w.token())
	}
	const plain = "INSERT INTO `d`.`t_rows` (`run_id`, `partition`, `row_number`, `event_time`, `event_nanos`, `event_id`, `event_key`, `version`, `x`) SETTINGS async_insert = 0"
	if got := statement(false, 1, 0, 3); got != plain+" FORMAT Native" {
		t.Errorf("without tokens:\n%s", got)
	}
	first := statement(true, 1, 0, 3)
	if form := regexp.MustCompile(`^` + regexp.QuoteMeta(plain) + `, insert_deduplication_token = 'weir-[0-9a-f]{64}' FORMAT Native$`); !form.MatchString(first) {
		t.Errorf("with tokens:\n%s", first)
	}
	if again := statement(true, 1, 0, 3); again != first {
		t.Error("the same rows of the same owner have another token")
	}
	for name, other := range map[string]string{"owner": statement(true, 2, 0, 3), "first row": statement(true, 1, 1, 3), "last row": statement(true, 1, 0, 4)} {
		if other == first {
			t.Errorf("another %s has the same token", name)
		}
	}
	if text := strings.Join(s.definition(sinks.Target{Outputs: []string{"x"}}, " SETTINGS non_replicated_deduplication_window = 1000"), "\n"); strings.Count(text, "deduplication_window") != 1 ||
		!strings.Contains(text, "ORDER BY (run_id, partition, row_number) SETTINGS non") {
		t.Errorf("the table of rows does not remember tokens:\n%s", text)
	}
}

// TestEngines: engines of all kinds of servers are recognised, and which row they let count.
func TestEngines(t *testing.T) {
	t.Parallel()
	for engine, want := range map[string]string{
		"ReplacingMergeTree(version) ORDER BY (a, b) SETTINGS index_granularity = 8192":                                               "version",
		"ReplicatedReplacingMergeTree('/clickhouse/tables/{uuid}/{shard}', '{replica}', version) PARTITION BY toYYYYMM(t) ORDER BY a": "version",
		"SharedReplacingMergeTree('/clickhouse/tables/{uuid}/{shard}', '{replica}', version) ORDER BY a":                              "version",
		"ReplicatedReplacingMergeTree('/p', '{replica}') ORDER BY a":                                                                  "",
		"ReplacingMergeTree ORDER BY a":            "",
		"ReplacingMergeTree() ORDER BY a":          "",
		"MergeTree ORDER BY a":                     "none",
		"ReplacingMergeTree(version, gone) ORDER":  "none",
		"Distributed('c', 'd', 't')":               "none",
		"XReplacingMergeTree(version) ORDER BY a":  "none",
		"Buffer('d', 'ReplacingMergeTree(version)": "none",
	} {
		got := "none"
		if m := replacing.FindStringSubmatch(engine); m != nil {
			got = m[1]
		}
		if got != want {
			t.Errorf("%s: %q, want %q", engine, got, want)
		}
	}
}
