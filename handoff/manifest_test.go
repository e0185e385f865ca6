package handoff_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/control"
	"github.com/weirstream/weir/handoff"
	"github.com/weirstream/weir/partitions"
	"github.com/weirstream/weir/record"
)

func at(n int64) *record.Position {
	p := record.Offset(n)
	return &p
}

// long is a position of 56 digits, as Kinesis has them.
func long(t testing.TB) record.Position {
	t.Helper()
	p, err := record.ParsePosition("49590338271490256608559692538361571095921575989136588898")
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func manifests(t testing.TB) map[string]handoff.Manifest {
	owner := handoff.Manifest{
		Kind: handoff.KindOwner, RunID: "ticks-1", Fingerprint: "sha256:f", Group: "g", Source: "ticks", SourceID: "AAAA", Epoch: 1<<63 - 1, Fence: 1<<64 - 1,
		Watermark: 1_767_625_200_000_000_001,
		Partitions: []handoff.Partition{
			{Partition: 0, Next: record.Offset(78), HighWater: at(80), Watermark: 1_767_625_200_000_000_001},
			{Partition: 3, Next: long(t), Watermark: record.NoTime},
		},
		Checkpoint: &handoff.Checkpoint{RunID: "ticks-1", Epoch: 6, ManifestHash: "sha256:" + strings.Repeat("ab", 32)},
	}
	batch := owner
	batch.Kind, batch.Checkpoint, batch.History = handoff.KindBatch, nil, &handoff.History{ID: "sha256:h", Records: 18}
	return map[string]handoff.Manifest{
		"owner": owner, "batch": batch, "mark": handoff.Mark("ticks", "AAAA", map[int32]record.Position{1: record.Offset(7), 0: record.Offset(0)}),
	}
}

func encode(t testing.TB, m handoff.Manifest) []byte {
	t.Helper()
	b, err := m.Encode()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestManifestsAreReadAsTheyWereWritten(t *testing.T) {
	t.Parallel()
	for name, m := range manifests(t) {
		b := encode(t, m)
		got, err := handoff.Read("m.json", b)
		if err != nil {
			t.Fatalf("%s: %v\n%s", name, err, b)
		}
		if len(got.Hash) != 71 || !bytes.Contains(b, []byte(got.Hash)) {
			t.Errorf("%s: hash %q", name, got.Hash)
		}
		got.Hash = ""
		if !reflect.DeepEqual(got, m) {
			t.Errorf("%s: %+v, want %+v", name, got, m)
		}
	}
	mark := manifests(t)["mark"]
	const want = `{"checkpoint":null,"epoch":0,"fence_token":"0","fingerprint":null,"format":"weir-handoff/1","group":"","hash":"sha256:`
	if b := encode(t, mark); !strings.HasPrefix(string(b), want) || !strings.Contains(string(b), `{"high_water":"7","next":"7","partition":1,"watermark":null}`) {
		t.Errorf("%s", b)
	}
}

// No byte of a manifest can be changed without being noticed: it is no manifest any more, or its hash does not fit, or it says the same.
func TestEveryFlippedByteIsNoticed(t *testing.T) {
	t.Parallel()
	for name, m := range manifests(t) {
		b := encode(t, m)
		for i := range b {
			for bit := range 8 {
				changed := bytes.Clone(b)
				changed[i] ^= 1 << bit
				got, err := handoff.Read("m.json", changed)
				if got.Hash = ""; err == nil && !reflect.DeepEqual(got, m) {
					t.Fatalf("%s: byte %d changed to %q passed as %+v", name, i, changed[i], got)
				}
				if err != nil && !codes.Has(err, codes.DocumentInvalid) {
					t.Fatalf("%s: byte %d: %v", name, i, err)
				}
			}
		}
	}
}

// Everything that is wrong is told at once, with its place.
func TestAllThatIsWrongIsTold(t *testing.T) {
	t.Parallel()
	const bad = `{"format":"weir-handoff/9","kind":"OTHER","run_id":"","fingerprint":5,"source":{"name":"","id":"x","more":1},"epoch":-1,"fence_token":7,
		"watermark":"yesterday","checkpoint":{"run_id":"r"},"history":[],"extra":true,"hash":"md5:1","partitions":[
		{"partition":1,"next":"07","high_water":"9","watermark":null},{"partition":1,"next":"12","high_water":"9","watermark":1},{"partition":99999999999,"next":"1","high_water":null,"watermark":null},7]}`
	_, err := handoff.Read("bad.json", []byte(bad))
	if !codes.Has(err, codes.DocumentInvalid) {
		t.Fatal(err)
	}
	for _, want := range []string{
		"bad.json", `format is "weir-handoff/9"`, `kind is "OTHER"`, "run_id is empty", "fingerprint is no text", `source has "more"`, "source.name is empty", `lacks "group"`,
		"epoch is no integer", "fence_token is no decimal", "watermark is no time", `checkpoint lacks "epoch"`, `checkpoint lacks "manifest_hash"`, "history is no object",
		`the document has "extra"`, "hash is no hash", "partitions[0].next is no position", "partitions[1].next is 12, behind the end of the log, 9",
		"partitions[1].partition is 1, and does not follow 1", "partitions[1].watermark is no time", "partitions[2].partition is 99999999999", "partitions[3] is no object",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the message lacks %q:\n%v", want, err)
		}
	}
	for name, c := range map[string]struct {
		change func(*handoff.Manifest)
		says   string
	}{
		"a batch without a history":      {func(m *handoff.Manifest) { m.Kind = handoff.KindBatch }, "history belongs to the kind BATCH"},
		"an owner with a history":        {func(m *handoff.Manifest) { m.History = &handoff.History{ID: "h"} }, "history belongs to the kind BATCH"},
		"a mark with a run":              {func(m *handoff.Manifest) { m.Kind = handoff.KindMark }, "names a run"},
		"no partitions":                  {func(m *handoff.Manifest) { m.Partitions = nil }, "partitions is no list, or an empty one"},
		"an owner without a run":         {func(m *handoff.Manifest) { m.RunID = "" }, "are null"},
		"a checkpoint of the future":     {func(m *handoff.Manifest) { m.Epoch = 5 }, "checkpoint is of run"},
		"a checkpoint of another run":    {func(m *handoff.Manifest) { m.Checkpoint.RunID = "x" }, "checkpoint is of run"},
		"partitions that do not ascend":  {func(m *handoff.Manifest) { m.Partitions[1].Partition = 0 }, "does not follow"},
		"a position behind the high end": {func(m *handoff.Manifest) { m.Partitions[0].Next = record.Offset(81) }, "behind the end of the log"},
	} {
		m := manifests(t)["owner"]
		c.change(&m)
		if _, err := handoff.Read("m.json", encode(t, m)); !codes.Has(err, codes.DocumentInvalid) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want %q", name, err, c.says)
		}
	}
	if _, err := handoff.Read("m.json", []byte("{")); !codes.Has(err, codes.DocumentInvalid) {
		t.Error(err)
	}
	if _, err := handoff.Read("m.json", []byte("[]")); !codes.Has(err, codes.DocumentInvalid) || !strings.Contains(err.Error(), "is no object") {
		t.Error(err)
	}
	if _, err := handoff.Read("m.json", fmt.Appendf(nil, `{%s}`, many(200))); err == nil || len(err.Error()) > 5000 {
		t.Errorf("a message of %d bytes", len(fmt.Sprint(err)))
	}
}

