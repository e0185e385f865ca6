// Package checkpointtest is the conformance suite of blob stores: every store passes all of it, the same way.
package checkpointtest
