package backpressure

// State is what a run, or a part of it, may do.
//
//	                  ┌─────────┐
//	   ┌─ all back ─▶ │ FLOWING │ ◀─ drained ─┐
//	   │              └─────────┘             │
//	   │  lag, bytes   │       │  buffer      │
//	   │  or disk over ▼       ▼  full        │
//	┌───────────────┐  buffer full   ┌────────────────┐
//	│ SOURCE_PAUSED │ ─────────────▶ │ PROCESS_PAUSED │
//	│               │ ◀───────────── │                │
//	└───────────────┘  drained, but  └────────────────┘
//	                   a source cause stands
//
//	any state ── input lost or about to be, topic recreated, fence regression ──▶ RECOVERY_BLOCKED
//	RECOVERY_BLOCKED ── an operator's recorded choice, nothing else ──▶ what the other causes say
//
// Causes are remembered apart from the state, since several may stand at once: S, a gauge of the source is over its threshold; P, the
// process buffer is full; B, recovery is blocked. The gravest names the state: B before P before S.
//
//	causes  state             reads  processes
//	none    FLOWING           yes    yes
//	S       SOURCE_PAUSED     no     yes
//	P       PROCESS_PAUSED    no     no
//	PS      PROCESS_PAUSED    no     no
//	B*      RECOVERY_BLOCKED  no     no
//
// The transitions, by the causes that stand. "over" and "back" are the first gauge of the source over and the last one back,
// "settled" is the operator's choice on the last block:
//
//	      over  back  full  drained  block  settled
//	none  S     -     P     -        B      -
//	S     -     none  PS    -        BS     -
//	P     PS    -     -     none     BP     -
//	PS    -     P     -     S        BPS    -
//	B     BS    -     BP    -        -      none
//	BS    -     B     BPS   -        -      S
//	BP    BPS   -     -     B        -      P
//	BPS   -     BP    -     BS       -      PS
//
// "-" changes nothing. Measurements are taken while blocked too, so that the choice leads to what holds at that moment.
type State uint8

// The states, in order of gravity.
const (
	Flowing State = iota
	// SourcePaused: nothing is read, what was read is processed.
	SourcePaused
	// ProcessPaused: nothing is read and nothing processed; what was processed is written out.
	ProcessPaused
	// RecoveryBlocked: nothing is read and nothing processed until an operator chooses.
	RecoveryBlocked
)

var stateNames = [...]string{
	Flowing: "FLOWING", SourcePaused: "SOURCE_PAUSED", ProcessPaused: "PROCESS_PAUSED", RecoveryBlocked: "RECOVERY_BLOCKED",
}

func (s State) String() string {
	if int(s) < len(stateNames) {
		return stateNames[s]
	}
	return "UNKNOWN"
}

// Reads says whether a source may be read in this state.
func (s State) Reads() bool { return s == Flowing }

// Processes says whether records that were read may be processed in this state.
func (s State) Processes() bool { return s == Flowing || s == SourcePaused }

// causes is a row of the table: the set of causes that stand.
type causes uint8

const (
	none causes = iota
	causeS
	causeP
	causePS
	causeB
	causeBS
	causeBP
	causeBPS
	rows
)

type event uint8

const (
	over event = iota
	back
	full
	drained
	block
	settled
	events
)

// transitions is the table above; what has no effect stays in its row.
var transitions = [rows][events]causes{
	none:     {over: causeS, back: none, full: causeP, drained: none, block: causeB, settled: none},
	causeS:   {over: causeS, back: none, full: causePS, drained: causeS, block: causeBS, settled: causeS},
	causeP:   {over: causePS, back: causeP, full: causeP, drained: none, block: causeBP, settled: causeP},
	causePS:  {over: causePS, back: causeP, full: causePS, drained: causeS, block: causeBPS, settled: causePS},
	causeB:   {over: causeBS, back: causeB, full: causeBP, drained: causeB, block: causeB, settled: none},
	causeBS:  {over: causeBS, back: causeB, full: causeBPS, drained: causeBS, block: causeBS, settled: causeS},
	causeBP:  {over: causeBPS, back: causeBP, full: causeBP, drained: causeB, block: causeBP, settled: causeP},
	causeBPS: {over: causeBPS, back: causeBP, full: causeBPS, drained: causeBS, block: causeBPS, settled: causePS},
}

var stateOf = [rows]State{
	none: Flowing, causeS: SourcePaused, causeP: ProcessPaused, causePS: ProcessPaused,
	causeB: RecoveryBlocked, causeBS: RecoveryBlocked, causeBP: RecoveryBlocked, causeBPS: RecoveryBlocked,
}
