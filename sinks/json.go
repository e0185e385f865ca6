package sinks

import (
	"encoding/base64"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/weirstream/weir/partitions"
	"github.com/weirstream/weir/record"
)

// JSON writes rows as canonical JSON objects:
//
//	{"event_id":…,"key":…,"partition":0,"row":17,"run":…,"time":"2026-01-02T03:04:05Z","values":{"ema12":1.5,"ema26":null}}
//
// or, of a target of Entries, the text of each. partition and row are those of the run, and together with run the row's identity. An id or a key that is not
// UTF-8 is {"base64":…} instead.
// It is for one goroutine.
type JSON struct {
	run []byte
	// entries: rows are Entries, and have their text.
	entries bool
	names   [][]byte // each with its quotes and colon
	sorted  []int
}

// NewJSON prepares the rows of a target.
func NewJSON(t Target) *JSON {
	j := &JSON{run: record.AppendString(nil, t.RunID), entries: t.Entries}
	for i, name := range t.Outputs {
		j.names = append(j.names, append(record.AppendString(nil, name), ':'))
		j.sorted = append(j.sorted, i)
	}
	slices.SortFunc(j.sorted, func(a, b int) int { return strings.Compare(t.Outputs[a], t.Outputs[b]) })
	return j
}

// Append appends a row to dst.
func (j *JSON) Append(dst []byte, partition int32, number int64, row *partitions.Row) []byte {
	if j.entries {
		return append(dst, row.ID...)
	}
	dst = append(dst, `{"event_id":`...)
	dst = appendText(dst, row.ID)
	dst = append(dst, `,"key":`...)
	dst = appendText(dst, row.Key)
	dst = append(dst, `,"partition":`...)
	dst = strconv.AppendInt(dst, int64(partition), 10)
	dst = append(dst, `,"row":`...)
	dst = strconv.AppendInt(dst, number, 10)
	dst = append(dst, `,"run":`...)
	dst = append(dst, j.run...)
	dst = append(dst, `,"time":"`...)
	dst = record.AppendTime(dst, row.Time)
	dst = append(dst, `","values":{`...)
	for n, i := range j.sorted {
		if n > 0 {
			dst = append(dst, ',')
		}
		dst = append(dst, j.names[i]...)
		if !row.Values[i].OK {
			dst = append(dst, "null"...)
			continue
		}
		dst = record.AppendFloat(dst, row.Values[i].F)
	}
	return append(dst, "}}"...)
}

func appendText(dst, text []byte) []byte {
	if utf8.Valid(text) {
		return record.AppendString(dst, text)
	}
	return appendBase64(dst, text)
}

func appendBase64(dst, text []byte) []byte {
	dst = append(dst, `{"base64":"`...)
	dst = base64.StdEncoding.AppendEncode(dst, text)
	return append(dst, `"}`...)
}
