// Package group spreads a run over several processes: each partition is a run of its own (RunID), with its own lease, journal row and
// engine, in whichever process an Assigner gives it to.
package group
