package kafka

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/record"
	"github.com/weirstream/weir/sources"
)

const (
	defaultSession   = 10 * time.Second
	defaultRebalance = 30 * time.Second
	defaultHeartbeat = 250 * time.Millisecond
	defaultRefresh   = 5 * time.Second
	defaultCommit    = time.Second

	// leaveTimeout bounds telling the group that we leave. Without that the others wait for the session to run out.
	leaveTimeout = 3 * time.Second
	// commitTimeout bounds a commit of offsets, courtesyTimeout the last one of partitions that are given up.
	commitTimeout   = time.Second
	courtesyTimeout = 300 * time.Millisecond
)

// Partition is the source as one partition of it: Info says that it has no other, and still checks that the topic is the same.
func (s *Source) Partition(p int32) sources.Source { return sources.Only(s, p) }

// GroupConfig of a membership. All members of a group should have the same.
type GroupConfig struct {
	// Group is the name of the consumer group. Required.
	Group string
	// Session is how long the group waits for a member that is not heard of before it gives its partitions to others. Brokers refuse less
	// than their group.min.session.timeout.ms, by default 6 s. Defaults to 10 s.
	Session time.Duration
	// Rebalance bounds how long a member may take to give partitions up. Defaults to 30 s.
	Rebalance time.Duration
	// Heartbeat is how often a member asks whether something has changed; a partition that moves stands still for about that long.
	// Defaults to 250 ms.
	Heartbeat time.Duration
	// Refresh is how often it is looked for partitions that were added. Defaults to 5 s.
	Refresh time.Duration
	// Commit is how often the group's offsets are written. Defaults to 1 s.
	Commit time.Duration
	// OnTrouble is told when the membership was lost and is sought again, with the cause, and then with nil once it is found. Calls do not overlap.
	OnTrouble func(cause error)
}

func (c GroupConfig) withDefaults() GroupConfig {
	c.Session = cmp.Or(c.Session, defaultSession)
	c.Rebalance = cmp.Or(c.Rebalance, defaultRebalance)
	c.Heartbeat = cmp.Or(c.Heartbeat, defaultHeartbeat)
	c.Refresh = cmp.Or(c.Refresh, defaultRefresh)
	c.Commit = cmp.Or(c.Commit, defaultCommit)
	if c.OnTrouble == nil {
		c.OnTrouble = func(error) {}
	}
	return c
}

// Group is a member of a consumer group, which is used for one thing: to say who reads which partition. Nothing is fetched through it, and the
// group's offsets are never read. Assignment is cooperative-sticky: partitions that do not move are not touched by a rebalance.
type Group struct {
	source *Source
	cfg    GroupConfig

	// giving is held while partitions are given up, so that each is given up once.
	giving sync.Mutex
	// committing is held while offsets are written, so that none is overtaken by an older one.
	committing sync.Mutex

	mu sync.Mutex
	// client is that of a membership while it lasts, id that of the topic.
	client *kgo.Client
	id     [16]byte
	// mine is what is assigned; leaving: nothing more is taken.
	mine    map[int32]bool
	leaving bool
	// troubled: OnTrouble was told, and nothing was assigned since.
	troubled bool
	// told is where the journal stands, and written where the group does.
	told, written map[int32]int64
}

var _ sources.Assigner = (*Group)(nil)

// Group makes a membership for Run to enter. It does not connect. CONFIG_INVALID: there is no name, or a session is too short to be kept alive.
func (s *Source) Group(cfg GroupConfig) (*Group, error) {
	cfg = cfg.withDefaults()
	switch {
	case cfg.Group == "":
		return nil, codes.New(codes.ConfigInvalid, "there is no consumer group; name one with --group")
	case cfg.Session < 3*cfg.Heartbeat:
		return nil, codes.New(codes.ConfigInvalid, "a session of %s is too short for a heartbeat every %s; it has to outlast three", cfg.Session, cfg.Heartbeat)
	}
	return &Group{source: s, cfg: cfg, mine: map[int32]bool{}, told: map[int32]int64{}, written: map[int32]int64{}}, nil
}