// many are so many members that nobody knows.
func many(n int) string {
	var parts []string
	for i := range n {
		parts = append(parts, fmt.Sprintf(`"a%d":1`, i))
	}
	return strings.Join(parts, ",")
}

// A manifest holds against the journal that it was made of, and goes on to when the run does.
func TestAManifestHoldsAgainstItsJournal(t *testing.T) {
	t.Parallel()
	plan := planOf(t, flowText)
	events := eventsOf(rand.New(rand.NewPCG(9, 9)), 60)
	topic := topicOf(events, 2)
	w := newWorld(t, plan, topic)
	w.handOver(w.config(historyFile(t, events, 30), seamAt(events, 30, 2)))
	m, err := handoff.Of(handoff.KindOwner, w.journal(), map[int32]record.Position{0: topic.End(0), 1: topic.End(1)})
	if err != nil {
		t.Fatal(err)
	}
	if m.Partitions[1].HighWater == nil || *m.Partitions[1].HighWater != topic.End(1) || m.Fence != w.lease.Token {
		t.Errorf("%+v", m)
	}
	if failed := handoff.Failed(handoff.AgainstJournal(m, w.journal())); len(failed) > 0 {
		t.Errorf("at once: %+v", failed)
	}
	w.own()
	m.Kind, m.History = handoff.KindBatch, &handoff.History{ID: "sha256:another", Records: 30}
	if failed := handoff.Failed(handoff.AgainstJournal(m, w.journal())); len(failed) != 1 || failed[0].Name != "HISTORY" {
		t.Errorf("another history: %+v", failed)
	}
	for id, records := range w.journal().Histories {
		m.History = &handoff.History{ID: id, Records: records}
	}
	if failed := handoff.Failed(handoff.AgainstJournal(m, w.journal())); len(failed) > 0 {
		t.Errorf("under the next owner: %+v", failed)
	}
	w.stream()
	failed := handoff.Failed(handoff.AgainstJournal(m, w.journal()))
	if len(failed) != 1 || failed[0].Name != "RUN_OPEN" || !strings.Contains(failed[0].Detail, "FINISHED") {
		t.Errorf("after the end: %+v", failed)
	}
	if _, err := handoff.Of(handoff.KindOwner, w.journal(), nil); !codes.Has(err, codes.RunFinished) {
		t.Errorf("a manifest of an ended run: %v", err)
	}
}

