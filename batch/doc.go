// Package batch drives a flow over bounded input: a snapshot (mode batch) or an arrival log (mode replay). It is the same machine as
// the stream's, one for each partition, in one loop, without actors, journal or broker.
package batch
