package kafka_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/internal/devbroker"
	"github.com/weirstream/weir/internal/kafkatest"
	"github.com/weirstream/weir/record"
	"github.com/weirstream/weir/sources"
	"github.com/weirstream/weir/sources/kafka"
)

// owners is who has which partition, over all members of a test.
type owners struct {
	t  *testing.T
	mu sync.Mutex
	// by partition; "" is nobody.
	of map[int32]string
	// moved counts what was given up, by member and partition.
	moved map[string]int
	// changed is closed and replaced with every change.
	changed chan struct{}
}

func newOwners(t *testing.T) *owners {
	return &owners{t: t, of: map[int32]string{}, moved: map[string]int{}, changed: make(chan struct{})}
}

func (o *owners) change(do func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	do()
	close(o.changed)
	o.changed = make(chan struct{})
}

// handler is what one member tells.
type handler struct {
	*owners
	name string
	// drain, unless nil, is how long it takes to give something up.
	drain func(context.Context)
}

func (h *handler) Assigned(partitions []int32) {
	h.change(func() {
		for _, p := range partitions {
			if h.of[p] != "" {
				h.t.Errorf("%s is assigned partition %d, which %s has", h.name, p, h.of[p])
			}
			h.of[p] = h.name
		}
	})
}

func (h *handler) Revoked(ctx context.Context, partitions []int32) {
	if h.drain != nil {
		h.drain(ctx)
	}
	h.gone(partitions)
}

func (h *handler) Lost(partitions []int32) { h.gone(partitions) }

func (h *handler) gone(partitions []int32) {
	h.change(func() {
		for _, p := range partitions {
			if h.of[p] == h.name {
				h.of[p] = ""
			}
			h.moved[fmt.Sprint(h.name, p)]++
		}
	})
}

// counts waits until members have so many partitions each.
func (o *owners) counts(partitions int, want map[string]int) {
	o.t.Helper()
	o.await(partitions, fmt.Sprint(want), func(got map[string]int) bool { return fmt.Sprint(got) == fmt.Sprint(want) })
}

// await waits until the numbers of partitions by member are right.
func (o *owners) await(partitions int, want string, right func(map[string]int) bool) {
	o.t.Helper()
	limit := time.After(5 * time.Minute)
	for {
		o.mu.Lock()
		got, changed := map[string]int{}, o.changed
		for p := range int32(partitions) {
			got[o.of[p]]++
		}
		o.mu.Unlock()
		if right(got) {
			return
		}
		select {
		case <-changed:
		case <-limit:
			o.t.Fatalf("assigned %v, want %s", got, want)
		}
	}
}

// member is one that has joined.
type member struct {
	*kafka.Group
	stop context.CancelFunc
	err  chan error
}

func (m *member) leave(t *testing.T) {
	t.Helper()
	m.stop()
	if err := <-m.err; err != nil {
		t.Errorf("it leaves with %v", err)
	}
}

