package control_test

import (
	"context"
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/control"
	"github.com/weirstream/weir/partitions"
	"github.com/weirstream/weir/record"
)

func header(change func(*control.RunHeader)) control.RunHeader {
	h := control.RunHeader{RunID: "run-1", Fingerprint: "sha256:aa", Source: "ticks", SourceID: "id-1", Group: "g", Partitions: []int32{0, 1, 2}}
	if change != nil {
		change(&h)
	}
	return h
}

func TestHeaderValidate(t *testing.T) {
	t.Parallel()
	cases := []struct {
		name   string
		change func(*control.RunHeader)
		code   *codes.Code
	}{
		{"good", nil, nil},
		{"no source id", func(h *control.RunHeader) { h.SourceID = "" }, nil},
		{"longest id", func(h *control.RunHeader) { h.RunID = strings.Repeat("ü", control.MaxRunID/2) }, nil},
		{"empty id", func(h *control.RunHeader) { h.RunID = "" }, codes.RunIDInvalid},
		{"long id", func(h *control.RunHeader) { h.RunID = strings.Repeat("a", control.MaxRunID+1) }, codes.RunIDInvalid},
		{"NUL in id", func(h *control.RunHeader) { h.RunID = "a\x00b" }, codes.RunIDInvalid},
		{"escape in id", func(h *control.RunHeader) { h.RunID = "\x1b[2J" }, codes.RunIDInvalid},
		{"id not UTF-8", func(h *control.RunHeader) { h.RunID = "a\xff" }, codes.RunIDInvalid},
		{"no fingerprint", func(h *control.RunHeader) { h.Fingerprint = "" }, codes.Internal},
		{"no source", func(h *control.RunHeader) { h.Source = "" }, codes.Internal},
		{"no partitions", func(h *control.RunHeader) { h.Partitions = nil }, codes.Internal},
		{"negative", func(h *control.RunHeader) { h.Partitions = []int32{0, -1} }, codes.Internal},
		{"twice", func(h *control.RunHeader) { h.Partitions = []int32{2, 0, 2} }, codes.Internal},
	}
	for _, c := range cases {
		err := header(c.change).Validate()
		if codes.Of(err) != c.code || (err == nil) != (c.code == nil) {
			t.Errorf("%s: %v, want %v", c.name, err, c.code)
		}
		if err != nil && (strings.ContainsAny(err.Error(), "\x00\x1b") || strings.Contains(err.Error(), "\xff")) {
			t.Errorf("%s: the message carries raw control bytes: %q", c.name, err)
		}
	}
}

// Every way in which a header can differ, and what is said about it.
func TestCheckHeader(t *testing.T) {
	t.Parallel()
	cases := []struct {
		name    string
		change  func(*control.RunHeader)
		code    *codes.Code
		message []string
	}{
		{"the same", nil, nil, nil},
		{"another order", func(h *control.RunHeader) { h.Partitions = []int32{2, 0, 1} }, nil, nil},
		{"another group", func(h *control.RunHeader) { h.Group = "other" }, nil, nil},
		{"grown", func(h *control.RunHeader) { h.Partitions = []int32{0, 1, 2, 3, 4} }, nil, nil},
		{"another id", func(h *control.RunHeader) { h.RunID = "run-2" }, codes.RunMismatch, []string{`run id was "run-1" and is now "run-2"`}},
		{"another flow", func(h *control.RunHeader) { h.Fingerprint = "sha256:bb" }, codes.RunMismatch, []string{`fingerprint was "sha256:aa" and is now "sha256:bb"`}},
		{"another topic", func(h *control.RunHeader) { h.Source = "trades" }, codes.RunMismatch, []string{`topic was "ticks" and is now "trades"`}},
		{"another topic with another identity", func(h *control.RunHeader) { h.Source, h.SourceID = "trades", "id-2" }, codes.RunMismatch, []string{`"trades"`}},
		{"identity lost", func(h *control.RunHeader) { h.SourceID = "" }, codes.RunMismatch, []string{`"id-1"`, "no longer tells one"}},
		{"recreated", func(h *control.RunHeader) { h.SourceID = "id-2" }, codes.TopicRecreated, []string{`"id-1"`, `"id-2"`, `"ticks"`}},
		{"recreated smaller", func(h *control.RunHeader) { h.SourceID, h.Partitions = "id-2", []int32{0} }, codes.TopicRecreated, []string{`"id-2"`}},
		{"one gone", func(h *control.RunHeader) { h.Partitions = []int32{0, 2} }, codes.RunMismatch, []string{"3 partitions and 1 is now missing"}},
		{"two gone", func(h *control.RunHeader) { h.Partitions = []int32{1} }, codes.RunMismatch, []string{"0, 2 are now missing"}},
		{"moved", func(h *control.RunHeader) { h.Partitions = []int32{1, 2, 3} }, codes.RunMismatch, []string{"0 is now missing"}},
		{"everything", func(h *control.RunHeader) {
			h.Fingerprint, h.Source, h.Partitions = "sha256:bb", "trades", []int32{0}
		}, codes.RunMismatch, []string{"fingerprint", "topic", "1, 2 are now missing"}},
	}
	for _, c := range cases {
		err := control.CheckHeader(header(nil), header(c.change))
		if codes.Of(err) != c.code || (err == nil) != (c.code == nil) {
			t.Errorf("%s: %v, want %v", c.name, err, c.code)
			continue
		}
		for _, m := range c.message {
			if !strings.Contains(err.Error(), m) {
				t.Errorf("%s: %q does not say %q", c.name, err, m)
			}
		}
	}
}

