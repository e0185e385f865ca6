package status

import (
	"strings"
	"testing"
	"time"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/record"
)

func ago(d time.Duration) *time.Time {
	t := start.Add(-d)
	return &t
}

func ptr[T any](v T) *T { return &v }

func eventTime(s string) EventTime {
	t, err := record.ParseTime([]byte(s))
	if err != nil {
		panic(err)
	}
	return EventTime{t}
}

// healthy is a run of three partitions in which nothing is wrong: all of them read what there is.
func healthy() Snapshot {
	s := Snapshot{
		Run: "ticks-1", Flow: "ticks", At: start, Live: true, Owner: "me", Phase: PhaseRunning, PhaseSince: ago(time.Hour), Status: "OPEN", Epoch: 40,
		Lease:  Lease{State: LeaseHeld, Token: 3, Holder: "me", Since: ago(time.Hour)},
		Commit: Commit{Count: 9, Last: ago(time.Second), Seconds: 0.004, Every: 1}, Source: Source{Name: "ticks", Observed: ago(time.Second)},
		Watermark: eventTime("2026-01-05T14:00:00Z"), Holders: []int32{0},
	}
	for n := range int32(3) {
		s.Partitions = append(s.Partitions, Partition{
			Partition: n, State: Reading, StateSince: ago(time.Second), Next: "100", Start: ptr("0"), Stable: ptr("100"), End: ptr("100"),
			LagRecords: ptr(int64(0)), Readable: ptr(int64(0)), LagSeconds: ptr(0.0), Watermark: eventTime("2026-01-05T14:00:0" + string('0'+rune(n)) + "Z"),
			WatermarkSince: ago(time.Second), MaxEventTime: eventTime("2026-01-05T14:00:09Z"), Input: "ACTIVE", Progress: ago(time.Second),
			Pressure: Pressure{State: "FLOWING"}, Queue: Queue{WindowRecords: 8192},
		})
	}
	return s
}

func lagging(p *Partition, n int64) {
	p.End, p.Stable = ptr(record.Offset(100+n).String()), ptr(record.Offset(100+n).String())
	p.LagRecords, p.Readable = &n, &n
}

func causeOf(c *codes.Code, text string) *Cause { return CauseOf(codes.New(c, "%s", text)) }

func failed(s *Snapshot, c *codes.Code, actor, text string) {
	s.Phase, s.Wait, s.PhaseSince, s.RetryAt = PhaseWaiting, WaitBackoff, ago(2*time.Second), ptr(start.Add(time.Second))
	s.Cause = causeOf(c, text)
	s.Failures = []Failure{{Incarnation: 4, Actor: actor, Cause: *s.Cause}}
}

