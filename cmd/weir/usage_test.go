package main

import (
	"strings"
	"testing"
)

// A mistyped word is answered with the one that was probably meant, and with the command whose help to read.
func TestDidYouMean(t *testing.T) {
	t.Parallel()
	dir := fixtureDir(t)
	for _, c := range []struct {
		args  string
		words []string
	}{
		{"rnus list", []string{"Did you mean `weir runs`?", "weir --help"}},
		{"pariti", []string{"Did you mean `weir parity`?"}},
		{"runs lst", []string{"Did you mean `weir runs list`?", "`weir runs --help` lists its commands"}},
		{"runs list --stor sqlite:x.db", []string{"Did you mean `--store`?", "See `weir runs list --help`"}},
		{"runs list --phsae FAILED", []string{"Did you mean `--phase`?"}},
		{"runs list --jsn", []string{"Did you mean `--json`?"}},
		{"run flow.yaml --brokrs=localhost:9092", []string{"Did you mean `--brokers`?", "See `weir run --help`"}},
		{"runs show", []string{"accepts 1 arg", "See `weir runs show --help`"}},
		{"runs list", []string{"--store is missing", "See `weir runs list --help`"}},
		{"parity --partitions 0", []string{"See `weir parity --help`"}},
	} {
		refused(t, dir, 2, append(c.words, "weir: USAGE: "), strings.Fields(c.args)...)
	}
	for _, args := range []string{"frobnicate", "runs x", "runs list --q", "run flow.yaml --nonsense", "runs list --phase"} {
		if r := refused(t, dir, 2, []string{"--help"}, strings.Fields(args)...); strings.Contains(r.stderr, "Did you mean") {
			t.Errorf("%s: %s", args, r.stderr)
		}
	}
}

func TestDistance(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		a, b string
		want int
	}{{"", "", 0}, {"run", "run", 0}, {"rnu", "run", 1}, {"run", "", 3}, {"stor", "store", 1}, {"phsae", "phase", 1}, {"list", "lost", 1}, {"kitten", "sitting", 3}, {"né", "ne", 1}} {
		if got, back := distance(c.a, c.b), distance(c.b, c.a); got != c.want || back != c.want {
			t.Errorf("%q, %q: %d and %d, want %d", c.a, c.b, got, back, c.want)
		}
	}
}

func TestCounts(t *testing.T) {
	t.Parallel()
	if got := count(0, "run") + ", " + count(1, "run") + ", " + count(int64(2), "run"); got != "0 runs, 1 run, 2 runs" {
		t.Error(got)
	}
}
