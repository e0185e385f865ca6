package control

import (
	"bytes"
	"strings"
	"unicode/utf8"

	"github.com/weirstream/weir/codes"
)

// MaxRunError is the most of a run's error text that is kept, in bytes.
const MaxRunError = 4096

// ResultKey is the key under which the result of a batch run is published.
func ResultKey(runID string) string { return "result/" + runID }

// CheckEffects checks the shape of the effects of one call, before anything is locked.
//
//   - A publication's key is 1 to 400 bytes of UTF-8 without control characters, its value is not empty. Two of one key in one call with
//     different values are PublicationConflict: one of them would overwrite the other.
//   - A run is started and finished under its own lease only (RunLease), since that is the one that recovery looks at.
//   - A run finishes SUCCEEDED or FAILED.
//
// Everything but the conflict is Internal: no caller may ask it.
func CheckEffects(l Lease, effects []Effect) error {
	for _, e := range effects {
		var err error
		switch e := e.(type) {
		case Publish:
			err = checkPublish(e)
		case StartRun:
			err = checkOwnLease(l, e.RunID)
		case FinishRun:
			if err = checkOwnLease(l, e.RunID); err == nil && e.Phase != Succeeded && e.Phase != Failed {
				err = codes.New(codes.Internal, "run %q cannot finish in the phase %q", e.RunID, e.Phase)
			}
		case Deliver:
		default:
			err = codes.New(codes.Internal, "the effect %T is not known", e)
		}
		if err != nil {
			return err
		}
	}
	return checkKeys(effects)
}

func checkPublish(e Publish) error {
	for i := range e.Publications {
		p := &e.Publications[i]
		if bad := badText(p.Key, MaxName); bad != "" {
			return codes.New(codes.Internal, "the publication key %.40q cannot be used: %s", p.Key, bad)
		}
		if len(p.Value) == 0 {
			return codes.New(codes.Internal, "publication %q has no value", p.Key)
		}
	}
	return nil
}

// checkKeys looks for two values under one key. Keys that ascend, as those of rows in order do, need no memory for that.
func checkKeys(effects []Effect) error {
	last, total, ascends := "", 0, true
	for _, e := range effects {
		if p, ok := e.(Publish); ok {
			total += len(p.Publications)
			for i := range p.Publications {
				ascends = ascends && p.Publications[i].Key > last
				last = p.Publications[i].Key
			}
		}
	}
	if ascends {
		return nil
	}
	values := make(map[string][]byte, total)
	for _, e := range effects {
		p, _ := e.(Publish)
		for i := range p.Publications {
			key, value := p.Publications[i].Key, p.Publications[i].Value
			if before, ok := values[key]; ok && !bytes.Equal(before, value) {
				return codes.New(codes.PublicationConflict, "two results for the key %q in one call; none was published", key)
			}
			values[key] = value
		}
	}
	return nil
}

func checkOwnLease(l Lease, runID string) error {
	if l.Name != RunLease(runID) {
		return codes.New(codes.Internal, "run %q would be changed under the lease %q instead of its own", runID, l.Name)
	}
	return nil
}

// Conflict is the refusal PublicationConflict of a key that holds another digest.
func Conflict(key, stands, asked string) error {
	return codes.New(codes.PublicationConflict, "%q is published with the digest %s and would now get %s; nothing was written", key, stands, asked)
}

// Started is the rule of StartRun: the phase that it leads to, or RunNotQueued.
func Started(runID string, phase RunPhase, cancelRequested bool) (RunPhase, error) {
	switch {
	case phase != Queued:
		return phase, codes.New(codes.RunNotQueued, "run %q is %s", runID, phase)
	case cancelRequested:
		return Cancelled, nil
	}
	return Running, nil
}

// CheckFinish is the rule of FinishRun: RunNotRunning for a run that is not RUNNING.
func CheckFinish(runID string, phase RunPhase) error {
	if phase != Running {
		return codes.New(codes.RunNotRunning, "run %q is %s", runID, phase)
	}
	return nil
}

// RunError makes a text fit to be kept as a run's error: UTF-8 without NUL, at most MaxRunError bytes. A failure must not fail to be recorded
// because of the bytes in its message.
func RunError(text string) string {
	text = strings.ReplaceAll(strings.ToValidUTF8(text, "\ufffd"), "\x00", "\ufffd")
	if len(text) <= MaxRunError {
		return text
	}
	const more = "…"
	cut := MaxRunError - len(more)
	for !utf8.RuneStart(text[cut]) {
		cut--
	}
	return text[:cut] + more
}
