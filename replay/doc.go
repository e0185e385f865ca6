// Package replay turns a snapshot and a fault schedule into an arrival log, makes snapshots and schedules by chance, and publishes logs.
//
// # Fault schedule
//
// A schedule is one JSON document, fault-schedule/1:
//
//	{"format":"fault-schedule/1","seed":7,"faults":[
//	  {"event_id":"e1","kind":"DUPLICATE"},
//	  {"event_id":"e2","kind":"DELAY","domain_ms":2000},
//	  {"event_id":"e3","kind":"GAP"},
//	  {"event_id":"e4","kind":"REVISION","domain_ms":120000,"close":100.25},
//	  {"event_id":"e5","kind":"PAUSE","wall_ms":100},
//	  {"event_id":"e6","kind":"BURST","count":3},
//	  {"event_id":"e7","kind":"SOURCE_FAILURE","wall_ms":300}
//	]}
//
// The seed names the schedule and may be left out (0). An event has at most one fault of a kind. Milliseconds are whole and not
// negative, a count is between 1 and [MaxBurst]. A number that stands beside the parameters of a REVISION is the revision's value of
// the field of that name; event_id, kind, domain_ms, wall_ms and count are no names of such fields, and id, key, event time and
// revision number are not for a schedule to change.
//
// # From events to arrivals
//
// An event arrives at its event time, rounded up to a whole millisecond, so that nothing arrives before it happened. The faults of an
// event change its deliveries, which are numbered in this order:
//
//	0    the event itself       DELAY lets it arrive later; PAUSE and SOURCE_FAILURE stand before it
//	1    DUPLICATE              at the same time, directly after it
//	2…   BURST                  count deliveries more, at the same time, back to back
//	last REVISION               domain_ms after the event time, whatever DELAY says: the event's value with the revision number 1
//
// GAP puts a tombstone in the place of the event and of all its repetitions; a revision of it keeps its value. So faults combine in
// one way only, whatever their order in the schedule: under DELAY and REVISION a revision may come before its event, and under GAP
// and REVISION it is all that comes.
//
// Arrivals are in the order of time of arrival, then of the snapshot, then of the number of the delivery. An arrival is marked with
// every kind that touches it: the repetitions of a delayed event with DELAY too. Each fault is audited once, before the first arrival
// that it adds, or else before the event itself. When an id stands in a snapshot more than once, the first event has the faults.
//
// A build takes nothing from chance: the same snapshot and schedule give the same arrivals, and with the same seed, which only the
// header of the log records, the same bytes and the same log_hash.
package replay
