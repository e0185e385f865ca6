package kafka_test

import (
	"testing"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/internal/devbroker"
	"github.com/weirstream/weir/record"
	"github.com/weirstream/weir/sources/kafka"
)

// Bounds says what the topic is and where its partitions begin and end, with what retention has removed left out.
func TestBounds(t *testing.T) {
	t.Parallel()
	b := start(t, devbroker.Config{})
	boundsOf(t, b)
	_, _, err := newSource(t, b.config("nothing-here")).Bounds(t.Context())
	wantCode(t, err, codes.TopicMissing, "nothing-here")
}

func boundsOf(t *testing.T, b *bench) {
	t.Helper()
	topic := b.topic(t, 3, nil)
	produce(t, b.write, topic, 0, values(5)...)
	produce(t, b.write, topic, 2, values(4)...)
	b.deleteRecords(t, topic, 0, 3)
	b.deleteRecords(t, topic, 2, 4)
	s := newSource(t, b.config(topic))
	info, bounds, err := s.Bounds(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if want, err := s.Info(t.Context()); err != nil || info.ID != want.ID || info.Name != topic || len(info.Partitions) != 3 {
		t.Errorf("%+v, want %+v (%v)", info, want, err)
	}
	want := map[int32]kafka.Bounds{0: {record.Offset(3), record.Offset(5)}, 1: {}, 2: {record.Offset(4), record.Offset(4)}}
	for p, w := range want {
		if bounds[p] != w || len(bounds) != len(want) {
			t.Errorf("partition %d is %v, want %v", p, bounds[p], w)
		}
	}
}
