package main

import (
	"fmt"
	"maps"
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

// tokens are those under which a process has owned the run: one, unless it had to ask for its lease again.
func (p successor) tokens(t *testing.T) (all []uint64) {
	t.Helper()
	for _, m := range acquired.FindAllStringSubmatch(p.stderr, -1) {
		n, err := strconv.ParseUint(m[1], 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, n)
	}
	return all
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

// judgeCopies judges a sink to which rows are published at least once. Every row is there and nothing else. One process has committed it: those of others
// are there only if they were killed between sink and journal, and under each token a row is there once, but for what its process says it has repeated. Killed
// before its sinks, a process has published nothing.
func judgeCopies(t *testing.T, id, point, sink string, got []copied, want []string, processes []successor) {
	t.Helper()
	owners := map[uint64]int{}
	for i, p := range processes {
		for _, token := range p.tokens(t) {
			owners[token] = i
		}
		if p.repeats(sink) > 0 {
			t.Logf("%s: a process began again:\n%s", id, p.stderr)
		}
	}
	times, rows := map[copied]int{}, map[string]bool{}
	for _, c := range got {
		times[c]++
		rows[c.row] = true
	}
	between, forgotten, committed := strings.HasPrefix(point, storePrefix), 0, map[string]map[int]bool{}
	for c, n := range times {
		i, known := owners[c.token]
		if !known {
			t.Errorf("%s: %q is there under token %d, which nobody had", id, c.row, c.token)
			continue
		}
		p := processes[i]
		if n > 1+p.repeats(sink) || p.killed && point == "before_commit" {
			t.Errorf("%s: %d copies of %q are of a process that says\n%s", id, n, c.row, p.stderr)
		}
		if p.killed && between {
			forgotten++
			continue
		}
		if committed[c.row] == nil {
			committed[c.row] = map[int]bool{}
		}
		committed[c.row][i] = true
	}
	for row := range rows {
		if len(committed[row]) != 1 {
			t.Errorf("%s: %q was not committed by one process: %v", id, row, times)
		}
	}
	if all := slices.Sorted(maps.Keys(rows)); !slices.Equal(all, want) {
		t.Errorf("%s: the topic of copies holds %d rows, of which\n%v\nwant\n%v", id, len(got), all, want)
	}
	if between != (forgotten > 0) {
		t.Errorf("%s: %d rows were published by processes that were killed between sinks and journal", id, forgotten)
	}
}
