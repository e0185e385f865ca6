// Package record holds weir's vocabulary: records, event time, positions, canonical JSON and hashes. Values only.
package record
