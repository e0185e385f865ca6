package group

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

var eventNames = map[string]event{"assigned": assigned, "revoked": revoked, "lost": lost, "deadline": deadline, "ended": ended,
	"exhausted": exhausted, "committed": committed, "due": due}

var actionNames = map[action]string{start: "start", drain: "drain", kill: "kill", pause: "pause", forget: "forget", release: "release"}

func names(all []action) string {
	var out []string
	for _, a := range all {
		out = append(out, actionNames[a])
	}
	return strings.Join(out, " ")
}

// TestMachine: every event in every phase, with what is to be done.
func TestMachine(t *testing.T) {
	t.Parallel()
	table := map[Phase]string{
		Absent:   "assigned:start>RUNNING revoked:release>ABSENT lost:release>ABSENT deadline:>ABSENT ended:>ABSENT exhausted:>ABSENT committed:>ABSENT due:>ABSENT",
		Running:  "assigned:>RUNNING revoked:drain>DRAINING lost:kill>STOPPING deadline:>RUNNING ended:pause>WAITING exhausted:>FINISHED committed:>RUNNING due:>RUNNING",
		Waiting:  "assigned:>WAITING revoked:forget,release>ABSENT lost:forget,release>ABSENT deadline:>WAITING ended:>WAITING exhausted:>WAITING committed:>WAITING due:start>RUNNING",
		Draining: "assigned:>DRAINING revoked:>DRAINING lost:kill>STOPPING deadline:kill>STOPPING ended:release>ABSENT exhausted:release>ABSENT committed:>DRAINING due:>DRAINING",
		Stopping: "assigned:>STOPPING revoked:>STOPPING lost:>STOPPING deadline:>STOPPING ended:release>ABSENT exhausted:release>ABSENT committed:>STOPPING due:>STOPPING",
		Finished: "assigned:>FINISHED revoked:release>ABSENT lost:release>ABSENT deadline:>FINISHED ended:>FINISHED exhausted:>FINISHED committed:>FINISHED due:>FINISHED",
	}
	if len(table) != 6 {
		t.Fatal("a phase is missing")
	}
	for phase, row := range table {
		cells := strings.Fields(row)
		if len(cells) != len(eventNames) {
			t.Errorf("%s: %d events", phase, len(cells))
		}
		for _, cell := range cells {
			name, want, _ := strings.Cut(cell, ":")
			e, ok := eventNames[name]
			if !ok {
				t.Fatalf("no event %q", name)
			}
			m := machine{phase: phase}
			got := m.step(e)
			if is := strings.ReplaceAll(names(got), " ", ",") + ">" + string(m.phase); is != want {
				t.Errorf("%s, %s: %s, want %s", phase, name, is, want)
			}
		}
	}
}

// TestMachineAssignedWhileItEnds: it is started again once the engine before has ended, unless it is taken away again.
func TestMachineAssignedWhileItEnds(t *testing.T) {
	t.Parallel()
	for script, want := range map[string]string{
		"assigned revoked assigned ended":                  "start drain release start RUNNING",
		"assigned revoked assigned deadline ended":         "start drain kill release start RUNNING",
		"assigned revoked assigned revoked ended":          "start drain release ABSENT",
		"assigned revoked assigned lost ended":             "start drain kill release ABSENT",
		"assigned lost assigned ended":                     "start kill release start RUNNING",
		"assigned ended due ended revoked due":             "start pause start pause forget release ABSENT",
		"assigned ended due committed ended":               "start pause start pause WAITING",
		"assigned exhausted revoked assigned exhausted":    "start release start FINISHED",
		"assigned revoked ended assigned revoked deadline": "start drain release start drain kill STOPPING",
	} {
		m := newMachine()
		var did []string
		for _, name := range strings.Fields(script) {
			if n := names(m.step(eventNames[name])); n != "" {
				did = append(did, n)
			}
		}
		if got := strings.Join(append(did, string(m.phase)), " "); got != want {
			t.Errorf("%s: %s, want %s", script, got, want)
		}
	}
	m := newMachine()
	for _, step := range []struct {
		e    event
		want int
	}{{assigned, 0}, {ended, 1}, {due, 1}, {ended, 2}, {due, 2}, {committed, 0}, {ended, 1}, {revoked, 1}, {assigned, 0}} {
		if m.step(step.e); m.failures != step.want {
			t.Fatalf("%v: %d failures, want %d", step, m.failures, step.want)
		}
	}
}

// TestMachineNeverRunsTwoEngines: whatever happens, there is one engine at a time, one that ends was told so or ended itself, and whoever
// waits for the partition to be gone is released only when no engine runs.
func TestMachineNeverRunsTwoEngines(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(5, 7))
	for n := range 2000 {
		m, running, paused := newMachine(), 0, false
		var said []string
		for range 40 {
			all := []event{assigned, revoked, lost, deadline}
			if running > 0 {
				all = append(all, ended, committed, exhausted)
			}
			if paused {
				all = append(all, due)
			}
			e := all[rng.IntN(len(all))]
			if e == ended || e == exhausted {
				running--
			}
			if e == due {
				paused = false
			}
			did := m.step(e)
			said = append(said, fmt.Sprint(e))
			for _, a := range did {
				switch a {
				case start:
					running++
				case pause:
					paused = true
				case forget:
					paused = false
				case release:
					if running > 0 {
						t.Fatalf("run %d: released while an engine runs: %v", n, said)
					}
				case drain, kill:
					if running != 1 {
						t.Fatalf("run %d: %s without an engine: %v", n, actionNames[a], said)
					}
				}
			}
			ours := slices.Contains([]Phase{Running, Draining, Stopping}, m.phase)
			if running > 1 || ours != (running == 1) || paused != (m.phase == Waiting) {
				t.Fatalf("run %d: %d engines, paused %v, in %s: %v", n, running, paused, m.phase, said)
			}
		}
	}
}
