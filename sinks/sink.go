package sinks

import (
	"context"
	"strings"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/flow"
	"github.com/weirstream/weir/flow/operators"
	"github.com/weirstream/weir/partitions"
)

// Sink is a place outside where the rows of a run become visible.
//
// The rows of a partition are one sequence, whatever the epochs, fetches and restarts: row 0, row 1 and so on, numbered by
// partitions.Counts.Outputs, always with the same bits. So what stands in a target is one number for each partition, the row up to which it is
// complete, and a sink that is given rows again leaves out those below it. Nothing else has to be agreed upon between two owners of a run.
//
// A Sink is the description of a target; it may be used by several goroutines, and opened any number of times.
type Sink interface {
	// Features are what this sink promises. They do not change.
	Features() Features
	// Open checks that the target can take the rows, takes it over for an owner, ends what a former owner left open, and reads back what stands.
	// Errors carry a code: SINK_INVALID or another of configuration when the target does not fit, SINK_DENIED, STALE_FENCE when the target has
	// seen a higher token, SINK_UNAVAILABLE or another to be retried when it cannot be reached.
	Open(ctx context.Context, target Target) (Writer, error)
}

// Prober is a Sink whose target can be looked at beforehand.
type Prober interface {
	// Probe checks what Open would check, and changes nothing: it takes nothing over, and a run that publishes to the target does not notice. Errors
	// are those of Open.
	Probe(ctx context.Context, target Target) error
}

// Located is a Sink that can say what it writes into, so that two of them are found that write into each other though they are named differently.
type Located interface {
	// Locate names everything that the sink writes into, in a form that is the same for the same thing, and looks at the target for that where it has to. Errors
	// are those of Open.
	Locate(ctx context.Context) ([]string, error)
}

// Writer publishes the rows of one run for one owner. It is used by one goroutine.
type Writer interface {
	// Published gives for each partition the number of rows that were visible, as Open found it and Publish went on. A partition that is absent is one
	// of which the target cannot tell, or has never heard: its first rows may be any. The map belongs to the caller.
	Published() map[int32]int64
	// Publish makes rows visible and returns when they are, or become so whatever happens to us, and are durable as far as the target goes. Rows below
	// Published are left out.
	// Rows and their memory belong to the caller again when it returns. Errors carry a code, whose verdict says what to do:
	//
	//   - Fatal: refused, and would be again; STALE_FENCE when another owner has come.
	//   - Retry: down, or the answer was lost. It is unknown what stands.
	//
	// After any error the writer is good for nothing but Close: who wants to go on opens another, which reads back what stands. A context that ended
	// comes back as its own error, and leaves as much unknown.
	Publish(ctx context.Context, batches []Rows) error
	// Close gives connections back. It publishes nothing.
	Close() error
}

// Joiner is the Writer of a sink that is AtomicWithJournal.
type Joiner interface {
	Writer
	// Join hands rows over that become visible with the journal's next commit of the run, in its transaction: as whole as that, and not at all if it fails.
	// Rows below Published are left out. Memory stays with the writer until that commit has returned; who comes back with more says by that that it
	// stands. After a commit that failed, or whose answer was lost, the writer is good for nothing but Close. Errors are those of Publish, which makes
	// rows visible by itself, as always: those that the journal holds already.
	Join(ctx context.Context, batches []Rows) error
}

// Features are what a sink promises about rows that are published again: after a kill, a lost answer, or by an owner that was taken over.
// The suite sinktest checks each one that is declared.
type Features struct {
	// AtomicWithJournal: rows become visible in the transaction of the journal, so that no epoch is ever seen in one of them and not in the other. The
	// writers are Joiners.
	AtomicWithJournal bool
	// Once: a reader of the target sees no row twice.
	Once bool
	// ReadBack: Published knows every partition that was opened and has rows.
	ReadBack bool
	// FencedByTarget: once an owner with a higher token has opened the target, one with a lower token changes nothing and gets STALE_FENCE.
	// Without it and with Once, what a stale owner still writes is a row that the present owner then leaves out.
	FencedByTarget bool
	// IdempotentByKey: each row carries its run, partition and number, so that a reader can tell copies.
	IdempotentByKey bool
	// AppendOnly: what is visible never changes, and the rows of a partition are found in the order of their numbers (copies aside). Of a target that
	// replaces rows by their revisions (Target.Revised), PostgreSQL's, it does not hold.
	AppendOnly bool
}