func TestCheckHeaderListsFewPartitions(t *testing.T) {
	t.Parallel()
	stored := header(func(h *control.RunHeader) {
		h.Partitions = nil
		for p := range int32(1000) {
			h.Partitions = append(h.Partitions, p)
		}
	})
	err := control.CheckHeader(stored, header(func(h *control.RunHeader) { h.Partitions = []int32{0} }))
	if err == nil || len(err.Error()) > 300 || !strings.Contains(err.Error(), "10 and 989 more are now missing") {
		t.Errorf("got %v", err)
	}
}

func TestCheckOpen(t *testing.T) {
	t.Parallel()
	stored := header(func(h *control.RunHeader) { h.SourceID = "" })
	asked := header(func(h *control.RunHeader) { h.Group, h.Partitions = "new", []int32{4, 2, 1, 0} })
	stands, added, err := control.CheckOpen(control.RunOpen, stored, asked)
	if err != nil {
		t.Fatal(err)
	}
	want := header(func(h *control.RunHeader) { h.Group, h.Partitions = "new", []int32{0, 1, 2, 4} })
	if !reflect.DeepEqual(stands, want) || !reflect.DeepEqual(added, []int32{4}) {
		t.Errorf("stands %+v, added %v; want %+v", stands, added, want)
	}
	if _, _, err := control.CheckOpen(control.RunFinished, stored, asked); !codes.Has(err, codes.RunFinished) {
		t.Errorf("a finished run: %v", err)
	}
	asked.Fingerprint = "sha256:cc"
	if _, _, err := control.CheckOpen(control.RunFinished, stored, asked); !codes.Has(err, codes.RunMismatch) {
		t.Errorf("a finished run under another flow: %v", err)
	}
}

func TestCommitValidate(t *testing.T) {
	t.Parallel()
	good := func() control.Commit {
		return control.Commit{RunID: "r", Epoch: 1, Status: control.RunOpen, Watermark: record.NoTime,
			Partitions: []control.PartitionCommit{{Cut: partitions.Cut{Partition: 1}}, {Cut: partitions.Cut{Partition: 0}}}}
	}
	if err := good().Validate(); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*control.Commit){
		"epoch 0":           func(c *control.Commit) { c.Epoch = 0 },
		"epoch over int64":  func(c *control.Commit) { c.Epoch = 1 << 63 },
		"no status":         func(c *control.Commit) { c.Status = "" },
		"partition twice":   func(c *control.Commit) { c.Partitions[1].Cut.Partition = 1 },
		"rows without data": func(c *control.Commit) { c.Partitions[0].Rows.Count = 3 },
		"data without rows": func(c *control.Commit) { c.Partitions[0].Rows.Data = []byte{1} },
		"negative rows":     func(c *control.Commit) { c.Partitions[0].Rows = partitions.Rows{Data: []byte{1}, Count: -1} },
	} {
		c := good()
		change(&c)
		if err := c.Validate(); !codes.Has(err, codes.Internal) {
			t.Errorf("%s: %v, want INTERNAL", name, err)
		}
	}
}

func TestCheckCommit(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		status        control.RunStatus
		stands, asked uint64
		code          *codes.Code
	}{
		{control.RunOpen, 0, 1, nil},
		{control.RunOpen, 7, 8, nil},
		{control.RunOpen, 7, 7, codes.JournalConflict},
		{control.RunOpen, 7, 9, codes.JournalConflict},
		{control.RunOpen, 7, 1, codes.JournalConflict},
		{control.RunFinished, 7, 7, codes.JournalConflict},
		{control.RunFinished, 7, 8, codes.RunFinished},
	} {
		err := control.CheckCommit(c.status, c.stands, control.Commit{RunID: "r", Epoch: c.asked})
		if codes.Of(err) != c.code || (err == nil) != (c.code == nil) {
			t.Errorf("%+v: %v", c, err)
		}
		if err != nil && !control.Refused(err) {
			t.Errorf("%+v: %v is not counted as a refusal", c, err)
		}
	}
}

func TestCheckCut(t *testing.T) {
	t.Parallel()
	stored := partitions.Cut{Partition: 3, Next: record.Offset(10), Watermark: 100}
	for _, next := range []partitions.Cut{stored, {Next: record.Offset(11), Watermark: 100}, {Next: record.Offset(10), Watermark: 101}} {
		if err := control.CheckCut("r", stored, next); err != nil {
			t.Errorf("%+v: %v", next, err)
		}
	}
	for _, next := range []partitions.Cut{{Next: record.Offset(9), Watermark: 100}, {Next: record.Offset(10), Watermark: record.NoTime}} {
		if err := control.CheckCut("r", stored, next); !codes.Has(err, codes.Internal) {
			t.Errorf("%+v: %v, want INTERNAL", next, err)
		}
	}
}

func TestRefused(t *testing.T) {
	t.Parallel()
	for _, err := range []error{nil, context.Canceled, errors.New("x"), codes.New(codes.StoreUnavailable, "x"), codes.New(codes.JournalCorrupt, "x")} {
		if control.Refused(err) {
			t.Errorf("%v counts as a refusal", err)
		}
	}
}
