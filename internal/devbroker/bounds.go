package devbroker

import (
	"fmt"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/weirstream/weir/codes"
)

// MaxPartitions bounds the partitions of a topic: the broker takes memory for each at once, so that a request for a great many would end it.
const MaxPartitions = 10_000

// maxTopicName is the longest topic name, in bytes.
const maxTopicName = 249

// check finds what kfake would take and no Kafka would.
func (c Config) check() error {
	if c.Partitions > MaxPartitions {
		return codes.New(codes.ConfigInvalid, "a topic of the embedded broker has at most %d partitions, not %d", MaxPartitions, c.Partitions)
	}
	for _, topic := range c.Topics {
		if bad := badTopicName(topic); bad != "" {
			return codes.New(codes.ConfigInvalid, "the topic %.300q cannot be created: %s; a name is 1 to %d of the characters a-z A-Z 0-9 . _ -, and neither \".\" nor \"..\"",
				topic, bad, maxTopicName)
		}
	}
	return nil
}

// badTopicName says what Kafka forbids in a topic name, or "".
func badTopicName(name string) string {
	switch {
	case name == "":
		return "the name is empty"
	case name == ".", name == "..":
		return "the name is the one of a folder"
	case len(name) > maxTopicName:
		return fmt.Sprintf("the name has %d bytes", len(name))
	}
	for _, c := range name {
		if !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.ContainsRune("._-", c)) {
			return fmt.Sprintf("the name has the character %q", c)
		}
	}
	return ""
}

// bound makes the broker refuse requests for more than MaxPartitions, and for names that Kafka forbids. A request that asks for such a topic is refused whole.
func bound(c *kfake.Cluster) {
	c.ControlKey(int16(kmsg.CreateTopics), func(req kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		resp := refuseTopics(req.(*kmsg.CreateTopicsRequest))
		if resp == nil {
			return nil, nil, false
		}
		return resp, nil, true
	})
	c.ControlKey(int16(kmsg.CreatePartitions), func(req kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		resp := refusePartitions(req.(*kmsg.CreatePartitionsRequest))
		if resp == nil {
			return nil, nil, false
		}
		return resp, nil, true
	})
}

// refuseTopics answers a request that goes too far. Nil: it does not.
func refuseTopics(req *kmsg.CreateTopicsRequest) *kmsg.CreateTopicsResponse {
	resp, refused := req.ResponseKind().(*kmsg.CreateTopicsResponse), false
	for _, topic := range req.Topics {
		over := topic.NumPartitions > MaxPartitions || len(topic.ReplicaAssignment) > MaxPartitions
		bad := badTopicName(topic.Topic)
		refused = refused || over || bad != ""
		t := kmsg.NewCreateTopicsResponseTopic()
		t.Topic = topic.Topic
		if t.ErrorCode, t.ErrorMessage = refusal(over); bad != "" {
			t.ErrorCode, t.ErrorMessage = kerr.InvalidTopicException.Code, kmsg.StringPtr(bad)
		}
		resp.Topics = append(resp.Topics, t)
	}
	if !refused {
		return nil
	}
	return resp
}

// refusePartitions answers a request that goes too far. Nil: it does not.
func refusePartitions(req *kmsg.CreatePartitionsRequest) *kmsg.CreatePartitionsResponse {
	resp, refused := req.ResponseKind().(*kmsg.CreatePartitionsResponse), false
	for _, topic := range req.Topics {
		over := topic.Count > MaxPartitions
		refused = refused || over
		t := kmsg.NewCreatePartitionsResponseTopic()
		t.Topic = topic.Topic
		t.ErrorCode, t.ErrorMessage = refusal(over)
		resp.Topics = append(resp.Topics, t)
	}
	if !refused {
		return nil
	}
	return resp
}

// refusal is the answer for a topic of a request that is refused: over says whether it is for this topic.
func refusal(over bool) (int16, *string) {
	if over {
		return kerr.InvalidPartitions.Code, kmsg.StringPtr(fmt.Sprintf("a topic of the embedded broker has at most %d partitions", MaxPartitions))
	}
	return kerr.InvalidRequest.Code, kmsg.StringPtr("another topic of the same request was refused")
}