// Target says for whom a sink is opened.
type Target struct {
	// RunID names the run: 1 to 200 bytes of UTF-8 without control characters.
	RunID string
	// Outputs are the names of the columns, in the order of the values of a row.
	Outputs []string
	// Partitions that will be published.
	Partitions []int32
	// Committed is how many rows of each partition the journal holds; nil where there is none. A target that has never heard of a partition, or has
	// forgotten it, takes that for what stands.
	Committed map[int32]int64
	// Token is the fence token of the owner, 0 where there are no leases.
	Token uint64
	// Entries: what is published are Entries, not rows. There are no Outputs.
	Entries bool
	// Sequence names what is published, see SequenceOf: a target keeps it beside what stands of the run, and refuses another one with SINK_INVALID, since numbers
	// of two sequences say nothing about each other. "" is not compared; a target that has kept none takes the first.
	Sequence string
	// Revised: the last of Outputs is the number of a row's revision. Of the rows of a run with the same key and time, the one with the highest counts.
	Revised bool
}

// originMark stands between what a sequence is computed by and what it is computed from.
const originMark = " of "

// SequenceOf names the sequence of the rows of a plan over an input, or of its late entries: plans and inputs that may give other rows have other names.
// origin names the input, "" where it has no name.
func SequenceOf(p *flow.Plan, entries bool, origin string) string {
	name := "rows " + p.Fingerprint
	if entries {
		name = "late " + p.Fingerprint
	}
	if origin != "" {
		name += originMark + origin
	}
	return name
}

// FormerSequence is the name that a sequence had in releases that did not name the input; a target that has kept that one goes on.
func FormerSequence(sequence string) string {
	former, _, _ := strings.Cut(sequence, originMark)
	return former
}

// SameSequence says whether a target that has kept one sequence, or "", takes another, or "".
func SameSequence(kept, ours string) bool {
	return kept == "" || ours == "" || kept == ours || kept == FormerSequence(ours)
}

// OutputsOf are the names of a plan's outputs, for a Target.
func OutputsOf(p *flow.Plan) []string {
	names := make([]string, len(p.Outputs))
	for i, o := range p.Outputs {
		names[i] = o.Name
	}
	return names
}

// Rows are rows of one partition that follow each other. From is the number of the first.
type Rows struct {
	Partition int32
	From      int64
	partitions.Rows
}

// End is the number after the last row.
func (r Rows) End() int64 { return r.From + int64(r.Count) }

// After leaves out the rows below published, of which there may be none or all. width is the number of outputs. Rows that begin beyond published
// would leave a hole, which is INTERNAL, and so are damaged ones.
func (r Rows) After(published int64, width int) (Rows, error) {
	switch {
	case r.From > published:
		return r, codes.New(codes.Internal, "rows of partition %d from %d on would be published after row %d: those between are missing", r.Partition, r.From, published)
	case r.End() <= published:
		return Rows{Partition: r.Partition, From: r.End()}, nil
	}
	var row partitions.Row
	for r.From < published {
		rest, err := partitions.DecodeRow(r.Data, width, &row)
		if err != nil {
			return r, r.damaged(err)
		}
		r.Data, r.From, r.Count = rest, r.From+1, r.Count-1
	}
	return r, nil
}

// Each calls fn with the number of each row and the row, which is valid during the call. Values is memory that is used again, or nil.
func (r Rows) Each(width int, values []operators.Value, fn func(number int64, row *partitions.Row) error) error {
	row := partitions.Row{Values: values}
	data, number := r.Data, r.From
	for ; number < r.End(); number++ {
		var err error
		if data, err = partitions.DecodeRow(data, width, &row); err != nil {
			return r.damaged(err)
		}
		if err := fn(number, &row); err != nil {
			return err
		}
	}
	if len(data) != 0 {
		return r.damaged(partitions.ErrRows)
	}
	return nil
}

func (r Rows) damaged(err error) error {
	return codes.New(codes.Internal, "rows %d to %d of partition %d cannot be published: %w", r.From, r.End(), r.Partition, err)
}

// Overtaken is the STALE_FENCE of a target that has seen an owner with a higher token than to has. Tokens are counted by each store by itself, so a store that
// lost what it had looks like a former owner.
func Overtaken(target string, to Target, partition int32) error {
	return codes.New(codes.StaleFence, "%s: partition %d of run %q was taken over by an owner with a higher token than %d: a newer owner of this run, "+
		"or one whose leases stand in another store than this process's. Look whether it still runs, and with which --store; if the store was made anew or restored from a copy, "+
		"bring back the one that knows the run, or give the run another --run-id or the sink another place", target, partition, to.RunID, to.Token)
}
