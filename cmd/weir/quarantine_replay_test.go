package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"syscall"
	"testing"

	"github.com/weirstream/weir/control/postgres"
	"github.com/weirstream/weir/internal/pgtest"
)

const heldFlow = `flow: weir/1
name: held
id: event_id
key: instrument
time: event_time
lateness: 1h
select: {field: kind, equals: trade}
hold_key: true
operators: [{name: ema3, type: ema, input: close, period: 3}]
outputs: [ema3]
`

// tickOf is an event of the held flow; kind is JSON.
func tickOf(n int, kind string) string {
	return fmt.Sprintf(`{"close":%d.5,"event_id":"e%02d","event_time":"2026-01-05T14:%02d:00Z","instrument":"1","kind":%s}`, n, n, n, kind)
}

// A record that the flow cannot read holds its key; a replay changes nothing; a mended flow takes the run up, reads the record, and its key goes on: as if
// the record had been good from the start. What stays bad is dropped.
func TestQuarantineReplay(t *testing.T) {
	t.Parallel()
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		quarantineReplay(t, "sqlite:weir.db")
	})
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		quarantineReplay(t, pgtest.Database(t, func(ctx context.Context, url string) error {
			_, err := postgres.Migrate(ctx, url)
			return err
		}).Runtime)
	})
}

