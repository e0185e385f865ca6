package main

import (
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
)

// shardsOf is what `weir shards` says of a run, by shard.
func (r *river) shardsOf(id string) map[int]map[string]any {
	r.t.Helper()
	doc := parse(r.t, must(r.t, r.dir, append([]string{"shards", id, "--store", "sqlite:" + id + ".db", "--json"}, r.at()...)...))
	out := map[int]map[string]any{}
	for _, s := range doc["shards"].([]any) {
		m := s.(map[string]any)
		out[int(m["shard"].(float64))] = m
	}
	return out
}

// ran runs the fixture to its end in shards, with a split in the middle.
func ran(t *testing.T) *river {
	t.Helper()
	r := newRiver(t, 2)
	r.publish(1)
	p := start(t, r.dir, r.args("run")...)
	until(t, "everything is committed", []*process{p}, r.consumed("run"))
	r.split()
	until(t, "the children are worked on", []*process{p}, func() bool { return len(apart(t, filepath.Join(r.dir, "run.db"), "run")) == 4 })
	r.ends(p)
	return r
}

// journal is the emit document of a run in the store of "run".
func (r *river) journal(id string) map[string]any {
	r.t.Helper()
	return parse(r.t, must(r.t, r.dir, "journal", "emit", id, "--flow", "flow.yaml", "--store", "sqlite:run.db", "--json"))
}

// again runs a run to where the first one came, in its store.
func (r *river) again(id string, records int64) {
	r.t.Helper()
	args := r.args(id)
	args[5] = "sqlite:run.db"
	p := start(r.t, r.dir, args...)
	until(r.t, id+" has come as far", []*process{p}, func() bool {
		// What was taken over is there before anything runs.
		leases := weir(r.t, r.dir, "", "lease", "list", "--store", "sqlite:run.db")
		return strings.Contains(leases.stdout, "claims/"+id+"/1") && total(apart(r.t, filepath.Join(r.dir, "run.db"), id)) == records
	})
	r.ends(p)
}

func (r *river) rewind(more ...string) []string {
	return append(append([]string{"rewind", "run", "--store", "sqlite:run.db"}, r.at()...), more...)
}

// The tree of shards with parents, states and places.
func TestShards(t *testing.T) {
	t.Parallel()
	r := ran(t)
	shards := r.shardsOf("run")
	if len(shards) != 4 || shards[0]["state"] != shardFinished || shards[0]["closed"] != true || shards[1]["state"] != shardReading {
		t.Fatalf("%v", shards)
	}
	if !reflect.DeepEqual(shards[2]["parents"], []any{0.0}) || shards[2]["owner"] != nil || shards[1]["oldest_undone"] != nil || shards[1]["behind_ms"] != 0.0 {
		t.Errorf("%v\n%v", shards[2], shards[1])
	}
	r.publish(1)
	oldest := 0
	for _, s := range r.shardsOf("run") {
		if u, ok := s["oldest_undone"].(map[string]any); ok && u["position"] != "" && u["arrived"] != "" {
			oldest++
		}
	}
	if oldest == 0 {
		t.Error("nothing is undone, although there are new records")
	}
	text := must(t, r.dir, append([]string{"shards", "run", "--store", "sqlite:run.db"}, r.at()...)...)
	for _, words := range []string{"oldest undone", "0 closed", "FINISHED", "  2 ", " since "} {
		if !strings.Contains(text, words) {
			t.Errorf("%q is missing:\n%s", words, text)
		}
	}
	refused(t, r.dir, 3, []string{"RUN_UNKNOWN"}, append([]string{"shards", "nobody", "--store", "sqlite:run.db"}, r.at()...)...)
}

