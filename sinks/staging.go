package sinks

import (
	"context"

	"github.com/weirstream/weir/partitions"
)

// Staging is a place outside where the rows of whole results become visible: each is written before it is published, hidden, and shown after that.
//
// A result is named by its run and by the hash of its artefact, and its rows are numbered from 0. Nothing of a result is seen before Show, and all of it after. Everything can
// be done again: what was written under the same name is the same. A Staging may be used by several goroutines.
//
// Errors carry a code: SINK_UNAVAILABLE or another to be retried when the target cannot be reached or the answer was lost, others are refusals.
type Staging interface {
	// Check looks whether the target can take results, before there are any.
	Check(ctx context.Context) error
	// Stage writes a result, hidden; it is durable as far as the target goes when this returns. rows calls what it is given with each row, in order; it may be called again.
	Stage(ctx context.Context, r Staged, rows func(fn func(row *partitions.Row) error) error) error
	// Show makes a result visible that was staged. One that is visible stays so.
	Show(ctx context.Context, name StagedName) error
	// Hidden calls fn with every result that was staged, whole or in part, and not shown.
	Hidden(ctx context.Context, fn func(StagedName) error) error
	// Drop removes a result that is not shown, and every trace of it. One that is visible, or that is not there, is left as it is.
	Drop(ctx context.Context, name StagedName) error
}

// StagedName names a result.
type StagedName struct {
	// RunID of the run that made it. Artifact is the hash of its document, as a blob store names it.
	RunID, Artifact string
}

// Staged describes a result.
type Staged struct {
	StagedName
	// Outputs are the names of the values of a row, in their order.
	Outputs []string
	// Rows is how many there are.
	Rows int64
}
