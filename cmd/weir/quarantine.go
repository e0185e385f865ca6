package main

import (
	"bufio"
	"context"
	"encoding/base64"
	"unicode/utf8"

	"github.com/weirstream/weir/control"
	"github.com/weirstream/weir/internal/atomicfile"
	"github.com/weirstream/weir/partitions"
	"github.com/weirstream/weir/record"
)

// leaveQuarantine writes what the run has set aside to the artifacts folder, one canonical document a line. allow is asked just before the file
// takes its place.
func (a *app) leaveQuarantine(ctx context.Context, o runOptions, journal control.Journal, allow func() error) error {
	if o.artifacts == "" {
		return nil
	}
	f, err := atomicfile.Create(o.quarantineFile(), 0o600)
	if err != nil {
		return err
	}
	defer f.Discard()
	out := bufio.NewWriter(f)
	err = journal.Quarantine(ctx, o.runID, func(q partitions.Quarantined) error {
		line, err := record.AppendJSON(nil, quarantineDocument(q))
		if err != nil {
			return err
		}
		_, err = out.Write(append(line, '\n'))
		return err
	})
	if err != nil {
		return err
	}
	if err := out.Flush(); err != nil {
		return err
	}
	if err := allow(); err != nil {
		return err
	}
	return f.Commit()
}

func quarantineDocument(q partitions.Quarantined) map[string]any {
	m := map[string]any{"partition": q.Partition, "position": q.Position.String(), "reason": q.Reason, "detail": q.Detail, "event_id": nil, "event_time": nil,
		"number": q.Number, "sub": int64(q.Sub), "arrival": nil}
	if q.Arrival != record.NoTime {
		m["arrival"] = q.Arrival.String()
	}
	if q.EventID != "" {
		m["event_id"] = q.EventID
	}
	if q.EventTime != record.NoTime {
		m["event_time"] = q.EventTime.String()
	}
	if l, ok := q.Late(); ok {
		m["late"] = lateDocument(l)
	}
	r, whole := (&setAside{Quarantined: q}).original()
	if whole {
		m["headers"] = headersDocument(r.Headers)
	}
	setBytes(m, "key", r.Key)
	setBytes(m, "value", r.Value)
	return m
}

// headersDocument are headers in their order, as bytes are shown.
func headersDocument(headers []record.Header) []any {
	out := make([]any, len(headers))
	for i, h := range headers {
		m := map[string]any{}
		setBytes(m, "name", []byte(h.Key))
		setBytes(m, "value", h.Value)
		out[i] = m
	}
	return out
}

// setBytes shows bytes as text when they are text, and as base64 otherwise; nil is null.
func setBytes(m map[string]any, name string, b []byte) {
	switch {
	case b == nil:
		m[name] = nil
	case utf8.Valid(b):
		m[name] = string(b)
	default:
		m[name+"_base64"] = base64.StdEncoding.EncodeToString(b)
	}
}
