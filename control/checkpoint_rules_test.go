package control_test

import (
	"math"
	"strings"
	"testing"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/control"
	"github.com/weirstream/weir/partitions"
	"github.com/weirstream/weir/record"
)

func TestCheckFence(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		stored, token control.FenceToken
		want          *codes.Code
	}{
		{0, 0, nil}, {0, 1, nil}, {3, 3, nil}, {3, 4, nil},
		{1, 0, codes.StaleFence}, {3, 2, codes.FenceRegression}, {math.MaxUint64, 1, codes.FenceRegression},
	} {
		err := control.CheckFence("run", c.stored, c.token)
		if codes.Of(err) != c.want || err != nil && !control.Refused(err) {
			t.Errorf("stored %d, token %d: %v", c.stored, c.token, err)
		}
	}
}

func TestCheckUnder(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		runID, lease string
		want         *codes.Code
	}{
		{"run", "stream/run", nil},
		{"run", "run/run", codes.Internal}, {"run", "run", codes.Internal}, {"run", "stream/run2", codes.Internal}, {"run", "", codes.Internal},
		{"", "stream/", codes.RunIDInvalid}, {"a\x00", "stream/a\x00", codes.RunIDInvalid}, {strings.Repeat("x", 201), "stream/" + strings.Repeat("x", 201), codes.RunIDInvalid},
	} {
		if err := control.CheckUnder(c.runID, control.Lease{Name: c.lease}); codes.Of(err) != c.want {
			t.Errorf("run %q under %q: %v", c.runID, c.lease, err)
		}
	}
}

// The longest run id has a lease.
func TestStreamLeaseOfTheLongestRunID(t *testing.T) {
	t.Parallel()
	if n := len(control.StreamLease(strings.Repeat("x", control.MaxRunID))); n > control.MaxName {
		t.Errorf("its name has %d bytes, at most %d are possible", n, control.MaxName)
	}
}

func TestCheckPointerFence(t *testing.T) {
	t.Parallel()
	own, other := control.Lease{Name: control.StreamLease("run"), Token: 2}, control.Lease{Name: "checkpoints", Token: 1}
	if err := control.CheckPointerFence("run", 3, own); !codes.Has(err, codes.FenceRegression) {
		t.Errorf("the run's own lease with a lower token: %v", err)
	}
	if err := control.CheckPointerFence("run", 2, own); err != nil {
		t.Errorf("the run's own lease: %v", err)
	}
	if err := control.CheckPointerFence("run", 3, other); err != nil {
		t.Errorf("another lease, whose token says nothing: %v", err)
	}
}

func TestCheckKeep(t *testing.T) {
	t.Parallel()
	p := control.Pointer{RunID: "run", Epoch: 5, Manifest: "m"}
	other := p
	other.Manifest = "n"
	for what, c := range map[string]struct {
		epoch  uint64
		stands control.Pointer
		done   bool
		want   *codes.Code
	}{
		"new":                      {5, control.Pointer{}, false, nil},
		"new, later":               {9, control.Pointer{}, false, nil},
		"not there yet":            {4, control.Pointer{}, false, codes.JournalConflict},
		"the same":                 {5, p, true, nil},
		"another manifest":         {5, other, false, codes.PublicationConflict},
		"a journal that went back": {4, p, false, codes.JournalConflict},
	} {
		done, err := control.CheckKeep(c.epoch, c.stands, p)
		if done != c.done || codes.Of(err) != c.want || err != nil && !control.Refused(err) {
			t.Errorf("%s: %t, %v", what, done, err)
		}
	}
}

// forkable is a run at epoch 9 and a fork of it at epoch 5.
func forkable() (control.RunState, control.Fork) {
	h := control.RunHeader{RunID: "old", Fingerprint: "f", Source: "ticks", SourceID: "id", Group: "g", Partitions: []int32{0, 1}}
	cut := func(n int32, next int64, w record.EventTime) partitions.Cut {
		return partitions.Cut{Partition: n, Next: record.Offset(next), Watermark: w, Counts: partitions.Counts{Records: next}}
	}
	from := control.RunState{Header: h, Status: control.RunOpen, Epoch: 9, Watermark: 90, Cuts: map[int32]partitions.Cut{0: cut(0, 90, 90), 1: cut(1, 91, 91)}}
	h.RunID = "new"
	return from, control.Fork{From: "old", Epoch: 5, Header: h, Watermark: 50, Cuts: map[int32]partitions.Cut{0: cut(0, 50, 50), 1: cut(1, 51, 51)},
		Load: func(int32, func(partitions.StateBlob) error) error { return nil }}
}