// Run implements sources.Assigner. It is called once. Errors: those of Info at the start; ACCESS_DENIED, CONFIG_INVALID or BROKER_REFUSED
// when the group refuses this member for good.
func (g *Group) Run(ctx context.Context, h sources.Handler) error {
	clientCtx, forget := context.WithCancel(context.WithoutCancel(ctx))
	defer forget()
	refused := make(chan error, 1)
	q, err := g.source.session(g.options(clientCtx, h, refused)...)
	if err != nil {
		return err
	}
	var work sync.WaitGroup
	defer func() {
		forget()
		q.Close()
		work.Wait()
	}()
	topic, err := q.Find(ctx)
	if err != nil {
		return err
	}
	// The topic is paused before it is known to the group, so that not even a first fetch is made.
	q.Client.PauseFetchTopics(q.Topic)
	g.mu.Lock()
	g.client, g.id = q.Client, topic.ID
	g.mu.Unlock()
	q.Client.AddConsumeTopics(q.Topic)
	work.Go(func() { g.keepCommitting(clientCtx) })
	work.Go(func() {
		for clientCtx.Err() == nil {
			q.Client.PollFetches(clientCtx) // nothing is fetched, and of errors the hook tells: they must not pile up
		}
	})
	select {
	case <-ctx.Done():
		err = nil
	case err = <-refused:
	}
	g.leave(q.Client, h)
	return err
}

// options of the client of a membership.
func (g *Group) options(ctx context.Context, h sources.Handler, refused chan<- error) []kgo.Opt {
	return []kgo.Opt{
		kgo.WithContext(ctx),
		kgo.ConsumerGroup(g.cfg.Group),
		kgo.Balancers(kgo.CooperativeStickyBalancer()),
		kgo.SessionTimeout(g.cfg.Session),
		kgo.RebalanceTimeout(g.cfg.Rebalance),
		kgo.HeartbeatInterval(g.cfg.Heartbeat),
		kgo.MetadataMaxAge(g.cfg.Refresh),
		kgo.DisableAutoCommit(),
		// Where the group stands is of no interest: nothing is read from there.
		kgo.AdjustFetchOffsetsFn(func(_ context.Context, all map[string]map[int32]kgo.Offset) (map[string]map[int32]kgo.Offset, error) {
			for _, partitions := range all {
				for p := range partitions {
					partitions[p] = kgo.NewOffset().At(0)
				}
			}
			return all, nil
		}),
		kgo.OnPartitionsAssigned(func(_ context.Context, _ *kgo.Client, all map[string][]int32) { g.assigned(h, all[g.source.cfg.Topic]) }),
		kgo.OnPartitionsRevoked(func(ctx context.Context, _ *kgo.Client, all map[string][]int32) {
			g.revoked(ctx, h, all[g.source.cfg.Topic])
		}),
		kgo.OnPartitionsLost(func(_ context.Context, _ *kgo.Client, all map[string][]int32) { g.lost(h, all[g.source.cfg.Topic]) }),
		kgo.WithHooks(groupTrouble(func(err error) { g.trouble(err, refused) })),
	}
}

// groupTrouble is told why a membership has ended.
type groupTrouble func(error)

// OnGroupManageError implements kgo.HookGroupManageError.
func (t groupTrouble) OnGroupManageError(err error) { t(err) }

func (g *Group) trouble(err error, refused chan<- error) {
	final := g.refusal(err)
	if final == nil {
		g.mu.Lock()
		again := g.troubled
		g.troubled = true
		g.mu.Unlock()
		if !again {
			g.cfg.OnTrouble(err)
		}
		return
	}
	select {
	case refused <- final:
	default:
	}
}

// refusal is what will not pass by itself, or nil.
func (g *Group) refusal(err error) error {
	switch {
	case errors.Is(err, kerr.GroupAuthorizationFailed):
		return codes.New(codes.AccessDenied, "the broker denied access to the consumer group %q: %w", g.cfg.Group, err)
	case g.source.connection.Denied(err) != nil:
		return g.source.connection.Denied(err)
	case errors.Is(err, kerr.InvalidSessionTimeout):
		return codes.New(codes.ConfigInvalid, "the broker does not take a session of %s for the consumer group %q: %w", g.cfg.Session, g.cfg.Group, err)
	case errors.Is(err, kerr.InconsistentGroupProtocol):
		return codes.New(codes.ConfigInvalid, "the consumer group %q has members that are assigned partitions in another way, of another program probably; name a group of its own: %w", g.cfg.Group, err)
	case errors.Is(err, kerr.InvalidGroupID):
		return codes.New(codes.ConfigInvalid, "the broker does not take %q as the name of a consumer group: %w", g.cfg.Group, err)
	}
	return nil
}