func join(t *testing.T, addr, topic, group string, h sources.Handler, tune ...func(*kafka.GroupConfig)) *member {
	t.Helper()
	s, err := kafka.New(kafka.Config{Brokers: []string{addr}, Topic: topic})
	if err != nil {
		t.Fatal(err)
	}
	cfg := kafka.GroupConfig{Group: group, Heartbeat: 50 * time.Millisecond, Refresh: 300 * time.Millisecond, Commit: 20 * time.Millisecond}
	for _, f := range tune {
		f(&cfg)
	}
	g, err := s.Group(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	m := &member{Group: g, stop: stop, err: make(chan error, 1)}
	go func() { m.err <- g.Run(ctx, h) }()
	return m
}

// groupTest plays a group over a broker: members join and leave, a partition is added, offsets are told.
func groupTest(t *testing.T, addr string, adm *kadm.Client) {
	const group = "readers"
	topic := fmt.Sprintf("group-%d", topicNames.Add(1))
	(&bench{adm: adm}).create(t, topic, 6, nil)
	o := newOwners(t)
	a := join(t, addr, topic, group, &handler{owners: o, name: "a"})
	o.counts(6, map[string]int{"a": 6})
	b := join(t, addr, topic, group, &handler{owners: o, name: "b"})
	o.counts(6, map[string]int{"a": 3, "b": 3})
	c := join(t, addr, topic, group, &handler{owners: o, name: "c"})
	o.counts(6, map[string]int{"a": 2, "b": 2, "c": 2})
	o.mu.Lock()
	if n := len(o.moved); n != 5 {
		t.Errorf("%d partitions moved, want 3 to b and then 2 to c: %v", n, o.moved)
	}
	o.mu.Unlock()
	if _, err := adm.CreatePartitions(t.Context(), 2, topic); err != nil {
		t.Fatal(err)
	}
	o.await(8, "2 or 3 each", func(got map[string]int) bool { return got[""] == 0 && min(got["a"], got["b"], got["c"]) == 2 })
	offsets(t, o, adm, topic, group, map[string]*member{"a": a, "b": b, "c": c})
	b.leave(t)
	o.counts(8, map[string]int{"a": 4, "c": 4})
	c.leave(t)
	o.counts(8, map[string]int{"a": 8})
	a.leave(t)
	o.counts(8, map[string]int{"": 8})
	all, err := adm.DescribeGroups(t.Context(), group)
	if err != nil || len(all[group].Members) != 0 {
		t.Errorf("after the end: %+v, %v", all, err)
	}
}

// offsets: each member writes those of its own partitions, and no other's.
func offsets(t *testing.T, o *owners, adm *kadm.Client, topic, group string, members map[string]*member) {
	t.Helper()
	for _, m := range members {
		next := map[int32]record.Position{}
		for p := range int32(8) {
			at := int64(1000)
			o.mu.Lock()
			if members[o.of[p]] == m {
				at = int64(p) + 5
			}
			o.mu.Unlock()
			next[p] = record.Offset(at)
		}
		if err := m.CommitOffsets(t.Context(), next); err != nil {
			t.Fatal(err)
		}
	}
	limit := time.Now().Add(5 * time.Minute)
	for {
		got, err := adm.FetchOffsets(t.Context(), group)
		if err != nil {
			t.Fatal(err)
		}
		right := 0
		for p := range int32(8) {
			at, ok := got.Lookup(topic, p)
			if ok && at.At == 1000 {
				t.Fatalf("partition %d was written by one that does not have it", p)
			}
			if ok && at.At == int64(p)+5 {
				right++
			}
		}
		if right == 8 {
			return
		}
		if time.Now().After(limit) {
			t.Fatalf("offsets %v", got.Offsets())
		}
	}
}

func TestGroup(t *testing.T) {
	t.Parallel()
	b := start(t, devbroker.Config{})
	var fetches atomic.Int64
	b.Cluster().ControlKey(int16(kmsg.Fetch), func(kmsg.Request) (kmsg.Response, error, bool) {
		b.Cluster().KeepControl()
		fetches.Add(1)
		return nil, nil, false
	})
	groupTest(t, b.addr, b.adm)
	if n := fetches.Load(); n != 0 {
		t.Errorf("the members fetched %d times", n)
	}
}

func TestGroupOfApacheKafka(t *testing.T) {
	t.Parallel()
	broker := kafkatest.Shared(t)
	groupTest(t, broker.Addr(), kadm.NewClient(client(t, broker.Addr())))
}

// TestGroupSlowOffsets: while the answer with the offsets of the first assignment is awaited, a second member joins. Nothing is assigned twice.
func TestGroupSlowOffsets(t *testing.T) {
	t.Parallel()
	b := start(t, devbroker.Config{})
	topic := b.topic(t, 4, nil)
	joined := make(chan struct{})
	joins := 0
	b.Cluster().ControlKey(int16(kmsg.JoinGroup), func(req kmsg.Request) (kmsg.Response, error, bool) {
		b.Cluster().KeepControl()
		// The first member asks twice, without an id and with the one it was given.
		if joins++; joins == 3 {
			close(joined)
		}
		return nil, nil, false
	})
	b.Cluster().ControlKey(int16(kmsg.OffsetFetch), func(kmsg.Request) (kmsg.Response, error, bool) {
		b.Cluster().SleepControl(func() { <-joined })
		return nil, nil, false
	})
	o := newOwners(t)
	a := join(t, b.addr, topic, "slow", &handler{owners: o, name: "a"})
	o.counts(4, map[string]int{"a": 4})
	c := join(t, b.addr, topic, "slow", &handler{owners: o, name: "c"})
	o.counts(4, map[string]int{"a": 2, "c": 2})
	a.leave(t)
	o.counts(4, map[string]int{"c": 4})
	c.leave(t)
}

// TestGroupSlowDrain: a partition is given to another member only after it was let go, however long that takes.
func TestGroupSlowDrain(t *testing.T) {
	t.Parallel()
	b := start(t, devbroker.Config{})
	topic := b.topic(t, 2, nil)
	o := newOwners(t)
	draining, drained := make(chan struct{}), make(chan struct{})
	first := sync.OnceFunc(func() { close(draining) })
	a := join(t, b.addr, topic, "drain", &handler{owners: o, name: "a", drain: func(context.Context) { first(); <-drained }})
	o.counts(2, map[string]int{"a": 2})
	c := join(t, b.addr, topic, "drain", &handler{owners: o, name: "c"})
	<-draining
	o.counts(2, map[string]int{"a": 2})
	close(drained)
	o.counts(2, map[string]int{"a": 1, "c": 1})
	// One that leaves while a rebalance is under way does not wait for it.
	a.stop()
	c.stop()
	if err := errors.Join(<-a.err, <-c.err); err != nil {
		t.Error(err)
	}
	o.counts(2, map[string]int{"": 2})
}

// TestGroupRefused: what will not pass by itself is the end, with a code.
func TestGroupRefused(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		answer *kerr.Error
		want   *codes.Code
	}{
		"denied":   {kerr.GroupAuthorizationFailed, codes.AccessDenied},
		"session":  {kerr.InvalidSessionTimeout, codes.ConfigInvalid},
		"protocol": {kerr.InconsistentGroupProtocol, codes.ConfigInvalid},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := start(t, devbroker.Config{})
			topic := b.topic(t, 2, nil)
			b.Cluster().ControlKey(int16(kmsg.JoinGroup), func(req kmsg.Request) (kmsg.Response, error, bool) {
				b.Cluster().KeepControl()
				resp := req.ResponseKind().(*kmsg.JoinGroupResponse)
				resp.ErrorCode = c.answer.Code
				return resp, nil, true
			})
			m := join(t, b.addr, topic, "no", &handler{owners: newOwners(t), name: "a"})
			if err := <-m.err; !codes.Has(err, c.want) {
				t.Errorf("%v", err)
			}
		})
	}
	b := start(t, devbroker.Config{})
	m := join(t, b.addr, "not-there", "g", &handler{owners: newOwners(t), name: "a"})
	if err := <-m.err; !codes.Has(err, codes.TopicMissing) {
		t.Errorf("no topic: %v", err)
	}
	s, err := kafka.New(kafka.Config{Brokers: []string{b.addr}, Topic: "t"})
	if err != nil {
		t.Fatal(err)
	}
	for _, cfg := range []kafka.GroupConfig{{}, {Group: "g", Session: time.Second, Heartbeat: time.Second}} {
		if _, err := s.Group(cfg); !codes.Has(err, codes.ConfigInvalid) {
			t.Errorf("%+v: %v", cfg, err)
		}
	}
}

