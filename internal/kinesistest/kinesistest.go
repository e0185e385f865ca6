package kinesistest

import (
	"encoding/json"
	"errors"
	"os"
	"testing"
	"time"

	"github.com/weirstream/weir/internal/kinesistest/emulator"
)

// Region that the emulator answers for, and the credentials that it takes (any others would do too).
const (
	Region    = emulator.Region
	AccessKey = emulator.AccessKey
	SecretKey = emulator.SecretKey
)

// Emulator is a running emulator.
type Emulator struct{ e *emulator.Emulator }

// Start starts an emulator that ends with the test, with this process, or when its standard input ends.
func Start(t testing.TB) *Emulator {
	t.Helper()
	e, err := emulator.Start()
	var none emulator.Missing
	switch {
	case errors.As(err, &none) && os.Getenv("CI") == "":
		t.Skipf("Kinesis emulator: %s", none.Reason)
	case err != nil:
		t.Fatalf("kinesistest: %v", err)
	}
	t.Cleanup(e.Stop)
	return &Emulator{e}
}

// Endpoint is its address, http://127.0.0.1:PORT.
func (e *Emulator) Endpoint() string { return e.e.Endpoint() }

// Shift sets its clock ahead by d, which may be negative.
func (e *Emulator) Shift(t testing.TB, d time.Duration) {
	t.Helper()
	e.tell(t, map[string]any{"cmd": "shift", "ms": d.Milliseconds()})
}

// Fault is an error that an operation answers with. "HANG_UP" as Type closes the connection instead.
type Fault struct {
	// Operation, such as "GetRecords", and the error's Type, such as "ExpiredIteratorException".
	Operation, Type, Message string
	// Every n-th call fails; defaults to each. Times is how often in all; 0 is without end.
	Every, Times int
}

// Fail injects a fault, beside those that are there.
func (e *Emulator) Fail(t testing.TB, f Fault) {
	t.Helper()
	times := f.Times
	if times == 0 {
		times = -1
	}
	e.tell(t, map[string]any{"cmd": "fail", "op": f.Operation, "type": f.Type, "message": f.Message, "every": max(f.Every, 1), "times": times})
}

// Heal takes all faults away.
func (e *Emulator) Heal(t testing.TB) {
	t.Helper()
	e.tell(t, map[string]any{"cmd": "heal"})
}

// Calls is how often each operation was asked for so far.
func (e *Emulator) Calls(t testing.TB) map[string]int {
	t.Helper()
	calls := map[string]int{}
	if err := json.Unmarshal(e.tell(t, map[string]any{"cmd": "calls"}), &calls); err != nil {
		t.Fatalf("kinesistest: %v", err)
	}
	return calls
}

// tell sends a command and returns the answer.
func (e *Emulator) tell(t testing.TB, command map[string]any) []byte {
	t.Helper()
	answer, err := e.e.Tell(command)
	if err != nil {
		t.Fatalf("kinesistest: %v", err)
	}
	return answer
}
