package record

import "encoding/binary"

// PartitionOf is the partition of a key among n, as Kafka's default partitioner chooses it for keyed records: murmur2 with the sign
// bit masked off, modulo n. A nil key goes to partition 0 (weir's own rule: Kafka would spread it), an empty key is hashed.
// n must be positive.
func PartitionOf(key []byte, n int32) int32 {
	if key == nil {
		return 0
	}
	return int32(murmur2(key)&0x7fffffff) % n
}

// murmur2 is the 32-bit MurmurHash2 with Kafka's seed.
func murmur2(b []byte) uint32 {
	const (
		seed = 0x9747b28c
		m    = 0x5bd1e995
		r    = 24
	)
	h := uint32(seed) ^ uint32(len(b))
	for ; len(b) >= 4; b = b[4:] {
		k := binary.LittleEndian.Uint32(b) * m
		k = (k ^ k>>r) * m
		h = h*m ^ k
	}
	switch len(b) {
	case 3:
		h ^= uint32(b[2]) << 16
		fallthrough
	case 2:
		h ^= uint32(b[1]) << 8
		fallthrough
	case 1:
		h = (h ^ uint32(b[0])) * m
	}
	h = (h ^ h>>13) * m
	return h ^ h>>15
}
