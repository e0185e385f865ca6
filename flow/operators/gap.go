package operators

// The policies of a gap: what a gap does to the state of an operator.
const (
	// GapReject outputs a gap and starts again from scratch.
	GapReject = "reject"
	// GapHold outputs a gap and keeps the state.
	GapHold = "hold"
)

// gapParam is the parameter by which a user chooses the policy.
func gapParam() Param {
	return Param{
		Name: "gap", Kind: Enum, Enum: []string{GapReject, GapHold}, Default: GapReject,
		Doc: "What a gap does: `reject` outputs null and starts again from scratch, `hold` outputs null and keeps the state.",
	}
}
