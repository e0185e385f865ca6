package partitions

import (
	"bytes"
	"encoding/binary"
	"errors"
	"strings"

	"github.com/weirstream/weir/record"
)

// Record is the record as it was read, with its place in the log. It shares the memory of q.
func (q *Quarantined) Record() record.Record {
	return record.Record{Position: q.Position, Sub: q.Sub, Arrival: q.Arrival, Key: q.Key, Value: q.Value, Headers: q.Headers}
}

// Size is about the memory of what is set aside, in bytes, without a constant for each.
func (q *Quarantined) Size() int {
	n := len(q.Key) + len(q.Value) + len(q.Detail) + len(q.EventID)
	for i := range q.Headers {
		n += len(q.Headers[i].Key) + len(q.Headers[i].Value) + headerBytes
	}
	return n
}

// headerBytes is one header without its bytes.
const headerBytes = 48

// cloneHeaders copies headers; none are an empty list.
func cloneHeaders(headers []record.Header) []record.Header {
	out := make([]record.Header, len(headers))
	for i, h := range headers {
		out[i] = record.Header{Key: strings.Clone(h.Key), Value: bytes.Clone(h.Value)}
	}
	return out
}

// Clone copies the bytes of q.
func (q Quarantined) Clone() Quarantined {
	q.Key, q.Value = bytes.Clone(q.Key), bytes.Clone(q.Value)
	if q.Headers != nil {
		q.Headers = cloneHeaders(q.Headers)
	}
	return q
}

// ErrHeaders says that encoded headers are damaged.
var ErrHeaders = errors.New("partitions: encoded headers are damaged")

// EncodeHeaders writes headers as a store keeps them: their number as a uvarint, then for each its name with its length as a uvarint in front, 0 for no
// value or 1 and the length of the value as uvarints, and the value. Nil stays nil.
func EncodeHeaders(headers []record.Header) []byte {
	if headers == nil {
		return nil
	}
	out := binary.AppendUvarint(nil, uint64(len(headers)))
	for _, h := range headers {
		out = appendText(out, h.Key)
		if h.Value == nil {
			out = append(out, 0)
			continue
		}
		out = appendText(append(out, 1), h.Value)
	}
	return out
}

// DecodeHeaders reads what EncodeHeaders wrote. It shares no memory with src.
func DecodeHeaders(src []byte) ([]record.Header, error) {
	if src == nil {
		return nil, nil
	}
	in := decoder{src: src}
	n := in.uvarint()
	if n > uint64(len(in.src)) { // each takes two bytes at least
		return nil, ErrHeaders
	}
	out := make([]record.Header, 0, n)
	for range n {
		h := record.Header{Key: string(in.text())}
		switch in.byte() {
		case 0:
		case 1:
			h.Value = append([]byte{}, in.text()...)
		default:
			return nil, ErrHeaders
		}
		out = append(out, h)
	}
	if !in.whole() {
		return nil, ErrHeaders
	}
	return out, nil
}
