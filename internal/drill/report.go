package drill

import (
	"fmt"
	"time"
)

// Format is the version of the report.
const Format = "weir-drill/1"

// Check is one promise and what was seen of it.
type Check struct {
	// ID is the part and a number, such as "owners.07".
	ID string
	// What is the promise, in words; Evidence what was seen.
	What, Evidence string
	Passed         bool
}

// Fault is a planned failure, and whether it happened.
type Fault struct {
	// Part in which it was planned; Kind is SIGSTOP, SIGKILL, SIGTERM or PANIC; At the failpoint, or "outside" where the drill sent it.
	Part, Kind, At string
	Epoch          uint64
	Fired          bool
}

// Report is the outcome of a drill.
type Report struct {
	Store, Brokers  string
	Records, Faults int64
	TTL, Took       time.Duration
	Checks          []Check
	Planned         []Fault
	// Logs names the folder of the processes' logs, when it was kept.
	Logs string
	// Figures that are measured and not judged, such as how long a take-over took.
	Figures map[string]float64
}

// Failed is how many checks did not hold.
func (r *Report) Failed() (n int) {
	for _, c := range r.Checks {
		if !c.Passed {
			n++
		}
	}
	return n
}

// Fired is how many of the planned faults happened.
func (r *Report) Fired() (n int) {
	for _, f := range r.Planned {
		if f.Fired {
			n++
		}
	}
	return n
}

// Document is the canonical form, for record.AppendJSON.
func (r *Report) Document() map[string]any {
	checks, faults, figures := []any{}, []any{}, map[string]any{}
	for _, c := range r.Checks {
		checks = append(checks, map[string]any{"id": c.ID, "check": c.What, "evidence": c.Evidence, "passed": c.Passed})
	}
	for _, f := range r.Planned {
		faults = append(faults, map[string]any{"part": f.Part, "kind": f.Kind, "at": f.At, "epoch": f.Epoch, "fired": f.Fired})
	}
	for name, v := range r.Figures {
		figures[name] = v
	}
	var logs any
	if r.Logs != "" {
		logs = r.Logs
	}
	return map[string]any{
		"format": Format, "store": r.Store, "brokers": r.Brokers, "records": r.Records, "ttl_ms": r.TTL.Milliseconds(), "took_ms": r.Took.Milliseconds(),
		"checks": checks, "passed": len(r.Checks) - r.Failed(), "failed": r.Failed(),
		"faults": faults, "faults_planned": len(r.Planned), "faults_fired": r.Fired(), "figures": figures, "logs": logs,
	}
}

// line is a check as people read it.
func (c Check) String() string {
	verdict := "PASS"
	if !c.Passed {
		verdict = "FAIL"
	}
	return fmt.Sprintf("%s  %-12s %s: %s", verdict, c.ID, c.What, c.Evidence)
}
