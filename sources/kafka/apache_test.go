//go:build unix

package kafka_test

import (
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/weirstream/weir/internal/kafkatest"
	"github.com/weirstream/weir/record"
	"github.com/weirstream/weir/sources/kafka"
	"github.com/weirstream/weir/sources/sourcetest"
)

// apache is a bench on the Apache Kafka broker of this test binary. Topics have names of their own, so that tests share it.
func apache(t testing.TB) *bench {
	t.Helper()
	addr := kafkatest.Shared(t).Addr()
	return &bench{addr: addr, write: client(t, addr), adm: kadm.NewClient(client(t, addr))}
}

// The suite that the embedded broker passes, against Apache Kafka. A fetch that fails once is left to the embedded broker, which can be told to.
func TestConformanceApache(t *testing.T) {
	t.Parallel()
	configs := map[string]func(*kafka.Config){
		"defaults":      nil,
		"small fetches": func(c *kafka.Config) { c.FetchBytes, c.PartitionBytes, c.Fetches = 2000, 500, 1 },
	}
	for name, change := range configs {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sourcetest.Run(t, sourcetest.Harness{
				New: func(t testing.TB, parts [][]record.Record) sourcetest.Target {
					target := apache(t).target(t, parts, change)
					target.Fail = nil
					return target
				},
				Tombstones: true, EmptyValues: true, NilKeys: true, Headers: true, ArrivalUnit: time.Millisecond, EmptyAnswers: true,
			})
		})
	}
}
