package flow

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"
)

// sinkFieldKind says how a field of a sink is written.
type sinkFieldKind uint8

const (
	sinkText   sinkFieldKind = iota
	sinkSecret               // a reference to a secret: env:NAME or file:PATH
	sinkBool
	sinkWord // one of words
)

// sinkField is a field that a type of sink has.
type sinkField struct {
	name, doc string
	kind      sinkFieldKind
	words     []string
	required  bool
	// place: together with the others of this kind, it says where the rows stand. path: it is one, which has more than one spelling.
	place, path bool
	// check says what is wrong with a text, as the end of a sentence; "" when nothing is.
	check func(string) string
}

// sinkSpecType is a type of sink: what a flow says of it, and what can be known of it without the target.
type sinkSpecType struct {
	name, doc string
	fields    []sinkField
	// late: it can take late events.
	late bool
	// taken are names that an output cannot have, and columns what all of them look like; nil is any name that an output has.
	taken   []string
	columns *regexp.Regexp
	// schema is the one of a table that names none, where that is known; beside are the ends of the names of the tables that a sink keeps beside the one it names.
	schema string
	beside []string
	// folds: most readers do not tell columns apart by case.
	folds bool
	// whole, unless nil, looks at all fields together: which one is wrong, why, and the cure; "" when none is.
	whole func(fields map[string]string) (field, wrong, cure string)
}

// sinkTypes are all types of sink. Another one is a line here, and one in cmd/weir that opens it.
var sinkTypes = []sinkSpecType{
	{name: "jsonl", doc: "Files of JSON Lines in a folder.", fields: fileFields, late: true},
	{name: "csv", doc: "Files of CSV in a folder.", fields: fileFields, folds: true, taken: []string{"partition", "row", "time", "event_id", "key"}},
	{name: "parquet", doc: "Files of Apache Parquet in a folder.", fields: fileFields, folds: true,
		taken: []string{"run", "partition", "row", "time", "key", "key_bytes", "event_id", "event_id_bytes"}},
	{name: "kafka", doc: "A topic, in transactions: each row is visible once to readers of committed records.", fields: kafkaFields, late: true, whole: kafkaLogin},
	{name: "kafka-idempotent", doc: "A topic, without transactions: a row may stand there more than once.", fields: kafkaFields, late: true, whole: kafkaLogin},
	{name: "postgres", doc: "A table in PostgreSQL.", fields: postgresFields, late: true, schema: "public", beside: []string{"_progress"}, columns: regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,62}$`),
		taken: []string{"run_id", "partition", "row_number", "event_time", "event_nanos", "event_id", "event_key"}},
	{name: "clickhouse", doc: "A view in ClickHouse, and its tables.", fields: clickhouseFields, beside: []string{"_rows", "_progress"}, columns: regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,62}$`),
		taken: []string{"run_id", "partition", "row_number", "event_time", "event_nanos", "event_id", "event_key", "version", "rows_published"}},
	{name: "kinesis", doc: "A Kinesis stream: a row may stand there more than once.", fields: kinesisFields, late: true},
}

var fileFields = []sinkField{
	{name: "folder", doc: "a folder that exists, from the working folder of the process; each run gets its own in it", required: true, place: true, path: true},
	{name: "every", doc: "folders by event time, one for each such stretch, of which a day consists: 1h gives date=2026-01-05/hour=14; without it, all files of a run are in one folder", check: partOfDay},
}

var kafkaFields = []sinkField{
	{name: "topic", doc: "a topic that exists: 1 to 249 letters, digits, dots, underscores and hyphens", required: true, place: true, check: topicName},
	{name: "brokers", doc: "addresses HOST:PORT with commas between; without them, the run's --brokers, and how it connects to them", place: true, check: brokerList},
	{name: "tls", doc: "connect to brokers over TLS", kind: sinkBool},
	{name: "tls_ca", doc: "file with the certificates, in PEM, of the authority that signed the brokers'"},
	{name: "sasl", doc: "log in to brokers by PLAIN (over TLS only), SCRAM-SHA-256 or SCRAM-SHA-512", kind: sinkWord, words: []string{"PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"}},
	{name: "user", doc: "user of the login"},
	{name: "password", doc: "password of the login, as a reference", kind: sinkSecret},
}