// planted are stalls, each with what has to be said of it: the code, who holds, since when, and words of the text and of the release.
var planted = []struct {
	name   string
	plant  func(s *Snapshot)
	code   string
	holder string
	since  *time.Time
	part   *int32
	text   string
	ends   string
}{
	{"silent partition", func(s *Snapshot) { s.Partitions[0].WatermarkSince = ago(10 * time.Minute) },
		WhySilent, "partition 0", ago(10 * time.Minute), ptr(int32(0)), "no event has moved it for 10m0s", "weir idle confirm"},
	{"partition without any event", func(s *Snapshot) {
		s.Partitions[0].Watermark, s.Partitions[0].MaxEventTime, s.Partitions[0].WatermarkSince = NoEventTime, NoEventTime, ago(time.Hour)
	}, WhyNeverRead, "partition 0", ago(time.Hour), ptr(int32(0)), "had no event yet", "idle policy"},
	{"one partition behind the others in event time", func(s *Snapshot) {
		lagging(&s.Partitions[0], 5000)
		s.Partitions[0].WatermarkSince = ago(20 * time.Second)
	}, WhyBehind, "partition 0", ago(20 * time.Second), ptr(int32(0)), "5000 records to read", "reading on"},
	{"open gap", func(s *Snapshot) {
		s.Partitions[0].Gap = &Gap{First: 41, Last: 43, At: s.Partitions[0].Watermark, Since: ago(3 * time.Minute), Open: 2}
	}, WhyGap, "partition 0", ago(3 * time.Minute), ptr(int32(0)), "numbers 41 to 43", "the missing events"},
	{"a held key", func(s *Snapshot) {
		s.Partitions[0].Held = &Held{Keys: 2, Records: 41, Key: "EURUSD", Position: "1200", Since: ago(3 * time.Minute)}
	}, WhyKeysHeld, "partition 0", ago(3 * time.Minute), ptr(int32(0)), `holds 2 keys back, with 41 records that wait: key "EURUSD" for the record at 1200`, "weir quarantine drop"},
	{"future records alone", func(s *Snapshot) {
		s.Partitions[0].Aside = []Aside{{Reason: "FUTURE", Total: 12, Stale: 12, Since: ago(5 * time.Minute)}}
		s.Partitions[0].WatermarkSince = ago(6 * time.Minute)
	}, WhyFuture, "partition 0", ago(5 * time.Minute), ptr(int32(0)), "12 records from the future", "max_future_skew"},
	{"a record far ahead made all others late", func(s *Snapshot) {
		s.Partitions[1].Aside = []Aside{{Reason: "LATE", Total: 900, Stale: 900, Since: ago(time.Minute)}}
		s.Partitions[1].WatermarkSince = ago(2 * time.Minute)
	}, WhyLate, "partition 1", ago(time.Minute), ptr(int32(1)), "900 records as late", "far ahead"},
	{"paused by pressure", func(s *Snapshot) {
		s.Partitions[2].State = Paused
		s.Partitions[2].Pressure = Pressure{State: "SOURCE_PAUSED", Reason: "BYTES_HIGH", Measured: 9 << 20, Threshold: 8 << 20, Since: ago(7 * time.Second), Release: "when bytes in flight is at or below 4194304 bytes"}
	}, "BYTES_HIGH", "partition 2", ago(7 * time.Second), ptr(int32(2)), "measured 9437184, threshold 8388608", "at or below 4194304"},
	{"fast partition held for a slow one", func(s *Snapshot) {
		lagging(&s.Partitions[0], 9000)
		s.Partitions[0].MaxEventTime = eventTime("2026-01-05T13:00:00Z")
		s.Partitions[2].State = Paused
		s.Partitions[2].Pressure = Pressure{State: "SOURCE_PAUSED", Reason: "EVENT_TIME_AHEAD", Measured: 61_000, Threshold: 60_000, Since: ago(9 * time.Second), Release: "when event-time lead is at or below 30000 ms"}
		s.Partitions[0].Queue.WindowRecords = 0
	}, "EVENT_TIME_AHEAD", "partition 0", ago(9 * time.Second), ptr(int32(2)), "1m1s ahead of the slowest partition that has something to read, and the bound is 1m0s; that is partition 0, at 2026-01-05T13:00:00Z", "30000 ms"},
	{"full disk, noticed in time", func(s *Snapshot) {
		s.Partitions[0].State = Paused
		s.Partitions[0].Pressure = Pressure{State: "SOURCE_PAUSED", Reason: "DISK_LOW", Measured: 1 << 20, Threshold: 256 << 20, Since: ago(time.Minute), Release: "when free disk is at or above 536870912 bytes"}
	}, "DISK_LOW", "partition 0", ago(time.Minute), ptr(int32(0)), "is not read, SOURCE_PAUSED: measured 1048576", "free disk"},
	{"full disk, met by a commit", func(s *Snapshot) { failed(s, codes.StoreUnavailable, "run/coordinator", "the disk is full") },
		"STORE_UNAVAILABLE", "run/coordinator", ago(2 * time.Second), nil, "the disk is full", "it tries again by itself, at 2027-01-15T08:00:01Z"},
	{"lost lease", func(s *Snapshot) {
		s.Phase, s.PhaseSince, s.Cause = PhaseStopped, ago(time.Minute), causeOf(codes.StreamFenceStale, "taken over under token 4")
		s.Lease = Lease{State: LeaseLost, Token: 3, Holder: "other"}
	}, "STREAM_FENCE_OBSOLETO", "other", ago(time.Minute), nil, "lost its lease, token 3", "start it again"},
	{"standing by", func(s *Snapshot) {
		s.Phase, s.Wait, s.PhaseSince = PhaseWaiting, WaitLease, ago(4*time.Minute)
		s.Lease = Lease{State: LeaseOthers, Token: 7, Holder: "host-9", Until: ptr(start.Add(9 * time.Second))}
	}, WhyStandingBy, "host-9", ago(4 * time.Minute), nil, "under token 7 until", "the end of that process"},
	{"records deleted under the journal", func(s *Snapshot) {
		s.Phase, s.PhaseSince, s.Cause = PhaseRecoveryBlocked, ago(time.Hour), causeOf(codes.OffsetLost, "partition 1 needs 100, the log begins at 400")
	}, "OFFSET_LOST", "the recovery of the run", ago(time.Hour), nil, "the log begins at 400", "weir recover"},
	{"topic recreated", func(s *Snapshot) {
		s.Phase, s.PhaseSince, s.Cause = PhaseRecoveryBlocked, ago(time.Hour), causeOf(codes.TopicRecreated, "topic id a, the journal has b")
	}, "TOPIC_RECREATED", "the recovery of the run", ago(time.Hour), nil, "topic id a", "weir recover"},
	{"fence regression, told by backpressure", func(s *Snapshot) {
		s.Phase, s.PhaseSince = PhaseRecoveryBlocked, ago(time.Minute)
		s.Partitions[1].Pressure = Pressure{State: "RECOVERY_BLOCKED", Reason: "FENCE_REGRESSION", Measured: 9, Threshold: 4, Since: ago(time.Minute), Release: "by an operator's choice on FENCE_REGRESSION: RESTORED or RAISE_FENCE"}
	}, "FENCE_REGRESSION", "partition 1", ago(time.Minute), ptr(int32(1)), "measured 9, threshold 4", "RAISE_FENCE"},
	{"log start beyond the journal, not noticed yet", func(s *Snapshot) { s.Partitions[0].Start = ptr("150") },
		WhyRetention, "the retention of the source", nil, ptr(int32(0)), "needs position 100 next, and the log begins at 150", "--accept-gap"},
	{"retention at risk", func(s *Snapshot) {
		p := &s.Partitions[1]
		lagging(p, 500)
		p.Queue.WindowRecords = 0
		p.Risk = &Risk{Since: ago(2 * time.Minute), LostAt: ptr(start.Add(20 * time.Minute)), Left: ptr(int64(100)), Removed: ptr(2.5), Read: ptr(0.5), Step: ptr(int64(30))}
	}, WhyAtRisk, "the retention of the source", ago(2 * time.Minute), ptr(int32(1)),
		"100 positions are left before 100, the log removes 2.5 a second (at most 30 at once), and the run reads 0.5; records are lost from about 2027-01-15T08:20:00Z on, in 20m0s", "retention.ms"},
	{"retention of a stream at risk", func(s *Snapshot) {
		s.Partitions[1].Risk = &Risk{Since: ago(time.Minute), LostAt: ptr(start.Add(time.Hour)), Age: ptr(82800.0), Kept: ptr(86400.0)}
	}, WhyAtRisk, "the retention of the source", ago(time.Minute), ptr(int32(1)), "came 23h0m0s ago, and records are kept for 24h0m0s", "the stream's retention"},
	{"partition without a leader", func(s *Snapshot) {
		p := &s.Partitions[0]
		p.WatermarkSince = ago(time.Minute)
		p.Unobserved, p.UnobservedSince = causeOf(codes.BrokerUnreachable, "topic ticks partition 0 has no leader"), ago(40*time.Second)
	}, WhyUnanswered, "partition 0", ago(40 * time.Second), ptr(int32(0)), "BROKER_UNREACHABLE: topic ticks partition 0 has no leader", "has to come back"},
	{"shard behind the end of its stream", func(s *Snapshot) {
		for i := range s.Partitions {
			p := &s.Partitions[i]
			p.LagRecords, p.Readable, p.Start, p.Stable, p.End = nil, nil, nil, nil, nil
		}
		s.Partitions[2].LagSeconds = ptr(90.0)
	}, WhyCatchingUp, "partition 2", ago(time.Second), ptr(int32(2)), "1m30s behind the end of its log", "reading on"},
	{"short log that lateness holds back", func(s *Snapshot) {
		for i := range s.Partitions {
			s.Partitions[i].Watermark, s.Partitions[i].WatermarkSince = s.Watermark, ago(time.Duration(10+i)*time.Second)
		}
	}, WhyLateness, "the flow's lateness", ago(10 * time.Second), nil, "everything is read, and events from the watermark on wait for it in partition 0 (watermark 2026-01-05T14:00:00Z, newest 2026-01-05T14:00:09Z), 1 (", "--once-n"},
	{"sink down", func(s *Snapshot) {
		s.Sinks = []Sink{{Name: "results", Cause: causeOf(codes.SinkUnavailable, "connection refused"), Since: ago(25 * time.Second), Attempts: 7}}
	}, WhySink, "results", ago(25 * time.Second), nil, "7 tries so far", "publishing goes on by itself"},
	{"sink down at the start", func(s *Snapshot) {
		s.Phase, s.Wait, s.PhaseSince = PhaseWaiting, WaitStart, ago(26*time.Second)
		s.Sinks = []Sink{{Name: "results", Cause: causeOf(codes.SinkUnavailable, "connection refused"), Since: ago(25 * time.Second), Attempts: 7}}
	}, WhySink, "results", ago(25 * time.Second), nil, "nothing is read before it is back", "publishing goes on by itself"},
	{"slow sink", func(s *Snapshot) {
		s.Published = []Published{{Sink: "results", Lag: 40, Began: ago(15 * time.Second)}, {Sink: "quick"}}
	},
		WhySinkSlow, "results", ago(15 * time.Second), nil, "40 rows have been under way to a sink for 15s", "the answer of the sink"},
	{"group rebalancing", func(s *Snapshot) {
		s.Phase, s.Wait, s.PhaseSince, s.RevokedSince = PhaseWaiting, WaitEnd, ago(3*time.Second), ago(4*time.Second)
	}, WhyRebalancing, "the consumer group", ago(4 * time.Second), nil, "given the partition to another process", "by itself"},
	{"process paused", func(s *Snapshot) {
		s.Partitions[1].State = Paused
		s.Partitions[1].Pressure = Pressure{State: "PROCESS_PAUSED", Reason: "BUFFER_FULL", Measured: 9000, Threshold: 8192, Since: ago(8 * time.Second), Release: "when the process buffer is at or below 4096 records"}
	}, "BUFFER_FULL", "partition 1", ago(8 * time.Second), ptr(int32(1)), "is not read, PROCESS_PAUSED: measured 9000, threshold 8192", "at or below 4096"},
	{"store down", func(s *Snapshot) {
		failed(s, codes.StoreUnavailable, "run/coordinator", "127.0.0.1:5432: connection refused")
	}, "STORE_UNAVAILABLE", "run/coordinator", ago(2 * time.Second), nil, "connection refused", "it tries again by itself"},
	{"slow store, a commit under way", func(s *Snapshot) { s.Commit.Began = ago(12 * time.Second) },
		WhyCommitSlow, "the store", ago(12 * time.Second), nil, "under way for 12s", "the answer of the store"},
	{"slow store, commits that take long", func(s *Snapshot) { s.Commit.Seconds = 4 },
		WhyCommitSlow, "the store", ago(time.Second), nil, "took 4s", "a faster store"},
	{"results wait for the journal", func(s *Snapshot) {
		s.Partitions[1].State, s.Partitions[1].StateSince = WaitsForCommit, ago(3*time.Second)
	},
		WhyForCommit, "the store", ago(3 * time.Second), ptr(int32(1)), "results wait for the journal", "a commit"},
	{"dead broker", func(s *Snapshot) {
		s.Source.Outage, s.Source.OutageSince = causeOf(codes.BrokerUnreachable, "127.0.0.1:9092: connection refused"), ago(30*time.Second)
	}, WhySourceOutage, "ticks", ago(30 * time.Second), nil, "connection refused", "asked again by itself"},
	{"wrong password of the broker", func(s *Snapshot) {
		s.Phase, s.PhaseSince, s.Cause = PhaseStopped, ago(time.Second), causeOf(codes.AccessDenied, "SASL: the broker refuses user u")
		s.Failures = []Failure{{Actor: "run", Cause: *s.Cause}}
	}, "ACCESS_DENIED", "run", ago(time.Second), nil, "refuses user u", "start it again"},
	{"wrong password of the store", func(s *Snapshot) {
		failed(s, codes.StoreDenied, "run/lease", "password authentication failed for user w")
	},
		"STORE_DENIED", "run/lease", ago(2 * time.Second), nil, "password authentication failed", "password reference"},
	{"blocked after repeated panic", func(s *Snapshot) {
		s.Partitions[2].Blocked, s.Partitions[2].BlockedSince = causeOf(codes.Internal, "panic: index out of range"), ago(time.Hour)
	}, WhyBlocked, "partition 2", ago(time.Hour), ptr(int32(2)), "position 100", "start the run again"},
	{"open transaction", func(s *Snapshot) {
		p := &s.Partitions[1]
		p.End, p.LagRecords, p.Hold = ptr("130"), ptr(int64(30)), &Hold{Reason: "LSO_BLOCKED", By: "tx-7", Since: ago(11 * time.Minute)}
	}, "LSO_BLOCKED", "tx-7", ago(11 * time.Minute), ptr(int32(1)), "nothing behind position 100 can be delivered, the log ends at 130", "time-out of the transaction"},
	{"restart back-off", func(s *Snapshot) { failed(s, codes.SourceFailure, "run/reader", "fetch failed") },
		"SOURCE_FAILURE", "run/reader", ago(2 * time.Second), nil, "fetch failed", "tries again by itself"},
	{"starting", func(s *Snapshot) { s.Phase, s.Wait, s.PhaseSince = PhaseWaiting, WaitStart, ago(9*time.Second) },
		WhyStarting, "", ago(9 * time.Second), nil, "the last cut is restored", "by itself"},
	{"finished", func(s *Snapshot) { s.Phase, s.Status, s.PhaseSince = PhaseStopped, "FINISHED", ago(time.Minute) },
		WhyFinished, "", ago(time.Minute), nil, "everything is released", "new --run-id"},
	{"stopped in good order", func(s *Snapshot) { s.Phase, s.PhaseSince = PhaseStopped, ago(time.Minute) },
		WhyStopped, "", ago(time.Minute), nil, "stopped at epoch 40", "same --run-id"},
	{"no process", func(s *Snapshot) { s.Live, s.Lease = false, Lease{State: LeaseFree, Token: 3} },
		WhyNobodyRuns, "", ago(time.Second), nil, "nobody holds its lease", "weir run"},
	{"a partition that lost records", func(s *Snapshot) {
		s.Partitions[2].Blocked, s.Partitions[2].BlockedSince = causeOf(codes.OffsetLost, "need offset 100, have 400 and later"), ago(time.Hour)
	}, "OFFSET_LOST", "partition 2", ago(time.Hour), ptr(int32(2)), "holds the watermark: need offset 100", "--accept-gap"},
	{"stuck for no known reason", func(s *Snapshot) {
		lagging(&s.Partitions[1], 10)
		s.Partitions[1].Stalled, s.Partitions[1].Progress = true, ago(2*time.Minute)
	}, WhyNoProgress, "partition 1", ago(2 * time.Minute), ptr(int32(1)), "although 10 records can be read", "level debug"},
	{"checkpoints fail", func(s *Snapshot) {
		s.Checkpoint.Cause, s.Checkpoint.Last = causeOf(codes.OutputUnwritable, "no space left"), ago(time.Hour)
	}, WhyCheckpoints, "the store of checkpoints", ago(time.Hour), nil, "no space left", "Check the path"},
	{"lag that cannot be known", func(s *Snapshot) { s.Source.Unobserved = causeOf(codes.AccessDenied, "not authorised to describe") },
		WhySourceUnknown, "ticks", ago(time.Second), nil, "lag is not known", "Grant"},
	{"catching up", func(s *Snapshot) { lagging(&s.Partitions[2], 50_000) },
		WhyCatchingUp, "partition 2", ago(time.Second), ptr(int32(2)), "50000 records behind", "reading on"},
	{"confirmed idle", func(s *Snapshot) { s.Partitions[2].Input, s.Partitions[2].InputSince = "IDLE", ago(time.Hour) },
		WhyIdle, "partition 2", ago(time.Hour), ptr(int32(2)), "left out of the merged watermark", "its next record"},
}

