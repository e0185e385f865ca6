//go:build unix

package bench

import (
	"runtime/debug"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/weirstream/weir/internal/kafkatest"
)

const (
	// apacheRecords and apachePairs are the defaults of envRecords and envPairs over Apache Kafka.
	apacheRecords = 1_000_000
	apachePairs   = 3
)

// BenchmarkPipelineApache is BenchmarkPipeline from Apache Kafka, without the obvious way to do it. The broker is warm by then: its compiler has
// seen every loop's fetches once.
func BenchmarkPipelineApache(b *testing.B) {
	t := topic{addr: kafkatest.Shared(b).Addr()}
	cl, err := kgo.NewClient(kgo.SeedBrokers(t.addr), kgo.DisableClientMetrics())
	if err != nil {
		b.Fatal(err)
	}
	defer cl.Close()
	adm := kadm.NewClient(cl)
	if _, err := adm.CreateTopic(b.Context(), topicPartitions, 1, nil, topicName); err != nil {
		b.Fatal(err)
	}
	log := ticks(setting(b, envRecords, apacheRecords), 1)
	t.records = len(log)
	publish(b, t.addr, log)
	log = nil
	debug.FreeOSMemory()
	once(b, loops[bare], t)

	report(b, t, inTurns(b, t, setting(b, envPairs, apachePairs), bare, passThrough, byHand, weir))
	if _, err := adm.DeleteTopics(b.Context(), topicName); err != nil {
		b.Fatal(err)
	}
}
