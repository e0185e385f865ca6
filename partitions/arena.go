package partitions

// span is a byte string in an arena.
type span struct{ chunk, at, length uint32 }

// arena holds the ids of waiting records in chunks. A chunk is used again when nothing in it lives any more; where single long-lived
// ids pin many chunks, compact moves them together.
type arena struct {
	chunks []chunk
	// free are the indexes of unused entries of chunks, spare the memory of chunks of the usual size.
	free  []uint32
	spare [][]byte
	// current is the chunk that is being filled, or -1.
	current int
	// living is the number of living bytes, held the size of the chunks in use.
	living, held int
}

type chunk struct {
	data []byte
	// living is the number of living strings.
	living int
}

const (
	chunkBytes = 1 << 15
	// maxSpare is the number of empty chunks that are kept.
	maxSpare = 4
	// looseBytes and looseFactor say when the chunks in use are so much larger than what lives in them that moving it pays.
	looseBytes  = 8 * chunkBytes
	looseFactor = 2
)

func (a *arena) init() { *a = arena{current: -1} }

// add copies a string.
func (a *arena) add(s []byte) span {
	if a.current < 0 || len(s) > cap(a.chunks[a.current].data)-len(a.chunks[a.current].data) {
		a.next(len(s))
	}
	c := &a.chunks[a.current]
	at := len(c.data)
	c.data = append(c.data, s...)
	c.living++
	a.living += len(s)
	return span{chunk: uint32(a.current), at: uint32(at), length: uint32(len(s))}
}

// get is the string; it is valid until it is removed, or until compact.
func (a *arena) get(s span) []byte {
	end := s.at + s.length
	return a.chunks[s.chunk].data[s.at:end:end]
}

// remove gives the string up.
func (a *arena) remove(s span) {
	a.living -= int(s.length)
	c := &a.chunks[s.chunk]
	if c.living--; c.living > 0 {
		return
	}
	if int(s.chunk) == a.current {
		c.data = c.data[:0]
		return
	}
	a.release(s.chunk)
}

// next starts a chunk that has room for n bytes.
func (a *arena) next(n int) {
	if a.current >= 0 && a.chunks[a.current].living == 0 {
		a.release(uint32(a.current))
	}
	var data []byte
	switch last := len(a.spare) - 1; {
	case n > chunkBytes:
		data = make([]byte, 0, n)
	case last >= 0:
		data, a.spare = a.spare[last], a.spare[:last]
	default:
		data = make([]byte, 0, chunkBytes)
	}
	a.held += cap(data)
	if last := len(a.free) - 1; last >= 0 {
		a.current = int(a.free[last])
		a.free = a.free[:last]
		a.chunks[a.current] = chunk{data: data}
		return
	}
	a.current = len(a.chunks)
	a.chunks = append(a.chunks, chunk{data: data})
}

func (a *arena) release(i uint32) {
	c := &a.chunks[i]
	a.held -= cap(c.data)
	if cap(c.data) == chunkBytes && len(a.spare) < maxSpare {
		a.spare = append(a.spare, c.data[:0])
	}
	*c = chunk{}
	a.free = append(a.free, i)
}

// loose says that compacting pays: at least half of what is held can be given back.
func (a *arena) loose() bool { return a.held > looseBytes+looseFactor*a.living }
