// Package backpressure says whether a run may read and process, and how much may be under way.
//
// Machine turns measurements into one of four states, with a high and a low threshold for each gauge so that it does not flutter,
// and keeps why. Credits bound what is under way between a source and the partition it feeds, in records and in bytes. Skew holds
// the partitions that are too far ahead of the slowest. All three are pure: time and measurements are arguments.
package backpressure
