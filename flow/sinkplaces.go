package flow

import (
	"path/filepath"
	"slices"
	"strings"
)

// Place tells targets apart: two sinks of one place would write into each other. A folder, and a table in the schema public, have one spelling here, as far as
// that goes without looking at it.
func (s SinkSpec) Place() string { return s.placeWith(s.Fields["table"]) }

// Meets says whether two sinks would write into each other: they have one place, or one of them is named as a table that the other one keeps beside its own.
func (s SinkSpec) Meets(other SinkSpec) bool {
	places := other.places()
	return slices.ContainsFunc(s.places(), func(p string) bool { return slices.Contains(places, p) })
}

// places are that of the sink, and those of the tables beside it.
func (s SinkSpec) places() []string {
	t, _ := sinkType(s.Type)
	out := []string{s.Place()}
	for _, suffix := range t.beside {
		out = append(out, s.placeWith(s.Fields["table"]+suffix))
	}
	return out
}

func (s SinkSpec) placeWith(table string) string {
	t, _ := sinkType(s.Type)
	parts := []string{t.family()}
	for _, f := range t.fields {
		value := s.Fields[f.name]
		switch {
		case !f.place:
			continue
		case f.path:
			value = filepath.Clean(value)
		case f.name == "table" && t.schema != "":
			value = strings.TrimPrefix(table, t.schema+".")
		case f.name == "table":
			value = table
		}
		parts = append(parts, value)
	}
	return strings.Join(parts, "\x00")
}
