// Package flow turns what a user writes into a plan: spec, lint, schema, fingerprint.
package flow
