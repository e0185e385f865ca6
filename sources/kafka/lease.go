package kafka

import (
	"sync/atomic"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/weirstream/weir/record"
)

// lease is the memory of one batch that is out. It holds the records of kgo, whose recycling gives the fetch's memory back once the
// last record of it was recycled, whichever lease it is in.
type lease struct {
	from    *pool[record.Record]
	records []record.Record
	source  []*kgo.Record
	done    atomic.Bool
}

// release gives the memory back, once. It may run in any goroutine.
func (l *lease) release() {
	if l.done.Swap(true) {
		return
	}
	for _, r := range l.source {
		r.Recycle()
	}
	clear(l.records) // no reference into memory that is used again
	l.from.put(l.records)
	l.records, l.source = nil, nil
}

// batch makes a batch of the first records of source, at most limit of them that are not control records, and returns what is left.
// Control records (transaction markers) move the position only. source must not be empty.
func (r *reader) batch(partition int32, source []*kgo.Record, limit int) (record.Batch, []*kgo.Record) {
	l := &lease{from: &r.records, records: r.records.get(min(limit, len(source)))[:0]}
	var headers []record.Header
	payload, n := 0, 0
	for ; n < len(source); n++ {
		k := source[n]
		if k.Attrs.IsControl() {
			continue
		}
		if len(l.records) == limit {
			break
		}
		rec := record.Record{Position: record.Offset(k.Offset), Arrival: arrival(k), Key: k.Key, Value: k.Value}
		if len(k.Headers) > 0 {
			if headers == nil {
				headers = make([]record.Header, 0, len(k.Headers)*min(limit, len(source)-n))
			}
			at := len(headers)
			for _, h := range k.Headers {
				headers = append(headers, record.Header{Key: h.Key, Value: h.Value})
				payload += len(h.Key) + len(h.Value)
			}
			rec.Headers = headers[at:len(headers):len(headers)]
		}
		payload += len(k.Key) + len(k.Value)
		l.records = append(l.records, rec)
	}
	l.source = source[:n]
	b := record.Batch{
		Partition: partition,
		Records:   l.records,
		Next:      record.Offset(source[n-1].Offset + 1),
		Bytes:     payload + n*int(decodedRecordBytes),
		Release:   l.release,
	}
	if len(b.Records) == 0 {
		l.release()
		b.Records, b.Bytes, b.Release = nil, 0, nil
	}
	return b, source[n:]
}

// arrival is the log's own timestamp, which has whole milliseconds. Old message formats, and producers that give none, have -1.
func arrival(r *kgo.Record) record.EventTime {
	if r.Attrs.TimestampType() < 0 {
		return record.NoTime
	}
	if ns := r.Timestamp.UnixNano(); ns != -1e6 {
		return record.EventTime(ns)
	}
	return record.NoTime
}
