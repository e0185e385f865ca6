package main

import "github.com/weirstream/weir/partitions"

// lateDocument says why an event was late: how much, by which watermark, and which record of its partition held it there.
func lateDocument(l partitions.Late) map[string]any {
	m := map[string]any{"by": l.By.String(), "watermark": l.Watermark.String(), "holder": nil}
	if l.Known {
		m["holder"] = map[string]any{"position": l.Holder.String(), "event_time": l.HolderTime.String()}
	}
	return m
}
