package partitions

import (
	"slices"
	"testing"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/watermark"
)

// What a core says of the input is what the machine does that wrote it, for both versions; damage is never taken for a status.
func TestInputOf(t *testing.T) {
	t.Parallel()
	core := func(m *Machine) StateBlob {
		t.Helper()
		for _, b := range m.Cut().Put {
			if b.Name == CoreBlob {
				return b
			}
		}
		t.Fatal("a cut without a core")
		return StateBlob{}
	}
	for name, version := range map[string]byte{"version 1": coreVersion, "version 2": deferringVersion} {
		m := New(parsePlan(t, inputFlow), 3)
		for _, want := range []watermark.Status{watermark.Active, watermark.Idle, watermark.Finished} {
			var err error
			switch want {
			case watermark.Idle:
				err = m.Step(IdleConfirmed{Reason: "closed"}, &Effects{})
			case watermark.Finished:
				err = m.Step(EndOfSource{}, &Effects{})
			}
			if err != nil {
				t.Fatal(err)
			}
			b := core(m)
			body := slices.Clone(b.Data[:len(b.Data)-checksumBytes])
			body[0] = version
			b.Data = reseal(b.Name, body)
			if got, err := InputOf(b); got != want || err != nil || got != m.Status() {
				t.Errorf("%s: %v, %v, want %v", name, got, err, want)
			}
			for at := range b.Data {
				bad := StateBlob{Name: b.Name, Data: append([]byte(nil), b.Data...)}
				bad.Data[at] ^= 1
				if got, err := InputOf(bad); !codes.Has(err, codes.JournalCorrupt) || got != watermark.Active {
					t.Fatalf("%s, byte %d: %v, %v", name, at, got, err)
				}
				if _, err := InputOf(StateBlob{Name: b.Name, Data: b.Data[:at]}); err == nil {
					t.Fatalf("%s: %d bytes are read", name, at)
				}
			}
		}
	}
}

const inputFlow = `flow: weir/1
name: input
id: event_id
key: k
time: {field: t, unit: ms}
operators:
  - {name: e, type: ema, input: x, period: 3}
outputs: [e]
`
