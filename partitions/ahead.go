package partitions

import "github.com/weirstream/weir/record"

// ahead reads the next few records of a batch before they are tried. What a value says depends on nothing but the value; so this
// shows nowhere, and it lets the processor fetch the places of all their ids in the table at once, instead of waiting for memory at
// each: with a million ids a sixth of the whole cost of a record.
type ahead struct {
	extract *extractor
	ids     *dedupe
	records [lookahead]extracted
	// text holds the ids and keys: what the extractor gives is valid until its next read only.
	text []byte
	// touched keeps the compiler from leaving the look at the table out.
	touched uint64
}

const (
	lookahead = 32
	// maxAheadText is how much memory for text is kept; single records may need more.
	maxAheadText = 1 << 16
)

func (a *ahead) init(x *extractor, ids *dedupe) {
	a.extract, a.ids = x, ids
	width := len(x.inputs)
	inputs := make([]float64, lookahead*width)
	for i := range a.records {
		a.records[i].inputs = inputs[i*width : (i+1)*width : (i+1)*width]
	}
}

// read reads up to lookahead records.
func (a *ahead) read(records []record.Record) {
	if a.text = a.text[:0]; cap(a.text) > maxAheadText {
		a.text = nil
	}
	for i := range records {
		x := &a.records[i]
		a.extract.read(records[i].Value, x)
		if x.selected {
			x.hash = hashID(x.id)
		} else if x.reason == "" {
			continue // filtered: nobody asks
		}
		x.id, x.key = a.keep(x.id), a.keep(x.key)
	}
	for i := range records {
		if x := &a.records[i]; x.selected {
			a.touched += a.ids.touch(x.hash)
		}
	}
}

// keep copies a text; no text stays none.
func (a *ahead) keep(s []byte) []byte {
	if s == nil {
		return nil
	}
	n := len(a.text)
	a.text = append(a.text, s...)
	return a.text[n:len(a.text):len(a.text)]
}
