package partitions

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/flow"
	"github.com/weirstream/weir/record"
)

const fuzzFlow = `
flow: weir/1
name: fuzz
select: {field: key, in: [a, "1", b@]}
id: id
key: key
time: {field: at, unit: %s}
lateness: 1s
dedupe: {horizon: 3s}
revision: rev
sequence: {field: seq, gap_hold: 2s}
clock: %s
operators: [{name: e, type: ema, input: x, period: 2}, {name: l, type: last, input: y}]
outputs: [e, l]
limits: {ids: 100, keys: 3, reorder: 50, ticks: 50}
`

// FuzzStep feeds arbitrary values, one a line; a line is delivered three times. Whatever they hold, nothing panics, every record is
// counted in exactly one place, and a cut restores to the same machine.
func FuzzStep(f *testing.F) {
	f.Add(uint8(3), []byte(`{"id":"1","key":"a","at":1000,"x":1.5,"y":null}`))
	f.Add(uint8(4), []byte("{\"id\":1,\"key\":1,\"at\":-5000,\"seq\":1}\n{\"id\":2,\"key\":1,\"at\":9000,\"seq\":4,\"rev\":1}\n\nnull\n{"))
	f.Add(uint8(5), []byte(`{"id":"\u00e9","key":"b@","at":9223372036854,"x":1e400}`))
	f.Add(uint8(0), []byte("{\"id\":\"a\",\"key\":\"a\",\"at\":\"2026-01-05T14:30:00Z\"}\n{\"id\":\"b\",\"key\":\"a\",\"at\":\"2262-04-11T23:47:16.854775806Z\"}\n{\"id\":\"c\",\"key\":\"a\",\"at\":\"1677-09-21T00:12:43.145224193Z\"}"))
	var plans []*flow.Plan
	for _, unit := range []string{"rfc3339", "ms", "ns"} {
		for _, clock := range []string{"event", "{every: 1s}", "{every: 30000h}"} {
			plans = append(plans, parsePlan(f, fmt.Sprintf(fuzzFlow, unit, clock)))
		}
	}
	f.Fuzz(func(t *testing.T, plan uint8, data []byte) {
		fuzzStep(t, plans[int(plan)%len(plans)], strings.SplitN(string(data), "\n", 40))
	})
}

func fuzzStep(t *testing.T, plan *flow.Plan, lines []string) {
	h := newHarness(plan, 0)
	delivered := int64(0)
	for i := range 3 * len(lines) {
		line := lines[i/3]
		r := record.Record{Position: record.Offset(int64(i)), Arrival: record.NoTime, Value: []byte(line)}
		if i%5 == 4 {
			r.Arrival = 0
		}
		if err := h.tryDeliver(t, []record.Record{r}); err != nil {
			if !codes.Has(err, codes.LimitReached) {
				t.Fatal(err)
			}
			return
		}
		delivered++
		c := h.m.Counts()
		if c.Records != delivered || c.Records != c.Consumed+c.Filtered+c.Omitted+c.Duplicates+c.Late+c.Future {
			t.Fatalf("after %d records: %+v", delivered, c)
		}
		if i%4 == 1 {
			h.cutAndCrash(t)
		}
	}
	if err := h.try(t, EndOfSource{Through: record.NoTime}); err != nil && !codes.Has(err, codes.LimitReached) {
		t.Fatal(err)
	} else if err == nil {
		h.cutAndCrash(t)
		if c := h.m.Counts(); plan.ClockEvery == 0 && c.Outputs != c.Consumed || h.m.Waiting() != 0 {
			t.Fatalf("at the end: %+v, %d waiting", c, h.m.Waiting())
		}
	}
}

