package main

import (
	"context"
	"slices"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/flow"
	"github.com/weirstream/weir/sinks"
	"github.com/weirstream/weir/sinks/kafka"
)

// topics are the topics of a run by name: those that it publishes to, and first the one that it reads.
type topics map[string][]topicOf

// topicOf is one of them. sink is "" for the one that is read.
type topicOf struct {
	sink string
	at   sinks.Located
}

// readTopic begins with the topic that a run reads, if it reads one.
func (o *runOptions) readTopic() (topics, error) {
	out := topics{}
	if o.topic == "" {
		return out, nil
	}
	security, err := o.security()
	if err != nil {
		return nil, err
	}
	s, err := kafka.NewSink(kafka.SinkConfig{Brokers: addresses(o.brokers), Topic: o.topic, Security: security})
	out[o.topic] = []topicOf{{at: s}}
	return out, err
}

func (t topics) add(spec flow.SinkSpec, s sinks.Sink) {
	if at, can := s.(sinks.Located); can && sinkKinds[spec.Type].where == "topic" {
		topic := spec.Fields["topic"]
		t[topic] = append(t[topic], topicOf{spec.Name, at})
	}
}

// apart asks the brokers about topics of one name, whose clusters may be one under two addresses: the writers would fence each other, or a run read its own
// rows. What cannot be asked just now is left to its own errors. Errors: CONFIG_INVALID.
func (t topics) apart(ctx context.Context) error {
	for name, of := range t {
		if len(of) < 2 {
			continue
		}
		found := map[string]topicOf{}
		for _, one := range of {
			places, err := one.at.Locate(ctx)
			if err != nil {
				continue // opening it finds the same, and says so
			}
			for _, place := range places {
				other, taken := found[place]
				switch {
				case taken && other.sink == "":
					return codes.New(codes.ConfigInvalid, "the run reads the topic %q to which the sink %q would publish, by another address of the same cluster: it would read its own rows. Name another topic", name, one.sink)
				case taken:
					return codes.New(codes.ConfigInvalid, "the sinks %q and %q write to the same place: the topic %q of one cluster, by two addresses. Keep one of the two, or name another topic", other.sink, one.sink, name)
				}
				found[place] = one
			}
		}
	}
	return nil
}

// usesBrokers says whether a sink is a topic at the brokers of the run.
func usesBrokers(spec flow.SinkSpec) bool {
	return sinkKinds[spec.Type].where == "topic" && spec.Fields["brokers"] == ""
}

// checkSpare refuses --brokers that nothing is read from and nothing is published to.
func (o *runOptions) checkSpare(specs []flow.SinkSpec) error {
	if o.brokers != "" && o.topic == "" && !slices.ContainsFunc(specs, usesBrokers) {
		return usagef("give one thing to read: --log, --kinesis, or --brokers and --topic; beside the first two, --brokers is for kafka sinks that name no brokers, and there is none")
	}
	return nil
}
