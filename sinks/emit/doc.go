// Package emit writes the emit document: the result of a run as one canonical JSON document, whichever mode made it.
//
//	format              "weir-emit/1"
//	flow                {"fingerprint": "sha256:…", "name": …}
//	mode                "batch", "replay" or "stream"
//	values              one element for each row, in (event time, event id) order: the value (a number or null) of a flow with one output,
//	                    otherwise an object of the outputs by name
//	events              the event ids of the rows, in the same order
//	values_hash         "sha256:" and the hash of the canonical bytes of values
//	consumed, filtered, omitted, duplicates_skipped, late, future
//	                    every record of the input is counted in exactly one of them
//	positions           by partition, the next position; a partition that read nothing is left out
//	watermark           how far event time is closed: RFC 3339, null before the first event, "END_OF_INPUT" once the input has ended
//	fence_token         the token under which it was written; 0 where there is no lease
//
// Values and events are spooled to files while they come, so that a result of any size is written in constant memory.
package emit
