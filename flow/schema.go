package flow

import (
	"fmt"
	"time"

	"github.com/weirstream/weir/flow/operators"
	"github.com/weirstream/weir/record"
)

// object is one object of a JSON Schema.
type object = map[string]any

// Schema is the JSON Schema (draft 2020-12) of the flow language with the operator types of reg; nil is operators.Builtin(). It
// is canonical JSON. Every flow that Parse accepts is valid under it. The reverse does not hold: that names are unique, that
// operators exist and do not read each other in a circle, and how long a duration is, are for Parse alone to say.
func Schema(reg *operators.Registry) []byte {
	if reg == nil {
		reg = operators.Builtin()
	}
	b, err := record.AppendJSON(nil, schema(reg))
	if err != nil {
		panic(err) // a type was registered with a text that is not UTF-8, or this file has a mistake
	}
	return b
}

func schema(reg *operators.Registry) object {
	return object{
		"$schema":              "https://json-schema.org/draft/2020-12/schema",
		"title":                "weir flow",
		"description":          "A flow of weir, in version " + Version + " of the language.",
		"type":                 "object",
		"additionalProperties": false,
		"required":             []any{"flow", "name", "id", "key", "time", "operators", "outputs"},
		"properties": object{
			"flow":            object{"const": Version, "description": "Version of the language."},
			"name":            object{"type": "string", "pattern": flowNamePattern, "description": "Name of the flow. A label: it is not part of the fingerprint."},
			"select":          selectSchema(),
			"id":              field("Field that holds the event id, by which duplicates are recognised: a text or an integer."),
			"key":             field("Field that holds the key, which has a state of its own: a text or an integer."),
			"time":            timeSchema(),
			"lateness":        durationSchema("How far the watermark trails the newest event.", "0s"),
			"max_future_skew": skewSchema(),
			"dedupe":          closed("Memory of event ids.", object{"horizon": durationSchema("How far behind the watermark event ids are remembered.", FormatDuration(DefaultDedupeHorizon))}, "horizon"),
			"revision":        field("Field that holds the number of a revision: an integer, 0 or absent for an event as it first was."),
			"revisions":       revisionsSchema(),
			"hold_key":        holdKeySchema(),
			"sequence": closed("Numbering of events, by which a missing one is noticed.", object{
				"field": field("Field that holds the number: an integer that grows by one per key."), "gap_hold": durationSchema("How far event time moves on past a missing event before it is given up.", nil),
			}, "field", "gap_hold"),
			"clock":     clockSchema(),
			"operators": operatorsSchema(reg),
			"outputs":   outputsSchema(),
			"limits": closed("Bounds on the memory of one partition. Reaching one stops the run; it never changes a value.", object{
				"ids":     countSchema("Event ids remembered.", 1, DefaultIDs),
				"keys":    countSchema("Keys.", 1, DefaultKeys),
				"reorder": countSchema("Records that wait for the watermark.", 1, DefaultReorder),
				"ticks":   countSchema("Empty ticks of a grid that one advance of the watermark may make.", 1, DefaultTicks),
				"history": countSchema("Records behind the watermark that are kept for revisions.", 1, DefaultHistory),
			}),
			"idle": closed("When a silent partition stops holding the others.", object{
				"after_polls": countSchema("Consecutive polls that were answered empty; 0 is off.", 0, 0),
			}, "after_polls"),
			"sinks": sinksSchema(),
			"late":  lateSchema(),
		},
	}
}

// closed is a mapping with no other than the given fields.
func closed(doc string, properties object, required ...any) object {
	o := object{"type": "object", "description": doc, "additionalProperties": false, "properties": properties}
	if len(required) > 0 {
		o["required"] = required
	}
	return o
}

func field(doc string) object {
	return object{"type": "string", "minLength": 1, "maxLength": maxFieldName, "description": doc}
}

func durationSchema(doc string, standard any) object {
	o := object{"type": "string", "pattern": durationPattern, "maxLength": maxDurationText, "description": doc}
	if standard != nil {
		o["default"] = standard
	}
	return o
}

func countSchema(doc string, least, standard int) object {
	return object{"type": "integer", "minimum": least, "maximum": maxCount, "default": standard, "description": doc}
}

