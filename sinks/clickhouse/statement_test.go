package clickhouse

import "testing"

// TestStatements: what a server that knows asynchronous inserts is told. The engine of the tests does not.
func TestStatements(t *testing.T) {
	t.Parallel()
	s, err := New(Config{URL: "clickhouse://h/d", Table: "t"})
	if err != nil {
		t.Fatal(err)
	}
	w := &writer{s: s}
	const plain = "INSERT INTO `d`.`t_progress` (`run_id`, `partition`, `fence_token`, `rows_published`, `sequence`)"
	if got := w.insert(s.progress(), progressColumns); got != plain+" FORMAT Native" {
		t.Errorf("without settings:\n%s", got)
	}
	w.settings = []string{"async_insert = 0"}
	if got := w.insert(s.progress(), progressColumns); got != plain+" SETTINGS async_insert = 0 FORMAT Native" {
		t.Errorf("with settings:\n%s", got)
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

// TestLocate: a table of the database that the URL names is one place with and without it, and so are the tables beside a view.
func TestLocate(t *testing.T) {
	t.Parallel()
	for table, meets := range map[string]bool{"d.ee": true, "ee_rows": true, "ee_progress": true, "ef": false, "e.ee": false} {
		found := map[string]bool{}
		for _, name := range []string{"ee", table} {
			s, err := New(Config{URL: "clickhouse://h/d", Table: name})
			if err != nil {
				t.Fatal(err)
			}
			places, err := s.Locate(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			for _, p := range places {
				found[p] = true
			}
		}
		if (len(found) < 6) != meets {
			t.Errorf("%s: %v", table, found)
		}
	}
}
