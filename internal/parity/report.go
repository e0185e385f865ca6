package parity

import "github.com/weirstream/weir/sinks/emit"

// Document is the canonical form of a report: verdict, arrivals, faults_applied, log_hash, and an emit document for each mode.
func (r Report) Document(rows bool) map[string]any {
	m := map[string]any{
		"verdict": string(r.Verdict), "arrivals": r.Arrivals, "faults_applied": r.FaultsApplied, "log_hash": r.LogHash,
		"batch": r.Batch.Document(rows), "replay": r.Replay.Document(rows), "stream": r.Stream.Document(rows),
	}
	if r.Crashes > 0 {
		m["crashes"] = r.Crashes
	}
	if len(r.Reasons) > 0 {
		reasons := make([]any, len(r.Reasons))
		for i, s := range r.Reasons {
			reasons[i] = s
		}
		m["reasons"] = reasons
	}
	if r.Corrected != nil {
		m["corrected"] = r.Corrected.Document(rows)
		m["explained_by"] = exceptionRows(r.Explained)
	}
	if d := r.Divergence; d != nil {
		m["first_difference"] = map[string]any{
			"index": d.Index, "cause": d.cause(),
			"left":  map[string]any{"side": d.Left, "event": orNull(d.LeftEvent), "value": orNull(d.LeftValue)},
			"right": map[string]any{"side": d.Right, "event": orNull(d.RightEvent), "value": orNull(d.RightValue)},
		}
	}
	return m
}

func (d *Divergence) cause() any {
	if d.CauseIsKnown {
		return d.Cause
	}
	return nil
}

func orNull(s string) any {
	if s == "" {
		return nil
	}
	return s
}

func exceptionRows(list []Exception) []any {
	rows := make([]any, 0, len(list))
	for _, x := range list {
		rows = append(rows, map[string]any{"partition": x.Partition, "position": x.Position.String(), "reason": x.Reason, "event_id": orNull(x.EventID), "detail": x.Detail})
	}
	return rows
}

// Modes are the documents of the three modes in their order.
func (r Report) Modes() []emit.Doc { return []emit.Doc{r.Batch, r.Replay, r.Stream} }
