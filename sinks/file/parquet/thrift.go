package parquet

import "encoding/binary"

// The types of Thrift's compact protocol that the format's structures are made of.
const (
	thriftTrue   = 1
	thriftFalse  = 2
	thriftI16    = 4
	thriftI32    = 5
	thriftI64    = 6
	thriftBinary = 8
	thriftList   = 9
	thriftStruct = 12
)

// thrift writes structures in the compact protocol. Fields come in the order of their ids.
type thrift struct {
	buf  []byte
	last []int16 // id of the last field, for each structure that is open
}

func (t *thrift) begin() { t.last = append(t.last, 0) }

func (t *thrift) end() {
	t.buf = append(t.buf, 0)
	t.last = t.last[:len(t.last)-1]
}

func (t *thrift) field(id int16, kind byte) {
	last := &t.last[len(t.last)-1]
	t.buf = append(t.buf, byte(id-*last)<<4|kind) // ids are never more than 15 apart here
	*last = id
}

func (t *thrift) i16(id int16, v int64) {
	t.field(id, thriftI16)
	t.buf = binary.AppendVarint(t.buf, v)
}
func (t *thrift) i32(id int16, v int64) {
	t.field(id, thriftI32)
	t.buf = binary.AppendVarint(t.buf, v)
}
func (t *thrift) i64(id int16, v int64) {
	t.field(id, thriftI64)
	t.buf = binary.AppendVarint(t.buf, v)
}

func (t *thrift) bool(id int16, v bool) {
	if v {
		t.field(id, thriftTrue)
	} else {
		t.field(id, thriftFalse)
	}
}

func (t *thrift) text(id int16, v string) { t.field(id, thriftBinary); t.item(v) }

func (t *thrift) item(v string) {
	t.buf = append(binary.AppendUvarint(t.buf, uint64(len(v))), v...)
}

func (t *thrift) open(id int16) { t.field(id, thriftStruct); t.begin() }

func (t *thrift) list(id int16, kind byte, n int) {
	t.field(id, thriftList)
	if n < 15 {
		t.buf = append(t.buf, byte(n)<<4|kind)
		return
	}
	t.buf = binary.AppendUvarint(append(t.buf, 0xf0|kind), uint64(n))
}

// structure finds the fields of a structure without knowing it.
type structure struct {
	data []byte
	bad  bool
}

func (s *structure) byte() byte {
	if len(s.data) == 0 {
		s.bad = true
		return 0
	}
	b := s.data[0]
	s.data = s.data[1:]
	return b
}

func (s *structure) varint() int64 {
	v, n := binary.Varint(s.data)
	if n <= 0 {
		s.bad = true
		return 0
	}
	s.data = s.data[n:]
	return v
}

func (s *structure) size() uint64 {
	v, n := binary.Uvarint(s.data)
	if n <= 0 || v > uint64(len(s.data)) {
		s.bad = true
		return 0
	}
	s.data = s.data[n:]
	return v
}

func (s *structure) skip(kind byte, depth int) {
	switch kind {
	case thriftTrue, thriftFalse:
	case 3: // a byte
		s.byte()
	case thriftI16, thriftI32, thriftI64:
		s.varint()
	case thriftBinary:
		if n := s.size(); n <= uint64(len(s.data)) {
			s.data = s.data[n:]
		} else {
			s.bad = true
		}
	case thriftList:
		head := s.byte()
		n := uint64(head >> 4)
		if n == 15 {
			n = s.size()
		}
		for ; n > 0 && !s.bad; n-- {
			if s.skip(head&0x0f, depth+1); head&0x0f == thriftTrue || head&0x0f == thriftFalse {
				s.byte()
			}
		}
	case thriftStruct:
		s.fields(depth+1, func(_ int16, kind byte) { s.skip(kind, depth+1) })
	default:
		s.bad = true
	}
}

// fields calls fn for each field; fn reads or skips it.
func (s *structure) fields(depth int, fn func(id int16, kind byte)) {
	s.bad = s.bad || depth > 32
	id := int16(0)
	for !s.bad {
		head := s.byte()
		if head == 0 {
			return
		}
		if head>>4 == 0 {
			id = int16(s.varint())
		} else {
			id += int16(head >> 4)
		}
		fn(id, head&0x0f)
	}
}
