package kafka_test

import (
	"sync/atomic"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/weirstream/weir/internal/devbroker"
)

// forgotten counts the fetches that leave out a partition which the fetch before them asked for.
func (b *bench) forgotten() *atomic.Int64 {
	n := new(atomic.Int64)
	b.Cluster().ControlKey(int16(kmsg.Fetch), func(r kmsg.Request) (kmsg.Response, error, bool) {
		b.Cluster().KeepControl()
		if len(r.(*kmsg.FetchRequest).ForgottenTopics) > 0 {
			n.Add(1)
		}
		return nil, nil, false
	})
	return n
}

// A partition that the client leaves out has to wait, after its resumption, for the answer to a fetch that has nothing to answer with.
func TestShortPausesAreNoBusinessOfTheClient(t *testing.T) {
	t.Parallel()
	b := start(t, devbroker.Config{})
	topic := b.topic(t, 2, nil)
	left := b.forgotten()
	r := open(t, newSource(t, b.config(topic)), at(0, 0))
	g := newRead(t)
	all := values(60)
	for i := 0; i < len(all); i += 10 {
		r.Pause(0)
		produce(t, b.write, topic, 0, all[i:i+10]...)
		produce(t, b.write, topic, 1, all[i:i+10]...)
		g.until(r, 0, g.has(1, i+10))
		g.want(0, 0, i)
		r.Resume(0)
		g.until(r, 0, g.has(0, i+10))
	}
	g.want(0, 0, 60)
	g.want(1, 0, 60)
	if n := left.Load(); n > 0 {
		t.Errorf("%d fetches left a partition out", n)
	}
}

// What is paused and goes on being fetched would fill the memory: once it fills an answer, and the pause lasts, it is left out.
func TestALongPauseIsToldToTheClient(t *testing.T) {
	t.Parallel()
	b := start(t, devbroker.Config{})
	topic := b.topic(t, 2, nil)
	left := b.forgotten()
	cfg := b.config(topic)
	cfg.FetchBytes, cfg.PartitionBytes = 1, 1 // one batch of each partition
	r := open(t, newSource(t, cfg), at(0, 0))
	g := newRead(t)
	all := values(40)
	for _, v := range all {
		produce(t, b.write, topic, 0, v)
	}
	r.Pause(0)
	for i := 0; left.Load() == 0 || i < 10; i++ {
		produce(t, b.write, topic, 1, values(i + 1)[i])
		g.until(r, 0, g.has(1, i+1))
	}
	g.want(0, 0, 0)
	r.Resume(0)
	g.until(r, 0, g.has(0, len(all)))
	g.want(0, 0, len(all))
	g.want(1, 0, len(g.values[1]))
}