var postgresFields = []sinkField{
	{name: "database", doc: "postgres://user:password@host/database, as a reference", kind: sinkSecret, required: true, place: true},
	{name: "table", doc: "table or schema.table, each of 1 to 53 lower-case letters, digits and underscores", required: true, place: true, check: tableName},
	{name: "create", doc: "make the tables that are missing", kind: sinkBool},
}

var clickhouseFields = []sinkField{
	{name: "database", doc: "clickhouse://user:password@host:9000/database, or host:9440/database?secure=true, as a reference", kind: sinkSecret, required: true, place: true},
	{name: "table", doc: "table or database.table, each of 1 to 53 lower-case letters, digits and underscores: the name of the view", required: true, place: true, check: tableName},
	{name: "create", doc: "make the tables and the view if they are missing", kind: sinkBool},
}

var kinesisFields = []sinkField{
	{name: "stream", doc: "name of a stream that exists: 1 to 128 letters, digits, dots, underscores and hyphens", required: true, place: true, check: streamName},
	{name: "region", doc: "the AWS region; without it AWS_REGION, or that of the profile", place: true, check: regionName},
	{name: "endpoint", doc: "another address than AWS's own; plain http on this machine only", place: true, check: endpoint},
}

// SinkTypes are the types of sink that a flow may name.
func SinkTypes() []string {
	names := make([]string, 0, len(sinkTypes))
	for _, t := range sinkTypes {
		names = append(names, t.name)
	}
	return names
}

func lateTypes() (names []string) {
	for _, t := range sinkTypes {
		if t.late {
			names = append(names, t.name)
		}
	}
	return names
}

func sinkType(name string) (sinkSpecType, bool) {
	i := slices.IndexFunc(sinkTypes, func(t sinkSpecType) bool { return t.name == name })
	if i < 0 {
		return sinkSpecType{}, false
	}
	return sinkTypes[i], true
}

// family is the kind of target: two types of one family meet in one place.
func (t sinkSpecType) family() string {
	if strings.HasPrefix(t.name, "kafka") {
		return "kafka"
	}
	return t.name
}

// output says what is wrong with an output of that name in a sink with these fields, and the cure; "" when the target takes it. before are the names of the
// outputs above it.
func (t sinkSpecType) output(name string, fields map[string]string, before []named) (wrong, cure string) {
	same := func(other string) bool { return other == name || t.folds && strings.EqualFold(other, name) }
	folder := func(column string) bool { return strings.EqualFold(column, name) }
	cure = "give the output another name, as in {name: my_" + printable(name) + ", from: …}"
	i := slices.IndexFunc(before, func(o named) bool { return o.name != name && same(o.name) })
	switch {
	case slices.ContainsFunc(t.taken, same):
		return "every row has a column of that name already", cure
	case slices.ContainsFunc(folderColumns(fields["every"]), folder):
		return "the folders by event time are a column of that name already", cure
	case i >= 0:
		return "to most readers of such files it is the same name as " + quote(before[i].name), cure
	case t.columns != nil && !t.columns.MatchString(name):
		return "it cannot be the name of a column there", "give the output a name of letters, digits and underscores, at most 63"
	}
	return "", ""
}

// folderColumns are the columns that readers make of the folders of files by event time.
func folderColumns(every string) []string {
	d, err := ParseDuration(every)
	switch columns := []string{"date", "hour", "minute", "second"}; {
	case err != nil || d <= 0:
		return nil
	case d%(24*time.Hour) == 0:
		return columns[:1]
	case d%time.Hour == 0:
		return columns[:2]
	case d%time.Minute == 0:
		return columns[:3]
	default:
		return columns
	}
}

var (
	topicPattern  = regexp.MustCompile(`^[A-Za-z0-9._-]{1,249}$`)
	streamPattern = regexp.MustCompile(`^[A-Za-z0-9._-]{1,128}$`)
	regionPattern = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)
	tablePattern  = regexp.MustCompile(`^([a-z_][a-z0-9_]{0,52}\.)?[a-z_][a-z0-9_]{0,52}$`)
)

func topicName(s string) string {
	if !topicPattern.MatchString(s) || s == "." || s == ".." {
		return "is not the name of a topic"
	}
	return ""
}

func streamName(s string) string {
	if !streamPattern.MatchString(s) {
		return "is not the name of a stream"
	}
	return ""
}

func regionName(s string) string {
	if !regionPattern.MatchString(s) {
		return "is not the name of a region, as eu-west-1 is"
	}
	return ""
}

