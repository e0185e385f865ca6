package main

import (
	"bytes"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weirstream/weir/control/sqlite"
	"github.com/weirstream/weir/sources/kinesis"
)

// Lesson 9: a checkpoint that is held raises an alarm well before the retention ends, once for each share of it, and the end of that is told.
func TestLessonAlarmBeforeTheRetention(t *testing.T) {
	t.Parallel()
	r := ran(t)
	store, err := sqlite.Open(t.Context(), sqlite.Config{Path: filepath.Join(r.dir, "run.db")})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	stream, err := kinesis.New(kinesis.Config{Client: r.api, Stream: r.name})
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	w := &alarm{app: &app{stderr: &out, log: slog.New(slog.DiscardHandler)}, run: "run", store: store, stream: stream, told: map[int32]int{}}
	look := func(want ...string) {
		t.Helper()
		out.Reset()
		if err := w.look(t.Context(), []int32{0, 1, 2, 3}); err != nil {
			t.Fatal(err)
		}
		lines := strings.Count(out.String(), "\n")
		if lines != len(want) {
			t.Errorf("told %q; want %q", out.String(), want)
		}
		for _, words := range want {
			if !strings.Contains(out.String(), words) {
				t.Errorf("%q is not told: %q", words, out.String())
			}
		}
	}
	look()
	r.publish(1) // nobody reads it
	r.Shift(t, 11*time.Hour)
	look()
	r.Shift(t, 13*time.Hour)
	look("arrived 13h0m0s ago, and records are kept for 24h0m0s")
	look()
	r.Shift(t, 22*time.Hour)
	look("in 2h0m0s they begin to be lost")
	p := start(t, r.dir, r.args("run")...)
	until(t, "it is read", []*process{p}, func() bool { return total(apart(t, filepath.Join(r.dir, "run.db"), "run")) == 2*fixtureArrivals })
	r.ends(p)
	look("any more")
}
