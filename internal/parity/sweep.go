package parity

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/flow"
	"github.com/weirstream/weir/internal/atomicfile"
	"github.com/weirstream/weir/replay"
	"github.com/weirstream/weir/sources/snapshot"
)

// Sweep compares the modes under many seeds. A seed chooses the fault schedule, the number of partitions (1 to 8), the fetch size
// (1 to 10,000) and the crashes; with Generate also the events, and without OwnFlow one of the sweep's own flows, so that disorder stays within
// the allowed lateness under some seeds and goes beyond it under others.
type Sweep struct {
	Config
	First    uint64
	Count    int
	Generate bool
	OwnFlow  bool
	// Out is where the files of a failing seed are written.
	Out      string
	Progress func(done, total int)
}

// Summary of a sweep.
type Summary struct {
	Seeds, Equal, Explained int
	// Arrivals, Faults, Crashes, Late and Revised tell that the sweep was not an easy one.
	Arrivals, Faults, Late, Duplicates, Omitted int64
	Crashes                                     int
	Failures                                    []Failure
}

// Failure is a seed under which the modes differ, or that could not be run.
type Failure struct {
	Seed    uint64
	Reasons []string
	// NotRun says that an error ended the seed; Reasons has its text.
	NotRun bool
	// Faults is the number of faults in the smallest schedule that still fails, or of a seed that could not be run in its whole one.
	// Files is where the schedule and the rest were written, and Again the command that shows the failure.
	Faults int
	Files  []string
	Again  string
}

// Run compares under every seed. It goes on after a failure, also of a seed that cannot be run. Only an interruption, a snapshot that
// cannot be read under any seed, and folders that cannot be written end it; the error is that of
// ctx, or carries codes.FileMissing, codes.SnapshotInvalid or codes.OutputUnwritable.
func (s Sweep) Run(ctx context.Context) (Summary, error) {
	sum := Summary{Seeds: s.Count}
	if err := s.check(ctx); err != nil {
		return sum, err
	}
	for i := range s.Count {
		seed := s.First + uint64(i)
		if err := s.try(ctx, seed, &sum); err != nil {
			return sum, fmt.Errorf("seed %d: %w", seed, err)
		}
		if s.Progress != nil {
			s.Progress(i+1, s.Count)
		}
	}
	return sum, nil
}

// check looks before the first seed at what all of them need.
func (s Sweep) check(ctx context.Context) error {
	probe, err := atomicfile.Spool(cmp.Or(s.Out, "."))
	if err != nil {
		return err
	}
	probe.Close()
	if s.Generate {
		return nil
	}
	fields := snapshot.DefaultFields() // those of the sweep's own flows
	if s.OwnFlow {
		fields = snapshot.FieldsOf(s.Plan)
	}
	_, err = snapshot.New(snapshot.Config{Path: s.Snapshot, Fields: fields, TempDir: s.Dir}).Count(ctx)
	return err
}

// try compares under one seed. The error is one that ends the sweep.
func (s Sweep) try(ctx context.Context, seed uint64, sum *Summary) (err error) {
	c, err := s.prepare(ctx, seed)
	defer func() {
		if left := os.RemoveAll(c.dir); err == nil {
			err = atomicfile.Unwritable(c.dir, left)
		}
	}()
	var r Report
	if err == nil {
		r, err = c.run(ctx, c.cfg.Schedule)
	}
	switch {
	case ends(ctx, err):
		return err
	case err != nil:
		f := Failure{Seed: seed, NotRun: true, Reasons: []string{strings.ToValidUTF8(err.Error(), "\uFFFD")}}
		err = s.keep(c, c.cfg.Schedule, &f)
		sum.Failures = append(sum.Failures, f)
		return err
	}
	sum.add(r)
	if r.Verdict == Different {
		f := Failure{Seed: seed, Reasons: r.Reasons}
		smallest, err := c.shrink(ctx)
		if err == nil {
			err = s.keep(c, smallest, &f)
		}
		if err != nil {
			return err
		}
		sum.Failures = append(sum.Failures, f)
	}
	return nil
}

// ends says whether an error ends a sweep: what it comes from is the same under every seed.
func ends(ctx context.Context, err error) bool {
	return err != nil && (ctx.Err() != nil || codes.Has(err, codes.OutputUnwritable))
}

func (s *Summary) add(r Report) {
	switch r.Verdict {
	case EqualToBatch:
		s.Equal++
	case EqualExplained:
		s.Explained++
	}
	s.Arrivals += r.Arrivals
	s.Faults += r.FaultsApplied
	s.Crashes += r.Crashes
	s.Late += r.Stream.Counts.Late
	s.Duplicates += r.Stream.Counts.Duplicates
	s.Omitted += r.Stream.Counts.Omitted
}

// seedCase is what one seed chose.
type seedCase struct {
	cfg     Config
	seed    uint64
	dir     string
	flowSrc []byte
	runs    int
}

