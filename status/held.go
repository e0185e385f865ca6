package status

import (
	"fmt"
	"time"
)

// Held are the keys of a partition that wait for records that are set aside, of a flow with hold_key.
type Held struct {
	// Keys is how many wait, Records how many records of them.
	Keys    int `json:"keys"`
	Records int `json:"records"`
	// Key is the one that waits longest; it is record data, and "" unless the process was told to show that. Position is the record that it waits for.
	Key      string     `json:"key"`
	Position string     `json:"position"`
	Since    *time.Time `json:"since"`
}

// held tells of keys that wait. Nothing else waits for them, so that they hold no watermark.
func (p *Partition) held(name string, add func(Reason)) {
	h := p.Held
	if h == nil {
		return
	}
	key, waiting := "one of them", fmt.Sprintf("%d records that wait", h.Records)
	if h.Records == 1 {
		waiting = "1 record that waits"
	}
	if h.Key != "" {
		key = fmt.Sprintf("key %q", h.Key)
	}
	add(Reason{Code: WhyKeysHeld, Since: h.Since,
		Text:    fmt.Sprintf("%s holds %s back, with %s: %s for the record at %s, which could not be read", name, keys(h.Keys), waiting, key, h.Position),
		Release: "`weir quarantine replay` of these records, under a flow that reads them, or `weir quarantine drop`"})
}

func keys(n int) string {
	if n == 1 {
		return "1 key"
	}
	return fmt.Sprintf("%d keys", n)
}
