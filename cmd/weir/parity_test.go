package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/weirstream/weir/internal/fixture"
)

// expected are the fixture's figures.
func expected(t *testing.T) (e struct {
	Values                                []any
	ValuesHash                            string `json:"values_hash"`
	Arrivals, Consumed, Filtered, Omitted float64
	FaultsApplied                         float64 `json:"faults_applied"`
	DuplicatesSkipped                     float64 `json:"duplicates_skipped"`
	Verdict                               string
}) {
	t.Helper()
	if err := json.Unmarshal(fixture.Expected, &e); err != nil {
		t.Fatal(err)
	}
	return e
}

func TestParityOfTheFixture(t *testing.T) {
	t.Parallel()
	want := expected(t)
	for _, args := range []string{"", "--via log", "--partitions 1 --fetch 1", "--partitions 8 --fetch 10000 --crash-every 1", "--crash-every 3", "--crash-every 7 --via log --fetch 2"} {
		t.Run(args, func(t *testing.T) {
			t.Parallel()
			doc := parse(t, must(t, t.TempDir(), strings.Fields("parity --json "+args)...))
			if doc["verdict"] != want.Verdict || doc["arrivals"] != want.Arrivals || doc["faults_applied"] != want.FaultsApplied {
				t.Errorf("%v, %v arrivals, %v faults", doc["verdict"], doc["arrivals"], doc["faults_applied"])
			}
			for _, mode := range []string{"batch", "replay", "stream"} {
				m := doc[mode].(map[string]any)
				if m["values_hash"] != want.ValuesHash || !reflect.DeepEqual(m["values"], want.Values) || m["mode"] != mode {
					t.Errorf("%s: %v %v", mode, m["values_hash"], m["values"])
				}
				for _, key := range []string{"format", "flow", "consumed", "filtered", "omitted", "duplicates_skipped", "late", "events", "positions", "watermark", "fence_token"} {
					if _, ok := m[key]; !ok {
						t.Errorf("%s lacks %s", mode, key)
					}
				}
			}
			for _, mode := range []string{"replay", "stream"} {
				m := doc[mode].(map[string]any)
				if m["consumed"] != want.Consumed || m["filtered"] != want.Filtered || m["omitted"] != want.Omitted || m["duplicates_skipped"] != want.DuplicatesSkipped {
					t.Errorf("%s counts %v/%v/%v/%v", mode, m["consumed"], m["filtered"], m["omitted"], m["duplicates_skipped"])
				}
			}
			if strings.Contains(args, "crash") && doc["crashes"] == nil {
				t.Error("no crash has come")
			}
		})
	}
}

// TestParityExplains: disorder beyond the lateness, and a gap in the selected instrument, are explained event by event.
func TestParityExplains(t *testing.T) {
	t.Parallel()
	dir := fixtureDir(t)
	write(t, dir, "late.json", `{"format":"fault-schedule/1","seed":1,"faults":[
		{"event_id":"fixture.event.0.1","kind":"DELAY","domain_ms":200000},
		{"event_id":"fixture.event.0.3","kind":"GAP"}]}`)
	doc := parse(t, must(t, dir, "parity", "--json", "--flow", "flow.yaml", "--snapshot", "snapshot.jsonl", "--faults", "late.json"))
	if doc["verdict"] != "EQUAL_EXPLAINED" {
		t.Fatalf("%v", doc["verdict"])
	}
	got := map[string]bool{}
	for _, x := range doc["explained_by"].([]any) {
		e := x.(map[string]any)
		got[fmt.Sprint(e["event_id"], " ", e["reason"])] = true
	}
	if want := map[string]bool{"fixture.event.0.1 LATE": true, "fixture.event.0.3 TOMBSTONE": true}; !reflect.DeepEqual(got, want) {
		t.Errorf("explained by %v", got)
	}
	corrected, stream := doc["corrected"].(map[string]any), doc["stream"].(map[string]any)
	if corrected["values_hash"] != stream["values_hash"] || stream["values_hash"] == doc["batch"].(map[string]any)["values_hash"] {
		t.Error("the explanation does not explain")
	}
	if text := must(t, dir, "parity", "--flow", "flow.yaml", "--snapshot", "snapshot.jsonl", "--faults", "late.json"); !strings.Contains(text, "LATE for event \"fixture.event.0.1\"") {
		t.Errorf("%s", text)
	}
}

func TestParitySeeds(t *testing.T) {
	t.Parallel()
	n := 40
	if testing.Short() {
		n = 8
	}
	dir := t.TempDir()
	doc := parse(t, must(t, dir, "parity", "--json", "--seeds", fmt.Sprint(n)))
	if doc["different"] != 0.0 || doc["equal"].(float64)+doc["explained"].(float64) != float64(n) {
		t.Errorf("%v", doc)
	}
	// The sweep must not be an easy one.
	for _, key := range []string{"crashes", "faults_applied", "late", "duplicates_skipped", "omitted", "explained", "equal"} {
		if doc[key] == 0.0 {
			t.Errorf("no %s under %d seeds", key, n)
		}
	}
	if left, _ := os.ReadDir(dir); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestDemo(t *testing.T) {
	t.Parallel()
	temp := t.TempDir()
	cmd := command(t, t.TempDir(), "demo", "--json")
	cmd.Env = append(cmd.Env, "TMPDIR="+temp)
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	doc := parse(t, string(out))
	if doc["verdict"] != "EQUAL_TO_BATCH_GOLDEN" || doc["worker_kills"] != 2.0 || doc["stream"].(map[string]any)["values_hash"] != fixture.ValuesHash {
		t.Errorf("%v, %v kills", doc["verdict"], doc["worker_kills"])
	}
	if run := doc["batch_run"].(map[string]any); run["phase"] != "SUCCEEDED" || run["run_revision"] != 1.0 || run["publications"] != 1.0 || run["fence_token"].(float64) < 2 {
		t.Errorf("the batch path: %v", run)
	}
	if left, _ := filepath.Glob(filepath.Join(temp, "*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
	if text := must(t, t.TempDir(), "demo"); !strings.Contains(text, "SIGKILL") || !strings.Contains(text, "What next") {
		t.Errorf("%s", text)
	}
}
