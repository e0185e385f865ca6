package record_test

import (
	"bytes"
	"math"
	"math/big"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/weirstream/weir/record"
)

var lastPosition = new(big.Int).Sub(new(big.Int).Lsh(big.NewInt(1), 192), big.NewInt(1))

// randomInteger has a random number of bits up to 192.
func randomInteger(r *rand.Rand) *big.Int {
	n := new(big.Int)
	for range 3 {
		n.Or(n.Lsh(n, 64), new(big.Int).SetUint64(r.Uint64()))
	}
	return n.Rsh(n, uint(r.IntN(193)))
}

func mustPosition(t *testing.T, s string) record.Position {
	t.Helper()
	p, err := record.ParsePosition(s)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestPositionAgainstBig compares every operation with math/big.
func TestPositionAgainstBig(t *testing.T) {
	t.Parallel()
	const seed = 192
	r := rand.New(rand.NewPCG(seed, seed))
	ints := []*big.Int{big.NewInt(0), big.NewInt(9), big.NewInt(10), new(big.Int).SetUint64(1e19 - 1), new(big.Int).SetUint64(1e19),
		new(big.Int).SetUint64(math.MaxUint64), new(big.Int).Lsh(big.NewInt(1), 64), new(big.Int).Lsh(big.NewInt(1), 128),
		big.NewInt(math.MaxInt64), new(big.Int).SetUint64(math.MaxInt64 + 1), lastPosition}
	for range 2000 {
		ints = append(ints, randomInteger(r))
	}
	for i, n := range ints {
		p := mustPosition(t, n.String())
		if p.String() != n.String() {
			t.Fatalf("seed %d: String() = %s, want %s", seed, p, n)
		}
		m := ints[r.IntN(len(ints))]
		if i%3 == 0 {
			m = n
		}
		q := mustPosition(t, m.String())
		if p.Cmp(q) != n.Cmp(m) || (p == q) != (n.Cmp(m) == 0) {
			t.Fatalf("seed %d: %s.Cmp(%s) = %d, want %d", seed, p, q, p.Cmp(q), n.Cmp(m))
		}
		if got, ok := p.Int64(); ok != n.IsInt64() || ok && got != n.Int64() {
			t.Fatalf("seed %d: %s.Int64() = %d, %v", seed, p, got, ok)
		}
		next := new(big.Int).Add(n, big.NewInt(1))
		if next.Cmp(lastPosition) > 0 {
			next = lastPosition
		}
		if back := p.Next().Prev(); back != p && p.Next() != p {
			t.Fatalf("seed %d: %s.Next().Prev() = %s", seed, p, back)
		}
		if p.Next().String() != next.String() {
			t.Fatalf("seed %d: %s.Next() = %s, want %s", seed, p, p.Next(), next)
		}
		b, err := p.AppendBinary([]byte("x"))
		if want := n.FillBytes(make([]byte, 24)); err != nil || !bytes.Equal(b[1:], want) || b[0] != 'x' {
			t.Fatalf("seed %d: %s.AppendBinary = %x, %v; want %x", seed, p, b, err, want)
		}
		back, rest, err := record.DecodePosition(append(b[1:], 'y'))
		if err != nil || back != p || string(rest) != "y" {
			t.Fatalf("seed %d: DecodePosition gives %s, %q, %v; want %s", seed, back, rest, err, p)
		}
	}
}

func TestPositionOffset(t *testing.T) {
	t.Parallel()
	if p := record.Offset(0); p != (record.Position{}) || p.String() != "0" {
		t.Errorf("offset 0 is %s, not the zero value", p)
	}
	if p := record.Offset(math.MaxInt64); p.String() != "9223372036854775807" {
		t.Errorf("the last offset is %s", p)
	}
}

func TestParsePositionErrors(t *testing.T) {
	t.Parallel()
	for _, c := range [][2]string{
		{"", "empty"}, {"-1", "decimal digits"}, {"+1", "decimal digits"}, {" 1", "decimal digits"}, {"1 ", "decimal digits"},
		{"1e3", "decimal digits"}, {"1.0", "decimal digits"}, {"0x1", "leading zeros"}, {"01", "leading zeros"}, {"00", "leading zeros"},
		{"٣", "decimal digits"}, {new(big.Int).Add(lastPosition, big.NewInt(1)).String(), "larger than 2^192 - 1"},
		{"9" + lastPosition.String(), "larger than 2^192 - 1"}, {strings.Repeat("9", 10_000), "larger than 2^192 - 1"},
	} {
		p, err := record.ParsePosition(c[0])
		if err == nil || !strings.Contains(err.Error(), c[1]) || len(err.Error()) > 200 {
			t.Errorf("ParsePosition(%.80q) = %s, %v; want an error with %q", c[0], p, err, c[1])
		}
	}
}

func TestDecodePositionShort(t *testing.T) {
	t.Parallel()
	if _, _, err := record.DecodePosition(make([]byte, 23)); err != record.ErrPosition {
		t.Errorf("23 bytes: error %v, want ErrPosition", err)
	}
}
