// Package flow turns what a user writes into a plan.
//
// A flow file says which records to take, what identifies them, when they happened and what to compute. It is YAML 1.2 without
// anchors, aliases, merge keys and tags, or JSON. [Parse] reads one strictly, compiles it against a registry of operator types and
// reports every error of the file at once, each with its place and what would be right there:
//
//	plan, err := flow.Parse("flow.yaml", src, operators.Builtin())
//
// A [Plan] is read-only and safe to share. Its nodes stand in an order in which each comes after what it reads, so that one pass
// over them is one tick. Its fingerprint names its meaning: flows that mean the same have the same one, however they are spelled,
// and a flow that would give other values, or whose saved states another plan could not take up, has another one. [Plan.Document] is the flow
// in its one normal form, which Parse reads back; [Plan.Text] and [Plan.Describe] show it to people and programs, with the memory
// bound of [Plan.MemoryBound]. [Schema] is the language as JSON Schema, for editors.
//
// How a file becomes a plan:
//
//	source.go   bytes → text that is fit to read → YAML, or json.go for JSON
//	tree.go     → nodes: mappings, lists and scalars with their places, and nothing that the language does not have
//	parse.go    → the fields of the flow; graph.go and outputs.go the operators, in their normal order
//	uses.go     → fields that are read in two ways
//	meaning.go  → the normal form and the fingerprint
//
// The package is pure: it reads no file and no clock.
package flow