// Each claim that does not hold is one failed check, and only that one.
func TestEachClaimIsChecked(t *testing.T) {
	t.Parallel()
	m := manifests(t)["owner"]
	m.Epoch, m.Fence = 7, 3
	good := func() handoff.Journal {
		return handoff.Journal{
			Known: true, Leased: true, Lease: control.LeaseInfo{Token: 3},
			State: control.RunState{
				Header: control.RunHeader{RunID: m.RunID, Fingerprint: m.Fingerprint, Source: m.Source, SourceID: m.SourceID, Partitions: []int32{0, 3}},
				Status: control.RunOpen, Epoch: 7, Watermark: m.Watermark, Fence: 3,
				Cuts: map[int32]partitions.Cut{
					0: {Partition: 0, Next: m.Partitions[0].Next, Watermark: m.Partitions[0].Watermark},
					3: {Partition: 3, Next: m.Partitions[1].Next, Watermark: record.NoTime},
				},
			},
			Pointers: []control.Pointer{{RunID: m.RunID, Epoch: 6, Hash: m.Checkpoint.ManifestHash}, {RunID: m.RunID, Epoch: 5}},
		}
	}
	move := func(j *handoff.Journal, p int32, next int64, w record.EventTime) {
		cut := j.State.Cuts[p]
		cut.Next, cut.Watermark = record.Offset(next), w
		j.State.Cuts[p] = cut
	}
	w := m.Watermark
	for name, c := range map[string]struct {
		change func(*handoff.Journal)
		fails  string
	}{
		"as it was":               {func(*handoff.Journal) {}, ""},
		"no run":                  {func(j *handoff.Journal) { *j = handoff.Journal{} }, "RUN_KNOWN"},
		"another flow":            {func(j *handoff.Journal) { j.State.Header.Fingerprint = "sha256:g" }, "FLOW"},
		"another topic":           {func(j *handoff.Journal) { j.State.Header.Source = "tocks" }, "SOURCE"},
		"another identity":        {func(j *handoff.Journal) { j.State.Header.SourceID = "BBBB" }, "SOURCE_ID"},
		"finished":                {func(j *handoff.Journal) { j.State.Status = control.RunFinished }, "RUN_OPEN"},
		"a history is open":       {func(j *handoff.Journal) { j.HistoryOpen = true }, "RUN_OPEN"},
		"gone back":               {func(j *handoff.Journal) { j.State.Epoch = 6 }, "EPOCH"},
		"gone on":                 {func(j *handoff.Journal) { j.State.Epoch = 8; j.State.Watermark++; move(j, 0, 79, w+1) }, ""},
		"moved in its epoch":      {func(j *handoff.Journal) { move(j, 0, 79, w) }, "NEXT_0"},
		"position back":           {func(j *handoff.Journal) { j.State.Epoch = 9; move(j, 0, 77, w) }, "NEXT_0"},
		"watermark in its epoch":  {func(j *handoff.Journal) { j.State.Watermark++ }, "WATERMARK"},
		"watermark back":          {func(j *handoff.Journal) { j.State.Epoch = 9; j.State.Watermark-- }, "WATERMARK"},
		"a partition's watermark": {func(j *handoff.Journal) { j.State.Epoch = 9; move(j, 0, 78, w-1) }, "WATERMARK_0"},
		"a lower token":           {func(j *handoff.Journal) { j.State.Fence = 2 }, "FENCE"},
		"the next owner":          {func(j *handoff.Journal) { j.State.Fence, j.Lease.Token, j.Lease.Valid = 4, 4, true }, ""},
		"the lease is gone":       {func(j *handoff.Journal) { j.Leased = false }, "LEASE"},
		"the lease has gone back": {func(j *handoff.Journal) { j.Lease.Token = 2 }, "LEASE"},
		"partitions added":        {func(j *handoff.Journal) { j.State.Header.Partitions = []int32{0, 3, 4} }, ""},
		"a partition is gone":     {func(j *handoff.Journal) { j.State.Header.Partitions = []int32{0, 4} }, "PARTITIONS"},
		"the checkpoint is gone":  {func(j *handoff.Journal) { j.Pointers = j.Pointers[1:] }, "CHECKPOINT"},
		"another checkpoint":      {func(j *handoff.Journal) { j.Pointers[0].Hash = "sha256:x" }, "CHECKPOINT"},
	} {
		j := good()
		c.change(&j)
		onlyFails(t, name, handoff.AgainstJournal(m, j), c.fails)
	}
}

