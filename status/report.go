package status

import (
	"cmp"
	"slices"

	"github.com/weirstream/weir/record"
)

// Merge puts the runs in order, shorter ids first, and makes the merged watermark their least, leaving out those whose input is idle unless all are.
func (r *Report) Merge() {
	slices.SortFunc(r.Runs, func(a, b Snapshot) int {
		return cmp.Or(cmp.Compare(len(a.Run), len(b.Run)), cmp.Compare(a.Run, b.Run))
	})
	r.Watermark = NoEventTime
	if len(r.Runs) == 0 {
		return
	}
	least, idle := record.MaxTime, record.MaxTime
	for _, s := range r.Runs {
		if s.idle() {
			idle = min(idle, s.Watermark.T)
		} else {
			least = min(least, s.Watermark.T)
		}
	}
	if least == record.MaxTime {
		least = idle // nothing else is left that would hold it
	}
	r.Watermark = EventTime{least}
}

// idle says whether the run has partitions, and none that holds a watermark is left, since some are idle.
func (s *Snapshot) idle() bool {
	some := false
	for i := range s.Partitions {
		if s.Partitions[i].holds() {
			return false
		}
		some = some || s.Partitions[i].Input == "IDLE"
	}
	return some
}

// partitions are those of all runs.
func (r Report) partitions() (all []Partition) {
	for _, s := range r.Runs {
		all = append(all, s.Partitions...)
	}
	return all
}

// holders are those of own at which the watermark merged over all stands.
func holders(own, all []Partition) (out []int32) {
	least := record.MaxTime
	for _, p := range all {
		if p.holds() {
			least = min(least, p.Watermark.T)
		}
	}
	for _, p := range own {
		if p.holds() && p.Watermark.T == least {
			out = append(out, p.Partition)
		}
	}
	return out
}

// holds says whether a partition can hold the merged watermark.
func (p *Partition) holds() bool { return p.Input != "FINISHED" && p.Input != "IDLE" }

// Ready says whether the run does its work, and what is wrong otherwise, by place. A run that stands by does its work too, and so does a member of a group that was given nothing. A source that does not answer, a partition that does not
// move although it has records to read, is blocked, or whose recovery is, stands in the way.
func (r Report) Ready() (ok bool, wrong map[string]string) {
	wrong = map[string]string{}
	if r.Group != nil {
		wrong["group"] = WhyNoMember + ": " + r.Group.Code
	}
	for _, s := range r.Runs {
		switch {
		case s.Phase == PhaseRunning, s.Wait == WaitLease:
		case s.Cause != nil:
			wrong[s.Run] = string(s.Phase) + ": " + s.Cause.Code
		default:
			wrong[s.Run] = string(s.Phase) + waitText(s.Wait)
		}
		if s.Source.Outage != nil {
			wrong[s.Run+", source"] = s.Source.Outage.Code
		}
		for _, p := range s.Partitions {
			place := s.Run + ", partition " + record.Offset(int64(p.Partition)).String()
			switch {
			case p.Blocked != nil:
				wrong[place] = "BLOCKED: " + p.Blocked.Code
			case p.Unobserved != nil && s.Source.Outage == nil:
				wrong[place] = WhyUnanswered
			case p.Stalled:
				wrong[place] = WhyNoProgress
			}
		}
	}
	return len(wrong) == 0, wrong
}

func waitText(w Wait) string {
	if w == "" {
		return ""
	}
	return ": " + string(w)
}