// TestGroupPutOut: a member that the group has forgotten loses what it had, and gets it again. It tells once, however often it asks in vain.
func TestGroupPutOut(t *testing.T) {
	t.Parallel()
	b := start(t, devbroker.Config{})
	topic := b.topic(t, 2, nil)
	o := newOwners(t)
	told := make(chan error, 10)
	a := join(t, b.addr, topic, "out", &handler{owners: o, name: "a"}, func(c *kafka.GroupConfig) { c.OnTrouble = func(err error) { told <- err } })
	o.counts(2, map[string]int{"a": 2})
	refused := 0
	b.Cluster().ControlKey(int16(kmsg.JoinGroup), func(req kmsg.Request) (kmsg.Response, error, bool) {
		b.Cluster().KeepControl()
		if refused++; refused > 3 {
			return nil, nil, false
		}
		resp := req.ResponseKind().(*kmsg.JoinGroupResponse)
		resp.ErrorCode = kerr.GroupMaxSizeReached.Code
		return resp, nil, true
	})
	b.Cluster().ControlKey(int16(kmsg.Heartbeat), func(req kmsg.Request) (kmsg.Response, error, bool) {
		resp := req.ResponseKind().(*kmsg.HeartbeatResponse)
		resp.ErrorCode = kerr.UnknownMemberID.Code
		return resp, nil, true
	})
	o.counts(2, map[string]int{"": 2})
	o.counts(2, map[string]int{"a": 2})
	a.leave(t)
	if err := <-told; !errors.Is(err, kerr.UnknownMemberID) || len(told) != 1 {
		t.Errorf("told %v, and %d more", err, len(told))
	}
	if err := <-told; err != nil {
		t.Errorf("once it is found: %v", err)
	}
}

func TestAPartitionAsASource(t *testing.T) {
	t.Parallel()
	b := start(t, devbroker.Config{})
	topic := b.topic(t, 3, nil)
	s, err := kafka.New(kafka.Config{Brokers: []string{b.addr}, Topic: topic})
	if err != nil {
		t.Fatal(err)
	}
	whole, err := s.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	one, err := s.Partition(2).Info(t.Context())
	if err != nil || one.ID != whole.ID || one.ID == "" || !slices.Equal(one.Partitions, []int32{2}) {
		t.Errorf("%+v, %v", one, err)
	}
}
