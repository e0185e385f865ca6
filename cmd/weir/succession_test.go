package main

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/weirstream/weir/internal/pgtest"
)

// succession is processes of a run, or of several, one after the other: each is killed at a failpoint or comes to its end. Leases last so long that none is lost
// on a busy machine, and nobody waits for one of the dead: on SQLite the clock by which a process judges leases is ahead of its forerunner's, and in the
// database whose super user is given they are made to run out.
type succession struct {
	dir, super string
	env        []string
	started    int
}

const successionTTL = time.Minute

// successor is what a process has left.
type successor struct {
	result
	killed bool
}

// next runs a process to its end. It ends the test when that is neither a good end nor the kill of a failpoint.
func (s *succession) next(t *testing.T, faults string, args ...string) successor {
	t.Helper()
	p := s.run(t, faults, args...)
	if !p.killed && p.code != 0 {
		t.Fatalf("%s %v: exit %d\n%s%s", faults, args, p.code, p.stdout, p.stderr)
	}
	return p
}

// run is next of a process that may also end in another way.
func (s *succession) run(t *testing.T, faults string, args ...string) successor {
	t.Helper()
	if s.super != "" {
		if _, err := pgtest.Connect(t, s.super).Exec(t.Context(), "UPDATE weir.leases SET until = clock_timestamp() - interval '1 second' WHERE until > clock_timestamp()"); err != nil {
			t.Fatal(err)
		}
	}
	p := successor{result: weirWith(t, s.dir, "", append(slices.Clone(s.env), failpointsEnv+"="+faults, s.ahead()), append(args, "--ttl", successionTTL.String())...)}
	if p.killed = strings.Contains(p.stderr, `{"action":"kill"`); p.killed != (p.code == -1) {
		t.Fatalf("%s %v: exit %d\n%s%s", faults, args, p.code, p.stdout, p.stderr)
	}
	return p
}

// ahead is the clock of the next process, for its environment.
func (s *succession) ahead() string {
	s.started++
	return fmt.Sprintf("%s=%s", clockEnv, time.Duration(s.started)*2*successionTTL)
}

// kill is next of a process that has to be killed at a point: in its first commit, unless the point names an epoch.
func (s *succession) kill(t *testing.T, point string, args ...string) successor {
	t.Helper()
	if !strings.Contains(point, "@") {
		point += "@+1"
	}
	p := s.next(t, point+"=kill", args...)
	if !p.killed {
		t.Errorf("%s, %v: it came to its end, where a kill was planned\n%s", point, args, p.stderr)
	}
	return p
}

var acquired = regexp.MustCompile(`weir: lease \S+ acquired under token (\d+) `)

// token is the one under which a process has owned the run.
func (p successor) token(t *testing.T) uint64 {
	t.Helper()
	found := acquired.FindAllStringSubmatch(p.stderr, -1)
	if len(found) != 1 {
		t.Fatalf("a process acquired %d leases:\n%s", len(found), p.stderr)
	}
	n, err := strconv.ParseUint(found[0][1], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// repeats is how often a process says that it published to a sink again what it may have published before: it went on from its last commit, or the sink was down.
func (p successor) repeats(sink string) (n int) {
	for line := range strings.Lines(p.stderr) {
		if strings.Contains(line, "the run goes on from its last commit") || strings.Contains(line, "a sink is down") && strings.Contains(line, sink) {
			n++
		}
	}
	return n
}

// copied is a row in a topic, and the token under which it was published.
type copied struct {
	row   string
	token uint64
}

// judgeCopies judges a sink to which rows are published at least once. Every row is there and nothing else. One process has committed it: under the tokens of
// others it stands only if they were killed between sink and journal, and under each token once, but for what that process says it has repeated. Killed before
// its sinks, a process has published nothing.
func judgeCopies(t *testing.T, id, point, sink string, got []copied, want []string, processes []successor) {
	t.Helper()
	between, forgotten, times := strings.HasPrefix(point, storePrefix), 0, map[copied]int{}
	for _, c := range got {
		times[c]++
	}
	owners := map[uint64]successor{}
	for _, p := range processes {
		if owners[p.token(t)] = p; p.repeats(sink) > 0 {
			t.Logf("%s: a process began again:\n%s", id, p.stderr)
		}
	}
	holders := map[string][]uint64{}
	for c, n := range times {
		p, known := owners[c.token]
		switch {
		case !known, n > 1+p.repeats(sink):
			t.Errorf("%s: %d copies of %q under token %d, of a process that says\n%s", id, n, c.row, c.token, p.stderr)
		case p.killed && point == "before_commit":
			t.Errorf("%s: %q was published before the commit had begun", id, c.row)
		case p.killed && between:
			forgotten++
			holders[c.row] = append(holders[c.row], 0)
		default:
			holders[c.row] = append(holders[c.row], c.token)
		}
	}
	var rows []string
	for row, tokens := range holders {
		if rows = append(rows, row); len(slices.DeleteFunc(tokens, func(n uint64) bool { return n == 0 })) != 1 {
			t.Errorf("%s: %q was not committed by one process: %v", id, row, times)
		}
	}
	if slices.Sort(rows); !slices.Equal(rows, want) {
		t.Errorf("%s: the topic of copies holds %d rows, of which\n%v\nwant\n%v", id, len(got), rows, want)
	}
	if between != (forgotten > 0) {
		t.Errorf("%s: %d rows were published by processes that were killed between sinks and journal", id, forgotten)
	}
}