// FuzzRestore feeds damaged state: bytes of one blob are changed, cut off or replaced, and the checksum is made right again every
// other time, so that the readers behind it are tried too. Restore refuses with a code or gives a machine that works; it never panics.
func FuzzRestore(f *testing.F) {
	plan := parsePlan(f, fmt.Sprintf(fuzzFlow, "ms", "{every: 1s}"))
	h := newHarness(plan, 0)
	for i := range 60 {
		v := fmt.Sprintf(`{"id":%d,"key":"%s","at":%d,"x":%d,"seq":%d}`, i/2, []string{"a", "1"}[i/2%2], 100*i, i, 1+i/3)
		h.deliver(f, []record.Record{{Position: record.Offset(int64(i)), Arrival: record.NoTime, Value: []byte(v)}})
		if i%7 == 0 {
			h.cut(f)
		}
	}
	h.cut(f)
	// A delta of keys: a cut makes one from thousands of keys on only.
	h.deliver(f, []record.Record{{Position: record.Offset(60), Arrival: record.NoTime, Value: []byte(`{"id":"last","key":"a","at":8000,"x":1}`)}})
	h.m.keys.cutDelta([]int{0}, h.m.grid, &h.m.ledger)
	clear(h.m.keys.dirty)
	h.cut(f)
	h.cutAndCrash(f)
	f.Add(uint8(0), uint16(3), []byte{0xff}, true)
	f.Add(uint8(1), uint16(10), []byte{0, 0, 0, 0, 0, 0, 0, 0, 0}, false)
	f.Add(uint8(2), uint16(9999), []byte{}, true)
	f.Add(uint8(3), uint16(1), []byte("\xff\xff\xff\xff\xff\xff\xff\xff\xff\x7f"), true)
	names := h.stand.names()
	f.Fuzz(func(t *testing.T, which uint8, at uint16, patch []byte, mend bool) {
		stand := standing{}
		for name, data := range h.stand {
			stand[name] = data
		}
		name := names[int(which)%len(names)]
		data := damage(stand[name], int(at), patch)
		if mend && len(data) >= checksumBytes {
			data = reseal(name, data)
		}
		stand[name] = data
		if mend {
			stand.balance()
		}
		m, err := Restore(plan, 0, (&harness{stand: stand}).load)
		if err != nil {
			if !codes.Has(err, codes.JournalCorrupt) && !codes.Has(err, codes.RunMismatch) {
				t.Fatalf("refused without a code: %v", err)
			}
			return
		}
		again := &harness{plan: plan, m: m, stand: stand}
		if err := again.tryDeliver(t, []record.Record{{Position: record.Offset(1 << 40), Arrival: record.NoTime, Value: []byte(`{"id":"n","key":"a","at":60000,"x":1}`)}}); err != nil && codes.Of(err) == nil {
			t.Fatal(err)
		} else if err == nil {
			m.Cut()
		}
	})
}

// damage puts patch at a place, cutting off what follows when the patch is empty.
func damage(data []byte, at int, patch []byte) []byte {
	at %= len(data)
	if len(patch) == 0 {
		return append([]byte(nil), data[:at]...)
	}
	out := append([]byte(nil), data...)
	copy(out[at:], patch)
	return out
}

// reseal makes the checksum of a blob right.
func reseal(name string, data []byte) []byte {
	body := data[:len(data)-checksumBytes]
	return binary.BigEndian.AppendUint64(append([]byte(nil), body...), checksum(name, body))
}

func (s standing) names() []string {
	var names []string
	for name := range s {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// balance makes the books in the core right for the blobs that stand.
func (s standing) balance() {
	core := append([]byte(nil), s[coreName]...)
	if len(core) < checksumBytes+16 {
		return
	}
	count, sum := uint64(0), uint64(0)
	for name, data := range s {
		if name != coreName && len(data) >= checksumBytes {
			count++
			sum += checksum(name, data[:len(data)-checksumBytes])
		}
	}
	n := len(core) - checksumBytes
	binary.BigEndian.PutUint64(core[n-16:], count)
	binary.BigEndian.PutUint64(core[n-8:], sum)
	s[coreName] = reseal(coreName, core)
}
