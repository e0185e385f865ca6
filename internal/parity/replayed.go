package parity

import (
	"slices"

	"github.com/weirstream/weir/partitions"
	"github.com/weirstream/weir/record"
)

// replayed is an entry of the quarantine that came in when an operator replayed it.
type replayed struct {
	entry Exception
	// decided is where the partition stood then.
	decided record.Position
	// value is that of the delivery that was set aside, marked says that the log marks it as a revision, revised that the stream noted it as one.
	value           []byte
	marked, revised bool
}

// replayed are the entries that came in by decisions, by partition in the order of the decisions. They are marked in e.
func (e Exceptions) replayed(decided []partitions.Decision) map[int32][]*replayed {
	all := map[int32][]*replayed{}
	for _, d := range decided {
		a, ok := d.Aside()
		if !ok || a.Outcome != partitions.OutcomeConsumed {
			continue
		}
		i := slices.IndexFunc(e.list, func(x Exception) bool {
			return x.Partition == a.Partition && x.number == a.Number && x.Position == a.Position && x.Reason == a.Reason
		})
		if i >= 0 {
			e.list[i].came = true
			all[d.Partition] = append(all[d.Partition], &replayed{entry: e.list[i], decided: d.Position})
		}
	}
	return all
}

// noteOf says whether an exception is the note that an entry came in as a revision. It stands where that was decided, as another record may.
func (j *judging) noteOf(x Exception) bool {
	if x.Reason != partitions.ReasonRevised {
		return false
	}
	for _, r := range j.replayed[x.Partition] {
		if r.decided == x.Position && r.entry.EventID == x.EventID {
			r.revised = true
			return true
		}
	}
	return false
}

// decide takes the replayed entries in that were decided about before the delivery at a place.
func (j *judging) decide(at place) {
	for list := j.replayed[at.partition]; len(list) > 0 && list[0].decided.Cmp(at.position) <= 0; list = j.replayed[at.partition] {
		j.comesIn(list[0])
		j.replayed[at.partition] = list[1:]
	}
}

// decideAll takes in what was decided about at the end of the log.
func (j *judging) decideAll() {
	for p, list := range j.replayed {
		for _, r := range list {
			j.comesIn(r)
		}
		delete(j.replayed, p)
	}
}

func (j *judging) comesIn(r *replayed) {
	if id := r.entry.EventID; j.open[id] {
		j.accepted(id, place{r.entry.Partition, r.entry.Position}, r.value, r.revised, r.marked)
	}
}