// prepare makes a seed's case. It returns what it came to beside an error too.
func (s Sweep) prepare(ctx context.Context, seed uint64) (*seedCase, error) {
	rng := rand.New(rand.NewPCG(seed, 0x77656972))
	c := &seedCase{cfg: s.Config, seed: seed, dir: filepath.Join(s.Dir, fmt.Sprintf("seed-%d", seed))}
	if err := os.MkdirAll(c.dir, 0o700); err != nil {
		return c, codes.New(codes.OutputUnwritable, "%w", err)
	}
	c.cfg.Seed, c.cfg.Schedule = seed, nil
	c.cfg.Partitions = 1 + rng.Int32N(8)
	c.cfg.Fetch = fetchSizes[rng.IntN(len(fetchSizes))]
	if !s.OwnFlow {
		c.flowSrc = []byte(sweepFlow(rng))
		plan, err := flow.Parse("sweep.yaml", c.flowSrc, nil)
		if err != nil {
			return c, err
		}
		c.cfg.Plan = plan
	}
	if s.Generate {
		c.cfg.Snapshot = filepath.Join(c.dir, "snapshot.jsonl")
		err := replay.Generate(ctx, replay.GenerateConfig{Events: int64(1 + rng.IntN(400)), Instruments: 1 + rng.IntN(6), Seed: seed, Snapshot: c.cfg.Snapshot})
		if err != nil {
			return c, err
		}
	}
	var err error
	c.cfg.Schedule, err = replay.RandomSchedule(ctx, c.cfg.Snapshot, snapshot.FieldsOf(c.cfg.Plan), seed, sweepRates(rng))
	c.cfg.CrashEvery = crashDistances[rng.IntN(len(crashDistances))]
	return c, err
}

var (
	fetchSizes     = []int{1, 2, 3, 7, 16, 100, 1024, 10000}
	crashDistances = []int64{0, 1, 2, 5, 17, 60, 200}
)

// run compares once, in a folder of its own.
func (c *seedCase) run(ctx context.Context, schedule *replay.Schedule) (Report, error) {
	c.runs++
	cfg := c.cfg
	cfg.Schedule = schedule
	cfg.Dir = filepath.Join(c.dir, fmt.Sprintf("run-%d", c.runs))
	if err := os.MkdirAll(cfg.Dir, 0o700); err != nil {
		return Report{}, codes.New(codes.OutputUnwritable, "%w", err)
	}
	return Run(ctx, cfg)
}

// shrink looks for the smallest schedule under which the modes still differ.
func (c *seedCase) shrink(ctx context.Context) (*replay.Schedule, error) {
	var ended error
	smallest := replay.Shrink(c.cfg.Schedule, func(candidate *replay.Schedule) bool {
		if ended != nil {
			return false
		}
		if ended = ctx.Err(); ended != nil {
			return false
		}
		again, err := c.run(ctx, candidate)
		if ends(ctx, err) {
			ended = err
		}
		return err == nil && again.Verdict == Different
	})
	return smallest, ended
}

// keep writes everything that is needed to see a failure again.
func (s Sweep) keep(c *seedCase, schedule *replay.Schedule, f *Failure) error {
	if schedule == nil { // the seed came to no schedule
		f.Again = fmt.Sprintf("weir parity --seeds 1 --seed %d", c.seed)
		return nil
	}
	f.Faults = len(schedule.Faults)
	name := func(what string) string { return filepath.Join(s.Out, fmt.Sprintf("parity-seed-%d.%s", c.seed, what)) }
	args := []string{"weir parity"}
	write := func(flag, what string, data []byte) error {
		f.Files = append(f.Files, name(what))
		args = append(args, flag+" "+name(what))
		return atomicfile.Write(name(what), data, 0o600)
	}
	faults, err := schedule.Encode()
	if err != nil {
		return err
	}
	if err := write("--faults", "faults.json", faults); err != nil {
		return err
	}
	if c.flowSrc != nil {
		if err := write("--flow", "flow.yaml", c.flowSrc); err != nil {
			return err
		}
	}
	if s.Generate {
		events, err := os.ReadFile(c.cfg.Snapshot)
		if err == nil {
			err = write("--snapshot", "snapshot.jsonl", events)
		}
		if err != nil {
			return codes.New(codes.OutputUnwritable, "%w", err)
		}
	}
	f.Again = fmt.Sprintf("%s --via log --seed %d --partitions %d --fetch %d --crash-every %d", strings.Join(args, " "), c.seed, c.cfg.Partitions, c.cfg.Fetch, c.cfg.CrashEvery)
	return nil
}

// notRun counts the seeds that could not be run.
func (s Summary) notRun() (n int) {
	for _, f := range s.Failures {
		if f.NotRun {
			n++
		}
	}
	return n
}

// Document is the canonical form of a summary.
func (s Summary) Document() map[string]any {
	failures := make([]any, 0, len(s.Failures))
	for _, f := range s.Failures {
		failures = append(failures, map[string]any{"seed": f.Seed, "reasons": f.Reasons, "faults": f.Faults, "files": f.Files, "again": f.Again, "not_run": f.NotRun})
	}
	return map[string]any{
		"seeds": s.Seeds, "equal": s.Equal, "explained": s.Explained, "different": len(s.Failures) - s.notRun(), "not_run": s.notRun(), "failures": failures,
		"arrivals": s.Arrivals, "faults_applied": s.Faults, "crashes": s.Crashes, "late": s.Late, "duplicates_skipped": s.Duplicates, "omitted": s.Omitted,
	}
}

// Text is the summary for people.
func (s Summary) Text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d seeds: %d equal to batch, %d explained, %d different", s.Seeds, s.Equal, s.Explained, len(s.Failures)-s.notRun())
	if n := s.notRun(); n > 0 {
		fmt.Fprintf(&b, ", %d could not be run", n)
	}
	b.WriteByte('\n')
	fmt.Fprintf(&b, "%d arrivals, %d faults applied, %d crashes, %d late, %d duplicates skipped, %d omitted\n", s.Arrivals, s.Faults, s.Crashes, s.Late, s.Duplicates, s.Omitted)
	for _, f := range s.Failures {
		what := "smallest schedule"
		if f.NotRun {
			what = "it could not be run; schedule"
		}
		fmt.Fprintf(&b, "seed %d: %s\n  %s: %d faults; see it again with\n  %s\n", f.Seed, strings.Join(f.Reasons, "; "), what, f.Faults, f.Again)
	}
	return b.String()
}