func TestWhyNamesPlantedStalls(t *testing.T) {
	t.Parallel()
	if len(planted) < 20 {
		t.Fatalf("only %d stalls are planted", len(planted))
	}
	for _, c := range planted {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := healthy()
			c.plant(&s)
			reasons := Why(s)
			if len(reasons) != 1 {
				t.Fatalf("%d reasons instead of one: %+v", len(reasons), reasons)
			}
			r := reasons[0]
			if r.Code != c.code || r.Holder != c.holder || r.Run != s.Run {
				t.Errorf("it says %s of %q in run %q, want %s of %q", r.Code, r.Holder, r.Run, c.code, c.holder)
			}
			if (r.Since == nil) != (c.since == nil) || r.Since != nil && !r.Since.Equal(*c.since) {
				t.Errorf("since %v, want %v", r.Since, c.since)
			}
			if (r.Partition == nil) != (c.part == nil) || r.Partition != nil && *r.Partition != *c.part {
				t.Errorf("partition %v, want %v", r.Partition, c.part)
			}
			if !strings.Contains(r.Text, c.text) || !strings.Contains(r.Release, c.ends) || r.Text == "" || r.Release == "" {
				t.Errorf("it says %q, and that it ends by %q; want words %q and %q", r.Text, r.Release, c.text, c.ends)
			}
			for _, words := range []string{r.Text, r.Release} {
				if strings.Contains(words, "  ") || strings.Contains(words, "..") || strings.Contains(words, "%!") || strings.HasSuffix(words, " ") {
					t.Errorf("badly put: %q", words)
				}
			}
			if strings.Contains(r.Text, r.Code+":") || strings.Contains(r.Text, r.Code+",") {
				t.Errorf("the code %s stands in its text once more: %q", r.Code, r.Text)
			}
		})
	}
}

