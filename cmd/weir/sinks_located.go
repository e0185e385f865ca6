package main

import (
	"context"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/sinks"
)

// located is what sinks write into, by name of the sink.
type located map[string]string

// add refuses a sink that writes into what another one writes into, under another name of it. What cannot be asked just now is left to its own errors. Errors:
// CONFIG_INVALID.
func (l located) add(ctx context.Context, name string, s sinks.Sink) error {
	at, can := s.(sinks.Located)
	if !can {
		return nil
	}
	places, err := at.Locate(ctx)
	if err != nil {
		return nil // opening it finds the same, and says so
	}
	for _, place := range places {
		if other, taken := l[place]; taken {
			return codes.New(codes.ConfigInvalid, "the sinks %q and %q write into the same table, or one into a table that the other keeps beside its own, under two names: keep one of the two, or name another table", other, name)
		}
	}
	for _, place := range places {
		l[place] = name
	}
	return nil
}

// locateSinks compares the sinks of a run, if there is more than one that can be asked.
func (o *sinkFlags) locateSinks(ctx context.Context) error {
	var ask []sinks.Named
	if o.publisher != nil {
		for _, s := range o.publisher.Sinks {
			if _, can := s.Sink.(sinks.Located); can {
				ask = append(ask, s)
			}
		}
	}
	if len(ask) < 2 {
		return nil
	}
	found := located{}
	for _, s := range ask {
		if err := found.add(ctx, s.Name, s.Sink); err != nil {
			return err
		}
	}
	return nil
}
