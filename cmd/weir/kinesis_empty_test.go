package main

import (
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// A shard whose records are gone, and that holds none: no place can be told to read on at, so none is taken. Once it holds a record again, that one is
// named, and taken.
func TestKinesisLostAndEmpty(t *testing.T) {
	t.Parallel()
	r := newRiver(t, 1)
	r.publish(1)
	p := start(t, r.dir, r.args("run")...)
	until(t, "everything is committed", []*process{p}, r.consumed("run"))
	r.ends(p)
	r.Shift(t, 25*time.Hour)
	l := startLogged(t, r.dir, "run", nil, r.args("run")...)
	l.await(t, "the loss is seen", func() bool { return strings.Contains(l.said(t), "it holds no record now") })
	next := r.shardsOf("run")[0]["next"].(string)
	recover := func(more ...string) string {
		return must(t, r.dir, append([]string{"recover", "run", "--store", "sqlite:run.db", "--partition", "0", "--reason", "it is old", "--apply"}, more...)...)
	}
	recover("--accept-gap", "--to", next+"0")
	pending := func() string { return must(t, r.dir, "recover", "run/0", "--store", "sqlite:run.db") }
	l.await(t, "the choice is dismissed", func() bool { return strings.Contains(pending(), "DISMISSED") })
	if said := pending(); !strings.Contains(said, "was not moved") || !strings.Contains(said, "--retry meets that one") {
		t.Errorf("%s", said)
	}
	r.publish(1)
	recover("--retry")
	l.await(t, "the place is named", func() bool { return strings.Contains(l.said(t), "have=") })
	_, have, _ := strings.Cut(l.said(t), "have=")
	recover("--accept-gap", "--to", strings.Fields(have)[0])
	l.await(t, "the run goes on", func() bool {
		return total(apart(t, filepath.Join(r.dir, "run.db"), "run")) == 2*fixtureArrivals
	})
	r.ends(l.process)
}