// A store cannot tell a silent partition from one that the process has blocked: that it is idle is not to be confirmed before the process was asked.
func TestWhyOfAStoreAsksTheProcessFirst(t *testing.T) {
	t.Parallel()
	const first = "first ask the process with --url whether the partition is blocked"
	for _, name := range []string{"silent partition", "partition without any event"} {
		for state, want := range map[LeaseState]bool{LeaseOthers: true, LeaseUnknown: true, LeaseFree: false, LeaseHeld: false} {
			s := healthy()
			for _, c := range planted {
				if c.name == name {
					c.plant(&s)
				}
			}
			s.Live, s.Lease = state == LeaseHeld, Lease{State: state, Token: 3, Holder: "host-9"}
			reasons := Why(s)
			last := reasons[len(reasons)-1]
			if last.Partition == nil || strings.HasPrefix(last.Release, first) != want || !strings.Contains(last.Release, "weir idle confirm") {
				t.Errorf("%s, lease %s: %+v", name, state, last)
			}
			if state == LeaseOthers && (reasons[0].Code != "LEASE" || !strings.Contains(reasons[0].Release, "--url") || !strings.Contains(reasons[0].Release, "log")) {
				t.Errorf("%+v", reasons[0])
			}
		}
	}
}

// Two holders at once are both named, and the run comes before its partitions.
func TestWhyNamesEveryHolder(t *testing.T) {
	t.Parallel()
	s := healthy()
	for _, c := range planted {
		if c.name == "dead broker" || c.name == "silent partition" || c.name == "open transaction" || c.name == "blocked after repeated panic" {
			c.plant(&s)
		}
	}
	var got []string
	for _, r := range Why(s) {
		got = append(got, r.Code)
	}
	if want := "SOURCE_OUTAGE SILENT LSO_BLOCKED PARTITION_BLOCKED"; strings.Join(got, " ") != want {
		t.Errorf("%v, want %s", got, want)
	}
}

