package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/weirstream/weir/internal/fixture"
)

// TestLateSink: late events stand in the sink that the flow names, once each, with all that is known of them, wherever the process is killed; rows go elsewhere, and
// the quarantine shows the same.
func TestLateSink(t *testing.T) {
	t.Parallel()
	dir, addr := fixtureDir(t), broker(t)
	var values []string
	for i := range 12 {
		at := fmt.Sprintf("2026-01-05T14:%02d:00Z", 30+i)
		if i%3 == 2 {
			at = fmt.Sprintf("2026-01-05T14:%02d:30Z", 20+i)
		}
		values = append(values, fmt.Sprintf(`{"event_id":"e%d","instrument":"1","event_time":%q,"close":%d}`, i, at, i))
	}
	produce(t, addr, "ticks", values)
	if _, err := kadm.NewClient(kafkaClient(t, addr)).CreateTopics(t.Context(), 1, 1, nil, "late"); err != nil {
		t.Fatal(err)
	}
	for _, folder := range []string{"lines", "late"} {
		if err := os.Mkdir(filepath.Join(dir, folder), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for name, sink := range map[string]string{"files": "type: jsonl, folder: late", "topic": "type: kafka, topic: late"} {
		write(t, dir, name+".yaml", string(fixture.Flow)+"sinks: [{name: rows, type: jsonl, folder: lines}, {name: too-late, "+sink+"}]\nlate: {sink: too-late}\n")
	}
	line := &succession{dir: dir}
	args := func(flowName, id string, until ...string) []string {
		args := append(runArgs(addr, "ticks", id, "--epoch", "1h", "--standby"), until...)
		args[1] = flowName + ".yaml"
		return args
	}
	var want []string
	for _, flowName := range []string{"files", "topic"} {
		for _, point := range []string{"before_commit", "store:commit", "store:committed", "after_commit"} {
			id := flowName + "-" + strings.ReplaceAll(point, ":", "-")
			for _, until := range []string{"4", "8"} {
				line.kill(t, point, args(flowName, id, "--until-n", until)...)
				line.next(t, "", args(flowName, id, "--until-n", until)...)
			}
			line.next(t, "", args(flowName, id, "--once-n", "13")...)
			got := lateTexts(t, dir, addr, flowName, id)
			if want == nil {
				want = got
			}
			if len(got) != 4 || !slices.Equal(got, want) {
				t.Errorf("%s: late events are\n%s\nwant\n%s", id, strings.Join(got, "\n"), strings.Join(want, "\n"))
			}
			if rows := rowsOfFiles(t, dir, id); len(rows) != 8 {
				t.Errorf("%s: %d rows are in the other sink, want 8", id, len(rows))
			}
		}
	}
	for _, words := range []string{
		`"late_by":"8m25s"`, `"holder":{"event_time":"2026-01-05T14:31:00Z","position":"1"}`, `"watermark":"2026-01-05T14:30:55Z"`, `"reason":"LATE"`, `"position":"2"`, `"event_id":"e2"`,
		`"value":"{\"event_id\":\"e2\"`, `"headers":[]`, `"entry":0`,
	} {
		if !strings.Contains(want[0], words) {
			t.Errorf("the first late event lacks %s:\n%s", words, want[0])
		}
	}
	shown := parse(t, must(t, dir, "quarantine", "show", "files-before_commit", "0", "2", "--store", "sqlite:files-before_commit.db", "--json"))
	records, _ := shown["records"].([]any)
	if records == nil {
		records = []any{shown}
	}
	late, _ := records[0].(map[string]any)["late"].(map[string]any)
	if late["by"] != "8m25s" || late["watermark"] != "2026-01-05T14:30:55Z" || late["holder"].(map[string]any)["position"] != "1" {
		t.Errorf("the quarantine shows %v", shown)
	}
}

// lateTexts are the late events of a run in its target, without the run.
func lateTexts(t *testing.T, dir, addr, flowName, id string) (out []string) {
	t.Helper()
	add := func(line []byte) {
		if run := fmt.Sprintf(`"run":%q`, id); bytes.Contains(line, []byte(run)) {
			out = append(out, strings.Replace(strings.TrimSpace(string(line)), run, `"run":"r"`, 1))
		}
	}
	if flowName == "files" {
		for _, text := range published(t, filepath.Join(dir, "late", id, "*.jsonl")) {
			for line := range bytes.Lines(text) {
				add(line)
			}
		}
		return sorted(out)
	}
	cl := kafkaClient(t, addr, kgo.ConsumeTopics("late"), kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.KeepControlRecords())
	ends, err := kadm.NewClient(cl).ListCommittedOffsets(t.Context(), "late")
	if err != nil {
		t.Fatal(err)
	}
	end, _ := ends.Lookup("late", 0)
	for next := int64(0); next < end.Offset; {
		fetches := cl.PollFetches(t.Context())
		if err := fetches.Err(); err != nil {
			t.Fatal(err)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			if next = r.Offset + 1; r.Offset < end.Offset && !r.Attrs.IsControl() {
				add(r.Value)
			}
		})
	}
	return sorted(out)
}
