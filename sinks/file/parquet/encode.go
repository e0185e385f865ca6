package parquet

import (
	"encoding/binary"
	"math"
	"math/bits"
)

const (
	blockValues     = 128 // of a delta encoding
	miniBlocks      = 4
	miniBlockValues = blockValues / miniBlocks
)

// appendDelta appends values as DELTA_BINARY_PACKED: the first one, and then blocks of differences, packed in as few bits as each quarter of a block needs.
// Differences wrap, as the format says: at 32 bits where the values are narrow.
func appendDelta(dst []byte, values []int64, narrow bool) []byte {
	dst = binary.AppendUvarint(dst, blockValues)
	dst = binary.AppendUvarint(dst, miniBlocks)
	dst = binary.AppendUvarint(dst, uint64(len(values)))
	if len(values) == 0 {
		return append(dst, 0)
	}
	dst = binary.AppendVarint(dst, values[0])
	var deltas [blockValues]uint64
	for last, rest := values[0], values[1:]; len(rest) > 0; {
		n := min(len(rest), blockValues)
		least := int64(math.MaxInt64)
		for i, v := range rest[:n] {
			d := v - last
			if narrow {
				d = int64(int32(d))
			}
			deltas[i], last, least = uint64(d), v, min(least, d)
		}
		for i := range deltas[:n] {
			deltas[i] -= uint64(least)
		}
		clear(deltas[n:])
		dst = appendBlock(binary.AppendVarint(dst, least), &deltas, n)
		rest = rest[n:]
	}
	return dst
}

// appendBlock appends the widths of a block of n differences, and the differences. Quarters without any have neither.
func appendBlock(dst []byte, deltas *[blockValues]uint64, n int) []byte {
	var widths [miniBlocks]int
	for m := range miniBlocks {
		all := uint64(0)
		for _, d := range deltas[m*miniBlockValues : (m+1)*miniBlockValues] {
			all |= d
		}
		widths[m] = bits.Len64(all)
		dst = append(dst, byte(widths[m]))
	}
	for m := 0; m*miniBlockValues < n; m++ {
		dst = appendPacked(dst, deltas[m*miniBlockValues:(m+1)*miniBlockValues], widths[m])
	}
	return dst
}

// appendPacked packs values of a width of up to 64 bits, lowest bits first. Their number is a multiple of 8.
func appendPacked(dst []byte, values []uint64, width int) []byte {
	if width == 0 {
		return dst
	}
	var acc uint64
	filled := 0
	for _, v := range values {
		acc |= v << filled
		filled += width
		if filled >= 64 {
			dst = binary.LittleEndian.AppendUint64(dst, acc)
			filled -= 64
			acc = v >> (width - filled) // 0 when nothing is left over, since a shift by 64 is 0
		}
	}
	for ; filled > 0; filled -= 8 {
		dst = append(dst, byte(acc))
		acc >>= 8
	}
	return dst
}

// appendRun appends count times the same value as the hybrid of runs and packed bits has it. width is that of the value in bits, at least 1.
func appendRun(dst []byte, count int, value uint64, width int) []byte {
	dst = binary.AppendUvarint(dst, uint64(count)<<1)
	for ; width > 0; width -= 8 {
		dst = append(dst, byte(value))
		value >>= 8
	}
	return dst
}

// appendIndices appends indices of a dictionary of a size: the width of each in a byte, and then one run, or all of them packed.
func appendIndices(dst []byte, indices []uint64, size int) []byte {
	width := max(bits.Len64(uint64(size-1)), 1)
	dst = append(dst, byte(width))
	if size == 1 {
		return appendRun(dst, len(indices), 0, width)
	}
	groups := (len(indices) + 7) / 8
	dst = binary.AppendUvarint(dst, uint64(groups)<<1|1)
	for len(indices)%8 != 0 {
		indices = append(indices, 0)
	}
	return appendPacked(dst, indices, width)
}

// appendLevels appends which of n values are there: 1 for one that is, packed in bits already. nulls is how many are not.
func appendLevels(dst, there []byte, n, nulls int) []byte {
	at := len(dst)
	dst = append(dst, 0, 0, 0, 0) // length
	switch nulls {
	case 0:
		dst = appendRun(dst, n, 1, 1)
	case n:
		dst = appendRun(dst, n, 0, 1)
	default:
		dst = append(binary.AppendUvarint(dst, uint64(len(there))<<1|1), there...)
	}
	binary.LittleEndian.PutUint32(dst[at:], uint32(len(dst)-at-4))
	return dst
}