func TestNothingHolds(t *testing.T) {
	t.Parallel()
	reasons := Why(healthy())
	if len(reasons) != 1 || reasons[0].Code != WhyNothing || reasons[0].Holds || !strings.Contains(reasons[0].Text, "0 records behind") {
		t.Errorf("%+v", reasons)
	}
	both := Report{Run: "ticks-1", Runs: []Snapshot{healthy(), healthy()}}
	if reasons := both.Why(); len(reasons) != 1 || reasons[0].Code != WhyNothing {
		t.Errorf("%+v", reasons)
	}
	s := healthy()
	planted[0].plant(&s)
	both.Runs[1] = s
	if reasons := both.Why(); len(reasons) != 1 || reasons[0].Code != WhySilent {
		t.Errorf("%+v", reasons)
	}
}

// A partition that is confirmed idle does not hide that the others wait for their lateness.
func TestLatenessBesideAnIdlePartition(t *testing.T) {
	t.Parallel()
	s := healthy()
	for i := range planted {
		if planted[i].code == WhyLateness {
			planted[i].plant(&s)
		}
	}
	last := &s.Partitions[len(s.Partitions)-1]
	last.Input = "IDLE"
	for _, reasons := range [][]Reason{Why(s), (Report{Run: s.Run, Runs: []Snapshot{s}}).Why()} {
		if len(reasons) != 2 || reasons[0].Code != WhyIdle || reasons[1].Code != WhyLateness {
			t.Errorf("%+v", reasons)
		}
	}
}