func TestCheckFork(t *testing.T) {
	t.Parallel()
	cut := func(f *control.Fork, change func(c *partitions.Cut)) {
		c := f.Cuts[1]
		change(&c)
		f.Cuts[1] = c
	}
	for what, c := range map[string]struct {
		change func(from *control.RunState, f *control.Fork)
		want   *codes.Code
	}{
		"as it is": {func(*control.RunState, *control.Fork) {}, nil},
		"of the present": {func(from *control.RunState, f *control.Fork) {
			f.Epoch, f.Watermark, f.Cuts = from.Epoch, from.Watermark, from.Cuts
		}, nil},
		"of an ended run":           {func(from *control.RunState, _ *control.Fork) { from.Status = control.RunFinished }, nil},
		"another group":             {func(_ *control.RunState, f *control.Fork) { f.Header.Group = "h" }, nil},
		"more partitions":           {func(_ *control.RunState, f *control.Fork) { f.Header.Partitions = []int32{2, 1, 0} }, nil},
		"an identity that is new":   {func(from *control.RunState, _ *control.Fork) { from.Header.SourceID = "" }, nil},
		"a partition without a cut": {func(from *control.RunState, f *control.Fork) { delete(from.Cuts, 1); delete(f.Cuts, 1) }, nil},
		"the run itself":            {func(_ *control.RunState, f *control.Fork) { f.Header.RunID = "old" }, codes.RunMismatch},
		"another flow":              {func(_ *control.RunState, f *control.Fork) { f.Header.Fingerprint = "x" }, codes.RunMismatch},
		"another topic":             {func(_ *control.RunState, f *control.Fork) { f.Header.Source = "x" }, codes.RunMismatch},
		"no identity":               {func(_ *control.RunState, f *control.Fork) { f.Header.SourceID = "" }, codes.RunMismatch},
		"another identity":          {func(_ *control.RunState, f *control.Fork) { f.Header.SourceID = "x" }, codes.TopicRecreated},
		"fewer partitions":          {func(_ *control.RunState, f *control.Fork) { f.Header.Partitions = []int32{0} }, codes.RunMismatch},
		"an epoch to come":          {func(from *control.RunState, _ *control.Fork) { from.Epoch = 4 }, codes.JournalConflict},
		"a watermark to come":       {func(_ *control.RunState, f *control.Fork) { f.Watermark = 91 }, codes.Internal},
		"a position to come": {func(_ *control.RunState, f *control.Fork) {
			cut(f, func(c *partitions.Cut) { c.Next = record.Offset(92) })
		}, codes.Internal},
		"a cut's watermark to come":   {func(_ *control.RunState, f *control.Fork) { cut(f, func(c *partitions.Cut) { c.Watermark = 92 }) }, codes.Internal},
		"a cut that the run has none": {func(from *control.RunState, _ *control.Fork) { delete(from.Cuts, 1) }, codes.Internal},
	} {
		from, f := forkable()
		c.change(&from, &f)
		if err := control.CheckFork(from, f); codes.Of(err) != c.want || err != nil && !control.Refused(err) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func TestCheckForked(t *testing.T) {
	t.Parallel()
	for what, c := range map[string]struct {
		change func(stands *control.RunState, from *string, at *uint64)
		fine   bool
	}{
		"this very fork":    {func(*control.RunState, *string, *uint64) {}, true},
		"opened since":      {func(s *control.RunState, _ *string, _ *uint64) { s.Header.Group = "x"; s.Fence = 7 }, true},
		"grown since":       {func(s *control.RunState, _ *string, _ *uint64) { s.Header.Partitions = []int32{0, 1, 2} }, true},
		"no fork":           {func(_ *control.RunState, from *string, at *uint64) { *from, *at = "", 0 }, false},
		"of another run":    {func(_ *control.RunState, from *string, _ *uint64) { *from = "other" }, false},
		"of another epoch":  {func(_ *control.RunState, _ *string, at *uint64) { *at = 4 }, false},
		"a commit since":    {func(s *control.RunState, _ *string, _ *uint64) { s.Epoch = 6 }, false},
		"ended":             {func(s *control.RunState, _ *string, _ *uint64) { s.Status = control.RunFinished }, false},
		"another watermark": {func(s *control.RunState, _ *string, _ *uint64) { s.Watermark = 49 }, false},
		"another flow":      {func(s *control.RunState, _ *string, _ *uint64) { s.Header.Fingerprint = "x" }, false},
		"another identity":  {func(s *control.RunState, _ *string, _ *uint64) { s.Header.SourceID = "x" }, false},
		"a cut less":        {func(s *control.RunState, _ *string, _ *uint64) { delete(s.Cuts, 1) }, false},
		"another position": {func(s *control.RunState, _ *string, _ *uint64) {
			c := s.Cuts[1]
			c.Next = record.Offset(3)
			s.Cuts[1] = c
		}, false},
		"other counts":           {func(s *control.RunState, _ *string, _ *uint64) { c := s.Cuts[1]; c.Counts.Late++; s.Cuts[1] = c }, false},
		"finished there, or not": {func(s *control.RunState, _ *string, _ *uint64) { c := s.Cuts[1]; c.Finished = true; s.Cuts[1] = c }, false},
	} {
		_, f := forkable()
		stands := control.RunState{Header: f.Header, Status: control.RunOpen, Epoch: 5, Watermark: f.Watermark, Cuts: map[int32]partitions.Cut{0: f.Cuts[0], 1: f.Cuts[1]}}
		from, at := "old", uint64(5)
		c.change(&stands, &from, &at)
		err := control.CheckForked(stands, from, at, f)
		if c.fine != (err == nil) || err != nil && (!codes.Has(err, codes.RunMismatch) || !control.Refused(err)) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// What a fork's state is loaded for, in order.
func TestParts(t *testing.T) {
	t.Parallel()
	f := control.Fork{Cuts: map[int32]partitions.Cut{9: {}, 0: {}, 4: {}}}
	if got := f.Parts(); len(got) != 3 || got[0] != 0 || got[1] != 4 || got[2] != 9 {
		t.Errorf("got %d", got)
	}
}
