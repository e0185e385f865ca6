package emit

import (
	"bytes"
	"cmp"
	"iter"

	"github.com/weirstream/weir/partitions"
)

// Run is the encoded rows of one partition, piece by piece in (event time, event id) order. A piece is valid until the next is asked
// for. An error ends it.
type Run = iter.Seq2[[]byte, error]

// Merge calls fn with the rows of all runs in (event time, event id) order; rows that agree in both come in the order of the runs.
// width is the number of outputs of the flow. A row is valid during the call.
func Merge(width int, runs []Run, fn func(*partitions.Row) error) error {
	heads := make([]*head, 0, len(runs))
	for i, run := range runs {
		h := &head{order: i, width: width}
		var stop func()
		h.pull, stop = iter.Pull2(run)
		defer stop()
		ok, err := h.next()
		if err != nil {
			return err
		}
		if ok {
			heads = append(heads, h)
			up(heads, len(heads)-1)
		}
	}
	for len(heads) > 0 {
		h := heads[0]
		if err := fn(&h.row); err != nil {
			return err
		}
		ok, err := h.next()
		if err != nil {
			return err
		}
		if !ok {
			heads[0] = heads[len(heads)-1]
			heads = heads[:len(heads)-1]
		}
		down(heads)
	}
	return nil
}

// head is the first row that is left of a run.
type head struct {
	pull  func() ([]byte, error, bool)
	rest  []byte
	row   partitions.Row
	order int
	width int
}

func (h *head) next() (bool, error) {
	for len(h.rest) == 0 {
		data, err, ok := h.pull()
		if err != nil || !ok {
			return false, err
		}
		h.rest = data
	}
	var err error
	h.rest, err = partitions.DecodeRow(h.rest, h.width, &h.row)
	return err == nil, err
}

func (h *head) before(o *head) bool {
	if c := cmp.Compare(h.row.Time, o.row.Time); c != 0 {
		return c < 0
	}
	if c := bytes.Compare(h.row.ID, o.row.ID); c != 0 {
		return c < 0
	}
	return h.order < o.order
}

func up(heads []*head, i int) {
	for i > 0 {
		parent := (i - 1) / 2
		if !heads[i].before(heads[parent]) {
			return
		}
		heads[i], heads[parent] = heads[parent], heads[i]
		i = parent
	}
}

func down(heads []*head) {
	for i := 0; ; {
		least := i
		for child := 2*i + 1; child <= 2*i+2 && child < len(heads); child++ {
			if heads[child].before(heads[least]) {
				least = child
			}
		}
		if least == i {
			return
		}
		heads[i], heads[least] = heads[least], heads[i]
		i = least
	}
}