// A run that is shared out by partitions has its watermark in common: the silent one is named although its own run knows no other.
func TestWhyOfPartitionsApart(t *testing.T) {
	t.Parallel()
	r := Report{Run: "ticks-1"}
	for n := range 3 {
		s := healthy()
		s.Run = "ticks-1/" + string('0'+rune(n))
		s.Partitions = s.Partitions[n : n+1]
		s.Holders = []int32{int32(n)}
		r.Runs = append(r.Runs, s)
	}
	if reasons := r.Why(); len(reasons) != 1 || reasons[0].Code != WhyNothing || !strings.Contains(reasons[0].Text, "3 parts") {
		t.Errorf("%+v", reasons)
	}
	r.Runs[0].Partitions[0].WatermarkSince = ago(time.Hour)
	r.Runs[2].Partitions[0].WatermarkSince = ago(time.Hour)
	reasons := r.Why()
	if len(reasons) != 1 || reasons[0].Code != WhySilent || reasons[0].Run != "ticks-1/0" || !strings.Contains(reasons[0].Text, "furthest is at 2026-01-05T14:00:02Z") {
		t.Errorf("%+v", reasons)
	}
	r.Runs[0].Partitions[0].Input = "IDLE"
	for _, reason := range r.Why() {
		if reason.Code == WhySilent {
			t.Errorf("an idle one, or one that is not the last: %+v", reason)
		}
	}
}