func selectSchema() object {
	value := object{"type": []any{"string", "integer"}, "maxLength": maxSelectValue}
	o := closed("Which records the flow reads. Absent: every record.", object{
		"field":  field("Field to select by: a text or an integer."),
		"equals": value,
		"in":     object{"type": "array", "minItems": 1, "maxItems": maxSelectValues, "uniqueItems": true, "items": value},
	}, "field")
	o["oneOf"] = []any{object{"required": []any{"equals"}}, object{"required": []any{"in"}}}
	return o
}

func timeSchema() object {
	units := make([]any, 0, len(timeUnits))
	for _, u := range timeUnits {
		units = append(units, u)
	}
	name := field("Field that holds the event time.")
	return object{"description": "Event time.", "oneOf": []any{name, closed("Event time.", object{
		"field": name,
		"unit":  object{"enum": units, "default": RFC3339.String(), "description": "rfc3339 is a text with a zone; the others are integers since 1970-01-01T00:00:00Z."},
	}, "field")}}
}

func skewSchema() object {
	return object{
		"description": "How far an event may be ahead of its arrival; off accepts any.",
		"default":     FormatDuration(DefaultMaxFutureSkew),
		"oneOf":       []any{object{"const": off}, durationSchema("How far.", nil)},
	}
}

func clockSchema() object {
	return object{
		"description": "When the operators take a step: per event, or on a regular grid.",
		"default":     eventClock,
		"oneOf":       []any{object{"const": eventClock}, closed("A regular grid.", object{"every": durationSchema("Length of an interval.", nil)}, "every")},
	}
}

func outputsSchema() object {
	name := nameSchema("Name of an operator.")
	return object{
		"type": "array", "minItems": 1, "maxItems": maxOutputs, "description": "What the flow publishes, in this order.",
		"items": object{"oneOf": []any{name, closed("An output under a name of its own.", object{"name": nameSchema("Name of the output."), "from": name}, "name", "from")}},
	}
}

func nameSchema(doc string) object {
	return object{"type": "string", "pattern": wordPattern, "description": doc}
}

// operatorsSchema gives each type its own parameters: the type decides which branch applies.
func operatorsSchema(reg *operators.Registry) object {
	types, branches := make([]any, 0), make([]any, 0)
	for _, t := range reg.Types() {
		types = append(types, t.Name)
		branches = append(branches, object{
			"if":   object{"required": []any{"type"}, "properties": object{"type": object{"const": t.Name}}},
			"then": typeSchema(t),
		})
	}
	return object{
		"type": "array", "minItems": 1, "maxItems": maxOperators, "description": "The operators. Their order means nothing.",
		"items": object{
			"type": "object", "required": []any{"name", "type", "input"},
			"properties": object{
				"name":  nameSchema("Name of the operator."),
				"type":  object{"enum": types, "description": "Type of the operator."},
				"input": inputSchema(),
			},
			"allOf": branches,
		},
	}
}

func inputSchema() object {
	name := field("Field of the records that holds a number.")
	return object{"description": "What the operator reads.", "oneOf": []any{
		name,
		closed("A field of the records.", object{"field": name}, "field"),
		closed("Another operator.", object{"operator": nameSchema("Name of the operator to read.")}, "operator"),
	}}
}

func typeSchema(t operators.Type) object {
	properties, required := object{}, []any{}
	for _, name := range operatorFields {
		properties[name] = true
	}
	for _, p := range t.Params {
		properties[p.Name] = paramSchema(p)
		if p.Required {
			required = append(required, p.Name)
		}
	}
	o := closed(t.Doc, properties)
	o["required"] = required
	return o
}

func paramSchema(p operators.Param) object {
	o := object{"description": p.Doc}
	switch p.Kind {
	case operators.Duration:
		o = durationSchema(p.Doc, nil)
		if d, ok := p.Default.(time.Duration); ok {
			o["default"] = FormatDuration(d)
		}
		return o
	case operators.Enum:
		words := make([]any, 0, len(p.Enum))
		for _, w := range p.Enum {
			words = append(words, w)
		}
		o["enum"] = words
	default:
		o["type"] = fmt.Sprint(p.Kind) // integer and number are the words of JSON Schema too
		for key, bound := range (object{"minimum": p.Min, "maximum": p.Max}) {
			if bound != nil {
				o[key] = bound
			}
		}
	}
	if p.Default != nil {
		o["default"] = p.Default
	}
	return o
}
