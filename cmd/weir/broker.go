package main

import (
	"github.com/spf13/cobra"

	"github.com/weirstream/weir/internal/devbroker"
)

// maxPartitions is more than a topic on one development machine can use.
const maxPartitions = 10_000

func (a *app) brokerCommand() *cobra.Command {
	var cfg devbroker.Config
	var partitions int32
	cmd := &cobra.Command{
		Use:     "broker",
		Short:   "Run a Kafka-compatible broker on loopback, for development only",
		Long:    "Runs an embedded Kafka-compatible broker on 127.0.0.1 until it is stopped: one process, no replication, no access control.\nWith --data its topics survive a restart. It is for development, demos and tests, never for production.",
		Example: "  weir broker --port 9092 --data broker-data --topic ticks --partitions 4",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if partitions < 1 || partitions > maxPartitions {
				return usagef("--partitions must be between 1 and %d, not %d", maxPartitions, partitions)
			}
			if cfg.Port < 0 || cfg.Port > 65535 {
				return usagef("--port must be between 0 and 65535, not %d", cfg.Port)
			}
			cfg.Partitions, cfg.Logger = partitions, a.log
			b, err := devbroker.Start(cfg)
			if err != nil {
				return err
			}
			defer b.Close()
			if a.json {
				if err := a.document(map[string]any{"listening": b.Addr()}); err != nil {
					return err
				}
			} else {
				a.printf("listening on %s; Ctrl-C stops it\n", b.Addr())
			}
			// Being stopped is how a broker ends: that is success.
			<-cmd.Context().Done()
			return nil
		},
	}
	f := cmd.Flags()
	f.IntVar(&cfg.Port, "port", 9092, "port on 127.0.0.1; 0 takes a free one")
	f.StringVar(&cfg.DataDir, "data", "", "folder that keeps topics and records; without it they live in memory")
	f.StringArrayVar(&cfg.Topics, "topic", nil, "topic that must exist; may be repeated")
	f.Int32Var(&partitions, "partitions", 4, "partitions of the topics that are created")
	f.BoolVar(&cfg.SyncWrites, "sync", false, "wait for the disk at every write")
	return cmd
}
