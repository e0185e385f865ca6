package partitions

import "github.com/weirstream/weir/watermark"

// OpenGaps is the number of open ranges of missing sequence numbers.
func (m *Machine) OpenGaps() int { return m.wm.OpenGaps() }

// OldestGap is the open range that holds the partition's watermark, or would be the first to.
func (m *Machine) OldestGap() (watermark.Gap, bool) { return m.wm.OldestGap() }
