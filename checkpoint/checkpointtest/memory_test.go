package checkpointtest_test

import (
	"sync"
	"testing"
	"time"

	"github.com/weirstream/weir/checkpoint"
	"github.com/weirstream/weir/checkpoint/checkpointtest"
)

func TestMemory(t *testing.T) {
	t.Parallel()
	checkpointtest.Run(t, func(testing.TB) checkpointtest.Place {
		var mu sync.Mutex
		now := time.Unix(1e9, 0)
		m := checkpointtest.NewMemory("owner")
		m.Now = func() time.Time {
			mu.Lock()
			defer mu.Unlock()
			return now
		}
		return checkpointtest.Place{
			Open:   func(testing.TB) checkpoint.Blobs { return m },
			Damage: func(_ testing.TB, name string, change func([]byte) []byte) { m.Damage(name, change) },
			Older: func(_ testing.TB, _ string, d time.Duration) {
				mu.Lock()
				defer mu.Unlock()
				now = now.Add(d)
			},
			Left:  func(testing.TB) int { return 0 },
			Owner: "owner",
		}
	})
}
