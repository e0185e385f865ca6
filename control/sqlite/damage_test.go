package sqlite

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/control/controltest"
)

// A run with something in every table and with values longer than a page.
var damaged = controltest.Workload{Seed: 31, RunID: "run", Partitions: 2, Rows: 100, Blob: 12_000}

const damagedEpochs = 6

// damagedContents are kept, since hundreds of files are compared with them.
var damagedContents sync.Map // epoch → controltest.Contents

func expectDamaged(ctx context.Context, epoch uint64) (controltest.Contents, error) {
	if c, ok := damagedContents.Load(epoch); ok {
		return c.(controltest.Contents), nil
	}
	if epoch > damagedEpochs {
		return controltest.Contents{}, fmt.Errorf("epoch %d was never committed", epoch)
	}
	c, err := damaged.Expected(ctx, epoch)
	damagedContents.Store(epoch, c)
	return c, err
}

// inspectDamage reads everything that a damaged file holds of the run, by every reader. It must be what was written, or an error with one
// of these codes, in one line.
func inspectDamage(t *testing.T, path string) (code *codes.Code, epoch uint64, err error) {
	t.Helper()
	s, err := Open(t.Context(), Config{Path: path})
	if err == nil {
		defer s.Close()
		epoch, err = damaged.CheckWith(t.Context(), s, expectDamaged)
	}
	if err == nil {
		var runs int
		if infos, lerr := s.Runs(t.Context()); lerr != nil {
			err = lerr
		} else if runs = len(infos); runs != 1 || infos[0].Epoch != epoch {
			return nil, epoch, fmt.Errorf("the listing is %+v", infos)
		}
	}
	if err == nil {
		return nil, epoch, nil
	}
	if strings.ContainsAny(err.Error(), "\n\x00") || len(err.Error()) > 400 {
		return nil, epoch, fmt.Errorf("not one short line: %w", err)
	}
	switch code := codes.Of(err); code {
	case codes.JournalCorrupt, codes.StoreInvalid, codes.StoreNewer, codes.StoreUnavailable:
		return code, epoch, nil
	default:
		return code, epoch, err
	}
}

// One byte of the file is flipped, anywhere: whatever is then read is what was written, or the damage is told. (A flip in a place that is not
// used, or in a sum that nothing depends on, may pass.)
func TestFlippedByte(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	good := filepath.Join(dir, "good.db")
	filled(t, good, damaged, damagedEpochs)
	data := read(t, good)
	const seed = 5
	rng := rand.New(rand.NewPCG(seed, 0))
	tried, told := map[string]int{}, 0
	flips := 600
	if testing.Short() {
		flips = 100
	}
	for i := range flips {
		at := rng.IntN(len(data))
		switch {
		case i%4 == 0:
			at = at / pageSize * pageSize // the head of a page: its kind, counts and pointers
			at += rng.IntN(64)
		case i%8 == 1:
			at = rng.IntN(pageSize) // the first page: the file's header and the schema
		}
		flip := byte(1 << rng.IntN(8))
		if i%16 == 2 {
			flip = byte(1 + rng.IntN(255))
		}
		broken := bytes.Clone(data)
		broken[at] ^= flip
		path := filepath.Join(dir, "flipped.db")
		write(t, path, broken)
		code, epoch, err := inspectDamage(t, path)
		if err != nil {
			t.Errorf("seed %d, flip %d: byte %d ^ %#x: %v", seed, i, at, flip, err)
			continue
		}
		if code == nil && epoch != damagedEpochs {
			t.Errorf("seed %d, flip %d: byte %d ^ %#x: epoch %d stands without a word", seed, i, at, flip, epoch)
		}
		if code != nil {
			tried[code.Name]++
			told++
		}
	}
	if told < flips/5 { // the rest hit tables that are empty, and pages and bytes that are not used
		t.Errorf("only %d of %d flips were noticed", told, flips)
	}
	t.Logf("%d flips, noticed: %v", flips, tried)
}

// Every stored value is checked on its own: a byte of a blob, of rows, of a quarantined record is found in the file and flipped.
func TestFlippedValue(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	good := filepath.Join(dir, "good.db")
	filled(t, good, damaged, damagedEpochs)
	data := read(t, good)
	for what, needle := range map[string]string{"rows": "epoch 4 row 10", "quarantine": "detail \x00 1", "blob name": "ids/000", "decision": "GAP_CLOSED", "run id": "run", "header": "topic-1"} {
		found := 0
		for at := 0; ; found++ {
			i := bytes.Index(data[at:], []byte(needle))
			if i < 0 || found == 8 {
				break
			}
			at += i
			broken := bytes.Clone(data)
			broken[at] ^= 0x20
			at++
			path := filepath.Join(dir, "flipped.db")
			write(t, path, broken)
			if code, epoch, err := inspectDamage(t, path); err != nil || code == nil && epoch != damagedEpochs {
				t.Errorf("%s at %d: %v, epoch %d, %v", what, at-1, code, epoch, err)
			}
		}
		if found == 0 {
			t.Errorf("%s: %q is not in the file", what, needle)
		}
	}
}

// The file ends early, at any length.
func TestTruncatedFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	good := filepath.Join(dir, "good.db")
	filled(t, good, damaged, damagedEpochs)
	data := read(t, good)
	rng := rand.New(rand.NewPCG(6, 0))
	for i := range 40 {
		n := 2 + rng.IntN(len(data)-2)
		if i%2 == 0 {
			n = max(n/pageSize, 1) * pageSize
		}
		path := filepath.Join(dir, "short.db")
		write(t, path, data[:n])
		code, epoch, err := inspectDamage(t, path)
		if err != nil || code == nil && epoch != damagedEpochs {
			t.Errorf("%d of %d bytes: %v, epoch %d, %v", n, len(data), code, epoch, err)
		}
	}
}