func quarantineReplay(t *testing.T, store string) {
	t.Helper()
	dir, addr := t.TempDir(), broker(t)
	mended := strings.Replace(heldFlow, "select: {field: kind, equals: trade}\n", "", 1)
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("flow.yaml", heldFlow)
	write("mended.yaml", mended)
	values := []string{tickOf(1, `"trade"`), tickOf(2, `"trade"`), tickOf(3, "7.5"), "poison", tickOf(4, `"trade"`), tickOf(5, `"trade"`)}
	produce(t, addr, "in", values) // and a tombstone

	on := func(command string, more ...string) []string {
		return append(append(strings.Fields(command), more...), "--store", store)
	}
	start := func(flow, id string) *logged {
		return startLogged(t, dir, id, nil, "run", flow, "--brokers", addr, "--topic", "in", "--group", id, "--run-id", id, "--store", store, "--artifacts", "artifacts", "--epoch", "50ms")
	}
	stop := func(run *logged) {
		t.Helper()
		if err := run.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		if err := <-run.done; err != nil {
			t.Errorf("stopped with %v:\n%s", err, run.said(t))
		}
	}
	settled := func(run *logged, id string, n int) {
		t.Helper()
		run.await(t, "the choice", func() bool {
			all := parse(t, must(t, dir, on("recover "+id+" --json")...))["interventions"].([]any)
			return len(all) == n && all[n-1].(map[string]any)["outcome"] == "APPLIED"
		})
	}
	list := func(id string) (states []string, held []any) {
		t.Helper()
		doc := parse(t, must(t, dir, on("quarantine list --json "+id)...))
		for _, r := range doc["records"].([]any) {
			m := r.(map[string]any)
			states = append(states, fmt.Sprintf("%v %v %v %v", m["number"], m["state"], m["reason"], m["attempts"]))
		}
		return states, doc["held"].([]any)
	}

	run := start("flow.yaml", "old")
	run.await(t, "the log", func() bool {
		r := weir(t, dir, "", on("recover old --json")...)
		return r.code == 0 && strings.Contains(r.stdout, `"0":"7"`)
	})
	states, held := list("old")
	if want := []string{"0 SET_ASIDE UNREADABLE 1", "1 SET_ASIDE UNREADABLE 1", "2 SET_ASIDE TOMBSTONE 1"}; !reflect.DeepEqual(states, want) {
		t.Errorf("%q, want %q", states, want)
	}
	if len(held) != 1 || held[0].(map[string]any)["key"] != "1" || held[0].(map[string]any)["waiting"] != 2.0 || held[0].(map[string]any)["blockers"] != 2.0 {
		t.Errorf("held %v", held)
	}
	if other := parse(t, must(t, dir, on("quarantine list old --partition 1 --json")...)); len(other["held"].([]any)) != 0 {
		t.Errorf("keys of another partition: %v", other["held"])
	}
	if out := must(t, dir, on("quarantine list old")...); !strings.Contains(out, "key that waits") || !strings.Contains(out, "SET_ASIDE") {
		t.Errorf("%s", out)
	}
	if out := must(t, dir, on("quarantine replay old --kinds UNREADABLE")...); !strings.Contains(out, "dry run") || !strings.Contains(out, "these 2 would be given to the run again") {
		t.Errorf("%s", out)
	}
	refused(t, dir, 2, []string{"--reason is missing"}, on("quarantine drop old --apply")...)
	refused(t, dir, 2, []string{"--partition"}, on("quarantine drop old --entries 1")...)
	refused(t, dir, 2, []string{"--entries", "neither a number"}, on("quarantine drop old --partition 0 --entries 1-")...)
	refused(t, dir, 2, []string{"--states", "SET_ASIDE, REPLAYED, DROPPED"}, on("quarantine list old --states GONE")...)
	if out := must(t, dir, on("quarantine replay old --kinds LATE --apply --reason x")...); !strings.Contains(out, "nothing to decide about") {
		t.Errorf("%s", out)
	}
	must(t, dir, on("quarantine replay old --kinds UNREADABLE --apply --reason again")...)
	settled(run, "old", 1)
	if states, held = list("old"); len(held) != 1 || states[0] != "0 SET_ASIDE UNREADABLE 2" {
		t.Errorf("%q, held %v", states, held)
	}
	if out := must(t, dir, on("status old")...); !strings.Contains(out, "1 held key") {
		t.Errorf("%s", out)
	}
	if out := must(t, dir, on("why old")...); !strings.Contains(out, "KEYS_HELD") || !strings.Contains(out, "2 records that wait") {
		t.Errorf("%s", out)
	}
	stop(run)

	epoch := parse(t, must(t, dir, on("checkpoint list --json")...))["checkpoints"].([]any)
	last := fmt.Sprint(epoch[len(epoch)-1].(map[string]any)["epoch"])
	restore := func(flow string, more ...string) []string {
		return on("checkpoint restore old "+last+" --as new --artifacts artifacts --flow "+flow, more...)
	}
	refused(t, dir, 3, []string{"RUN_MISMATCH", "select"}, restore("mended.yaml")...)
	refused(t, dir, 2, []string{"--flow"}, on("checkpoint restore old "+last+" --as new --artifacts artifacts --mended")...)
	write("other.yaml", strings.Replace(mended, "period: 3", "period: 4", 1))
	refused(t, dir, 3, []string{"RUN_MISMATCH", "operators"}, restore("other.yaml", "--mended")...)
	must(t, dir, on("checkpoint check-restore mended.yaml old "+last+" --mended --artifacts artifacts")...)
	must(t, dir, restore("mended.yaml", "--mended")...)

	run = start("mended.yaml", "new")
	must(t, dir, on("quarantine replay new --partition 0 --entries 0-1 --apply --who ana --reason mended")...)
	settled(run, "new", 2-1)
	if states, held = list("new"); len(held) != 1 || states[0] != "0 REPLAYED UNREADABLE 3" || states[1] != "1 SET_ASIDE UNREADABLE 3" {
		t.Errorf("%q, held %v", states, held)
	}
	must(t, dir, on("quarantine drop new --states SET_ASIDE --apply --who ana --reason garbage")...)
	settled(run, "new", 2)
	if states, held = list("new"); len(held) != 0 || states[1] != "1 DROPPED UNREADABLE 3" || states[2] != "2 DROPPED TOMBSTONE 1" {
		t.Errorf("%q, held %v", states, held)
	}
	if out := must(t, dir, on("quarantine show new 0 2")...); !strings.Contains(out, "REPLAYED after 3 attempts") || !strings.Contains(out, "decided      CONSUMED") || !strings.Contains(out, "by ana: mended") {
		t.Errorf("%s", out)
	}
	if out := must(t, dir, on("quarantine show new 0 3 --json")...); !strings.Contains(out, `"outcome":"DROPPED"`) || !strings.Contains(out, "garbage") {
		t.Errorf("%s", out)
	}
	refused(t, dir, 3, []string{"REQUEST_INVALID"}, on("quarantine show new 0 0")...)
	stop(run)

	// The same as a batch over all good events, once all of it is released.
	must(t, dir, "run", "mended.yaml", "--brokers", addr, "--topic", "in", "--group", "new", "--run-id", "new", "--store", store, "--artifacts", "artifacts", "--once-n", "7", "--emit", "stream.json")
	write("good.jsonl", strings.Join(append(append([]string{}, values[:3]...), values[4:]...), "\n")+"\n")
	must(t, dir, "batch", "run", "--flow", "mended.yaml", "--snapshot", "good.jsonl", "--emit", "batch.json")
	document := func(name string) map[string]any {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		return parse(t, string(text))
	}
	stream, batch := document("stream.json"), document("batch.json")
	if stream["values_hash"] != batch["values_hash"] || stream["omitted"] != 3.0 || stream["consumed"] != 4.0 || stream["replayed"] != 1.0 || batch["consumed"] != 5.0 {
		t.Errorf("stream %v\nbatch %v", stream, batch)
	}
	refused(t, dir, 3, []string{"RUN_FINISHED"}, on("idle confirm new --partition 0 --apply --reason x")...)
}