// A process without partitions, and one that its group has put out, say so: nothing runs there, and that is what holds.
func TestWhyOfAMember(t *testing.T) {
	t.Parallel()
	r := Report{Run: "ticks-1", Live: true, EmptySince: ago(time.Minute)}
	reasons := r.Why()
	if len(reasons) != 1 || reasons[0].Code != WhyNoPartitions || reasons[0].Holder != "the consumer group" || !reasons[0].Since.Equal(*ago(time.Minute)) || !strings.Contains(reasons[0].Release, "leaves the group") {
		t.Errorf("%+v", reasons)
	}
	r.Group, r.GroupSince = causeOf(codes.BrokerUnreachable, "connection refused"), ago(30*time.Second)
	reasons = r.Why()
	if len(reasons) != 1 || reasons[0].Code != WhyNoMember || !reasons[0].Since.Equal(*ago(30 * time.Second)) || !strings.Contains(reasons[0].Text, "BROKER_UNREACHABLE: connection refused") {
		t.Errorf("%+v", reasons)
	}
	if ok, _ := r.Ready(); ok {
		t.Error("a process that is out of its group is ready")
	}
	r.Live, r.Group = false, nil
	if reasons := r.Why(); len(reasons) != 1 || reasons[0].Code != WhyNothing {
		t.Errorf("of a store: %+v", reasons)
	}
}

func TestReady(t *testing.T) {
	t.Parallel()
	unready := map[string]bool{}
	for _, name := range []string{"full disk, met by a commit", "lost lease", "records deleted under the journal", "topic recreated", "fence regression, told by backpressure",
		"dead broker", "wrong password of the broker", "wrong password of the store", "blocked after repeated panic", "restart back-off", "starting", "finished",
		"stopped in good order", "stuck for no known reason", "a partition that lost records", "partition without a leader", "group rebalancing", "store down", "sink down at the start"} {
		unready[name] = true
	}
	for _, c := range planted {
		s := healthy()
		c.plant(&s)
		if !s.Live {
			continue
		}
		ok, wrong := Report{Run: s.Run, Runs: []Snapshot{s}}.Ready()
		if ok == unready[c.name] || ok != (len(wrong) == 0) {
			t.Errorf("%s: ready %v, %v", c.name, ok, wrong)
		}
		delete(unready, c.name)
	}
	if len(unready) > 0 {
		t.Errorf("not planted: %v", unready)
	}
}