func endpoint(s string) string {
	host, plain := strings.CutPrefix(s, "http://")
	local := strings.HasPrefix(host, "127.") || strings.HasPrefix(host, "localhost") || strings.HasPrefix(host, "[::1]")
	switch {
	case !plain && !strings.HasPrefix(s, "https://"):
		return "is no URL such as https://kinesis.eu-west-1.amazonaws.com"
	case strings.ContainsAny(s, "@ "):
		return "holds a user or a space; credentials come from the chain that every tool of AWS uses"
	case plain && !local:
		return "is plain HTTP and not on this machine: records and signatures would go in the clear"
	}
	return ""
}

func tableName(s string) string {
	if !tablePattern.MatchString(s) {
		return "is a name that would need quotes, or is none"
	}
	return ""
}

func partOfDay(s string) string {
	d, err := ParseDuration(s)
	switch {
	case err != nil:
		return err.Error() + ", as 1h, 15m and 1d are"
	case d < time.Second || d%time.Second != 0 || 24*time.Hour%d != 0:
		return "is no stretch of which a day consists, as 1h, 15m and 1d are"
	}
	return ""
}

func brokerList(s string) string {
	for _, address := range strings.Split(s, ",") {
		if address = strings.TrimSpace(address); address == "" || strings.ContainsAny(address, "@ /") {
			return "is not a list of addresses"
		}
	}
	return ""
}

// kafkaLogin looks at how a sink connects to its brokers.
func kafkaLogin(f map[string]string) (field, wrong, cure string) {
	has := func(name string) bool { return f[name] != "" }
	for _, name := range []string{"tls", "tls_ca", "sasl", "user", "password"} {
		if has(name) && !has("brokers") {
			return name, "says how to connect to brokers, which is missing", "add brokers; without them the sink connects as the run does"
		}
	}
	switch {
	case has("tls_ca") && f["tls"] != "true":
		return "tls_ca", "belongs to tls: true", "add tls: true"
	case f["sasl"] == "PLAIN" && f["tls"] != "true":
		return "sasl", "would send the password as it is", "add tls: true, or log in by SCRAM-SHA-512"
	case has("sasl") && !(has("user") && has("password")):
		return "sasl", "needs user and password", "add both; the password as a reference, password: env:NAME"
	case !has("sasl") && (has("user") || has("password")):
		return "sasl", "is missing", "say how to log in, as in sasl: SCRAM-SHA-512"
	}
	return "", "", ""
}

func sinksSchema() object {
	types, branches := make([]any, 0, len(sinkTypes)), make([]any, 0, len(sinkTypes))
	for _, t := range sinkTypes {
		types = append(types, t.name)
		properties, required := object{"name": true, "type": true}, []any{}
		for _, f := range t.fields {
			properties[f.name] = f.schema()
			if f.required {
				required = append(required, f.name)
			}
		}
		then := closed(t.doc, properties)
		then["required"] = required
		branches = append(branches, object{"if": object{"required": []any{"type"}, "properties": object{"type": object{"const": t.name}}}, "then": then})
	}
	return object{
		"type": "array", "maxItems": maxSinks, "description": "Where the rows are published. They change no value and are not part of the fingerprint.",
		"items": object{
			"type": "object", "required": []any{"name", "type"}, "allOf": branches,
			"properties": object{
				"name": object{"type": "string", "pattern": flowNamePattern, "description": "Name of the sink."},
				"type": object{"enum": types, "description": "Type of the sink."},
			},
		},
	}
}

func (f sinkField) schema() object {
	o := object{"description": f.doc}
	switch f.kind {
	case sinkBool:
		o["type"] = "boolean"
	case sinkWord:
		words := make([]any, 0, len(f.words))
		for _, w := range f.words {
			words = append(words, w)
		}
		o["enum"] = words
	case sinkSecret:
		o["type"], o["pattern"], o["maxLength"] = "string", `^(env|file):.`, maxSinkField
	default:
		o["type"], o["minLength"], o["maxLength"] = "string", 1, maxSinkField
	}
	return o
}

func lateSchema() object {
	return closed(fmt.Sprintf("Where events go that are older than the watermark: a sink of type %s. They are counted as late all the same.", strings.Join(lateTypes(), ", ")), object{
		"sink": object{"type": "string", "pattern": flowNamePattern, "description": "Name of one of sinks, which takes late events and no rows."},
	}, "sink")
}
