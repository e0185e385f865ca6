package consumer

import (
	"bytes"
	"encoding/base64"
	"unicode/utf8"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/partitions"
	"github.com/weirstream/weir/record"
)

// EnvelopeFormat is the first field of an envelope.
const EnvelopeFormat = "weir.envelope/1"

// MaxKinesisRecord is what Kinesis takes of one record, partition key and data together, in bytes.
const MaxKinesisRecord = 1 << 20

var envelopeStart = []byte(`{"format":"` + EnvelopeFormat + `",`)

// Envelope is a record as one value, for logs that keep no headers. It is canonical JSON (FINAZ_JSON_V1):
//
//	{"format":"weir.envelope/1",
//	 "headers":[{"name":"content-type","value":"anNvbg=="}],
//	 "key":"Ym9sdHM=",
//	 "payload":"eyJwcmljZSI6MX0=",
//	 "x-ruststream-retry-count":1}
//
// Bytes are standard base64 with padding; null is nil (no key, a tombstone, a header without a value). A header whose name is not UTF-8 has
// "name_base64" instead. x-ruststream-retry-count is the retry count as an integer, so that it can be read without the headers; the header of that
// name is not repeated among them.
func Envelope(r record.Record) ([]byte, error) {
	headers := []any{}
	for _, h := range r.Headers {
		if h.Key == partitions.HeaderRetryCount {
			continue
		}
		m := map[string]any{"value": base64OrNull(h.Value)}
		if utf8.ValidString(h.Key) {
			m["name"] = h.Key
		} else {
			m["name_base64"] = base64.StdEncoding.EncodeToString([]byte(h.Key))
		}
		headers = append(headers, m)
	}
	out, err := record.AppendJSON(nil, map[string]any{"format": EnvelopeFormat, "headers": headers, "key": base64OrNull(r.Key), "payload": base64OrNull(r.Value),
		partitions.HeaderRetryCount: partitions.Attempt(r.Headers) - 1})
	if err != nil {
		return nil, codes.New(codes.Internal, "an envelope cannot be written: %w", err)
	}
	return out, nil
}

func base64OrNull(b []byte) any {
	if b == nil {
		return nil
	}
	return base64.StdEncoding.EncodeToString(b)
}

// OpenEnvelope returns the record in an envelope, with position, sub and arrival of the one that carried it; false and r itself when its value is
// none. A value that begins as an envelope and is damaged is none: it is handed over as it stands.
func OpenEnvelope(r record.Record) (record.Record, bool) {
	if !bytes.HasPrefix(r.Value, envelopeStart) {
		return r, false
	}
	v, err := record.Decode(r.Value)
	m, ok := v.(map[string]any)
	if err != nil || !ok || len(m) != 5 {
		return r, false
	}
	out := record.Record{Position: r.Position, Sub: r.Sub, Arrival: r.Arrival}
	in := envelopeReader{ok: true}
	out.Key, out.Value = in.bytes(m, "key"), in.bytes(m, "payload")
	headers, isList := m["headers"].([]any)
	for _, h := range headers {
		out.Headers = append(out.Headers, in.header(h))
	}
	count, isCount := m[partitions.HeaderRetryCount].(record.Integer)
	if !in.ok || !isList || !isCount {
		return r, false
	}
	if count != "0" {
		out.Headers = append(out.Headers, record.Header{Key: partitions.HeaderRetryCount, Value: []byte(count)})
	}
	return out, true
}

type envelopeReader struct{ ok bool }

// bytes reads base64 or null of a field that has to be there.
func (e *envelopeReader) bytes(m map[string]any, name string) []byte {
	v, has := m[name]
	if has && v == nil {
		return nil
	}
	s, isText := v.(string)
	b, err := base64.StdEncoding.DecodeString(s)
	e.ok = e.ok && isText && err == nil
	return b
}

func (e *envelopeReader) header(v any) record.Header {
	m, ok := v.(map[string]any)
	if e.ok = e.ok && ok; !e.ok {
		return record.Header{}
	}
	h := record.Header{Value: e.bytes(m, "value")}
	if name, is := m["name"].(string); is {
		h.Key = name
	} else {
		h.Key = string(e.bytes(m, "name_base64"))
	}
	return h
}
