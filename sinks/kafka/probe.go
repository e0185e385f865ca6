package kafka

import (
	"cmp"
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/sinks"
)

var (
	_ sinks.Prober  = (*Sink)(nil)
	_ sinks.Located = (*Sink)(nil)
)

// Locate implements sinks.Located: the cluster and the topic, as the brokers say, by whatever address they are asked. A cluster that tells no id is known by
// that of its topic alone, or by the addresses.
func (s *Sink) Locate(ctx context.Context) ([]string, error) {
	session, err := s.client()
	if err != nil {
		return nil, err
	}
	defer session.Close()
	topic, err := session.Find(ctx)
	if err != nil {
		return nil, err
	}
	cluster, id := topic.Cluster, topic.ID.String()
	if id == "" {
		cluster, id = cmp.Or(cluster, s.connection.Addresses()), s.cfg.Topic
	}
	return []string{"kafka " + cluster + " " + id}, nil
}

// mayWrite is the operation Write among those that a broker says are allowed.
const mayWrite = 1 << 4

// Probe implements sinks.Prober: the brokers, the topic, and the right to write to it. Rights on transactional ids and groups show when it is opened.
func (s *Sink) Probe(ctx context.Context, _ sinks.Target) error {
	session, err := s.client()
	if err != nil {
		return err
	}
	defer session.Close()
	topic, err := session.Find(ctx)
	if err != nil {
		return err
	}
	if len(topic.Partitions) == 0 {
		return codes.New(codes.BrokerRefused, "topic %q has no partitions", s.cfg.Topic)
	}
	req := kmsg.NewPtrMetadataRequest()
	req.IncludeTopicAuthorizedOperations = true
	rt := kmsg.NewMetadataRequestTopic()
	rt.Topic = kmsg.StringPtr(s.cfg.Topic)
	req.Topics = append(req.Topics, rt)
	resp, err := req.RequestWith(ctx, session.Client)
	if err != nil {
		return session.Unreachable(ctx, err)
	}
	for _, t := range resp.Topics {
		// A broker that does not tell gives a negative number, or 0.
		if ops := t.AuthorizedOperations; ops > 0 && ops&mayWrite == 0 {
			return codes.New(codes.AccessDenied, "topic %q: this user may see it and not write to it: grant Write", s.cfg.Topic)
		}
	}
	return nil
}