// A rewind makes a run that reads again: of all shards, the same results; of one shard, those of the others are taken over.
func TestRewind(t *testing.T) {
	t.Parallel()
	r := ran(t)
	want := r.journal("run")
	dry := must(t, r.dir, r.rewind("--all", "--to", trimHorizon)...)
	if !strings.Contains(dry, "nothing was changed") || strings.Count(dry, fateBack) != 4 {
		t.Errorf("%s", dry)
	}
	must(t, r.dir, r.rewind("--all", "--to", trimHorizon, "--as", "whole", "--reason", "to see", "--apply")...)
	r.again("whole", fixtureArrivals)
	same := func(id string) {
		t.Helper()
		got := r.journal(id)
		for _, key := range []string{"values", "values_hash", "consumed", "late"} {
			if !reflect.DeepEqual(got[key], want[key]) {
				t.Errorf("%s, %s: %v, want %v", id, key, got[key], want[key])
			}
		}
	}
	same("whole")
	for shard, keep := range map[string]string{"0": "1", "1": "0"} {
		id := "shard-" + shard
		doc := parse(t, must(t, r.dir, r.rewind("--shard", shard, "--to", trimHorizon, "--as", id, "--reason", "to see", "--apply", "--json")...))
		fates := map[float64]any{}
		for _, s := range doc["shards"].([]any) {
			fates[s.(map[string]any)["shard"].(float64)] = s.(map[string]any)["fate"]
		}
		if fates[map[string]float64{"0": 0, "1": 1}[shard]] != fateBack || fates[map[string]float64{"0": 0, "1": 1}[keep]] != fateKeep {
			t.Fatalf("shard %s: %v", shard, fates)
		}
		if shard == "0" && (fates[2] != fateAfter || fates[3] != fateAfter) {
			t.Errorf("the children of 0: %v", fates)
		}
		r.again(id, fixtureArrivals)
		same(id)
	}
	if got := r.journal("run"); !reflect.DeepEqual(got["values_hash"], want["values_hash"]) {
		t.Error("the old run has changed")
	}
	refused(t, r.dir, 3, []string{"RUN_MISMATCH", "there already"}, r.rewind("--all", "--to", trimHorizon, "--as", "whole", "--reason", "x", "--apply")...)
}

func TestRewindsThatCannotBe(t *testing.T) {
	t.Parallel()
	r := ran(t)
	shards := r.shardsOf("run")
	foreign, _ := shards[1]["next"].(string)
	full := "1"
	if shards[1]["records"] == 0.0 {
		foreign, full = shards[0]["next"].(string), "0"
	}
	other := map[string]string{"0": "1", "1": "0"}[full]
	future := time.Now().Add(time.Hour).UTC().Format(time.RFC3339)
	for name, c := range map[string]struct {
		exit  int
		words []string
		args  []string
	}{
		"the future":                        {3, []string{"CONFIG_INVALID", "in the future"}, r.rewind("--all", "--to", future)},
		"the present":                       {3, []string{"CONFIG_INVALID", "nothing to read again"}, r.rewind("--shard", full, "--to", time.Now().UTC().Format(time.RFC3339Nano))},
		"sequence number of another shard":  {3, []string{"RUN_MISMATCH", "not one of this shard"}, r.rewind("--shard", other, "--to", foreign)},
		"a position of all":                 {2, []string{"belongs to one shard"}, r.rewind("--all", "--to", "5")},
		"latest":                            {2, []string{"reads nothing again"}, r.rewind("--all", "--to", latest)},
		"itself":                            {2, []string{"never goes back"}, r.rewind("--all", "--to", trimHorizon, "--as", "run")},
		"no reason":                         {2, []string{"--reason"}, r.rewind("--all", "--to", trimHorizon, "--as", "x", "--apply")},
		"no shard":                          {2, []string{"--shard N or --all"}, r.rewind("--to", trimHorizon)},
		"a shard that is not there":         {6, []string{"OFFSET_LOST", "shardId-000000000099"}, r.rewind("--shard", "99", "--to", trimHorizon)},
		"a run that is not there":           {3, []string{"RUN_UNKNOWN"}, append([]string{"rewind", "nobody", "--store", "sqlite:run.db", "--all", "--to", trimHorizon}, r.at()...)},
		"a run begun elsewhere in the flag": {3, []string{"RUN_MISMATCH"}, append([]string{"run", "flow.yaml", "--run-id", "run", "--store", "sqlite:run.db", "--start", latest}, r.at()...)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			noSecret(t, refused(t, r.dir, c.exit, c.words, c.args...))
		})
	}
}