func TestEachClaimIsCheckedAgainstTheTopic(t *testing.T) {
	t.Parallel()
	owner := manifests(t)["owner"]
	mark := manifests(t)["mark"]
	topic := func(bounds ...int64) handoff.Topic {
		tp := handoff.Topic{Name: "ticks", ID: "AAAA", Bounds: map[int32]handoff.Bounds{3: {End: long(t).Next()}}}
		for i := 0; i < len(bounds); i += 2 {
			tp.Bounds[int32(i/2)] = handoff.Bounds{Start: record.Offset(bounds[i]), End: record.Offset(bounds[i+1])}
		}
		return tp
	}
	two := topic(0, 5, 7, 9)
	delete(two.Bounds, 3)
	for name, c := range map[string]struct {
		m     handoff.Manifest
		topic handoff.Topic
		fails string
	}{
		"as it was":                 {owner, topic(78, 80), ""},
		"grown":                     {owner, topic(0, 900, 0, 1), ""},
		"another topic":             {owner, func() handoff.Topic { x := topic(0, 80); x.Name = "tocks"; return x }(), "TOPIC"},
		"made again":                {owner, func() handoff.Topic { x := topic(0, 80); x.ID = "BBBB"; return x }(), "TOPIC_ID"},
		"retention took it":         {owner, topic(79, 90), "TOPIC_START_0"},
		"the log ends before":       {owner, topic(0, 77), "TOPIC_END_0 HIGH_WATER_0"},
		"the log has lost its end":  {owner, topic(0, 79), "HIGH_WATER_0"},
		"a partition is gone":       {owner, topic(), "TOPIC_PARTITIONS"},
		"a mark":                    {mark, two, ""},
		"a mark of fewer partition": {mark, topic(0, 5, 7, 9), "TOPIC_PARTITIONS"},
	} {
		onlyFails(t, name, handoff.AgainstTopic(c.m, c.topic), c.fails)
	}
}

func onlyFails(t *testing.T, name string, all []handoff.Check, want string) {
	t.Helper()
	var failed []string
	for _, c := range all {
		if c.Detail == "" {
			t.Errorf("%s: %s has no evidence", name, c.Name)
		}
	}
	for _, c := range handoff.Failed(all) {
		failed = append(failed, c.Name)
	}
	if got := strings.Join(failed, " "); got != want {
		t.Errorf("%s: failed %q, want %q: %+v", name, got, want, all)
	}
}

func FuzzRead(f *testing.F) {
	for _, m := range manifests(f) {
		f.Add(encode(f, m))
	}
	f.Add([]byte(`{"partitions":[{}]}`))
	f.Fuzz(func(t *testing.T, src []byte) {
		m, err := handoff.Read("m.json", src)
		if err != nil {
			return
		}
		again, err := handoff.Read("m.json", encode(t, m))
		if err != nil || !reflect.DeepEqual(again, m) {
			t.Fatalf("%v: %+v became %+v", err, m, again)
		}
	})
}
