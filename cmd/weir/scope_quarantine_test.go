package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
)

// A process of a run that is shared out leaves what each of its partitions has set aside, in a file as a run of its own does; not of one that another
// process works on.
func TestScopeQuarantineFiles(t *testing.T) {
	t.Parallel()
	dir, addr := fixtureDir(t), broker(t)
	publishLog(t, dir, addr, "shared", 1)
	client, err := kgo.NewClient(kgo.SeedBrokers(addr), kgo.DefaultProduceTopic("shared"), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	for p, value := range []string{"not JSON", "nor this"} {
		if err := client.ProduceSync(t.Context(), &kgo.Record{Partition: int32(p + 1), Value: []byte(value)}).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	a := start(t, dir, apartArgs(addr, "shared", "apart", "--artifacts", "kept")...)
	path := filepath.Join(dir, "apart.db")
	until(t, "everything is committed", []*process{a}, func() bool { return total(apart(t, path, "apart")) == 25 })

	if err := a.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if code := a.end(t); code != 0 {
		t.Fatalf("exit %d\n%s", code, a.out.String())
	}
	file := func(p string) string { return filepath.Join(dir, "kept", "apart%2F"+p+".quarantine.jsonl") }
	for p, words := range map[string][]string{"1": {"not JSON", `"partition":1`, "UNREADABLE"}, "2": {"nor this", `"partition":2`, "UNREADABLE"}} {
		text, err := os.ReadFile(file(p))
		if err != nil {
			t.Error(err)
		}
		for _, w := range words {
			if !strings.Contains(string(text), w) {
				t.Errorf("partition %s lacks %q: %s", p, w, text)
			}
		}
	}
	if listed := must(t, dir, "quarantine", "list", "apart/1", "--store", "sqlite:apart.db"); !strings.Contains(listed, "UNREADABLE") {
		t.Errorf("%s", listed)
	}

	if err := os.Remove(file("1")); err != nil {
		t.Fatal(err)
	}
	store, err := openStore(t.Context(), "sqlite:"+path)
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	if _, err := store.Acquire(context.Background(), "stream/apart/2", "somebody", 1<<36); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file("2"), []byte("theirs"), 0o600); err != nil {
		t.Fatal(err)
	}
	o := runOptions{runID: "apart", artifacts: filepath.Join(dir, "kept")}
	if err := (&app{}).leaveApart(t.Context(), o, &runStore{ControlStore: store}, []int32{1, 2}); err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(file("1")); err != nil || !strings.Contains(string(text), "not JSON") {
		t.Errorf("of a partition that nobody works on: %s, %v", text, err)
	}
	if text, err := os.ReadFile(file("2")); err != nil || string(text) != "theirs" {
		t.Errorf("of a partition that another process works on: %s, %v", text, err)
	}
}
