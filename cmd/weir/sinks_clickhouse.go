package main

import (
	"context"

	"github.com/weirstream/weir/sinks"
	"github.com/weirstream/weir/sinks/clickhouse"
)

const sinkClickHouse = "clickhouse"

func openView(_ context.Context, f map[string]string, _ *brokerFlags) (sinks.Sink, error) {
	url, err := dereference(f["database"])
	if err != nil {
		return nil, err
	}
	return clickhouse.New(clickhouse.Config{URL: url, Table: f["table"], Create: f["create"] == "true"})
}
