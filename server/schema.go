package server

import (
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strings"
)

// jsonForm are types that write themselves.
var jsonForm = reflect.TypeFor[json.Marshaler]()

// schemaOf describes what encoding/json makes of a Go type, so that the description cannot drift from the answers.
func schemaOf(t reflect.Type) map[string]any {
	switch {
	case t.Kind() == reflect.Pointer:
		return orNull(schemaOf(t.Elem()))
	case t.Implements(jsonForm) && t.PkgPath() == "time":
		return map[string]any{"type": "string", "format": "date-time"}
	case t.Implements(jsonForm): // an event time
		return orNull(map[string]any{"type": "string"})
	}
	switch t.Kind() {
	case reflect.Struct:
		return structSchema(t)
	case reflect.Slice:
		return orNull(map[string]any{"type": "array", "items": schemaOf(t.Elem())})
	case reflect.Map:
		return orNull(map[string]any{"type": "object", "additionalProperties": schemaOf(t.Elem())})
	case reflect.Bool:
		return map[string]any{"type": "boolean"}
	case reflect.Float64:
		return map[string]any{"type": "number"}
	case reflect.String:
		return map[string]any{"type": "string"}
	}
	return map[string]any{"type": "integer"}
}

func orNull(schema map[string]any) map[string]any {
	schema["type"] = []any{schema["type"], "null"}
	return schema
}

func structSchema(t reflect.Type) map[string]any {
	properties, required := map[string]any{}, []any{}
	for i := range t.NumField() {
		name, options, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
		properties[name] = schemaOf(t.Field(i).Type)
		if options == "" {
			required = append(required, name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(properties)) {
		if name == "" {
			panic("server: a field of " + t.Name() + " has no name in JSON") // found by the test that describes every type
		}
	}
	return map[string]any{"type": "object", "properties": properties, "required": required, "additionalProperties": false}
}
