package backpressure

// Credits bound what is under way between a giver (a partition) and a taker (its source): at most a window of records and of bytes is
// outstanding. What can be taken is never negative and never more than the window. Not safe for concurrent use.
//
// One batch larger than the window passes when nothing is outstanding, since it could never pass otherwise: memory is bounded by the
// window or one batch, whichever is larger, for records and for bytes each.
type Credits struct {
	windowRecords, windowBytes int64
	records, bytes             int64
}

// NewCredits makes a full window. Records and bytes below 1 count as 1: a window of nothing lets one batch pass at a time.
func NewCredits(records, bytes int64) *Credits {
	return &Credits{windowRecords: max(records, 1), windowBytes: max(bytes, 1)}
}

// Take takes credits for one batch. It returns false, and takes nothing, when they do not reach or a number is negative.
func (c *Credits) Take(records, bytes int64) bool {
	if records < 0 || bytes < 0 {
		return false
	}
	if c.Idle() {
		c.records, c.bytes = records, bytes
		return true
	}
	freeRecords, freeBytes := c.Available()
	if records > freeRecords || bytes > freeBytes {
		return false
	}
	c.records += records
	c.bytes += bytes
	return true
}

// Give returns credits of a batch that is done. It returns false when it would give back more than is outstanding, or a number is
// negative: someone counts wrongly, and nothing changes.
func (c *Credits) Give(records, bytes int64) bool {
	if records < 0 || bytes < 0 || records > c.records || bytes > c.bytes {
		return false
	}
	c.records -= records
	c.bytes -= bytes
	return true
}

// Available is what can be taken: never negative, at most the window.
func (c *Credits) Available() (records, bytes int64) {
	return max(c.windowRecords-c.records, 0), max(c.windowBytes-c.bytes, 0)
}

// Outstanding is what was taken and not given back.
func (c *Credits) Outstanding() (records, bytes int64) { return c.records, c.bytes }

// Window is the size of the window.
func (c *Credits) Window() (records, bytes int64) { return c.windowRecords, c.windowBytes }

// Idle says that nothing is outstanding.
func (c *Credits) Idle() bool { return c.records == 0 && c.bytes == 0 }

// Reset gives everything back: the other side was restarted and what was under way is void.
func (c *Credits) Reset() { c.records, c.bytes = 0, 0 }