func (g *Group) assigned(h sources.Handler, partitions []int32) {
	g.mu.Lock()
	found := g.troubled
	g.troubled = false
	g.mu.Unlock()
	if found {
		g.cfg.OnTrouble(nil)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.leaving || len(partitions) == 0 {
		return
	}
	for _, p := range partitions {
		g.mine[p] = true
		delete(g.told, p) // another member may have gone on from there
		delete(g.written, p)
	}
	h.Assigned(partitions)
}

func (g *Group) revoked(ctx context.Context, h sources.Handler, partitions []int32) {
	g.giving.Lock()
	defer g.giving.Unlock()
	if partitions = g.held(partitions); len(partitions) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), g.cfg.Rebalance*2/3)
	defer cancel()
	h.Revoked(ctx, partitions)
	within, done := context.WithTimeout(context.WithoutCancel(ctx), courtesyTimeout)
	defer done()
	g.commit(within)
	g.drop(partitions)
}

func (g *Group) lost(h sources.Handler, partitions []int32) {
	g.giving.Lock()
	defer g.giving.Unlock()
	if partitions = g.held(partitions); len(partitions) > 0 {
		h.Lost(partitions)
		g.drop(partitions)
	}
}

// held are those of partitions that are ours, in ascending order.
func (g *Group) held(partitions []int32) (out []int32) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, p := range partitions {
		if g.mine[p] {
			out = append(out, p)
		}
	}
	slices.Sort(out)
	return out
}

func (g *Group) drop(partitions []int32) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, p := range partitions {
		delete(g.mine, p)
	}
}

// leave gives up everything and tells the group. What is assigned meanwhile is not taken; a join that is under way does not hold it up.
func (g *Group) leave(client *kgo.Client, h sources.Handler) {
	g.mu.Lock()
	g.leaving = true
	var all []int32
	for p := range g.mine {
		all = append(all, p)
	}
	g.mu.Unlock()
	g.revoked(context.Background(), h, all)
	ctx, cancel := context.WithTimeout(context.Background(), leaveTimeout)
	defer cancel()
	if err := client.LeaveGroupContext(ctx); err != nil && g.source.cfg.Logger != nil {
		g.source.cfg.Logger.Warn("the consumer group was not told that we leave; its others wait for the session to run out", "group", g.cfg.Group, "cause", err.Error())
	}
}

// CommitOffsets notes where the journal stands, to be written as the offsets of the group within GroupConfig.Commit: a courtesy to tools that
// show lag. It never waits, and is what Config.CommitOffsets of an engine takes. Partitions that are not ours are left out.
func (g *Group) CommitOffsets(_ context.Context, next map[int32]record.Position) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	for p, pos := range next {
		at, ok := pos.Int64()
		if !ok {
			return codes.New(codes.Internal, "position %s of partition %d is no Kafka offset", pos, p)
		}
		if g.mine[p] {
			g.told[p] = at
		}
	}
	return nil
}

func (g *Group) keepCommitting(ctx context.Context) {
	tick := time.NewTicker(g.cfg.Commit)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			within, cancel := context.WithTimeout(ctx, commitTimeout)
			g.commit(within)
			cancel()
		}
	}
}

// commit writes what has moved. It is sent as the member and generation that we are, so that one which was put out of the group changes nothing;
// what the broker refuses, during a rebalance for example, is tried again the next time.
func (g *Group) commit(ctx context.Context) {
	g.committing.Lock()
	defer g.committing.Unlock()
	g.mu.Lock()
	client := g.client
	req := kmsg.NewPtrOffsetCommitRequest()
	topic := kmsg.NewOffsetCommitRequestTopic()
	topic.Topic, topic.TopicID = g.source.cfg.Topic, g.id
	for p, at := range g.told {
		if done, ok := g.written[p]; g.mine[p] && (!ok || done != at) {
			rp := kmsg.NewOffsetCommitRequestTopicPartition()
			rp.Partition, rp.Offset, rp.LeaderEpoch = p, at, -1
			topic.Partitions = append(topic.Partitions, rp)
		}
	}
	g.mu.Unlock()
	if len(topic.Partitions) == 0 {
		return
	}
	req.Group = g.cfg.Group
	req.MemberID, req.Generation = client.GroupMetadata()
	req.Topics = append(req.Topics, topic)
	resp, err := req.RequestWith(ctx, client)
	if err != nil {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			for _, asked := range topic.Partitions {
				if asked.Partition == p.Partition && p.ErrorCode == 0 {
					g.written[p.Partition] = asked.Offset
				}
			}
		}
	}
}
