package server

import (
	"fmt"
	"maps"
	"net/http"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/weirstream/weir/record"
	"github.com/weirstream/weir/status"
)

// OpenAPI describes the interface of `weir serve` as an OpenAPI 3.1 document, made from the routes themselves.
func OpenAPI() []byte {
	return describe((&Server{}).routes(), "Runs of registered flows over registered snapshots: admitted once, published once.", schemas())
}

// OpenAPIDaemon describes the interface of `weir run --listen`.
func OpenAPIDaemon() []byte {
	return describe((&Server{daemon: &Daemon{}}).routes(), "A stream that runs: what it does, what holds it, and what passes through it.", map[string]any{
		"Report":   schemaOf(reflect.TypeFor[status.Report]()),
		"Reasons":  schemaOf(reflect.TypeFor[Reasons]()),
		"LogLevel": map[string]any{"type": "object", "properties": map[string]any{"level": map[string]any{"type": "string", "enum": []any{"debug", "info", "warn", "error"}}}, "required": []any{"level"}, "additionalProperties": false},
		"Problem":  schemas()["Problem"],
	})
}

func describe(routes []route, about string, schemas map[string]any) []byte {
	paths := map[string]any{}
	for _, r := range routes {
		item, _ := paths[r.path].(map[string]any)
		if item == nil {
			item = map[string]any{}
			paths[r.path] = item
		}
		item[strings.ToLower(r.method)] = r.operation()
	}
	doc, err := record.AppendJSON(nil, map[string]any{
		"openapi": "3.1.0",
		"info":    map[string]any{"title": "weir", "version": "1", "description": about},
		"paths":   paths,
		"components": map[string]any{
			"securitySchemes": map[string]any{"bearer": map[string]any{"type": "http", "scheme": "bearer"}},
			"schemas":         schemas,
		},
	})
	if err != nil {
		panic(err) // the document is made of constants
	}
	return append(doc, '\n')
}

var pathParameter = regexp.MustCompile(`\{(\w+)\}`)

func (r route) operation() map[string]any {
	op := map[string]any{"operationId": r.id, "summary": r.summary, "responses": r.responses()}
	var params []any
	for _, m := range pathParameter.FindAllStringSubmatch(r.path, -1) {
		params = append(params, parameter("path", m[1], true, "string"))
	}
	switch r.id {
	case "admitRun":
		params = append(params, parameter("header", "Idempotency-Key", true, "string"))
		op["requestBody"] = map[string]any{"required": true, "content": content("application/json", "Request")}
	case "listRuns":
		for _, p := range []string{"principal", "phase", "cursor"} {
			params = append(params, parameter("query", p, false, "string"))
		}
		params = append(params, parameter("query", "limit", false, "integer"))
	case "ready":
		params = append(params, parameter("query", "verbose", false, "string"))
	case "setLogLevel":
		op["requestBody"] = map[string]any{"required": true, "content": content("application/json", "LogLevel")}
	case "tap":
		params = append(params, parameter("query", "kinds", false, "string"), parameter("query", "partition", false, "integer"), parameter("query", "rate", false, "integer"))
	}
	if params != nil {
		op["parameters"] = params
	}
	if r.path == "/livez" {
		op["security"] = []any{}
	} else {
		op["security"] = []any{map[string]any{"bearer": []any{}}}
	}
	return op
}

// answerSchemas name what a good answer holds.
var answerSchemas = map[string]string{"admitRun": "Run", "listRuns": "Runs", "showRun": "Run", "cancelRun": "Run", "listFlows": "Names", "listSnapshots": "Names",
	"showStatus": "Report", "showWhy": "Reasons", "setLogLevel": "LogLevel"}

func (r route) responses() map[string]any {
	all := map[string]any{}
	for _, status := range r.answers {
		answer := map[string]any{"description": http.StatusText(status)}
		switch {
		case status >= http.StatusBadRequest && r.id != "ready":
			answer["content"] = content("application/problem+json", "Problem")
		case r.id == "watchRuns", r.id == "tap":
			answer["content"] = map[string]any{"text/event-stream": map[string]any{}}
		case r.id == "live", r.id == "metrics":
			answer["content"] = map[string]any{"text/plain": map[string]any{}}
		case answerSchemas[r.id] != "":
			answer["content"] = content("application/json", answerSchemas[r.id])
		default:
			answer["content"] = map[string]any{"application/json": map[string]any{}}
		}
		all[fmt.Sprint(status)] = answer
	}
	all["default"] = map[string]any{"description": "Any other problem: 401, 403, 405, 429, 500, 503", "content": content("application/problem+json", "Problem")}
	return all
}

func parameter(in, name string, required bool, kind string) map[string]any {
	return map[string]any{"in": in, "name": name, "required": required, "schema": map[string]any{"type": kind}}
}

func content(media, schema string) map[string]any {
	return map[string]any{media: map[string]any{"schema": map[string]any{"$ref": "#/components/schemas/" + schema}}}
}

func schemas() map[string]any {
	text := map[string]any{"type": "string"}
	maybe := map[string]any{"type": []any{"string", "null"}}
	list := func(of any) map[string]any { return map[string]any{"type": "array", "items": of} }
	object := func(properties map[string]any) map[string]any {
		required := make([]any, 0, len(properties))
		for _, name := range slices.Sorted(maps.Keys(properties)) {
			required = append(required, name)
		}
		return map[string]any{"type": "object", "properties": properties, "required": required, "additionalProperties": false}
	}
	names := make([]any, len(phases))
	for i, p := range phases {
		names[i] = string(p)
	}
	return map[string]any{
		"Request": object(map[string]any{"flow": text, "snapshot": text}),
		"Run": object(map[string]any{
			"id": text, "principal": text, "operation": text, "flow": text, "snapshot": text, "phase": map[string]any{"type": "string", "enum": names},
			"run_revision": map[string]any{"type": "integer"}, "result_refs": list(text), "error": maybe, "cancel_requested": map[string]any{"type": "boolean"},
			"created": maybe, "updated": maybe,
		}),
		"Runs":    object(map[string]any{"runs": list(map[string]any{"$ref": "#/components/schemas/Run"}), "next": maybe}),
		"Names":   object(map[string]any{"names": list(text)}),
		"Problem": object(map[string]any{"type": text, "title": text, "status": map[string]any{"type": "integer"}, "code": text, "detail": text}),
	}
}

func (s *Server) openAPI(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	if s.daemon != nil {
		w.Write(OpenAPIDaemon())
		return
	}
	w.Write(OpenAPI())
}
