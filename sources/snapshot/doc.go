// Package snapshot reads bounded snapshots, in JSON Lines or CSV, as rows in the order of (event time, event id).
//
// # Files
//
// The format is told by the extension (.jsonl, .ndjson, .json; .csv), otherwise by the first character: '{' starts JSON Lines. A byte
// order mark at the start is skipped. A row is at most [MaxRow] bytes long.
//
// JSON Lines: one object a line, strict JSON (see package record); blank lines are skipped. A value is handed on as it stands.
//
// CSV (RFC 4180, comma, UTF-8): the first row names the columns, which differ and are not empty. Blank lines are skipped. Each row
// becomes a canonical JSON object of all columns:
//
//   - an empty field is null;
//   - the columns of event id and key, of a time written as RFC 3339, and those named in [Fields.Text] stay text;
//   - any other field that is a JSON number is that number, and what is no number is text. NaN, Infinity, -Infinity and numbers that
//     overflow binary64 become null: like null they are gaps to a flow, and canonical JSON has no form for them.
//
// Every row needs an event id and a key, as text or integer, and a time. A snapshot with a row that cannot be read is refused with
// SNAPSHOT_INVALID, file, line and column, before the first row is delivered: a batch over part of a snapshot would be wrong in silence.
//
// # Order and memory
//
// A first pass checks every row, takes the hash of the file and looks whether the rows are in order already. Then a second pass streams
// them. A file that is not in order is sorted outside memory: runs of at most [Config.Memory] bytes go to files without a name, so that
// they are gone when the reader is closed, however the process ends.
package snapshot
