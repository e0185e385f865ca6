package kinesis

import (
	"bytes"
	"crypto/md5" // the format's own check sum, against damage and not against anybody
	"encoding/binary"
	"errors"
)

// The format in which Amazon's producer library packs many records into one:
//
//	magic F3 89 9A C2 │ AggregatedRecord, protobuf │ MD5 of the protobuf bytes, 16
//
//	AggregatedRecord  1: partition keys, strings │ 2: explicit hash keys, strings │ 3: records
//	record            1: index of its partition key │ 2: index of its hash key, if any │ 3: data │ 4: tags, which are ignored
var aggregateMagic = []byte{0xf3, 0x89, 0x9a, 0xc2}

// errAggregate is a record that begins and ends like an aggregate and cannot be taken apart. Its text says how; the record is poison.
var (
	errAggregateShort = errors.New("an aggregated record is cut short or has a field of another kind")
	errAggregateIndex = errors.New("an aggregated record names a partition key that it does not hold")
	errAggregateEmpty = errors.New("an aggregated record holds no record")
)

// subRecord is one record of an aggregate. Key and data point into it.
type subRecord struct{ key, data []byte }

// aggregated says whether data is an aggregate: magic and check sum. Anything else is a record as it stands, whatever it begins with.
func aggregated(data []byte) (message []byte, ok bool) {
	if len(data) < len(aggregateMagic)+md5.Size || !bytes.Equal(data[:len(aggregateMagic)], aggregateMagic) {
		return nil, false
	}
	message = data[len(aggregateMagic) : len(data)-md5.Size]
	sum := md5.Sum(message)
	return message, bytes.Equal(sum[:], data[len(data)-md5.Size:])
}

// takeApart appends the records of an aggregate to dst, in order. keys is memory that is used again.
func takeApart(dst []subRecord, keys [][]byte, message []byte) ([]subRecord, [][]byte, error) {
	keys = keys[:0]
	// The tables may stand behind the records that use them, so they are read first.
	err := fields(message, func(number uint64, value []byte, _ uint64) error {
		if number == 1 {
			keys = append(keys, value)
		}
		return nil
	})
	if err != nil {
		return dst, keys, err
	}
	n := len(dst)
	err = fields(message, func(number uint64, value []byte, _ uint64) error {
		if number != 3 {
			return nil
		}
		r, err := oneOf(keys, value)
		dst = append(dst, r)
		return err
	})
	if err == nil && len(dst) == n {
		err = errAggregateEmpty
	}
	if err != nil {
		dst = dst[:n]
	}
	return dst, keys, err
}

func oneOf(keys [][]byte, record []byte) (r subRecord, err error) {
	key, hasKey, hasData := uint64(0), false, false
	err = fields(record, func(number uint64, value []byte, n uint64) error {
		switch {
		case number == 1 && value == nil:
			key, hasKey = n, true
		case number == 3 && value != nil:
			r.data, hasData = value, true
		case number == 1 || number == 3:
			return errAggregateShort
		}
		return nil
	})
	switch {
	case err != nil:
		return r, err
	case !hasKey || !hasData:
		return r, errAggregateShort
	case key >= uint64(len(keys)):
		return r, errAggregateIndex
	}
	r.key = keys[key]
	return r, nil
}

// fields calls fn with every field of a protobuf message: value for bytes (never nil), n for an integer.
func fields(message []byte, fn func(number uint64, value []byte, n uint64) error) error {
	for len(message) > 0 {
		tag, used := binary.Uvarint(message)
		if used <= 0 || tag>>3 == 0 {
			return errAggregateShort
		}
		message = message[used:]
		var value []byte
		var n uint64
		switch tag & 7 {
		case 0: // integer
			if n, used = binary.Uvarint(message); used <= 0 {
				return errAggregateShort
			}
		case 2: // bytes
			size, head := binary.Uvarint(message)
			if head <= 0 || size > uint64(len(message)-head) {
				return errAggregateShort
			}
			used = head + int(size)
			value = message[head:used:used]
		case 1, 5: // fixed, 8 or 4 bytes: none that is known
			used = 8
			if tag&7 == 5 {
				used = 4
			}
			if len(message) < used {
				return errAggregateShort
			}
		default:
			return errAggregateShort
		}
		message = message[used:]
		if err := fn(tag>>3, value, n); err != nil {
			return err
		}
	}
	return nil
}
