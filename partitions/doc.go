// Package partitions is the pure machine of one partition: decode, select, dedupe, order by event time, operators, outputs.
package partitions
