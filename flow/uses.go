package flow

import "fmt"

// reading is how the value of a record's field is read.
type reading uint8

const (
	asIdentity reading = iota // a text or an integer that tells records apart
	asInstant                 // a text in the form of RFC 3339
	asInteger                 // an integer
	asNumber                  // a number that an operator computes with
)

func (r reading) String() string {
	return [...]string{"the identity of a record", "a time in the form of RFC 3339", "an integer", "a number"}[r]
}

// use is one place of the flow that reads a field of the records.
type use struct {
	field, path string
	as          reading
	at          pos
}

// use notes that a field is read. A field whose name was refused is "" and not noted.
func (c *compiler) use(field, path string, as reading, at pos) {
	if field != "" {
		c.uses = append(c.uses, use{field, path, as, at})
	}
}

// conflicts reports fields that are read in two ways of which no record can satisfy both, and an identity that identifies nothing.
func (c *compiler) conflicts() {
	first := map[string]use{}
	for _, u := range c.uses {
		f, again := first[u.field]
		if !again {
			first[u.field] = u
			continue
		}
		switch {
		case f.as == asIdentity && u.as != asNumber:
			c.report.add(u.at, u.path, fmt.Sprintf("the field %s is the id already: two events with one value would be one event", quote(u.field)),
				"name a field that is unique for each event as the id")
		case f.as == asInstant && u.as != asInstant, f.as != asInstant && u.as == asInstant:
			c.report.add(u.at, u.path, fmt.Sprintf("the field %s is read as %s here and as %s in %s", quote(u.field), u.as, f.as, f.path),
				"no value can be both; name another field")
		}
	}
}
