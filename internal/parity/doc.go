// Package parity runs a flow in the three modes and compares what comes out.
//
//	snapshot ──────────────▶ batch  ──▶ emit document ─┐
//	   │ + fault schedule                              │
//	   ▼                                               ├──▶ verdict
//	arrival log ───────────▶ replay ──▶ emit document ─┤
//	   │ published to a topic                          │
//	   ▼                                               │
//	broker ──▶ actors ─────▶ stream ──▶ emit document ─┘
//
// Replay and stream must be equal always: values, events, verdicts and counts. Both must equal batch when nothing was late, lost or
// revised (EQUAL_TO_BATCH_GOLDEN). Otherwise batch runs again over the snapshot corrected by exactly the exceptions that the stream
// recorded, and must be equal then (EQUAL_EXPLAINED). Anything else is DIFFERENT.
package parity
