package sinks

import (
	"bytes"
	"slices"
	"strconv"

	"github.com/weirstream/weir/partitions"
	"github.com/weirstream/weir/record"
)

// Entries are late events for a target of its own (Target.Entries): they go through the same Sink as rows do, numbered in the order in which they came to
// their partition, so that it promises of them what it promises of rows. To a sink an entry is a row without values whose ID is the whole text:
//
//	{"arrival":null,"entry":3,"event_id":…,"event_time":…,"headers":[[name,value],…],"key":…,"late_by":"2s","partition":0,"position":"17",
//	 "holder":{"event_time":…,"position":"12"},"reason":"LATE","run":…,"value":…,"watermark":…}
//
// Bytes that are not UTF-8, or hold a NUL, which databases do not take in JSON, are {"base64":…}. headers is null where they were not kept, and holder where nobody knows.
type Entries struct {
	Rows
	run []byte
}

// NewEntries begins with entry number from of a partition.
func NewEntries(runID string, partition int32, from int64) *Entries {
	return &Entries{Rows: Rows{Partition: partition, From: from}, run: record.AppendString(nil, runID)}
}

// Add appends a late event.
func (e *Entries) Add(q *partitions.Quarantined) {
	e.Append(q.EventTime, e.text(q), q.Key, nil)
}

func (e *Entries) text(q *partitions.Quarantined) []byte {
	l, verdict := q.Late()
	dst := append([]byte(nil), `{"arrival":`...)
	dst = appendTime(dst, q.Arrival)
	dst = strconv.AppendInt(append(dst, `,"entry":`...), e.End(), 10)
	dst = appendPlain(append(dst, `,"event_id":`...), []byte(q.EventID))
	dst = appendTime(append(dst, `,"event_time":`...), q.EventTime)
	dst = append(dst, `,"headers":`...)
	dst = appendHeaders(dst, q.Headers)
	dst = append(dst, `,"holder":`...)
	if l.Known {
		dst = appendTime(append(dst, `{"event_time":`...), l.HolderTime)
		dst = record.AppendString(append(dst, `,"position":`...), []byte(l.Holder.String()))
		dst = append(dst, '}')
	} else {
		dst = append(dst, "null"...)
	}
	dst = appendBytes(append(dst, `,"key":`...), q.Key)
	dst = append(dst, `,"late_by":`...)
	if verdict {
		dst = record.AppendString(dst, []byte(l.By.String()))
	} else {
		dst = append(dst, "null"...)
	}
	dst = strconv.AppendInt(append(dst, `,"partition":`...), int64(q.Partition), 10)
	dst = record.AppendString(append(dst, `,"position":`...), []byte(q.Position.String()))
	dst = record.AppendString(append(dst, `,"reason":`...), []byte(q.Reason))
	dst = append(append(dst, `,"run":`...), e.run...)
	dst = appendBytes(append(dst, `,"value":`...), q.Value)
	dst = append(dst, `,"watermark":`...)
	if !verdict {
		l.Watermark = record.NoTime
	}
	return append(appendTime(dst, l.Watermark), '}')
}

func appendTime(dst []byte, t record.EventTime) []byte {
	if t == record.NoTime {
		return append(dst, "null"...)
	}
	return append(record.AppendTime(append(dst, '"'), t), '"')
}

// appendBytes tells what is missing from what is empty.
func appendBytes(dst, b []byte) []byte {
	if b == nil {
		return append(dst, "null"...)
	}
	return appendPlain(dst, b)
}

func appendPlain(dst, text []byte) []byte {
	if bytes.IndexByte(text, 0) >= 0 {
		return appendBase64(dst, text)
	}
	return appendText(dst, text)
}

func appendHeaders(dst []byte, headers []record.Header) []byte {
	if headers == nil {
		return append(dst, "null"...)
	}
	dst = append(dst, '[')
	for i, h := range headers {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = appendPlain(append(dst, '['), []byte(h.Key))
		dst = append(appendBytes(append(dst, ','), h.Value), ']')
	}
	return append(dst, ']')
}

// LateEntries are the late events among what a partition has set aside in one epoch, after which it had counted so many.
func LateEntries(runID string, partition int32, counted int64, aside []partitions.Quarantined) Rows {
	late := func(q partitions.Quarantined) bool { return q.Reason == partitions.ReasonLate }
	if !slices.ContainsFunc(aside, late) {
		return Rows{Partition: partition, From: counted}
	}
	n := int64(0)
	for i := range aside {
		if late(aside[i]) {
			n++
		}
	}
	e := NewEntries(runID, partition, counted-n)
	for i := range aside {
		if late(aside[i]) {
			e.Add(&aside[i])
		}
	}
	return e.Rows
}
