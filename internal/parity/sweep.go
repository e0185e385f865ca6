package parity

import (
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

// Failure is a seed under which the modes differ.
type Failure struct {
	Seed    uint64
	Reasons []string
	// Faults is the number of faults in the smallest schedule that still fails, Files where it and the rest were written, and Again
	// the command that shows it.
	Faults int
	Files  []string
	Again  string
}

// Run compares under every seed. It goes on after a failure.
func (s Sweep) Run(ctx context.Context) (Summary, error) {
	sum := Summary{Seeds: s.Count}
	for i := range s.Count {
		seed := s.First + uint64(i)
		c, err := s.prepare(ctx, seed)
		if err != nil {
			return sum, fmt.Errorf("seed %d: %w", seed, err)
		}
		r, err := c.run(ctx, c.cfg.Schedule)
		if err != nil {
			return sum, fmt.Errorf("seed %d: %w", seed, err)
		}
		sum.add(r)
		if r.Verdict == Different {
			f, err := s.shrink(ctx, c, r)
			if err != nil {
				return sum, err
			}
			sum.Failures = append(sum.Failures, f)
		}
		if s.Progress != nil {
			s.Progress(i+1, s.Count)
		}
		if err := os.RemoveAll(c.dir); err != nil {
			return sum, codes.New(codes.OutputUnwritable, "%w", err)
		}
	}
	return sum, nil
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

func (s Sweep) prepare(ctx context.Context, seed uint64) (*seedCase, error) {
	rng := rand.New(rand.NewPCG(seed, 0x77656972))
	c := &seedCase{cfg: s.Config, seed: seed, dir: filepath.Join(s.Dir, fmt.Sprintf("seed-%d", seed))}
	if err := os.MkdirAll(c.dir, 0o700); err != nil {
		return nil, codes.New(codes.OutputUnwritable, "%w", err)
	}
	c.cfg.Seed = seed
	c.cfg.Partitions = 1 + rng.Int32N(8)
	c.cfg.Fetch = fetchSizes[rng.IntN(len(fetchSizes))]
	if !s.OwnFlow {
		c.flowSrc = []byte(sweepFlow(rng))
		plan, err := flow.Parse("sweep.yaml", c.flowSrc, nil)
		if err != nil {
			return nil, err
		}
		c.cfg.Plan = plan
	}
	if s.Generate {
		c.cfg.Snapshot = filepath.Join(c.dir, "snapshot.jsonl")
		err := replay.Generate(ctx, replay.GenerateConfig{Events: int64(1 + rng.IntN(400)), Instruments: 1 + rng.IntN(6), Seed: seed, Snapshot: c.cfg.Snapshot})
		if err != nil {
			return nil, err
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

// shrink looks for the smallest schedule that still fails and writes everything that is needed to see it again.
func (s Sweep) shrink(ctx context.Context, c *seedCase, r Report) (Failure, error) {
	var failed error
	smallest := replay.Shrink(c.cfg.Schedule, func(candidate *replay.Schedule) bool {
		if failed != nil || ctx.Err() != nil {
			return false
		}
		again, err := c.run(ctx, candidate)
		failed = err
		return err == nil && again.Verdict == Different
	})
	if failed != nil {
		return Failure{}, failed
	}
	f := Failure{Seed: c.seed, Reasons: r.Reasons, Faults: len(smallest.Faults)}
	name := func(what string) string { return filepath.Join(s.Out, fmt.Sprintf("parity-seed-%d.%s", c.seed, what)) }
	args := []string{"weir parity"}
	keep := func(flag, what string, data []byte) error {
		f.Files = append(f.Files, name(what))
		args = append(args, flag+" "+name(what))
		return atomicfile.Write(name(what), data, 0o600)
	}
	faults, err := smallest.Encode()
	if err != nil {
		return f, err
	}
	if err := keep("--faults", "faults.json", faults); err != nil {
		return f, err
	}
	if c.flowSrc != nil {
		if err := keep("--flow", "flow.yaml", c.flowSrc); err != nil {
			return f, err
		}
	}
	if s.Generate {
		events, err := os.ReadFile(c.cfg.Snapshot)
		if err == nil {
			err = keep("--snapshot", "snapshot.jsonl", events)
		}
		if err != nil {
			return f, codes.New(codes.OutputUnwritable, "%w", err)
		}
	}
	f.Again = fmt.Sprintf("%s --via log --seed %d --partitions %d --fetch %d --crash-every %d", strings.Join(args, " "), c.seed, c.cfg.Partitions, c.cfg.Fetch, c.cfg.CrashEvery)
	return f, nil
}

// Document is the canonical form of a summary.
func (s Summary) Document() map[string]any {
	failures := make([]any, 0, len(s.Failures))
	for _, f := range s.Failures {
		failures = append(failures, map[string]any{"seed": f.Seed, "reasons": f.Reasons, "faults": f.Faults, "files": f.Files, "again": f.Again})
	}
	return map[string]any{
		"seeds": s.Seeds, "equal": s.Equal, "explained": s.Explained, "different": len(s.Failures), "failures": failures,
		"arrivals": s.Arrivals, "faults_applied": s.Faults, "crashes": s.Crashes, "late": s.Late, "duplicates_skipped": s.Duplicates, "omitted": s.Omitted,
	}
}

// Text is the summary for people.
func (s Summary) Text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d seeds: %d equal to batch, %d explained, %d different\n", s.Seeds, s.Equal, s.Explained, len(s.Failures))
	fmt.Fprintf(&b, "%d arrivals, %d faults applied, %d crashes, %d late, %d duplicates skipped, %d omitted\n", s.Arrivals, s.Faults, s.Crashes, s.Late, s.Duplicates, s.Omitted)
	for _, f := range s.Failures {
		fmt.Fprintf(&b, "seed %d: %s\n  smallest schedule: %d faults; see it again with\n  %s\n", f.Seed, strings.Join(f.Reasons, "; "), f.Faults, f.Again)
	}
	return b.String()
}
